"""A worker takes over its share of the rows that other workers stored, when the number of a join's workers changes.

Of the copies of a row in a grid, one counts. A left row is stored once in every column, so the first column has all
left rows. A right row is stored in all workers of one column, so the first workers of all columns together have all
right rows. Rows that count are routed as new rows are, by the first table of the new workers:

```
 worker 0   [====]  left, grid 2        first table     [==] mine  -> a new run
 worker 1   [====]  copies, left out  ------------->    [==] another worker's
```

Precondition: an inner join. Every row is stored under one assignment, the newest of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.runs import Run, RunInfo, merge_runs, sorted_run
from braided.operators.join.stored import JoinState, StoredStreams
from braided.routing.content import content_hashes
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import BLOCK_BYTES, Blocks
from braided.runtime.contract import Json
from braided.runtime.handover import Handover
from braided.time.clocks import MIN_TIME
from braided.time.quarantine import StreamProgress


def adopt_runs(join: StoredStreams, handover: Handover, worker: int, blocks: Blocks) -> Json:
    """Return the state of a new worker: the old clocks, and its share of all runs, written as its own runs.

    Cost: every new worker reads the hash of every stored row, and copies its own rows once.
    """
    before = [JoinState.restore(join, state, kept_blocks) for state, kept_blocks in handover.states()]
    adopted = JoinState(join, blocks)
    for stream, known in zip(adopted.streams, before[0].streams, strict=True):
        stream.restore(known.to_json())
    for side in range(len(join.inputs)):
        adopted.expired[side] = max(state.expired[side] for state in before)
        share = _Share(join, side, handover, worker)
        runs = [(number, info) for number, state in enumerate(before) for infos in state.sides[side] for info in infos]
        # In order of time, so that rows that expire together are stored together again.
        runs.sort(key=lambda entry: (entry[1].last_time, entry[0], entry[1].number))
        adopted.sides[side] = [adopted.write(run) for run in share.runs(before, runs)]
        apart: dict[StreamProgress, list[tuple[int, RunInfo]]] = {}
        for number, state in enumerate(before):
            for since, infos in state.apart[side]:
                apart.setdefault(since, []).extend((number, info) for info in infos)
        groups = [
            (since, [i for run in share.runs(before, apart[since]) for i in adopted.write(run)])
            for since in sorted(apart)
        ]
        adopted.apart[side] = [(since, infos) for since, infos in groups if infos]
    return adopted.to_json()


class _Share:
    """Which of the stored rows of one side belong to a new worker."""

    def __init__(self, join: StoredStreams, side: int, handover: Handover, worker: int) -> None:
        self._join, self._side, self._worker = join, side, worker
        self._old, self._new = handover.old, handover.new

    def runs(self, before: Sequence[JoinState], infos: Sequence[tuple[int, RunInfo]]) -> Iterator[Run]:
        """Yield its rows of stored runs, given by their worker, in runs of about the size of a block."""
        waiting: list[Run] = []
        size = 0
        for number, info in infos:
            part = self._part(number, before[number].load(self._side, info))
            if len(part.times):
                waiting.append(part)
                size += part.rows.nbytes
            if size > BLOCK_BYTES:
                yield merge_runs(waiting, MIN_TIME)
                waiting, size = [], 0
        if waiting:
            yield merge_runs(waiting, MIN_TIME)

    def _part(self, number: int, run: Run) -> Run:
        """Return the rows of one run that belong to this worker under the new table."""
        counted = np.flatnonzero(_counted(self._old, self._side, number, run.tags, len(run.times)))
        rows = run.rows.take(pa.array(counted))
        # The hashes of a run are changed by its tags.
        hashes = run.hashes[counted] if run.tags is None else self._join.hashes(self._side, rows)
        routes = route(self._new, self._side, hashes, lambda at: content_hashes(rows.take(pa.array(at))))
        mine = routes.workers == self._worker
        if routes.stored is not None:
            mine &= routes.stored
        at = np.flatnonzero(mine) if routes.rows is None else routes.rows[mine]
        tags = None if routes.tags is None else routes.tags[mine]
        chosen = rows.take(pa.array(at))
        own = self._join.hashes(self._side, chosen, tags)
        return sorted_run(chosen, own, self._join.times_of(self._side, chosen), tags)


def _counted(
    table: RoutingTable, side: int, worker: int, tags: npt.NDArray[np.int32] | None, count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows of a worker count: one copy of each row. Rows of a dead grid have expired."""
    if tags is None:
        return np.ones(count, np.bool_)
    counted: npt.NDArray[np.bool_] = tags == 0
    for number, grid in table.grids.items():
        first = set(grid.columns[0]) if side == 0 else {column[0] for column in grid.columns}
        if worker in first:
            counted |= tags == number
    return counted
