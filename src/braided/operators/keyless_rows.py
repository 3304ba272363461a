"""Rows of a preserved stream that have no key. They match nothing; they are released with the other rows of their time.

If they were released at once, they would overtake rows that wait for the clock of the other stream, and the next
operator would treat those as late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from braided.runtime.blocks import Blocks
from braided.runtime.rows import Rows, in_order, together
from braided.runtime.waiting_runs import Waiting
from braided.time.quarantine import Quarantine


class KeylessRows:
    """The rows without a key of one input that wait, between load and save of one batch."""

    def __init__(self, blocks: Blocks, schema: pa.Schema, time: str, state: Sequence[Sequence[Any]]) -> None:
        self._schema, self._time = schema, time
        self._waiting = Waiting(blocks, schema, time, state)

    def __len__(self) -> int:
        return len(self._waiting)

    def to_json(self) -> list[tuple[Any, ...]]:
        return self._waiting.to_json()

    def levels(self) -> dict[str, int]:
        """Return how much is stored, by the names of reports."""
        runs = self._waiting.runs
        return {"stored_rows": len(self), "stored_bytes": sum(run.bytes for run in runs), "runs": len(runs)}

    def release(
        self,
        new: Sequence[pa.RecordBatch],
        horizon: int,
        quarantine: Quarantine,
        side: int,
        patience: int,
        *,
        final: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Take new rows; yield those before the horizon, and those whose time was doubted for too long."""
        rows, times = in_order(*_timed(new, self._schema, self._time))
        leaving = len(times) if final else int(np.searchsorted(times, horizon))
        doubted = max(leaving, int(np.searchsorted(times, quarantine.limit, side="right")))
        heads = [head for head, _ in self._waiting.heads(horizon, final=final)]
        for run in list(self._waiting.runs):
            if run.waiting and quarantine.judge(side, run.first, run.since, patience) == "discarded":
                heads.append(self._waiting.take(run))
        for head in (*heads, rows.slice(0, leaving)):
            if len(head):
                yield head.rows
        for start, stop, is_doubted in ((leaving, doubted, False), (doubted, len(times), True)):
            if stop > start:
                part = rows.slice(start, stop)
                if is_doubted:
                    self._waiting.store(part, quarantine.since(side))
                else:
                    self._waiting.store(part)
        self._waiting.tidy(lambda since: quarantine.same(side, since, patience) or not any(since))


def _timed(batches: Sequence[pa.RecordBatch], schema: pa.Schema, time: str) -> tuple[Rows, Any]:
    rows = together([Rows(batch) for batch in batches], schema)
    return rows, rows.times(time)
