"""Rows of several streams put in order, for joins with a budget: what a policy sees does not depend on batches.

```
 new rows -> waiting (up to the lateness) -> in order of (time, stream, content), or shed -> kept while wanted
```

A row waits until no row that is not late can come before it. Late rows are dropped, and so are doubted rows that the
quarantine discards (`braided.time.quarantine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.buffer import Buffer, Events
from braided.eviction.shed import Shedding
from braided.operators.bounded.kept_rows import Entry, KeptRows
from braided.operators.join.sizes import sizes_of_rows
from braided.routing.content import row_hashes
from braided.runtime.blocks import Blocks, Stored
from braided.runtime.contract import Json, TimedStreams, Work
from braided.runtime.ordering_stage import OrderingStage, merged_order
from braided.runtime.rows import Index, Mask, Rows, together
from braided.time.clocks import GroupSpan, Span, Window
from braided.time.stream_clock import StreamClock

UInt64s = npt.NDArray[np.uint64]
Saved = Sequence[int] | None
"""A block: a `Stored`, or its form in JSON; None: not yet written."""


class OrderedStreams(TimedStreams, Protocol):
    """What an operator must provide whose rows are put in order."""

    @property
    def window(self) -> Window | Span | GroupSpan:
        """The time condition, with the least lateness."""


class Entering(NamedTuple):
    """Rows that enter in one batch, in order, and with them the rows kept so far.

    ids : of each row that enters, -1 where it was shed. An id is a position among the rows of `sides`, one stream after
        the other from `starts` on: rows kept so far, `kept` of them, then those that enter, in order.
    order : of each row that enters, its position among `arriving`, one stream after the other.
    """

    times: Index
    streams: npt.NDArray[np.int8]
    contents: UInt64s
    ids: Index
    sides: list[Rows]
    starts: Index
    kept: list[int]
    order: Index
    arriving: list[Rows]

    def in_order(self, values: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return values of each stream's arriving rows as one array, in the order in which the rows enter."""
        return np.concatenate(values)[self.order]

    def by_id(self, name: str) -> npt.NDArray[Any]:
        """Return a mark (see `Rows`) of each row by its id."""
        return np.concatenate([getattr(rows, name) for rows in self.sides])

    def sizes(self) -> Index:
        """Return the bytes of each row by its id."""
        return np.concatenate([sizes_of_rows(rows.rows) for rows in self.sides])

    def stream_of(self, ids: Index) -> Index:
        """Return the stream of each row."""
        return np.searchsorted(self.starts, ids, side="right") - 1

    def kept_ids(self, streams: npt.NDArray[np.int8]) -> Index:
        """Return the ids of the rows kept so far, oldest first, given the stream of each."""
        ids = np.empty(len(streams), np.int64)
        for side, start in enumerate(self.starts.tolist()):
            mine = streams == side
            ids[mine] = start + np.arange(np.count_nonzero(mine))
        return ids

    def attach(
        self,
        buffer: Buffer,
        keys: Callable[[int, Rows], UInt64s],
        times: Callable[[int, pa.RecordBatch], Index],
    ) -> None:
        """Attach its rows to a buffer that was read from state."""
        if not buffer.rows_elsewhere:
            return
        ids = self.kept_ids(buffer.row_streams())
        total = sum(map(len, self.sides))
        key, time = np.zeros(total, np.uint64), np.zeros(total, np.int64)
        for side, (start, count) in enumerate(zip(self.starts.tolist(), self.kept, strict=True)):
            rows = self.sides[side].slice(0, count)
            key[start : start + count], time[start : start + count] = keys(side, rows), times(side, rows.rows)
        buffer.attach(key[ids], time[ids], ids)

    def dropped(self, sizes: Index | None, most_bytes: int | None) -> dict[str, int]:
        """Count the rows that were shed, and those larger than the whole budget."""
        entered = self.ids >= 0
        large = 0
        if sizes is not None and most_bytes is not None:
            large = int(np.count_nonzero(sizes[self.ids[entered]] > most_bytes))
        return {"shed": int(np.count_nonzero(~entered)), "too_large": large}


