"""The options of a window join of two streams."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import ClassVar, get_args

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.expressions.forbidden_calls import refuse_code
from braided.operators.shared_options import WithBudget, WithLateness, WithLateRows, one_of, resolve_bounds
from braided.operators.spec import option
from braided.typing import Duration, How, LastRows, On, Partition, Times, Within

MOST_ROWS = 1_000_000
_ALWAYS = (1 << 63) - 1  # microseconds

_SPELLINGS: dict[str, How] = {
    "inner": "inner",
    **dict.fromkeys(("left", "leftouter"), "left"),
    **dict.fromkeys(("right", "rightouter"), "right"),
    **dict.fromkeys(("full", "fullouter", "outer"), "full"),
    **dict.fromkeys(("semi", "leftsemi"), "left_semi"),
    **dict.fromkeys(("anti", "leftanti"), "left_anti"),
}


def join_kind_of(how: object) -> How:
    """Return the kind of a join; users may spell it in several ways.

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
class JoinSpec(WithLateness, WithLateRows, WithBudget):
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
        'This, `between` or `rows`. ``within="10 seconds"`` is ``|r.t - l.t| <= 10 s``; ``within=(w_left, w_right)`` '
        "keeps a left row joinable for w_left after its own time and a right row for w_right. Bounds are closed.",
        default=None,
    )
    between: tuple[Duration, Duration] | None = option(
        '``between=("5 seconds", "10 seconds")`` is ``5 s <= r.t - l.t <= 10 s``; either may be negative.', default=None
    )
    rows: LastRows | None = option(
        "``rows=100``: each row meets the last 100 rows of the other stream that have its key, in order of time, and "
        "with `within` or `between` those of them that are in that window. ``rows=(n_left, n_right)``: a right row "
        "meets the last n_left left rows, a left row the last n_right right rows; one may be 0. Only for inner joins. "
        "Keys never move to other workers; without a key, one worker has all rows: docs/reference/rows.md.",
        default=None,
    )
    forget: Duration | None = option(
        "With `rows`: after this long without a row of either stream the rows of a key are removed. None: never; then "
        "state grows with the number of keys, unless there is a window of time too.",
        default=None,
    )
    where: str | None = option(
        "A further SQL predicate over ``l.`` and ``r.`` columns. Whatever docs/reference/where.md lists runs "
        "vectorised inside the join, anything else in Spark after it. It is trusted text: docs/reference/where.md.",
        default=None,
    )
    suffixes: tuple[str, str] = option("Appended to left and right column names that clash.", default=("", "_right"))
    how: How = option(
        '``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"left_semi"`` or ``"left_anti"``. A row of a preserved '
        "stream that matches nothing is returned, with nulls, once only late rows could still match it. All but inner "
        "joins need a key: docs/reference/outer.md.",
        default="inner",
    )
    partition: Partition = option(
        '``"auto"`` hashes keys and gives each hot key its own grid of workers; a join without keys is one grid. '
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
        return (-_ALWAYS, _ALWAYS) if self.any_time else resolve_bounds(self.within, self.between)

    @property
    def any_time(self) -> bool:
        """Whether rows are bounded only by their number, not by time."""
        return self.rows is not None and self.within is None and self.between is None

    @property
    def last_rows(self) -> tuple[int, int] | None:
        """How many left rows a right row meets, and how many right rows a left row; None: all within the window."""
        if self.rows is None:
            return None
        pair = self.rows if isinstance(self.rows, tuple) else (self.rows, self.rows)
        if len(pair) != 2 or not all(_is_count(count) for count in pair) or not any(pair):
            raise OptionError(
                f"rows={self.rows!r}: write a number of rows from 1 to {MOST_ROWS:,}, or a pair (left, right), of "
                "which one may be 0"
            )
        return pair

    @property
    def forget_us(self) -> int | None:
        """After how many microseconds without rows a key is forgotten; None for never."""
        micros = None if self.forget is None else parse_duration(self.forget, "forget")
        if micros is not None and micros <= 0:
            raise OptionError(f"forget={self.forget!r}: write a duration above zero, or None")
        return micros

    @property
    def is_pairwise(self) -> bool:
        """Whether a pair is a result independently of all other rows."""
        return self.join_kind == "inner" and self.rows is None

    @property
    def join_kind(self) -> How:
        """The kind of the join, in one spelling."""
        return join_kind_of(self.how)

    def _check_outer(self) -> None:
        """Refuse options that an outer, semi or anti join cannot have."""
        how = f"how={self.how!r}"
        if self.on is None:
            raise OptionError(f"on=None: {how} needs a key; only an inner join may have none")
        if self.partition not in ("auto", "hash"):
            raise OptionError(
                f"partition={self.partition!r}: {how} must know all matches of a row in one worker; write 'auto'"
            )
        if self.memory is not None or self.shed is not None:
            option = "memory" if self.memory is not None else "shed"
            raise OptionError(f"{option}=: {how} would give nulls for rows that were dropped; leave it out")
        if self.join_kind in ("left_semi", "left_anti") and tuple(self.suffixes) != ("", "_right"):
            raise OptionError(f"suffixes=: {how} returns only the left stream's columns; leave them out")

    def _check_rows(self) -> None:
        """Refuse options that a join with the last rows of a key cannot have."""
        if self.last_rows is None:
            if self.forget is not None:
                raise OptionError(f"forget={self.forget!r}: is for joins with rows=; leave it out")
            return
        _ = self.forget_us
        if self.join_kind != "inner":
            raise OptionError(
                f"how={self.how!r}: a join with rows= is an inner join; leave out how=, or write join_asof for only "
                "the last row, with nulls if there is none"
            )
        if self.partition not in ("auto", "hash"):
            raise OptionError(
                f"partition={self.partition!r}: with rows= the rows of a key must be on one worker; write 'auto'"
            )
        if self.memory is not None or self.shed is not None:
            option = "memory" if self.memory is not None else "shed"
            raise OptionError(
                f"{option}=: with rows= state is the last rows of each key, and dropped rows would let others count; "
                "leave it out, or write a smaller rows="
            )
        if self.late != "join":
            raise OptionError(
                f"late={self.late!r}: late rows take no part in a join with rows= anyway, and are counted; leave it out"
            )

    def check(self) -> None:
        self._check_rows()
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


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ROWS
