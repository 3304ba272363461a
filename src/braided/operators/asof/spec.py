"""The options of an as-of join of two streams."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.shared_options import WithLateness, WithLateRows, one_of
from braided.operators.spec import option
from braided.typing import AsofHow, Direction, Duration, On, Times

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
HOWS: tuple[AsofHow, ...] = get_args(AsofHow)


@dataclass(frozen=True, kw_only=True)
class AsofSpec(WithLateness, WithLateRows):
    """Each row of a stream with the one row of another whose key is equal and whose time is the closest.

    >>> AsofSpec(on="symbol", time="ts", tolerance="5 seconds").tolerance_us
    5000000
    """

    kind: ClassVar[str] = "join_asof"

    on: On = option(
        '``"symbol"``, ``["a", "b"]`` or ``[("symbol", "ticker"), ...]`` (left name, right name). All rows of a key '
        "are on one worker. None: the streams as a whole, on one worker.",
        default=None,
    )
    time: Times = option("The event-time column, or a pair of them. TIMESTAMP, or TIMESTAMP_NTZ on both sides.")
    direction: Direction = option(
        '``"backward"``: the last right row that is not after the left row. ``"forward"``: the first one that is not '
        'before it. ``"nearest"``: the closer of the two; if they are equally close, the earlier one.',
        default="backward",
    )
    tolerance: Duration | None = option(
        "How far the times of the two rows may be apart, at most. None, for ``backward`` alone: any distance; then the "
        "last right row of every key stays in the state for ever.",
    )
    allow_exact_matches: bool = option("Whether a right row of the same time counts.", default=True)
    how: AsofHow = option(
        '``"left"``: returns every left row, with nulls if no right row is close enough. ``"inner"``: only left rows '
        "that have a right row.",
        default="left",
    )
    suffixes: tuple[str, str] = option("Appended to left and right column names that clash.", default=("", "_right"))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the inputs in messages."""
        return "left", "right"

    def time_of(self, stream: int) -> object:
        """Return the time column of an input as the user named it."""
        return one_of(self.time, stream)

    @property
    def tolerance_us(self) -> int | None:
        """How far apart times may be, in microseconds; None for any distance."""
        return None if self.tolerance is None else parse_duration(self.tolerance, "tolerance")

    def check(self) -> None:
        """Refuse options that are wrong for every input."""
        super().check()
        _check_choice("direction", self.direction, DIRECTIONS)
        _check_choice("how", self.how, HOWS)
        if not isinstance(self.allow_exact_matches, bool):
            raise OptionError(f"allow_exact_matches={self.allow_exact_matches!r}: write True or False")
        if self.time is None:
            raise OptionError("time=None: write the event-time column, such as 'ts', or a pair of them (left, right)")
        tolerance = self.tolerance_us
        if tolerance is None:
            if self.direction != "backward":
                raise OptionError(
                    f"tolerance=None: with direction={self.direction!r} a left row could wait for ever; write a "
                    "duration, such as '5 seconds'"
                )
        elif tolerance < 0:
            raise OptionError(f"tolerance={self.tolerance!r}: negative; write '0 seconds' or more")
        elif tolerance == 0 and not self.allow_exact_matches:
            raise OptionError(
                f"tolerance={self.tolerance!r}: no row can match with allow_exact_matches=False; write a longer one"
            )


def _check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Refuse an unknown value, and suggest the one that was probably meant."""
    if value in choices:
        return
    close = difflib.get_close_matches(str(value).lower(), choices, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"write {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    raise OptionError(f"{option}={value!r}: unknown; {meant}")
