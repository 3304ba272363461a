"""Overlapping load levels: a report matters only if the level changes, and small changes of load do not matter.

See Synergy, section 3.1. Neighbouring levels share a strip around their bound; within it a worker keeps its
current level::

      level 3        |  level 4
    -----------[=====|=====]-----------> load
          keep the current level
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
        """Return the level of a load; it is the previous level while the load is within its strips."""


@dataclass(frozen=True, kw_only=True)
class OverlappingLevels:
    """Load levels whose bounds grow by a factor, from ``floor`` to ``top``.

    Synergy divides loads of 0 to 10 into five equal levels that overlap by 0.2. Ours grow by a factor: a stream that
    does not saturate its cluster has loads far below 1, and would always be in the lowest of a few equal levels. The
    paper measured that finer levels cost little (11% more reports for 7 levels than for 3, section 4), and our reports
    are sent with the batch anyway.

    floor : loads below it are level 0; 0.05, as for hot spots, because moving such a load gains nothing.
    growth : 1.2, the imbalance of a hot spot: two workers with this ratio of loads have different levels.
    overlap : the width of the strip as a part of the bound; with 0.1 a change of load by 5% does not change the level.
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
            raise BraidedError(f"floor={self.floor}, top={self.top}: write a floor above 0, and a top above the floor")
        if not 1.01 <= self.growth < float("inf"):
            raise BraidedError(f"growth={self.growth}: bounds must grow; write a factor of 1.01 or more")
        if not 0 <= self.overlap <= self.growth - 1:
            raise BraidedError(f"overlap={self.overlap}: not a part of a level; write 0 to {self.growth - 1:.3g}")

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The load at which each level except the first begins."""
        bounds = [self.floor]
        while bounds[-1] < self.top:
            bounds.append(bounds[-1] * self.growth)
        return tuple(bounds)

    def level(self, load: float, previous: int | None = None) -> int:
        """Return the level of a load, 0 to ``len(bounds)``; see `Levels`."""
        return _level(self.bounds, [bound * self.overlap / 2 for bound in self.bounds], load, previous)


@dataclass(frozen=True, kw_only=True)
class EqualLevels:
    """Synergy's levels: equal levels up to ``top``, and one level above; neighbours overlap by ``overlap``.

    The defaults are those of the paper, whose loads count running and waiting processes.

    >>> levels = EqualLevels()
    >>> levels.bounds, levels.level(2.55), levels.level(2.55, previous=0)
    ((2.5, 5.0, 7.5, 10.0), 1, 0)
    """

    count: int = 5
    overlap: float = 0.2
    top: float = 10.0

    def __post_init__(self) -> None:
        if not 2 <= self.count <= 1000 or not 0 < self.top < float("inf"):
            raise BraidedError(f"count={self.count}, top={self.top}: write 2 to 1,000 levels, and a top above 0")
        if not 0 <= self.overlap <= self.top / (self.count - 1):
            raise BraidedError(
                f"overlap={self.overlap}: write at most the load of one level, 0 to {self.top / (self.count - 1):.3g}"
            )

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The load at which each level except the first begins."""
        return tuple(self.top * number / (self.count - 1) for number in range(1, self.count))

    def level(self, load: float, previous: int | None = None) -> int:
        """Return the level of a load, 0 to ``count - 1``; see `Levels`."""
        return _level(self.bounds, [self.overlap / 2] * len(self.bounds), load, previous)


def _level(bounds: Sequence[float], strips: Sequence[float], load: float, previous: int | None) -> int:
    """Return the level of a load; `strips` has the half width of each bound's strip."""
    if not 0 <= load < float("inf"):
        raise BraidedError(f"{load=}: not a load; pass a finite number of 0 or more")
    if previous is None:
        return bisect_right(bounds, load)
    if not 0 <= previous <= len(bounds):
        raise BraidedError(f"{previous=}: unknown level; levels are numbered 0 to {len(bounds)}")
    lower = bounds[previous - 1] - strips[previous - 1] if previous else 0.0
    upper = bounds[previous] + strips[previous] if previous < len(bounds) else float("inf")
    return previous if lower <= load < upper else bisect_right(bounds, load)
