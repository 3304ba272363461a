"""The options of aggregates over windows of a number of rows (StreamCloud, II.A)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.shared_options import LATENESS_TEXT
from braided.operators.spec import Spec, option
from braided.typing import Duration, Keys, Latenesses

TOTALS = ("avg", "count", "max", "min", "sum")
MOST_ROWS = 1_000_000
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(\*|\w+|`(?:[^`]|``)+`)\s*\)\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class RowWindowsSpec(Spec):
    """Windows of a number of rows of each key, in order of event time.

    >>> RowWindowsSpec(time="ts", rows=100, every=10, values={"mean": "avg(price)"}).called()
    {'mean': ('avg', 'price')}
    """

    kind: ClassVar[str] = "row_windows"

    time: str = option("The event-time column.")
    key: Keys = option(
        "The column, or columns, of the key: rows are counted for each key; null is a value like others. None: the "
        "stream as a whole, on one worker.",
        default=None,
    )
    rows: int = option("How many rows a window has.")
    every: int | None = option(
        "How many rows later the next window begins, at most `rows`. None: where the previous one ends.", default=None
    )
    values: Mapping[str, str] = option(
        "The columns of the result: ``count(*)``, and ``count``, ``sum``, ``avg``, ``min`` or ``max`` of a column: "
        "``{'mean': 'avg(price)'}``."
    )
    forget: Duration | None = option(
        "After this long without a row the rows of a key are removed, and its next row begins a new window. None: "
        "never; then state grows with the number of keys.",
        default=None,
    )
    lateness: Latenesses = option(LATENESS_TEXT, default=None)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("input",)

    def time_of(self, stream: int) -> object:
        return self.time

    @property
    def slide(self) -> int:
        """How many rows later the next window begins."""
        return self.rows if self.every is None else self.every

    def check(self) -> None:
        super().check()
        if not isinstance(self.time, str):
            raise OptionError(f"time={self.time!r}: write a column name")
        if not _is_number(self.rows) or not 1 <= self.rows <= MOST_ROWS:
            raise OptionError(f"rows={self.rows!r}: write a number of rows from 1 to {MOST_ROWS:,}")
        if not _is_number(self.slide) or not 1 <= self.slide <= self.rows:
            raise OptionError(f"every={self.every!r}: write a number of rows from 1 to rows={self.rows}")
        if not isinstance(self.values, Mapping) or not self.values:
            raise OptionError(f"values={self.values!r}: write at least one, such as {{'n': 'count(*)'}}")
        names = [str(name).lower() for name in self.values]
        if len(set(names)) < len(names):
            raise OptionError(f"values={dict(self.values)!r}: two have the same name; name each once")
        self.called()
        self.forget_us()

    def forget_us(self) -> int | None:
        """Return after how many microseconds without rows a key is forgotten; None for never."""
        micros = None if self.forget is None else parse_duration(self.forget, "forget")
        if micros is not None and micros <= 0:
            raise OptionError(f"forget={self.forget!r}: write a duration above zero, or None")
        return micros

    def called(self) -> dict[str, tuple[str, str | None]]:
        """Return which aggregate each value is, and of which column; None for the rows themselves."""
        return {name: _called(name, text) for name, text in self.values.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _called(name: str, text: object) -> tuple[str, str | None]:
    call = _CALL.fullmatch(text) if isinstance(text, str) else None
    if call is None:
        raise OptionError(
            f"{name}={text!r}: write an aggregate of one column, such as 'avg(price)', or 'count(*)'; compute other "
            "values before or afterwards"
        )
    kind, column = call[1].lower(), call[2]
    if kind not in TOTALS:
        close = difflib.get_close_matches(kind, TOTALS, n=1, cutoff=0.7)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(TOTALS)}"
        raise OptionError(f"{name}={text!r}: no such aggregate; {meant}")
    if column != "*":
        return kind, column[1:-1].replace("``", "`") if column.startswith("`") else column
    if kind != "count":
        raise OptionError(f"{name}={text!r}: of no column; write {kind} and a column in brackets")
    return kind, None
