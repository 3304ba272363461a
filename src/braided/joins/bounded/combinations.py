"""The join of many streams with a budget: a worker keeps the rows most likely to match.

The buffer sees rows in order of time, so the row that arrives is the latest of every combination that it completes,
and whatever is stored is within the window of it. Its combinations are then all choices of one stored row of its key
from each other stream:

```
 the buffer's pairs of one event of stream 1     stream 0: x1 x2    stream 2: z1 z2 z3     -> 2 * 3 combinations
```

Every combination that comes out is one of the exact join, once; what is missing was never kept or given up. Where the
routing changes, rows are stored under every assignment that is alive, copies compete with all others for room, and a
combination counts where it does in the exact join (`braided.joins.many.multijoin`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.buffer import Buffer, Events
from braided.buffers.policies.policy import Policy
from braided.buffers.recall.keys import KeyRecall
from braided.buffers.shed import Shed, Shedding
from braided.buffers.tuning.adaptive import AdaptiveBuffer, buffer_from_bytes, main_of, make_buffer
from braided.joins.bounded.around import AroundJoin
from braided.joins.bounded.ordered import Entering, OrderedRows
from braided.joins.emit import PIECE_ROWS
from braided.joins.many.emit import MultiEmitter, OneRun, Places
from braided.joins.many.multijoin import MultiJoin
from braided.joins.many.stamps import with_stamps
from braided.operator.blocks import Blocks
from braided.operator.contract import Admitted, Json, Outcome, Work, stream_labels
from braided.operator.rows import Index, Rows
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally

_ROOM = 1 << 16
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class BoundedMultiJoin(AroundJoin):
    """A join of many streams that keeps at most `capacity` rows a worker, of all streams together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait; beside a kept row a few bits and its credit, what a policy has learned, and a sample of keys.
    """

    exact: MultiJoin
    capacity: int
    policy: Policy
    share: Literal["unified", "proportional"] = "unified"
    shed: Shed | None = None
    most_bytes: int | None = None
    """Bytes of the rows kept, where rows differ in size and the budget is one; else None."""

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        bounded = {"memory": self.capacity, "evict": repr(self.policy), "share": self.share, "shed": self.shed}
        return {**self.exact.options, "operator": "bounded multijoin", **bounded, "bytes": self.most_bytes}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        return self.exact.admit(side, rows, table)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        old: Json = state or {"rows": None, "buffer": None, "recall": None}
        count = len(self.inputs)
        shedding = None
        if self.shed is not None:
            retention = [self.exact.window.within] * count
            shedding = Shedding(self.shed, capacity=self.capacity, retention=retention)
        ordered = OrderedRows(self, old["rows"], blocks, marked=self.exact.adaptive, shedding=shedding)
        entering = ordered.enter(work)
        buffer = self._buffer(ordered.saved(old["buffer"]))
        recall = self._recall(ordered.saved(old["recall"]))
        entering.attach(main_of(buffer), self._keys, self.exact.times_of)
        sizes = None if self.most_bytes is None else entering.sizes()
        tally = self._tally(work)
        results = yield from self._join(buffer, recall, entering, sizes, tally)

        ordered.keep(main_of(buffer).row_ids())
        main_of(buffer).rows_elsewhere = True
        saved = {
            name: ordered.replace(old[name], content)
            for name, content in (("buffer", buffer.to_bytes()), ("recall", recall.to_bytes()))
        }
        lost = self.shed or any(buffer.counts[name] for name in ("evicted", "refused", "too_large"))
        return Outcome(
            {"rows": ordered.to_json(), **saved},
            counts={
                "results": results,
                **ordered.stage.counts(stream_labels(count)),
                **entering.dropped(sizes, self.most_bytes),
            },
            levels={
                **ordered.levels(buffer.rows, buffer.counts, saved.values()),
                **ordered.stage.levels(stream_labels(count)),
            },
            streams=ordered.stage.report(),
            load={} if tally is None else tally.to_json(),
            recall=recall.sums() if lost else recall.sums_of_all(),
        )

    def _tally(self, work: Work) -> Tally | None:
        """Count the rows of a batch for a controller, if there is one."""
        if not work.watched:
            return None
        tally = Tally()
        for block in work.blocks:
            tally.rows(min(block.side, 1), self.exact.hashes(block.side, block.rows, block.tags), block.tags)
        return tally

    def _buffer(self, saved: bytes | None) -> Buffer | AdaptiveBuffer:
        if saved is not None:
            return buffer_from_bytes(saved, self.policy)
        within = self.exact.window.within
        return make_buffer(
            self.capacity,
            self.policy,
            window=(-within, within),
            streams=len(self.inputs),
            share=self.share,
            results="combinations",
        )

    def _recall(self, saved: bytes | None) -> KeyRecall:
        recall = KeyRecall(self.capacity, within=self.exact.window.within, streams=len(self.inputs))
        if saved is not None:
            recall.restore(saved)
        return recall

    def _keys(self, side: int, rows: Rows) -> Words:
        return self.exact.hashes(side, rows.rows, rows.tags if rows.tags.any() else None)

    def _join(
        self,
        buffer: Buffer | AdaptiveBuffer,
        recall: KeyRecall,
        entering: Entering,
        sizes: Index | None,
        tally: Tally | None,
    ) -> Generator[pa.RecordBatch, None, int]:
        """Run the rows through the buffer and yield the combinations in pieces."""
        keys = entering.in_order([self._keys(side, rows) for side, rows in enumerate(entering.arriving)])
        entered = np.flatnonzero(entering.ids >= 0)
        all_events = Events(keys, entering.times, entering.streams, entering.contents, entering.ids)
        events = all_events.pick(entered)
        emitter = MultiEmitter(self.exact, self._runs(entering, tally), tally, stamps=self.exact.adaptive)
        combining = _Combining(entering, events)
        found = np.zeros(len(keys), np.int64)
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        # The pairs of an event may come in several steps; its combinations need them all.
        waiting: list[tuple[Index, Index]] = []
        described = None
        at = 0
        while at < len(events.keys):
            if described is not main_of(buffer):  # a buffer that follows another policy is a new one
                described = main_of(buffer)
                described.describe(sizes=sizes, most_bytes=self.most_bytes or 0)
            at, pairs, _ = buffer.step(events, at, pair_event=pair_event, pair_row=pair_row)
            waiting.append((pair_event[:pairs].copy(), pair_row[:pairs].copy()))
            of_event, rows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            done = int(np.searchsorted(of_event, at))
            choices = combining.choices(of_event[:done], rows[:done])
            found[entered[choices.events]] = choices.size.prod(axis=1)
            for places in combining.places(choices):
                yield from emitter.emit(places)
            waiting = [(of_event[done:], rows[done:])]
        recall.feed(all_events, found)
        yield from emitter.flush()
        return emitter.results

    def _runs(self, entering: Entering, tally: Tally | None) -> list[OneRun]:
        """Return the rows of each stream as something to gather results from."""
        if not self.exact.adaptive:
            return [OneRun(rows.rows) for rows in entering.sides]
        # Only the keys of the first stream are counted.
        none = np.zeros(0, np.uint64)
        return [
            OneRun(
                with_stamps(rows.rows, np.where(rows.probes != 0, -1 - rows.arrived, 1 + rows.arrived)),
                self._keys(side, rows) if side == 0 and tally is not None else none,
                rows.tags,
            )
            for side, rows in enumerate(entering.sides)
        ]


class _Choices(NamedTuple):
    """Events that complete combinations, and for each and each stream the first of its pairs and their number."""

    events: Index
    first: Index
    size: Index
    rows: Index


class _Combining:
    """Forms combinations of the pairs of events, which are in order of (event, stream of the row)."""

    def __init__(self, entering: Entering, events: Events) -> None:
        self._entering, self._events = entering, events
        self._count = len(entering.sides)

    def choices(self, of_event: Index, rows: Index) -> _Choices:
        """Return which events complete something, given all pairs of some events."""
        count = self._count
        groups, starts, counts = np.unique(
            of_event * count + self._entering.stream_of(rows), return_index=True, return_counts=True
        )
        events, at = np.unique(groups // count, return_inverse=True)
        first, size = (np.zeros((len(events), count), np.int64) for _ in range(2))
        first[at, groups % count] = starts
        size[at, groups % count] = counts
        size[np.arange(len(events)), self._events.streams[events]] = 1
        whole = (size > 0).all(axis=1)
        return _Choices(events[whole], first[whole], size[whole], rows)

    def places(self, choices: _Choices) -> Iterator[list[Places]]:
        """Yield, in pieces, the places of the rows of all combinations."""
        events, first, size, rows = choices
        starts = self._entering.starts
        own = self._events.streams[events].astype(np.int64)
        own_at = self._events.rows[events] - starts[own]
        total = size.prod(axis=1)
        ends = np.cumsum(total)
        for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_ROWS):
            number = np.arange(start, min(start + PIECE_ROWS, int(ends[-1])))
            event = np.searchsorted(ends, number, side="right")
            rest = number - (ends[event] - total[event])
            places = []
            for stream in range(self._count):
                here = size[event, stream]
                mine = own[event] == stream
                pair = np.where(mine, 0, first[event, stream] + rest % here)
                places.append(np.where(mine, own_at[event], rows[pair] - starts[stream]))
                rest = rest // here
            yield places