class OrderedRows:
    """The rows of each stream that wait and those that are kept, between load and save of one batch.

    marked : whether rows keep the marks of their routing. Cost: that of the ordering stage; blocks of kept rows are
    read once a batch.
    """

    def __init__(
        self,
        streams: OrderedStreams,
        state: Json | None,
        blocks: Blocks,
        *,
        marked: bool,
        shedding: Shedding | None = None,
    ) -> None:
        self._streams, self._shedding, self._blocks = streams, shedding, blocks
        self._state: Json = state or {"stage": None, "alive": None, "shed": None, "kept": [[] for _ in streams.inputs]}
        if shedding is not None and self._state["shed"] is not None:
            shedding.restore(self._state["shed"])
        self.stage = OrderingStage(streams, self._state["stage"], blocks, self._patience, agreed=True, marked=marked)
        self._kept = self._read_kept()
        self._sides: list[Rows] = []

    def _patience(self, clocks: Sequence[StreamClock], side: int) -> int:
        window = replace(self._streams.window, lateness=tuple(clock.lateness for clock in clocks))
        return window.patience(side)

    def enter(self, work: Work) -> Entering:
        """Take a batch, and put those rows in order before which no row can come any more."""
        self.stage.take(work)
        inputs = self._streams.inputs
        sides = range(len(inputs))
        pieces = list(self.stage.release())
        arriving = [together([piece[side] for piece in pieces], inputs[side]) for side in sides]
        moments = [rows.times(column) for rows, column in zip(arriving, self._streams.times, strict=True)]
        order = merged_order(moments)
        order = np.arange(sum(map(len, arriving))) if order is None else order
        times = np.concatenate(moments)[order]
        streams = np.repeat(np.array(sides, np.int8), [len(rows) for rows in arriving])[order]
        contents = np.concatenate([row_hashes(rows.rows) for rows in arriving])[order]
        entered = np.ones(len(times), np.bool_)
        if self._shedding is not None:
            entered = ~self._shedding.drop(Events(contents, times, streams, contents, order))
        kept = [len(kept.rows) for kept in self._kept]
        # The rows of one stream are in order already.
        entering = [arriving[side].pick(entered[streams == side]) for side in sides]
        self._sides = [together([self._kept[side].rows, entering[side]], inputs[side]) for side in sides]
        starts = np.cumsum([0, *map(len, self._sides)])[:-1]
        ids = np.full(len(times), -1, np.int64)
        for side in sides:
            ids[entered & (streams == side)] = starts[side] + kept[side] + np.arange(len(entering[side]))
        return Entering(times, streams, contents, ids, self._sides, starts, kept, order, arriving)

    def keep(self, ids: Index) -> Index:
        """Keep only the rows of these ids; return the new position of each row in its stream, -1 for a removed row."""
        alive = np.zeros(sum(map(len, self._sides)), np.bool_)
        alive[ids] = True
        parts = np.split(alive, np.cumsum([len(rows) for rows in self._sides])[:-1])
        for stream, rows, part in zip(self._kept, self._sides, parts, strict=True):
            stream.update(rows, part)
        bits = np.packbits(
            np.concatenate([np.zeros(0, np.bool_), *(mask for stream in self._kept for mask in stream.masks)])
        )
        self._state["alive"] = self.replace(self._state["alive"], bits.tobytes())
        return np.concatenate([np.where(part, np.cumsum(part) - 1, -1) for part in parts])

    def saved(self, saved: Saved) -> bytes | None:
        """Return what `replace` stored; None if it has stored nothing yet."""
        content: bytes | None = None if saved is None else self._blocks.read(saved[0])[0].to_pybytes()
        return content

    def replace(self, saved: Saved, content: bytes) -> Stored:
        """Store a block in place of an earlier one."""
        if saved is not None:
            self._blocks.delete(saved[0])
        return self._blocks.write(content)

    def to_json(self) -> Json:
        state = self._state
        state |= {"stage": self.stage.to_json(), "kept": [stream.entries for stream in self._kept]}
        if self._shedding is not None:
            state["shed"] = self._shedding.to_json()
        return state

    def stored(self, saved: Iterable[Saved]) -> dict[str, int]:
        """Return the bytes of the kept rows and of some more blocks, and the number of blocks that have rows."""
        entries = [entry for stream in self._kept for entry in stream.entries]
        blocks = [block[1] for block in (self._state["alive"], *saved) if block is not None]
        return {"stored_bytes": sum(entry.bytes for entry in entries) + sum(blocks), "runs": len(entries)}

    def _read_kept(self) -> list[KeptRows]:
        counts = [sum(Entry(*entry).rows for entry in entries) for entries in self._state["kept"]]
        packed = self.saved(self._state["alive"])
        bits: Mask = np.zeros(0, np.bool_)
        if packed is not None:
            bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=sum(counts)).view(np.bool_)
        parts = np.split(bits, np.cumsum(counts)[:-1])
        known = zip(self._state["kept"], parts, self._streams.inputs, strict=True)
        return [KeptRows(self._blocks, entries, part, schema) for entries, part, schema in known]
