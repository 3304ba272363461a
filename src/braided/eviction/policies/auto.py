"""AUTO: follow whichever policy finds most, as small shadow buffers show (ours; the paper only proposes feedback)."""

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

_MIXED_BONUS = 1.03  # of RECENT's memories over its long one alone
_BONUS = 1.25  # RECENT, of either memory, is left for what beats it clearly: a sample of keys errs by up to 10%


@dataclass(frozen=True, kw_only=True, repr=False)
class AUTO(Policy):
    """Try RECENT, GDJ, AGE, FIFO and RAND on a sample of keys, and follow the best; RECENT unless others lead by 25%.

    PROB is not among them: RECENT was within 0.4% of it on every stream we tried, and up to 59% above.

    sample : one key in so many is tried out, or fewer in a large buffer; smaller sees more and costs more.
    seed : RAND's.

    Cost: that of RECENT, and six shadow buffers of about 1,000 rows, or of a quarter of the capacity where that is less
    or there are few keys. It needs an `AdaptiveBuffer` (see `make_buffer`).

    >>> AUTO(sample=8)
    AUTO(sample=8)
    >>> AUTO(sample=0)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: sample=0: write a whole number above 0; one key in so many is tried out
    """

    sample: int = 4
    seed: int = 0

    name = "auto"
    row_bytes = 1060
    stream_bytes = 255

    def __post_init__(self) -> None:
        if self.sample is None:
            raise OptionError("sample=None: write a whole number above 0; one key in so many is tried out")
        check_count("sample", self.sample, "a whole number above 0; one key in so many is tried out")
        check_seed(self.seed)

    def candidates(self) -> list[tuple[Policy, float]]:
        """Return the policies to try, the one to start with first, and by how much the score of each is raised."""
        return [
            (RECENT(), _BONUS * _MIXED_BONUS), (RECENT(memory="long"), _BONUS),
            (GDJ(initial=0.35), 1.0), (AGE(), 1.0), (FIFO(), 1.0), (RAND(seed=self.seed), 1.0),
        ]  # fmt: skip

    def tuner(self) -> Shadows:
        """Return what tries policies on a sample of keys."""
        from braided.eviction.tuning.shadows import Shadows

        return Shadows(self)

    def learned(self, shape: Shape) -> Any:
        """Refuse a buffer that cannot follow another policy."""
        raise OptionError(f"policy={self!r}: follows other policies; use make_buffer")
