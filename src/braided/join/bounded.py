"""The window join with a budget: a worker keeps the rows most likely to match, and nothing beyond the budget.

What a policy keeps depends on the order in which it sees rows, so rows are put in order first: they wait until no
row that is not late can come before them, and then enter by (time, side, content). So the result depends on the
input, the budget and the seed alone, not on how the stream is cut into batches.

```
 new rows -> waiting (up to the lateness) -> in order -> joined with the buffer -> kept or not, by the policy
```

Every pair that comes out is a pair of the exact join, once; what is missing was never kept or given up.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.adaptive import AdaptiveBuffer, buffer_from_bytes, make_buffer
from braided.buffers.buffer import Buffer, Events, sorted_events
from braided.buffers.policy import Policy
from braided.buffers.saved import slots_by_age
from braided.errors import BraidedError
from braided.join.emit import Emitter
from braided.join.operator import WindowJoin
from braided.join.runs import Run
from braided.order.clocks import MAX_TIME, MIN_TIME, advance
from braided.order.lateness import Lateness
from braided.routing.content import row_hashes
from braided.routing.routes import TAG
from braided.routing.table import RoutingTable
from braided.runtime.operator import Admitted, Block, Json, Outcome, Work
from braided.runtime.store import Store

_ID = "__braided_row"
_ROOM = 1 << 16
# A block of kept rows is written again once a quarter of it has gone.
_LIVE = 0.75
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BoundedJoin:
    """An inner window join that keeps at most `capacity` rows a worker, of both sides together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait, about 33 bytes a kept row for the policy. Not supported: routing that changes while it runs.
    """

    exact: WindowJoin
    capacity: int
    policy: Policy
    share: Literal["unified", "proportional"] = "unified"

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The Arrow schema of each input's rows."""
        return self.exact.inputs

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column of each input."""
        return self.exact.times

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each input's lateness."""
        return self.exact.lateness

    @property
    def idle(self) -> int | None:
        """After how much silence a stream holds the other back no longer."""
        return self.exact.idle

    @property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return self.exact.output

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        bounded = {"memory": self.capacity, "evict": repr(self.policy), "share": self.share}
        return {**self.exact.options, "operator": "bounded join", **bounded}

    @cached_property
    def _kept_schemas(self) -> list[pa.Schema]:
        return [schema.append(pa.field(TAG, pa.int32())).append(pa.field(_ID, pa.int64())) for schema in self.inputs]

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        return self.exact.admit(side, rows, table)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return self.exact.label(side, row)

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        window = self.exact.window
        old: Json = state or {
            "clocks": [None, None], "horizon": MIN_TIME, "row": 0, "block": 0, "buffer": None,
            "kept": [[], []], "waiting": [None, None],
        }  # fmt: skip
        clocks = [advance(c, s.last) for c, s in zip(old["clocks"], work.streams, strict=True)]
        safe = [MIN_TIME if c is None else c - late for c, late in zip(clocks, window.lateness, strict=True)]
        until = MAX_TIME if work.final else max(old["horizon"], min(safe))
        blocks = _Blocks(store, old["block"])
        late = [0, 0]
        arriving, kept = [], []
        for side in (0, 1):
            rows = self._arrived(side, work.blocks, store, old["waiting"][side])
            times = self.exact.times_of(side, rows)
            late[side] = int(np.count_nonzero(times < old["horizon"]))
            now = (times >= old["horizon"]) & (times < until)
            waits = times >= until
            if old["waiting"][side] is not None:
                store.delete(old["waiting"][side])
            old["waiting"][side] = blocks.write(rows.filter(pa.array(waits))) if waits.any() else None
            arriving.append(rows.filter(pa.array(now)))
            kept.append([store_read(store, number, self._kept_schemas[side]) for number, _ in old["kept"][side]])
        buffer = self._buffer(store, old["buffer"])
        events, numbered = self._sequence(arriving, old["row"])
        sides = [_by_id(pa.concat_batches([*kept[side], numbered[side]])) for side in (0, 1)]
        results = yield from self._join(buffer, events, sides)

        alive = np.sort(_row_ids(buffer))
        for side in (0, 1):
            old["kept"][side] = self._keep(blocks, old["kept"][side], kept[side], numbered[side], alive)
        if old["buffer"] is not None:
            store.delete(old["buffer"])
        saved = buffer.to_bytes()
        old["buffer"] = blocks.put(saved)
        sizes = [size for side in (0, 1) for _, size in old["kept"][side]]
        old |= {"clocks": clocks, "horizon": until, "row": old["row"] + len(events.rows), "block": blocks.next}
        return Outcome(
            old,
            counts={"results": results, "late_left": late[0], "late_right": late[1]},
            levels={
                "stored_rows": buffer.rows,
                "stored_bytes": sum(sizes) + len(saved),
                "runs": len(sizes),
                **{name: buffer.counts[name] for name in ("evicted", "refused")},
            },
            streams=[{"clock": clocks[side], "lateness": window.lateness[side]} for side in (0, 1)],
        )  # fmt: skip

    def _arrived(self, side: int, blocks: Any, store: Store, waiting: int | None) -> pa.RecordBatch:
        """Return the rows that waited and the new ones, tagged and not yet numbered."""
        schema = self._kept_schemas[side]
        parts = [] if waiting is None else [store_read(store, waiting, schema)]
        parts += [_tagged(block, schema) for block in blocks if block.side == side]
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)

    def _buffer(self, store: Store, number: int | None) -> Buffer | AdaptiveBuffer:
        if number is not None:
            return buffer_from_bytes(store.get(number), self.policy)
        window = (self.exact.window.lo, self.exact.window.hi)
        return make_buffer(self.capacity, self.policy, window=window, share=self.share)

    def _sequence(self, arriving: list[pa.RecordBatch], first: int) -> tuple[Events, list[pa.RecordBatch]]:
        """Return the rows in the order that the policy sees, and each side's rows numbered by that order."""
        parts = []
        for side, rows in enumerate(arriving):
            plain = rows.select(self.inputs[side].names)
            tags = rows.column(TAG).to_numpy()
            hashes = self.exact.hashes(side, plain, tags if tags.any() else None)
            parts.append(
                (hashes, self.exact.times_of(side, plain), np.full(len(hashes), side, np.int8), row_hashes(plain))
            )
        keys, times, streams, contents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        at = np.arange(len(keys))
        events = sorted_events(Events(keys, times, streams, contents, at))
        place = np.empty(len(at), np.int64)
        place[events.rows] = np.arange(first, first + len(at))
        split = arriving[0].num_rows
        numbered = []
        for side, ids in enumerate((place[:split], place[split:])):
            order = np.argsort(ids)
            columns = [*arriving[side].columns[:-1], pa.array(ids)]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._kept_schemas[side])
            numbered.append(rows.take(pa.array(order)))
        return events._replace(rows=np.arange(first, first + len(at))), numbered

    def _join(
        self, buffer: Buffer | AdaptiveBuffer, events: Events, sides: list[pa.RecordBatch]
    ) -> Generator[pa.RecordBatch, None, int]:
        """Run the events through the buffer and yield the pairs in pieces."""
        runs = [_as_run(rows) for rows in sides]
        ids = [rows.column(_ID).to_numpy() for rows in sides]
        emitter = Emitter(self.exact)
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        at = 0
        while at < len(events.keys):
            at, pairs, _ = buffer.step(events, at, pair_event=pair_event, pair_row=pair_row)
            mine, theirs = events.rows[pair_event[:pairs]], pair_row[:pairs]
            from_left = events.streams[pair_event[:pairs]] == 0
            left, right = np.where(from_left, mine, theirs), np.where(from_left, theirs, mine)
            yield from emitter.emit(runs[0], runs[1], np.searchsorted(ids[0], left), np.searchsorted(ids[1], right))
        yield from emitter.flush()
        return emitter.results

    def _keep(
        self, blocks: _Blocks, known: list[list[int]], old: list[pa.RecordBatch], new: pa.RecordBatch, alive: Ids
    ) -> list[list[int]]:
        """Write the rows that the buffer still has; a block that is mostly alive stays as it is."""
        out: list[list[int]] = []
        loose = []
        for (number, size), rows in zip(known, old, strict=True):
            live = _among(rows.column(_ID).to_numpy(), alive)
            if live.sum() >= _LIVE * len(live) and len(live) * len(known) >= len(alive) // 4:
                out.append([number, size])
                continue
            blocks.delete(number)
            loose.append(rows.filter(pa.array(live)))
        loose.append(new.filter(pa.array(_among(new.column(_ID).to_numpy(), alive))))
        together = pa.concat_batches(loose)
        if together.num_rows:
            content = together.serialize().to_pybytes()
            out.append([blocks.put(content), len(content)])
        return out


