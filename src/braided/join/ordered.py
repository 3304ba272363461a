"""Rows of several streams put in order, so that what a policy sees does not depend on batches.

```
 new rows -> waiting (up to the lateness) -> numbered by (time, stream, content) -> kept while somebody wants them
```

A row waits until no row that is not late can come before it. Rows later than what has been numbered are left out, and
so are those whose time is quarantined once their stream has gone on for long without getting there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError
from braided.order.entrance import Entrance
from braided.order.lateness import Lateness
from braided.routing.content import row_hashes
from braided.runtime.operator import Block, Json, Work
from braided.runtime.store import Store

_ID = "__braided_row"
# A block of kept rows is written again once a quarter of it has gone.
_LIVE = 0.75
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Numbered:
    """Rows of one stream in rising order of their numbers."""

    rows: pa.RecordBatch
    ids: Ids


@dataclass(frozen=True)
class Entering:
    """The rows that are numbered in one batch: arrays in order of their numbers, and the rows of each stream."""

    first: int
    times: npt.NDArray[np.int64]
    streams: npt.NDArray[np.int8]
    contents: npt.NDArray[np.uint64]
    rows: Sequence[Numbered]

    def __len__(self) -> int:
        return len(self.times)

    def in_order(self, values: Sequence[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
        """Return one array of what each stream's rows have, in order of the numbers."""
        out = np.zeros(len(self), np.uint64)
        for rows, of_stream in zip(self.rows, values, strict=True):
            out[rows.ids - self.first] = of_stream
        return out


