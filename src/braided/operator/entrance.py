"""When rows of several streams may enter an operator that needs them in order: waiting, late, quarantined ones.

```
 -- late --|before ... enter now ... |until ... wait ...|limit ... quarantined ...
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.time.clocks import MAX_TIME, MIN_TIME
from braided.time.lateness import Lateness
from braided.time.stream_clock import StreamClock, StreamTime, all_safe, update_all

Times = npt.NDArray[np.int64]


class Entrance:
    """The clocks of an operator's streams and up to which time rows have entered, from batch to batch.

    A quarantined row waits like others; if its stream goes on for long without getting to its time, it is given up.
    """

    def __init__(self, lateness: Sequence[int | Lateness], idle: int | None, state: dict[str, Any] | None) -> None:
        self.clocks = [StreamClock(rule, idle=idle) for rule in lateness]
        self.before = self.until = MIN_TIME
        self._doubted: list[int | None] = [None] * len(lateness)
        self._final = False
        self.late = [0] * len(lateness)
        self.given_up = [0] * len(lateness)
        if state is not None:
            self.before = self.until = state["until"]
            self._doubted = state["doubted"]
            for clock, known in zip(self.clocks, state["clocks"], strict=True):
                clock.restore(known)

    def advance(self, streams: Sequence[StreamTime], stamp: int | None, *, final: bool) -> None:
        """Take what a batch showed of the streams."""
        update_all(self.clocks, streams, stamp)
        self.before, self._final = self.until, final
        self.until = MAX_TIME if final else max(self.before, all_safe(self.clocks))

    def waits(self, side: int, times: Times) -> npt.NDArray[np.bool_]:
        """Return which rows, old and new, wait on. Rows given up do not, nor do they enter."""
        return (times >= self.until) & ~self._hopeless(side, times)

    def enters(self, times: Times) -> npt.NDArray[np.bool_]:
        """Return which rows enter now."""
        return (times >= self.before) & (times < self.until)

    def _hopeless(self, side: int, times: Times) -> npt.NDArray[np.bool_]:
        clock = self.clocks[side]
        limit = max((other.limit for other in self.clocks if other.clock is not None), default=MAX_TIME)
        ahead = times > limit
        now, since = clock.clock, self._doubted[side]
        if self._final or now is None or not ahead.any():
            self._doubted[side] = None
        elif since is None:
            self._doubted[side] = now
        elif now - since > clock.jump + clock.lateness:
            self._doubted[side] = None
            self.given_up[side] = int(ahead.sum())
            return ahead
        return np.zeros(len(times), np.bool_)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        clocks = [clock.to_json() for clock in self.clocks]
        return {"until": self.until, "doubted": self._doubted, "clocks": clocks}

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Return what a batch counts of each stream."""
        return {
            **{f"late_{label}": self.late[side] for side, label in enumerate(labels)},
            **{f"given_up_{label}": self.given_up[side] for side, label in enumerate(labels)},
        }

    def report(self) -> list[dict[str, Any]]:
        """Return what people want to know of each stream."""
        return [clock.report() for clock in self.clocks]
