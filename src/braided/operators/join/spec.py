"""The window join of two streams, as a user asks for it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import ClassVar, get_args

from braided.errors import OptionError
from braided.expressions.forbidden_calls import refuse_code
from braided.operators.shared_options import WithBudget, WithLateness, one_of, resolve_bounds
from braided.operators.spec import option
from braided.typing import Duration, How, On, Partition, Times, Within

_SPELLINGS: dict[str, How] = {
    "inner": "inner",
    **dict.fromkeys(("left", "leftouter"), "left"),
    **dict.fromkeys(("right", "rightouter"), "right"),
    **dict.fromkeys(("full", "fullouter", "outer"), "full"),
    **dict.fromkeys(("semi", "leftsemi"), "left_semi"),
    **dict.fromkeys(("anti", "leftanti"), "left_anti"),
}


def join_kind_of(how: object) -> How:
    """Return the kind of a join, which users spell in several ways.

    >>> join_kind_of("leftOuter")
    'left'
    """
    spelling = str(how).lower().replace("_", "")
    if not isinstance(how, str) or spelling not in _SPELLINGS:
        known = list(get_args(How))
        close = difflib.get_close_matches(str(how).lower(), [*known, *_SPELLINGS], n=1)
        hint = f"did you mean {_SPELLINGS.get(close[0].replace('_', ''))!r}?" if close else f"write one of {known}"
        raise OptionError(f"how={how!r}: unknown; {hint}")
    return _SPELLINGS[spelling]


@dataclass(frozen=True, kw_only=True)
class JoinSpec(WithLateness, WithBudget):
    """A join of two streams on equal keys or by a predicate, within a window of time.

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
    how: How = option(
        '``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"left_semi"`` or ``"left_anti"``. A row of a kept stream '
        "that matches nothing comes out, with nulls, once no row that is not late can match it any more. All but inner "
        "joins need a key, and their keys stay where they are: docs/outer.md.",
        default="inner",
    )
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

    @property
    def join_kind(self) -> How:
        """The kind of the join, in one spelling."""
        return join_kind_of(self.how)

    def _check_outer(self) -> None:
        """Refuse options that a join which must know that nothing matched cannot have."""
        how = f"how={self.how!r}"
        if self.on is None:
            raise OptionError(f"on=None: {how} needs a key; only an inner join can do without")
        if self.partition not in ("auto", "hash"):
            raise OptionError(
                f"partition={self.partition!r}: {how} must know all matches of a row in one worker; write 'auto'"
            )
        if self.memory is not None or self.shed is not None:
            option = "memory" if self.memory is not None else "shed"
            raise OptionError(f"{option}=: {how} would give nulls for rows that were dropped; leave it out")
        if self.join_kind in ("left_semi", "left_anti") and tuple(self.suffixes) != ("", "_right"):
            raise OptionError(f"suffixes=: {how} has the left stream's columns alone; leave them out")

    def check(self) -> None:
        if self.join_kind != "inner":
            self._check_outer()
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
