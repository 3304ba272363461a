"""Overlapping load levels: a report matters only when it changes level, and small wobbles do not.

Synergy, section 3.1. Neighbouring levels share a strip around their bound; inside it a worker keeps the
level it has::

      level 3        |  level 4
    -----------[=====|=====]-----------> load
          keep whichever it was
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from braided.errors import BraidedError


class Levels(Protocol):
    """Levels of load by number, from 0."""

    def level(self, load: float, previous: int | None = None) -> int:
        """Return the level of a load, which is the previous one while the load is within that one's strips."""


@dataclass(frozen=True, kw_only=True)
class OverlappingLevels:
    """Load levels whose bounds grow by a factor, from ``floor`` to ``top``.

    Synergy cuts loads of 0 to 10 into five equal levels that overlap by 0.2. Ours grow by a factor: a
    stream that never saturates its cluster has loads far below 1 and would sit in the lowest of a few
    equal levels whatever happened. The paper measured that finer levels cost little (11% more reports for
    7 levels than for 3, section 4), and our reports travel with the batch anyway.

    floor : below it all loads are level 0; 0.05, as for hot spots: nothing to gain from moving it.
    growth : 1.2, the imbalance that makes a hot spot: two workers that far apart differ in level.
    overlap : width of the strip in parts of the bound; 0.1 keeps a worker that wobbles by 5% silent.
    top : the last level begins at the first bound that reaches it; 2.0 is twice a share of a saturated cluster.

    >>> levels = OverlappingLevels()
    >>> at = levels.level(1.0)
    >>> [levels.level(load, at) - at for load in (1.05, 0.95, 1.3, 0.8)]
    [0, 0, 1, -1]
    """

    floor: float = 0.05
    growth: float = 1.2
    overlap: float = 0.1
    top: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.floor < self.top < float("inf"):
            raise BraidedError(f"floor={self.floor}, top={self.top}: write a floor above 0 and a top above the floor")
        if not 1.01 <= self.growth < float("inf"):
            raise BraidedError(f"growth={self.growth}: each bound is a multiple of the last; write 1.01 or more")
        if not 0 <= self.overlap <= self.growth - 1:
            raise BraidedError(f"overlap={self.overlap}: write a part of a level, 0 to {self.growth - 1:.3g}")

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The load at which each level but the first begins."""
        bounds = [self.floor]
        while bounds[-1] < self.top:
            bounds.append(bounds[-1] * self.growth)
        return tuple(bounds)

    def level(self, load: float, previous: int | None = None) -> int:
        """Return the level of a load, 0 to ``len(bounds)``: the previous one while the load is within its strips."""
        return _level(self.bounds, [bound * self.overlap / 2 for bound in self.bounds], load, previous)


@dataclass(frozen=True, kw_only=True)
class EqualLevels:
    """Synergy's own: loads up to ``top`` in equal levels, and one for all above; neighbours share ``overlap`` of load.

    The defaults are the paper's, whose loads count processes that run or wait.

    >>> levels = EqualLevels()
    >>> levels.bounds, levels.level(2.55), levels.level(2.55, previous=0)
    ((2.5, 5.0, 7.5, 10.0), 1, 0)
    """

    count: int = 5
    overlap: float = 0.2
    top: float = 10.0

    def __post_init__(self) -> None:
        if not 2 <= self.count <= 1000 or not 0 < self.top < float("inf"):
            raise BraidedError(f"count={self.count}, top={self.top}: write 2 to 1,000 levels and a top above 0")
        if not 0 <= self.overlap <= self.top / (self.count - 1):
            raise BraidedError(
                f"overlap={self.overlap}: write a load of 0 to {self.top / (self.count - 1):.3g}, a level"
            )

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The load at which each level but the first begins."""
        return tuple(self.top * number / (self.count - 1) for number in range(1, self.count))

    def level(self, load: float, previous: int | None = None) -> int:
        """Return the level of a load, 0 to ``count - 1``: the previous one while the load is within its strips."""
        return _level(self.bounds, [self.overlap / 2] * len(self.bounds), load, previous)


def _level(bounds: Sequence[float], strips: Sequence[float], load: float, previous: int | None) -> int:
    """Return the level of a load; the strip of a bound reaches so far on either side of it."""
    if not 0 <= load < float("inf"):
        raise BraidedError(f"{load=}: a load is finite and not below 0")
    if previous is None:
        return bisect_right(bounds, load)
    if not 0 <= previous <= len(bounds):
        raise BraidedError(f"{previous=}: not one of the levels 0 to {len(bounds)}")
    lower = bounds[previous - 1] - strips[previous - 1] if previous else 0.0
    upper = bounds[previous] + strips[previous] if previous < len(bounds) else float("inf")
    return previous if lower <= load < upper else bisect_right(bounds, load)
