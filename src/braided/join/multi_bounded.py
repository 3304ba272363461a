"""The join of many streams with a budget: a worker keeps the rows most likely to match.

The buffer sees rows in order of time, so the row that arrives is the latest of every combination that it completes,
and whatever is stored is within the window of it. Its combinations are then all choices of one stored row of its key
from each other stream:

```
 the buffer's pairs of one event of stream 1     stream 0: x1 x2    stream 2: z1 z2 z3     -> 2 * 3 combinations
```

Every combination that comes out is one of the exact join, once; what is missing was never kept or given up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.adaptive import AdaptiveBuffer, buffer_from_bytes, make_buffer
from braided.buffers.buffer import Buffer, Events
from braided.buffers.policy import Policy
from braided.buffers.saved import slots_by_age
from braided.join.around import AroundJoin
from braided.join.emit import PIECE_ROWS
from braided.join.multi import MultiJoin
from braided.join.multi_emit import MultiEmitter, OneRun, Places
from braided.join.ordered import Entering, Ids, Numbered, OrderedRows
from braided.routing.table import RoutingTable
from braided.runtime.operator import Admitted, Json, Outcome, Work, stream_labels
from braided.runtime.store import Store

_ROOM = 1 << 16
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BoundedMultiJoin(AroundJoin):
    """A join of many streams that keeps at most `capacity` rows a worker, of all streams together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait, about 33 bytes a kept row for the policy. Not supported: routing that changes while it runs.
    """

    exact: MultiJoin
    capacity: int
    policy: Policy
    share: Literal["unified", "proportional"] = "unified"

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        bounded = {"memory": self.capacity, "evict": repr(self.policy), "share": self.share}
        return {**self.exact.options, "operator": "bounded multijoin", **bounded}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        return self.exact.admit(side, rows, table)

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        old: Json = state or {"rows": None, "buffer": None}
        ordered = OrderedRows(self.inputs, self.times, self.lateness, self.idle, old["rows"], store)
        buffer = self._buffer(store, old["buffer"])
        entering = ordered.enter(work)
        streams = [ordered.rows(side) for side in range(len(self.inputs))]
        results = yield from self._join(buffer, entering, streams)
        ordered.keep(_kept_ids(buffer))
        saved = buffer.to_bytes()
        number = ordered.replace(old["buffer"], saved)
        sizes = ordered.block_sizes
        return Outcome(
            {"rows": ordered.to_json(), "buffer": number},
            counts={"results": results, **ordered.entrance.counts(stream_labels(len(self.inputs)))},
            levels={
                "stored_rows": buffer.rows,
                "stored_bytes": sum(sizes) + len(saved),
                "runs": len(sizes),
                **{name: buffer.counts[name] for name in ("evicted", "refused")},
            },
            streams=ordered.entrance.report(),
        )

    def _buffer(self, store: Store, number: int | None) -> Buffer | AdaptiveBuffer:
        if number is not None:
            return buffer_from_bytes(store.get(number), self.policy)
        within = self.exact.window.within
        return make_buffer(
            self.capacity, self.policy, window=(-within, within), streams=len(self.inputs), share=self.share
        )

    def _join(
        self, buffer: Buffer | AdaptiveBuffer, entering: Entering, streams: Sequence[Numbered]
    ) -> Generator[pa.RecordBatch, None, int]:
        """Run the rows through the buffer and yield the combinations in pieces."""
        keys = entering.in_order([self.exact.hashes(side, new.rows) for side, new in enumerate(entering.rows)])
        numbers = np.arange(entering.first, entering.first + len(entering))
        events = Events(keys, entering.times, entering.streams, entering.contents, numbers)
        emitter = MultiEmitter(self.exact, [OneRun(stream.rows) for stream in streams])
        places = _Places(streams)
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        # The pairs of an event may come in several steps; its combinations need them all.
        waiting: list[tuple[Index, Index]] = []
        at = 0
        while at < len(events.keys):
            at, pairs, _ = buffer.step(events, at, pair_event=pair_event, pair_row=pair_row)
            waiting.append((pair_event[:pairs].copy(), pair_row[:pairs].copy()))
            of_event, rows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            done = int(np.searchsorted(of_event, at))
            for combinations in places.combinations(numbers, entering.streams, of_event[:done], rows[:done]):
                yield from emitter.emit(combinations)
            waiting = [(of_event[done:], rows[done:])]
        yield from emitter.flush()
        return emitter.results


class _Places:
    """Finds a row's stream and its position there by its number."""

    def __init__(self, streams: Sequence[Numbered]) -> None:
        ids = np.concatenate([stream.ids for stream in streams])
        order = np.argsort(ids)
        self._count = len(streams)
        self._ids = ids[order]
        self._streams = np.concatenate([np.full(len(s.ids), number) for number, s in enumerate(streams)])[order]
        self._at = np.concatenate([np.arange(len(stream.ids)) for stream in streams])[order]

    def combinations(
        self, numbers: Index, streams: npt.NDArray[np.int8], of_event: Index, rows: Index
    ) -> Iterator[list[Places]]:
        """Yield, in pieces, the places of all combinations of events, given as the events' pairs.

        Pairs are in order of (event, stream of the row), as the buffer writes them.
        """
        if not len(of_event):
            return
        found = np.searchsorted(self._ids, rows)
        groups, starts, counts = np.unique(
            of_event * self._count + self._streams[found], return_index=True, return_counts=True
        )
        events = np.unique(groups // self._count)
        at = np.searchsorted(events, groups // self._count)
        first, size = (np.zeros((len(events), self._count), np.int64) for _ in range(2))
        first[at, groups % self._count] = starts
        size[at, groups % self._count] = counts
        own = streams[events].astype(np.int64)
        size[np.arange(len(events)), own] = 1
        whole = (size > 0).all(axis=1)
        events, own, first, size = events[whole], own[whole], first[whole], size[whole]
        own_at = self._at[np.searchsorted(self._ids, numbers[events])]
        total = size.prod(axis=1)
        ends = np.cumsum(total)
        for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_ROWS):
            number = np.arange(start, min(start + PIECE_ROWS, int(ends[-1])))
            event = np.searchsorted(ends, number, side="right")
            rest = number - (ends[event] - total[event])
            places = []
            for stream in range(self._count):
                here = size[event, stream]
                pair = np.where(own[event] == stream, 0, first[event, stream] + rest % here)
                places.append(np.where(own[event] == stream, own_at[event], self._at[found[pair]]))
                rest = rest // here
            yield places


def _kept_ids(buffer: Buffer | AdaptiveBuffer) -> Ids:
    state = buffer.main.state if isinstance(buffer, AdaptiveBuffer) else buffer.state
    ids: Ids = state.rows["row"][slots_by_age(state)]
    return ids
