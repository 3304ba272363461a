"""AUTO: follow the policy with the most results in small shadow buffers (ours; the paper only proposes feedback)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braided.errors import OptionError
from braided.eviction.policies.age import AGE
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy, Shape, check_count, check_seed
from braided.eviction.policies.random import RAND
from braided.eviction.policies.recent import RECENT

if TYPE_CHECKING:
    from braided.eviction.tuning.shadows import Shadows

_MIXED_BONUS = 1.03  # of RECENT with all memories over its long memory alone
_BONUS = 1.25  # another policy must be clearly better than RECENT, because a sample of keys errs by up to 10%


@dataclass(frozen=True, kw_only=True, repr=False)
class AUTO(Policy):
    """Try RECENT, GDJ, AGE, FIFO and RAND on a sample of keys, and follow the best: RECENT unless another leads by 25%.

    PROB is not a candidate: on every stream that we tried, RECENT was at most 0.4% worse, and up to 59% better.

    sample : the sample has one key of this many, or fewer in a large buffer. A smaller number gives a larger sample,
        which is more precise and costs more.
    seed : the seed of RAND.

    Cost: that of RECENT, and six shadow buffers of about 1,000 rows, or of a quarter of the capacity if that is less or
    if there are few keys. It needs an `AdaptiveBuffer` (see `make_buffer`).

    >>> AUTO(sample=8)
    AUTO(sample=8)
    >>> AUTO(sample=0)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: sample=0: write an integer above 0; the sample has one key of this many
    """

    sample: int = 4
    seed: int = 0

    name = "auto"
    row_bytes = 1060
    stream_bytes = 255

    def __post_init__(self) -> None:
        if self.sample is None:
            raise OptionError("sample=None: write an integer above 0; the sample has one key of this many")
        check_count("sample", self.sample, "an integer above 0; the sample has one key of this many")
        check_seed(self.seed)

    def candidates(self) -> list[tuple[Policy, float]]:
        """Return the policies to try, the first one to begin with, and the factor of each score."""
        return [
            (RECENT(), _BONUS * _MIXED_BONUS), (RECENT(memory="long"), _BONUS),
            (GDJ(initial=0.35), 1.0), (AGE(), 1.0), (FIFO(), 1.0), (RAND(seed=self.seed), 1.0),
        ]  # fmt: skip

    def tuner(self) -> Shadows:
        """Return the tuner, which tries policies on a sample of keys."""
        from braided.eviction.tuning.shadows import Shadows

        return Shadows(self)

    def learned(self, shape: Shape) -> Any:
        """Raise, because a plain `Buffer` cannot follow another policy."""
        raise OptionError(f"policy={self!r}: this policy needs an adaptive buffer; use make_buffer")
