"""The window join with a budget: a worker keeps the rows most likely to match, and nothing beyond the budget.

What a policy keeps depends on the order in which it sees rows, so rows are put in order first: they wait until no
row that is not late can come before them, and then enter by (time, side, content). So the result depends on the
input, the budget and the seed alone, not on how the stream is cut into batches.

```
 new rows -> waiting (up to the lateness) -> in order -> joined with the buffer -> kept or not, by the policy
```

Every pair that comes out is a pair of the exact join, once; what is missing was never kept or given up. Where the
routing changes, copies that only probe an older assignment enter like all others, and meet rows that are stored under
it and had arrived in earlier batches: exactly those that they would meet in the exact join.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.buffer import Buffer, Events
from braided.buffers.policies.policy import Policy
from braided.buffers.recall.pairs import Recall
from braided.buffers.shed import Shed, Shedding
from braided.buffers.tuning.adaptive import AdaptiveBuffer, buffer_from_bytes, main_of, make_buffer
from braided.joins.bounded.around import AroundJoin
from braided.joins.bounded.ordered import Entering, OrderedRows
from braided.joins.emit import Emitter
from braided.joins.runs import Run
from braided.joins.window_join import WindowJoin
from braided.operator.blocks import Blocks
from braided.operator.contract import Admitted, Json, Outcome, Work, stream_labels
from braided.operator.rows import Index, Rows
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally

_ROOM = 1 << 16
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class BoundedJoin(AroundJoin):
    """An inner window join that keeps at most `capacity` rows a worker, of both sides together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait; beside a kept row two bits and its credit, and what a policy has learned.
    """

    exact: WindowJoin
    capacity: int
    policy: Policy
    share: Literal["unified", "proportional"] = "unified"
    adapts: bool = False
    shed: Shed | None = None
    most_bytes: int | None = None
    """Bytes of the rows kept, where rows differ in size and the budget is one; else None."""

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        bounded = {"memory": self.capacity, "evict": repr(self.policy), "share": self.share, "shed": self.shed}
        return {**self.exact.options, "operator": "bounded join", **bounded, "bytes": self.most_bytes}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        return self.exact.admit(side, rows, table)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        old: Json = state or {"rows": None, "buffer": None, "recall": None}
        shedding = None
        if self.shed is not None:
            retention = self.exact.window.hi, -self.exact.window.lo
            shedding = Shedding(self.shed, capacity=self.capacity, retention=retention)
        ordered = OrderedRows(self, old["rows"], blocks, marked=self.adapts, shedding=shedding)
        entering = ordered.enter(work)
        buffer = self._buffer(ordered.saved(old["buffer"]))
        recall = self._recall(ordered.saved(old["recall"]))
        entering.attach(main_of(buffer), self._keys, self.exact.times_of)
        sizes = None if self.most_bytes is None else entering.sizes()
        tally = self._tally(work)
        results = yield from self._join(buffer, recall, entering, sizes, tally)

        recall.moved(ordered.keep(main_of(buffer).row_ids()))
        main_of(buffer).rows_elsewhere = True
        saved = {
            name: ordered.replace(old[name], content)
            for name, content in (("buffer", buffer.to_bytes()), ("recall", recall.to_bytes()))
        }
        return Outcome(
            {"rows": ordered.to_json(), **saved},
            counts={
                "results": results,
                **ordered.stage.counts(stream_labels(2)),
                **entering.dropped(sizes, self.most_bytes),
            },
            levels={
                **ordered.levels(buffer.rows, buffer.counts, saved.values()),
                **ordered.stage.levels(stream_labels(2)),
            },
            streams=ordered.stage.report(),
            load={} if tally is None else tally.to_json(),
            recall=recall.sums(),
        )

    def _tally(self, work: Work) -> Tally | None:
        """Count the rows of a batch for a controller, if there is one."""
        if not work.watched:
            return None
        tally = Tally()
        for block in work.blocks:
            tally.rows(block.side, self.exact.hashes(block.side, block.rows, block.tags), block.tags)
        return tally

    def _buffer(self, saved: bytes | None) -> Buffer | AdaptiveBuffer:
        if saved is not None:
            return buffer_from_bytes(saved, self.policy)
        window = (self.exact.window.lo, self.exact.window.hi)
        return make_buffer(self.capacity, self.policy, window=window, share=self.share)

    def _recall(self, saved: bytes | None) -> Recall:
        if saved is not None:
            return Recall.from_bytes(saved)
        return Recall(self.capacity, window=(self.exact.window.lo, self.exact.window.hi))

    def _keys(self, side: int, rows: Rows) -> npt.NDArray[np.uint64]:
        return self.exact.hashes(side, rows.rows, rows.tags if rows.tags.any() else None)

    def _join(
        self,
        buffer: Buffer | AdaptiveBuffer,
        recall: Recall,
        entering: Entering,
        sizes: Index | None,
        tally: Tally | None,
    ) -> Generator[pa.RecordBatch, None, int]:
        """Run the events through the buffer and yield the pairs in pieces."""
        keys = entering.in_order([self._keys(side, rows) for side, rows in enumerate(entering.arriving)])
        events = Events(keys, entering.times, entering.streams, entering.contents, entering.ids)
        entered = np.append(np.flatnonzero(events.rows >= 0), len(events.keys))
        all_events, events = events, events if len(entered) > len(events.keys) else events.pick(entered[:-1])
        probes, arrived = entering.by_id("probes"), entering.by_id("arrived")
        probing = bool(probes.any())
        runs = [_as_run(rows) for rows in entering.sides]
        right = int(entering.starts[1])
        recall.place(len(probes), starts=(0, right), probes=probes if probing else None)
        emitter = Emitter(self.exact)
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        described = None
        at = fed = 0
        while at < len(events.keys):
            if described is not main_of(buffer):  # a buffer that follows another policy is a new one
                described = main_of(buffer)
                described.describe(sizes=sizes, most_bytes=self.most_bytes or 0, probes=probes if probing else None)
            start = at
            at, pairs, _ = buffer.step(events, start, pair_event=pair_event, pair_row=pair_row)
            recall.feed(all_events, fed, entered[at], entered[pair_event[:pairs]], pair_row[:pairs])
            fed = entered[at]
            of, theirs = pair_event[:pairs], pair_row[:pairs]
            if probing:
                met = met_before(events.rows[of], theirs, probes, arrived)
                of, theirs = of[met], theirs[met]
            mine = events.rows[of]
            if tally is not None:
                which, counts = np.unique(of, return_counts=True)
                tally.results(events.keys[which], entering.by_id("tags")[events.rows[which]], counts)
            yield from emitter.emit(runs[0], runs[1], np.minimum(mine, theirs), np.maximum(mine, theirs) - right)
        recall.feed(all_events, fed, len(all_events.keys), _NONE, _NONE)
        yield from emitter.flush()
        return emitter.results


def met_before(
    a: Index, b: Index, probes: npt.NDArray[np.int8], arrived: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which pairs are those of the exact join: what only probes meets rows of earlier batches."""
    wrong = (probes[a] != 0) & (arrived[b] >= arrived[a]) | (probes[b] != 0) & (arrived[a] >= arrived[b])
    met: npt.NDArray[np.bool_] = ~wrong
    return met


def _as_run(rows: Rows) -> Run:
    """Return rows as something to gather results from; nothing searches it."""
    none = np.zeros(0, np.uint64)
    tags = rows.tags if rows.tags.any() else None
    return Run(rows.rows, none, none.view(np.int64), none.view(np.int32), none.view(np.uint8), tags)
