"""GDJ, GreedyDual-Join: the row of smallest credit gives way, and credits rise with matches (section 4).

Three rules make it (section 4.1): the credit a newcomer starts with, what a match adds, what a unit of time takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from braided.buffers.policies.policy import Plan, check_choice
from braided.buffers.records import (
    DECAY_MEAN,
    DECAY_NONE,
    DECAY_ONE,
    GAIN_NONE,
    GAIN_ONE,
    GAIN_RANK,
    GAIN_RESET,
    GDJ,
)
from braided.durations import Duration, as_text, parse_duration
from braided.errors import BraidedError

_GAINS = {"one": GAIN_ONE, "rank": GAIN_RANK, "none": GAIN_NONE, "reset": GAIN_RESET}
_DECAYS = {"none": DECAY_NONE, "one": DECAY_ONE, "mean": DECAY_MEAN}
FIRST_GUESS = 0.2  # within 5% of the best percentile on every Zipf-Pareto stream we tried


@dataclass(frozen=True, kw_only=True)
class Gdj:
    """Give every newcomer a trial, and keep what has matched: long popularity and short bursts alike.

    initial : the percentile of the current credits that a newcomer starts with: 0 the smallest credit, 1 the
        largest; ``"auto"`` tunes it while running (`braided.buffers.tuning.shadows`). The paper's best "rank
        percentiles", 0.84 to 0.998, give "a low-rank credit": we read them as counted from the largest.
    constant : start with this credit instead; `initial` is then not used.
    gain : what a result adds to a stored row that is part of it: ``"one"``; ``"rank"``, its place among the pool's
        credits, 1 the smallest; ``"none"``; ``"reset"``, back to what a newcomer gets, if that is more.
    decay : what every credit loses at the end of a unit of time: ``"none"``; ``"one"``; ``"mean"``, the credits
        added in that unit over the rows stored.
    unit : the unit of time.
    refresh : events between two looks at the credits for percentiles and ranks; default: an 8th of the
        capacity, which finds within 2% of what twice as many looks do. At 1, they are those of the moment.

    The paper's METHOD 1 is gain one, decay none; METHOD 2 rank and one; METHOD 3 one and mean (`method`). A
    decrement that is the same for all rows changes neither the order of credits nor which of them is a
    percentile, so with an `initial` percentile METHODs 1 and 3 keep the same rows; decay matters with
    `constant`. LFU is constant, one, none; LRU constant, reset, one; FIFO constant, none, one.

    Where results are combinations of many streams (`Buffer`), with gain one an event adds to a row as many as both are
    part of, nothing where a third stream has no row of the key; rank and reset add once where there is any.

    Cost: gain one is one addition for all rows that an event matches; rank and reset are one step a row.

    >>> Gdj.method(2, initial=0.95)
    Gdj(initial=0.95, constant=None, gain='rank', decay='one', unit='1 second', refresh=None)
    """

    initial: float | Literal["auto"] = "auto"
    constant: float | None = None
    gain: Literal["one", "rank", "none", "reset"] = "one"
    decay: Literal["none", "one", "mean"] = "none"
    unit: Duration = "1 second"
    refresh: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", as_text(self.unit, "unit"))

    @classmethod
    def method(cls, number: int, *, initial: float | Literal["auto"] = "auto", unit: Duration = "1 second") -> Gdj:
        """Return the paper's METHOD 1, 2 or 3 (section 5.2)."""
        if number == 1:
            return cls(initial=initial, gain="one", decay="none", unit=unit)
        if number == 2:
            return cls(initial=initial, gain="rank", decay="one", unit=unit)
        if number == 3:
            return cls(initial=initial, gain="one", decay="mean", unit=unit)
        raise BraidedError(f"method={number!r}: the paper has METHODs 1, 2 and 3")

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers; ``"auto"`` starts with a first guess."""
        gain = check_choice("gain", self.gain, _GAINS)
        decay = check_choice("decay", self.decay, _DECAYS)
        unit = parse_duration(self.unit, "unit")
        if unit <= 0:
            raise BraidedError(f"unit={self.unit!r}: not above zero; write '1 second'")
        if self.refresh is not None and self.refresh < 1:
            raise BraidedError(f"refresh={self.refresh!r}: write a number of events above 0")
        if self.constant is not None:
            return Plan(GDJ, gain, decay, unit, constant=float(self.constant), refresh=self.refresh)
        initial = self.initial
        if initial == "auto":
            initial = FIRST_GUESS
        if isinstance(initial, str | bool) or not 0 <= initial <= 1:
            raise BraidedError(f"initial={initial!r}: write a percentile from 0 to 1, or 'auto'")
        return Plan(GDJ, gain, decay, unit, percentile=float(initial), refresh=self.refresh)
