"""An ordering unit: events of the types that a detector subscribes to wait until nothing before them can come.

```
 lower detector   ... publishes events of time >= H - D ...|H
 ordering unit    released |until = the least H - D of its types ... waits ...
```

Published events may be rare, so clocks do not come from them: H, the time before which a lower detector has seen all
events, is passed up, and D is how much earlier than its trigger this detector may date an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from braided.operators.detect.event_batches import merge_types
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.runtime.rows import Rows, Times, in_order, together
from braided.runtime.waiting_runs import Waiting
from braided.time.clocks import MAX_TIME, MIN_TIME

# The number of changes that are kept for the report.
_HISTORY = 16


class OrderingUnit:
    """The events that wait for one detector, between load and save of one batch.

    types : the columns of each type that it subscribes to, in the order in which events of one time are seen.

    Cost: a sort of new events by time, for all keys at once. State: the events that wait.
    """

    def __init__(self, types: Mapping[str, pa.Schema], time: str, blocks: Blocks, state: Json | None) -> None:
        self._types, self._time = types, time
        old = state or {"until": MIN_TIME, "late": 0, "late_us": 0, "most_late": 0, "waiting": None, "history": []}
        self.until: int = old["until"]
        """Events before this time have been released, or are late."""
        self.late, self._late_us, self._most_late = old["late"], old["late_us"], old["most_late"]
        self.history: list[list[int]] = old["history"]
        self._waiting = {
            name: Waiting(blocks, schema, time, old["waiting"][name] if old["waiting"] else [])
            for name, schema in types.items()
        }
        self._fresh: dict[str, list[Rows]] = {name: [] for name in types}

    def take(self, type_: str, rows: Sequence[pa.RecordBatch]) -> None:
        """Take new events; events before `until` are late, and counted."""
        for batch in rows:
            times: Times = Rows(batch).times(self._time)
            late = times < self.until
            if late.any():
                by = self.until - times[late].astype(np.float64)
                self.late += int(late.sum())
                self._late_us += int(by.sum())
                self._most_late = max(self._most_late, int(by.max()))
                batch = batch.filter(pa.array(~late))  # noqa: PLW2901
            self._fresh[type_].append(Rows(batch))

    def release(self, until: int, *, final: bool, schema: pa.Schema) -> pa.RecordBatch:
        """Return the events before a time, or all, in order of (time, type, content); the others wait."""
        self.until = max(self.until, until)
        parts = []
        for name, waiting in self._waiting.items():
            heads = [rows for rows, _ in waiting.heads(self.until, final=final)]
            fresh = together(self._fresh[name], self._types[name])
            self._fresh[name] = []
            fresh, times = in_order(fresh, fresh.times(self._time))
            stop = len(times) if final else int(np.searchsorted(times, self.until))
            waiting.store(fresh.slice(stop))
            rows = together([*heads, fresh.slice(0, stop)], self._types[name])
            if heads:
                rows, _ = in_order(rows, rows.times(self._time))
            parts.append((name, rows.rows))
        return merge_types(parts, schema, self._time)

    def note(self, horizon: int) -> None:
        """Record how far behind the streams' horizon events are released: this unit's K, beyond that of the streams."""
        if MIN_TIME < self.until <= horizon < MAX_TIME:
            behind = horizon - self.until
            if not self.history or self.history[-1][1] != behind:
                self.history = [*self.history, [horizon, behind]][-_HISTORY:]

    def tidy(self) -> None:
        """Merge small runs, and delete those that were released."""
        for waiting in self._waiting.values():
            waiting.tidy()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def levels(self) -> dict[str, int]:
        runs = [run for waiting in self._waiting.values() for run in waiting.runs]
        return {
            "stored_rows": sum(run.waiting for run in runs),
            "stored_bytes": sum(run.bytes for run in runs),
            "runs": len(runs),
        }

    def report(self) -> Json:
        return {
            "waiting": len(self),
            "late": self.late,
            "late_by_mean": self._late_us // max(1, self.late),
            "late_by_most": self._most_late,
            "behind": self.history[-1][1] if self.history else 0,
        }

    def to_json(self) -> Json:
        return {
            "until": self.until,
            "late": self.late,
            "late_us": self._late_us,
            "most_late": self._most_late,
            "waiting": {name: waiting.to_json() for name, waiting in self._waiting.items()},
            "history": self.history,
        }
