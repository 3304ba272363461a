"""The settings for learning a lateness: `Lateness`, which checks its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from braided.durations import Duration, as_text, parse_duration
from braided.errors import OptionError


@dataclass(frozen=True)
class Lateness:
    """How K, the lateness of a stream, is learned from the delays of its rows.

    Without `recall`, K is the largest delay in the last `memory` of event time, plus `margin` standard deviations of
    the delays. It rises at once and falls slowly. With `recall`, K is the smallest lateness that keeps this share of
    the results (for `order`, of the rows in order). K stays between `floor` and `ceiling`. A row that is later than
    `ceiling` has a wrong clock: it is counted, but K is not learned from it.

    `measure="arrival"` measures a row's delay when it arrives; `"next"` measures it at the next row that sets the
    clock, as in "Dynamic Low-Latency Distributed Event Processing", section 4.1. `clock_rows` is a function of a batch
    that returns which of its rows set the clock.

    >>> Lateness(margin=0, floor="0 seconds").memory_us
    300000000
    >>> Lateness(recall=1)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: recall=1: not a share between 0 and 1; write 0.99
    """

    margin: float = 0.5
    recall: float | None = None
    floor: Duration = "10 seconds"
    memory: Duration = "5 minutes"
    ceiling: Duration = "1 hour"
    measure: Literal["arrival", "next"] = "arrival"
    clock_rows: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in ("floor", "memory", "ceiling"):
            object.__setattr__(self, name, as_text(getattr(self, name), name))
        if not _is_number(self.margin) or not 0 <= self.margin < 1e6:
            raise OptionError(f"margin={self.margin!r}: not a number of standard deviations; write 0 or more")
        if self.recall is not None and (not _is_number(self.recall) or not 0 < self.recall < 1):
            raise OptionError(f"recall={self.recall!r}: not a share between 0 and 1; write 0.99")
        if self.floor_us < 0:
            raise OptionError(f"floor={self.floor!r}: negative; write '0 seconds' or more")
        if self.memory_us <= 0:
            raise OptionError(f"memory={self.memory!r}: not above 0; write '5 minutes'")
        if self.ceiling_us < max(1, self.floor_us):
            raise OptionError(f"ceiling={self.ceiling!r}: below floor={self.floor!r}; write a longer duration")
        if self.measure not in ("arrival", "next"):
            raise OptionError(f"measure={self.measure!r}: unknown value; write 'arrival' or 'next'")
        if self.measure == "next" and self.recall is not None:
            raise OptionError("measure='next': cannot be used with recall=; omit recall= or write measure='arrival'")
        if self.measure == "arrival" and self.clock_rows is not None:
            raise OptionError("clock_rows=: only measure='next' uses it; write measure='next' or omit clock_rows=")
        if self.clock_rows is not None and not callable(self.clock_rows):
            raise OptionError(f"clock_rows={self.clock_rows!r}: not a function; write a function of a batch")

    @cached_property
    def floor_us(self) -> int:
        """The smallest K, in microseconds."""
        return parse_duration(self.floor, "floor")

    @cached_property
    def memory_us(self) -> int:
        """How long a delay is remembered, in microseconds of event time."""
        return parse_duration(self.memory, "memory")

    @cached_property
    def ceiling_us(self) -> int:
        """The largest K, and the largest delay that counts for learning, in microseconds."""
        return parse_duration(self.ceiling, "ceiling")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
