"""Which assignments are dead: no row stored under them can match any more. Only committed clocks decide this.

```
 version v-1: stored under a          version v: stored under b, a is only probed
 -----------------------------------|--------------------------------------------------> batches
                clocks here bound a's rows        a is dead when the horizons have passed them
```

Rows ahead of their stream's clock, whose times are not trusted yet, are bounded by the largest time seen, until their
stream has continued for so long that the workers have discarded them.

If rows of one side have a home (`braided.routing.home_routes`), each side is checked separately: an old home is dead
when its last preserved row has left. An opening may become the home when every row of the other side that was stored
before its first batch has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from braided.routing.table import MAX_LIVE, RoutingTable

Clocks = tuple[int | None, ...]


class Horizons(Protocol):
    """The part of a window that expiry needs: before which time the stored rows of a side cannot match any more."""

    def horizon(self, side: int, clocks: Clocks) -> int:
        """Return the oldest time at which a row of this side can still match a row that is not late."""

    def patience(self, side: int) -> int:
        """Return how far a stream must continue before its doubted rows are discarded."""


class Progress(Protocol):
    """How far a stream has continued, row by row."""

    def on_for(self, since: Any, patience: int) -> bool:
        """Whether it has continued for longer than `patience` since an earlier moment."""


@dataclass(frozen=True)
class Ahead:
    """A stream's rows beyond its clock: the largest time, the limit of trusted times, and the stream's progress."""

    top: int | None
    limit: int
    gone: Progress


@dataclass(frozen=True)
class _End:
    """A bound for a stream's rows that were stored before a version: their largest time, and the progress then."""

    top: int | None
    gone: Progress | None = None


class AssignmentExpiry:
    """Follows versions and clocks from batch to batch.

    It may miss batches, for example after a restart of the controller: then assignments only live longer. `home` is the
    side whose rows have one home, or None for inner joins.
    """

    def __init__(self, window: Horizons, home: int | None = None) -> None:
        self.window = window
        self.home = home
        self._ends: dict[int, list[_End]] = {}  # version -> the bounds of rows stored before it
        self._last: tuple[int, int, Clocks, list[_End]] | None = None

    def observe(self, batch: int, version: int, clocks: Clocks, ahead: Sequence[Ahead] | None = None) -> None:
        """Note a batch that ran with a version of the table and committed these clocks.

        `ahead` has the rows of each stream beyond its clock, if there may have been any.
        """
        now = [_End(clock) for clock in clocks] if ahead is None else [_End(seen.top, seen.gone) for seen in ahead]
        if self._last is not None and version > self._last[1]:
            # The previous batch bounds those rows. If it is unknown, the bounds of this batch are valid for them too.
            end = self._last[3] if self._last[0] == batch - 1 else now
            for passed in range(self._last[1] + 1, version + 1):
                self._ends[passed] = end
        elif self._last is None:
            self._ends[version] = now
        self._last = (batch, version, clocks, now)
        if ahead is not None:
            self._ends = {passed: self._without_discarded(end, ahead) for passed, end in self._ends.items()}

    def _without_discarded(self, ends: list[_End], now: Sequence[Ahead]) -> list[_End]:
        """Bound rows by the limit of trusted times if the rows beyond it have been discarded."""
        limit = max(seen.limit for seen in now)
        out = []
        for side, (end, seen) in enumerate(zip(ends, now, strict=True)):
            over = end.top is not None and end.top > limit and end.gone is not None
            passed = over and seen.gone.on_for(end.gone, self.window.patience(side))
            out.append(replace(end, top=limit) if passed else end)
        return out

    def dead(self, table: RoutingTable) -> npt.NDArray[np.bool_]:
        """Return which assignments of which groups are dead, as a mask with the shape of `table.live`."""
        dead = np.zeros(table.live.shape, np.bool_)
        if self._last is None:
            return dead
        changes = (table.live >= 0) & (table.since > 0)
        older = changes & (np.arange(MAX_LIVE) > 0)
        for version in np.unique(table.since[older]).tolist():
            if self._passed(version, self.home):
                dead |= older & (table.since == version)
        in_use = set(np.unique(table.since[changes & ~dead]).tolist())
        newest = max(self._ends)
        self._ends = {v: end for v, end in self._ends.items() if v == newest or any(s <= v for s in in_use)}
        return dead

    def ready(self, table: RoutingTable) -> npt.NDArray[np.bool_]:
        """Return which groups have an opening that may become their home."""
        assert self.home is not None
        ready = np.zeros(len(table.live), np.bool_)
        opened = table.since[:, 0]
        for version in np.unique(opened[opened > 0]).tolist():
            if self._passed(version, 1 - self.home):
                ready |= opened == version
        return ready

    def _passed(self, version: int, only: int | None) -> bool:
        """Whether rows of one side, or of all, from before a version can only match late rows now."""
        # The first known version that ran at or after the change bounds the rows that were stored before it.
        ran = min((known for known in self._ends if known >= version), default=None)
        if ran is None or self._last is None:
            return False
        return all(
            end.top is None or end.top < self.window.horizon(side, self._last[2])
            for side, end in enumerate(self._ends[ran])
            if only is None or side == only
        )