class OrderedRows:
    """What waits and what is kept of each stream, between load and save of one batch.

    Cost: a sort of the rows that enter; blocks of kept rows are read once a batch.
    """

    def __init__(
        self,
        inputs: Sequence[pa.Schema],
        times: Sequence[str],
        lateness: Sequence[int | Lateness],
        idle: int | None,
        state: Json | None,
        store: Store,
    ) -> None:
        self._inputs, self._times = inputs, times
        self._schemas = [schema.append(pa.field(_ID, pa.int64())) for schema in inputs]
        self._store = store
        self._state: Json = state or {
            "entrance": None, "row": 0, "block": 0, "kept": [[] for _ in inputs], "waiting": [None] * len(inputs),
        }  # fmt: skip
        self.entrance = Entrance(lateness, idle, self._state["entrance"])
        self._entered: list[pa.RecordBatch] = []
        self._kept: list[list[pa.RecordBatch]] = []

    def enter(self, work: Work) -> Entering:
        """Take a batch, and number the rows that nothing can come before any more."""
        state = self._state
        entrance = self.entrance
        entrance.advance(work.streams, work.stamp, final=work.final)
        arriving = []
        for side in range(len(self._inputs)):
            rows = self._arrived(side, work.blocks)
            times = self._times_of(side, rows)
            entrance.late[side] = int(np.count_nonzero(times < entrance.before))
            waits = entrance.waits(side, times)
            if state["waiting"][side] is not None:
                self._store.delete(state["waiting"][side])
            waiting = rows.filter(pa.array(waits))
            state["waiting"][side] = self._put(waiting.serialize().to_pybytes()) if waiting.num_rows else None
            arriving.append(rows.filter(pa.array(entrance.enters(times))))
        return self._number(arriving)

    def rows(self, side: int) -> Numbered:
        """Return the rows of a stream that were kept, and those that enter now."""
        rows = pa.concat_batches([*self._read_kept(side), self._entered[side]])
        ids = rows.column(_ID).to_numpy()
        if not (ids[1:] > ids[:-1]).all():  # blocks that were written again hold old and new rows
            order = np.argsort(ids)
            rows, ids = rows.take(pa.array(order)), ids[order]
        return Numbered(rows.select(self._inputs[side].names), ids)

    def keep(self, alive: Ids) -> None:
        """Keep the rows of these numbers and no others; a block that is mostly alive stays as it is."""
        wanted = np.sort(alive)
        for side in range(len(self._inputs)):
            known: list[list[int]] = self._state["kept"][side]
            out, loose = [], []
            for (number, size), rows in zip(known, self._read_kept(side), strict=True):
                live = _among(rows.column(_ID).to_numpy(), wanted)
                if live.sum() >= _LIVE * len(live) and len(live) * len(known) >= len(wanted) // 4:
                    out.append([number, size])
                    continue
                self._store.delete(number)
                loose.append(rows.filter(pa.array(live)))
            entered = self._entered[side]
            loose.append(entered.filter(pa.array(_among(entered.column(_ID).to_numpy(), wanted))))
            together = pa.concat_batches(loose)
            if together.num_rows:
                content = together.serialize().to_pybytes()
                out.append([self._put(content), len(content)])
            self._state["kept"][side] = out

    def replace(self, number: int | None, content: bytes) -> int:
        """Store a block of the caller's own in place of an earlier one, and return its number."""
        if number is not None:
            self._store.delete(number)
        return self._put(content)

    def to_json(self) -> Json:
        """Return the bookkeeping."""
        return {**self._state, "entrance": self.entrance.to_json()}

    @property
    def block_sizes(self) -> list[int]:
        """The bytes of each block of kept rows."""
        return [size for side in self._state["kept"] for _, size in side]

    def _arrived(self, side: int, blocks: Sequence[Block]) -> pa.RecordBatch:
        """Return the rows that waited and the new ones, not yet numbered."""
        schema, waiting = self._schemas[side], self._state["waiting"][side]
        parts = [] if waiting is None else [self._read(side, waiting)]
        for block in blocks:
            if block.side == side:
                if not block.stored or block.tags is not None:
                    raise BraidedError("memory=: routing that changes while the query runs is not supported")
                ids = pa.array(np.full(block.rows.num_rows, -1, np.int64))
                parts.append(pa.RecordBatch.from_arrays([*block.rows.columns, ids], schema=schema))
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)

    def _number(self, arriving: list[pa.RecordBatch]) -> Entering:
        contents, times, streams = (
            np.concatenate(columns)
            for columns in zip(
                *(
                    (
                        row_hashes(rows.select(self._inputs[side].names)),
                        self._times_of(side, rows),
                        np.full(rows.num_rows, side, np.int8),
                    )
                    for side, rows in enumerate(arriving)
                ),
                strict=True,
            )
        )
        order = np.lexsort((contents, streams, times))
        first = self._state["row"]
        ids = np.empty(len(order), np.int64)
        ids[order] = np.arange(first, first + len(order))
        self._state["row"] = first + len(order)
        numbered, at = [], 0
        for side, rows in enumerate(arriving):
            mine = ids[at : at + rows.num_rows]
            at += rows.num_rows
            by_id = np.argsort(mine)
            columns = [*rows.columns[:-1], pa.array(mine)]
            entered = pa.RecordBatch.from_arrays(columns, schema=self._schemas[side]).take(pa.array(by_id))
            self._entered.append(entered)
            numbered.append(Numbered(entered.select(self._inputs[side].names), mine[by_id]))
        return Entering(first, times[order], streams[order], contents[order], numbered)

    def _read_kept(self, side: int) -> list[pa.RecordBatch]:
        if not self._kept:
            self._kept = [[self._read(s, number) for number, _ in kept] for s, kept in enumerate(self._state["kept"])]
        return self._kept[side]

    def _read(self, side: int, number: int) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(self._store.get(number)), self._schemas[side])

    def _put(self, content: bytes) -> int:
        number: int = self._state["block"]
        self._store.put(number, content)
        self._state["block"] = number + 1
        return number

    def _times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        times: npt.NDArray[np.int64] = rows.column(self._times[side]).view(pa.int64()).to_numpy()
        return times


def _among(ids: Ids, sorted_ids: Ids) -> npt.NDArray[np.bool_]:
    at = np.searchsorted(sorted_ids, ids)
    at[at == len(sorted_ids)] = 0
    found: npt.NDArray[np.bool_] = (sorted_ids[at] == ids) if len(sorted_ids) else np.zeros(len(ids), np.bool_)
    return found
