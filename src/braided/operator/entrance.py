"""When rows of several streams may enter an operator that needs them in order: waiting, late, doubted ones.

```
 -- late --|before ... enter now ... |until ... wait ...|limit ... doubted ...
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.time.clocks import MAX_TIME, MIN_TIME
from braided.time.lateness import Lateness
from braided.time.quarantine import Quarantine
from braided.time.stream_clock import StreamClock, StreamTime, all_safe, update_all

Times = npt.NDArray[np.int64]


class Entrance:
    """The clocks of an operator's streams and up to which time rows have entered, from batch to batch."""

    def __init__(self, lateness: Sequence[int | Lateness], idle: int | None, state: dict[str, Any] | None) -> None:
        self.clocks = [StreamClock(rule, idle=idle) for rule in lateness]
        self.before = self.until = MIN_TIME
        self.late = [0] * len(lateness)
        self.given_up = [0] * len(lateness)
        if state is not None:
            self.before = self.until = state["until"]
            for clock, known in zip(self.clocks, state["clocks"], strict=True):
                clock.restore(known)
        self.quarantine = Quarantine(self.clocks)

    def advance(self, streams: Sequence[StreamTime], moment: int | None, *, final: bool) -> None:
        """Take what a batch showed of the streams."""
        update_all(self.clocks, streams, moment)
        self.quarantine = Quarantine(self.clocks, final=final)
        self.before = self.until
        self.until = MAX_TIME if final else max(self.before, all_safe(self.clocks))

    def enters(self, times: Times) -> npt.NDArray[np.bool_]:
        """Return which rows enter now."""
        return (times >= self.before) & (times < self.until)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return {"until": self.until, "clocks": [clock.to_json() for clock in self.clocks]}

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Return what a batch counts of each stream."""
        return {
            **{f"late:{label}": self.late[side] for side, label in enumerate(labels)},
            **{f"given_up:{label}": self.given_up[side] for side, label in enumerate(labels)},
        }

    def report(self) -> list[dict[str, Any]]:
        """Return what people want to know of each stream."""
        return [clock.report() for clock in self.clocks]
