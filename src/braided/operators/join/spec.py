"""The window join of two streams, as a user asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from braided.errors import OptionError
from braided.expressions.forbidden_calls import refuse_code
from braided.operators.shared_options import WithBudget, WithLateness, one_of, resolve_bounds
from braided.operators.spec import option
from braided.typing import Duration, How, On, Partition, Times, Within


@dataclass(frozen=True, kw_only=True)
class JoinSpec(WithLateness, WithBudget):
    """An inner join of two streams on equal keys or by a predicate, within a window of time.

    >>> JoinSpec(on="phone", time="ts", within="10 seconds").bounds
    (-10000000, 10000000)
    """

    kind: ClassVar[str] = "join"

    on: On = option(
        '``"phone"``, ``["a", "b"]`` or ``[("caller", "phone"), ...]`` (left name, right name). None: a theta join, by '
        "`where` alone, or by time alone: then every pair within the window is a result.",
        default=None,
    )
    time: Times = option("The event-time column, or a pair of them. TIMESTAMP, or TIMESTAMP_NTZ on both sides.")
    within: Within | None = option(
        'This or `between`. ``within="10 seconds"`` is ``|r.t - l.t| <= 10 s``; ``within=(w_left, w_right)`` keeps a '
        "left row joinable for w_left after its own time and a right row for w_right. Bounds are closed.",
        default=None,
    )
    between: tuple[Duration, Duration] | None = option(
        '``between=("5 seconds", "10 seconds")`` is ``5 s <= r.t - l.t <= 10 s``; either may be negative.', default=None
    )
    where: str | None = option(
        "A further SQL predicate over ``l.`` and ``r.`` columns. What docs/where.md lists runs vectorised inside the "
        "join, anything else in Spark after it. It is trusted text: docs/where.md.",
        default=None,
    )
    suffixes: tuple[str, str] = option("Appended to left and right column names that clash.", default=("", "_right"))
    how: How = option('``"inner"``; there is no other yet.', default="inner")
    partition: Partition = option(
        '``"auto"`` hashes keys and gives hot ones a grid of workers of their own; a join without keys is one grid. '
        '``"hash"``, ``"ssp"`` (split one stream, copy the other) and ``"grid"`` force one scheme.',
        default="auto",
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return "left", "right"

    def time_of(self, stream: int) -> object:
        return one_of(self.time, stream)

    @property
    def bounds(self) -> tuple[int, int]:
        """The window, lo <= r.t - l.t <= hi, in microseconds."""
        return resolve_bounds(self.within, self.between)

    def check(self) -> None:
        if self.how != "inner":
            raise OptionError(f"how={self.how!r}: only 'inner' is supported for now")
        if self.where is not None and (not isinstance(self.where, str) or not self.where.strip()):
            raise OptionError(f"where={self.where!r}: write a SQL predicate over l. and r. columns")
        if self.where is not None:
            refuse_code(self.where)
        if self.partition not in ("auto", "hash", "ssp", "grid"):
            raise OptionError(f"partition={self.partition!r}: write 'auto', 'hash', 'ssp' or 'grid'")
        if self.partition == "hash" and self.on is None:
            raise OptionError(
                "partition='hash': a join without keys has nothing to hash; write 'auto', 'ssp' or 'grid'"
            )
        if self.memory is not None and self.on is None:
            raise OptionError("memory=: a join without keys cannot have a budget; join on a key")
        _ = self.bounds
        super().check()
