"""Which assignments are dead: nothing stored under them can match any more, judged by committed clocks alone.

```
 version v-1: stored under a          version v: stored under b, a is only probed
 -----------------------------------|--------------------------------------------------> batches
                clocks here bound a's rows        a is dead once the horizons have passed them
```
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from braided.routing.table import MAX_LIVE, RoutingTable

Clocks = tuple[int | None, ...]


class Horizons(Protocol):
    """What a window knows: behind which time stored rows of a side cannot match any more."""

    def horizon(self, side: int, clocks: Clocks) -> int:
        """Return the oldest time at which a row of this side can still match a row that is not late."""


class Deaths:
    """Follows versions and clocks from batch to batch.

    It may miss batches, as a controller does that restarts: then an assignment only lives longer.
    """

    def __init__(self, window: Horizons) -> None:
        self.window = window
        self._ends: dict[int, Clocks] = {}  # a version -> clocks that bound the rows stored before it
        self._last: tuple[int, int, Clocks] | None = None

    def observe(self, batch: int, version: int, clocks: Clocks) -> None:
        """Take note of a batch that ran under a version of the table and committed these clocks."""
        if self._last is not None and version > self._last[1]:
            # Only the batch before tells; if it is unknown, this batch's own clocks bound the rows just as well.
            end = self._last[2] if self._last[0] == batch - 1 else clocks
            for passed in range(self._last[1] + 1, version + 1):
                self._ends[passed] = end
        elif self._last is None:
            self._ends[version] = clocks
        self._last = (batch, version, clocks)

    def dead(self, table: RoutingTable) -> npt.NDArray[np.bool_]:
        """Return which places of which groups' lists are dead, as a mask shaped like `table.live`."""
        dead = np.zeros(table.live.shape, np.bool_)
        if self._last is None:
            return dead
        older = (table.live >= 0) & (np.arange(MAX_LIVE) > 0)
        for version in np.unique(table.since[older]).tolist():
            # The first version known to have run at or after the change bounds what was stored before it.
            ran = min((known for known in self._ends if known >= version), default=None)
            if ran is not None and self._passed(self._ends[ran], self._last[2]):
                dead |= older & (table.since == version)
        kept = set(np.unique(table.since[older & ~dead]).tolist())
        newest = max(self._ends)
        self._ends = {v: end for v, end in self._ends.items() if v == newest or any(s <= v for s in kept)}
        return dead

    def _passed(self, end: Clocks, now: Clocks) -> bool:
        """Whether no row up to `end`, of any side, can match a row that is not late any more."""
        return all(clock is None or clock < self.window.horizon(side, now) for side, clock in enumerate(end))