class _Blocks:
    """Numbers new blocks of a worker's store."""

    def __init__(self, store: Store, next_: int) -> None:
        self._store = store
        self.next = next_

    def put(self, content: bytes) -> int:
        number = self.next
        self._store.put(number, content)
        self.next += 1
        return number

    def write(self, rows: pa.RecordBatch) -> int:
        return self.put(rows.serialize().to_pybytes())

    def delete(self, number: int) -> None:
        self._store.delete(number)


def store_read(store: Store, number: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a stored block of rows."""
    return pa.ipc.read_record_batch(pa.py_buffer(store.get(number)), schema)


def _tagged(block: Block, schema: pa.Schema) -> pa.RecordBatch:
    if not block.stored:
        raise BraidedError("memory=: routing that changes while the query runs is not supported; leave out control=")
    tags = np.zeros(block.rows.num_rows, np.int32) if block.tags is None else block.tags
    ids = np.full(block.rows.num_rows, -1, np.int64)
    return pa.RecordBatch.from_arrays([*block.rows.columns, pa.array(tags), pa.array(ids)], schema=schema)


def _by_id(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in the order of their numbers; blocks that were written again hold old and new ones."""
    ids = rows.column(_ID).to_numpy()
    return rows if (ids[1:] > ids[:-1]).all() else rows.take(pa.array(np.argsort(ids)))


def _as_run(rows: pa.RecordBatch) -> Run:
    """Return rows as something to gather results from; nothing searches it."""
    none = np.zeros(0, np.uint64)
    plain = rows.select(rows.schema.names[:-2])
    tags = rows.column(TAG).to_numpy()
    return Run(plain, none, none.view(np.int64), none.view(np.int32), none.view(np.uint8), tags if tags.any() else None)


def _row_ids(buffer: Buffer | AdaptiveBuffer) -> Ids:
    state = buffer.main.state if isinstance(buffer, AdaptiveBuffer) else buffer.state
    ids: Ids = state.rows["row"][slots_by_age(state)]
    return ids


def _among(ids: Ids, sorted_ids: Ids) -> npt.NDArray[np.bool_]:
    at = np.searchsorted(sorted_ids, ids)
    at[at == len(sorted_ids)] = 0
    found: npt.NDArray[np.bool_] = (sorted_ids[at] == ids) if len(sorted_ids) else np.zeros(len(ids), np.bool_)
    return found
