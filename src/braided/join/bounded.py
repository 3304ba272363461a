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

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.adaptive import AdaptiveBuffer, buffer_from_bytes, make_buffer
from braided.buffers.buffer import Buffer, Events, sorted_events
from braided.buffers.policy import Policy
from braided.buffers.recall import Recall
from braided.buffers.shed import Shed, Shedding
from braided.join.around import AroundJoin
from braided.join.emit import Emitter
from braided.join.kept import Blocks, Index, Kept, Rows, together
from braided.join.operator import WindowJoin
from braided.join.runs import Run
from braided.join.sizes import sizes_of_rows
from braided.order.entrance import Entrance
from braided.routing.content import row_hashes
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally
from braided.runtime.operator import Admitted, Block, Json, Outcome, Work, stream_labels
from braided.runtime.store import Store

_ROOM = 1 << 16
_NONE = np.zeros(0, np.int64)


class Entering(NamedTuple):
    """Rows that enter in one batch.

    events : as the policy sees them, with row ids: left rows from 0, kept ones first, then right rows from `right`; -1
        where a row was shed.
    sides : kept rows, then those that enter, in order. sizes : bytes by row id, where they are limited.
    """

    events: Events
    sides: list[Rows]
    right: int
    sizes: npt.NDArray[np.int64] | None


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

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        window = self.exact.window
        old: Json = state or {
            "entrance": None, "batch": 0, "block": 0, "buffer": None, "recall": None,
            "alive": None, "shed": None, "kept": [[], []], "waiting": [[], []],
        }  # fmt: skip
        entrance = Entrance(self.lateness, self.idle, old["entrance"])
        entrance.advance(work.streams, work.stamp, final=work.final)
        blocks = Blocks(store, old["block"], marked=self.adapts)
        entrance.late = [self._late(side, work.blocks, entrance.before) for side in (0, 1)]
        arriving = [self._arriving(side, work.blocks, old, entrance, blocks) for side in (0, 1)]
        kept = self._kept(old, blocks)
        buffer = self._buffer(store, old["buffer"])
        recall = self._recall(store, old["recall"])
        shedding = None
        if self.shed is not None:
            bounds = (window.lo, window.hi)
            shedding = Shedding(self.shed, capacity=self.capacity, window=bounds, saved=old["shed"])
        entering = self._enter(kept, arriving, shedding)
        _attach(buffer, entering, [self._keys(side, kept[side].rows) for side in (0, 1)], self.exact)
        tally = self._tally(work)
        results = yield from self._join(buffer, recall, entering, tally)

        total = sum(map(len, entering.sides))
        alive = np.zeros(total, np.bool_)
        alive[_main(buffer).row_ids()] = True
        parts = (alive[: entering.right], alive[entering.right :])
        recall.moved(np.concatenate([np.where(part, np.cumsum(part) - 1, -1) for part in parts]))
        for side in (0, 1):
            kept[side].update(entering.sides[side], parts[side])
        _main(buffer).rows_elsewhere = True
        bits = np.packbits(np.concatenate([*kept[0].masks, *kept[1].masks, np.zeros(0, np.bool_)]))
        for name, content in (
            ("buffer", buffer.to_bytes()),
            ("recall", recall.to_bytes()),
            ("alive", bits.tobytes()),
        ):
            old[name] = [blocks.replace(old[name] and old[name][0], content), len(content)]
        entries = [entry for side in (0, 1) for entry in kept[side].entries]
        sizes = [entry.bytes for entry in entries] + [old[name][1] for name in ("buffer", "recall", "alive")]
        old |= {"entrance": entrance.to_json(), "batch": old["batch"] + 1, "block": blocks.next}
        old["kept"] = [kept[side].entries for side in (0, 1)]
        if shedding is not None:
            old["shed"] = shedding.to_json()
        return Outcome(
            old,
            counts={"results": results, **entrance.counts(stream_labels(2)), **self._dropped(entering)},
            levels={
                "stored_rows": buffer.rows,
                "stored_bytes": sum(sizes),
                "runs": len(entries),
                **{name: buffer.counts[name] for name in ("evicted", "refused")},
            },
            streams=entrance.report(),
            load={} if tally is None else tally.to_json(),
            recall=recall.sums(),
        )  # fmt: skip

    def _late(self, side: int, blocks: Sequence[Block], horizon: int) -> int:
        """Count rows that come after what has entered; copies are counted where they are primary."""
        count = 0
        for block in blocks:
            if block.side == side and block.stored:
                times = self.exact.times_of(side, block.rows)[: block.rows.num_rows - block.copies]
                count += int(np.count_nonzero(times < horizon))
        return count

    def _dropped(self, entering: Entering) -> dict[str, int]:
        """Count the rows that were shed, and those larger than the whole budget."""
        ids = entering.events.rows
        entered = ids >= 0
        large = 0
        if entering.sizes is not None and self.most_bytes is not None:
            large = int(np.count_nonzero(entering.sizes[ids[entered]] > self.most_bytes))
        return {"shed": int(np.count_nonzero(~entered)), "too_large": large}

    def _tally(self, work: Work) -> Tally | None:
        """Count the rows of a batch for a controller, if there is one."""
        if not work.watched:
            return None
        tally = Tally()
        for block in work.blocks:
            tally.rows(block.side, self.exact.hashes(block.side, block.rows, block.tags), block.tags)
        return tally

    def _arriving(self, side: int, blocks_in: Sequence[Block], old: Json, entrance: Entrance, blocks: Blocks) -> Rows:
        """Return the rows that can enter, of those that waited and the new ones, and let the others wait."""
        schema, waiting = self.inputs[side], old["waiting"][side]
        parts = [blocks.read(entry, schema) for entry in waiting]
        parts += [Rows.of_block(block, old["batch"]) for block in blocks_in if block.side == side]
        rows = together(parts, schema)
        times = self.exact.times_of(side, rows.rows)
        waits = entrance.waits(side, times)
        for entry in waiting:
            blocks.delete(entry[0])
        old["waiting"][side] = blocks.write(rows.pick(waits))
        return rows.pick(entrance.enters(times))

    def _kept(self, old: Json, blocks: Blocks) -> list[Kept]:
        counts = [sum(entry[2] for entry in entries) for entries in old["kept"]]
        bits = np.zeros(0, np.bool_)
        if old["alive"] is not None:
            packed = np.frombuffer(blocks.get(old["alive"][0]), np.uint8)
            bits = np.unpackbits(packed, count=sum(counts)).view(np.bool_)
        parts = (bits[: counts[0]], bits[counts[0] :])
        return [Kept(blocks, old["kept"][side], parts[side], self.inputs[side]) for side in (0, 1)]

    def _buffer(self, store: Store, saved: list[int] | None) -> Buffer | AdaptiveBuffer:
        if saved is not None:
            return buffer_from_bytes(store.get(saved[0]), self.policy)
        window = (self.exact.window.lo, self.exact.window.hi)
        return make_buffer(self.capacity, self.policy, window=window, share=self.share)

    def _recall(self, store: Store, saved: list[int] | None) -> Recall:
        if saved is not None:
            return Recall.from_bytes(store.get(saved[0]))
        return Recall(self.capacity, window=(self.exact.window.lo, self.exact.window.hi))

    def _keys(self, side: int, rows: Rows) -> npt.NDArray[np.uint64]:
        return self.exact.hashes(side, rows.rows, rows.tags if rows.tags.any() else None)

    def _enter(self, kept: list[Kept], arriving: list[Rows], shedding: Shedding | None) -> Entering:
        """Put rows in order and behind the kept ones of their side, but for those that are shed."""
        columns = []
        for side, rows in enumerate(arriving):
            times = self.exact.times_of(side, rows.rows)
            streams = np.full(len(rows), side, np.int8)
            columns.append((self._keys(side, rows), times, streams, row_hashes(rows.rows)))
        keys, times, streams, contents = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        events = sorted_events(Events(keys, times, streams, contents, np.arange(len(keys))))
        entered = np.ones(len(keys), np.bool_) if shedding is None else ~shedding.drop(events)
        order, split = events.rows[entered], len(arriving[0])
        left = order < split
        sides = [
            together([kept[side].rows, rows.pick(index)], self.inputs[side])
            for side, (rows, index) in enumerate(zip(arriving, (order[left], order[~left] - split), strict=True))
        ]
        right = len(sides[0])
        ids = np.full(len(keys), -1, np.int64)
        ids[entered] = np.where(
            left,
            len(kept[0].rows) + np.cumsum(left) - 1,
            right + len(kept[1].rows) + np.cumsum(~left) - 1,
        )
        sizes = None
        if self.most_bytes is not None:
            sizes = np.concatenate([sizes_of_rows(rows.rows) for rows in sides])
        return Entering(events._replace(rows=ids), sides, right, sizes)

    def _join(
        self, buffer: Buffer | AdaptiveBuffer, recall: Recall, entering: Entering, tally: Tally | None
    ) -> Generator[pa.RecordBatch, None, int]:
        """Run the events through the buffer and yield the pairs in pieces."""
        events, sides, right, sizes = entering
        entered = np.append(np.flatnonzero(events.rows >= 0), len(events.keys))
        all_events, events = events, events if len(entered) > len(events.keys) else events.pick(entered[:-1])
        probes, arrived = (np.concatenate([getattr(rows, name) for rows in sides]) for name in ("probes", "arrived"))
        probing = bool(probes.any())
        runs = [_as_run(rows) for rows in sides]
        recall.place(len(probes), right=right, probes=probes if probing else None)
        emitter = Emitter(self.exact)
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        described = None
        at = fed = 0
        while at < len(events.keys):
            if described is not _main(buffer):  # a buffer that follows another policy is a new one
                described = _main(buffer)
                described.describe(sizes=sizes, most_bytes=self.most_bytes or 0, probes=probes if probing else None)
            start = at
            at, pairs, _ = buffer.step(events, start, pair_event=pair_event, pair_row=pair_row)
            recall.feed(all_events, fed, entered[at], entered[pair_event[:pairs]], pair_row[:pairs])
            fed = entered[at]
            of, theirs = pair_event[:pairs], pair_row[:pairs]
            if probing:
                met = _met(events.rows[of], theirs, probes, arrived)
                of, theirs = of[met], theirs[met]
            mine = events.rows[of]
            if tally is not None:
                which, counts = np.unique(of, return_counts=True)
                tags = np.concatenate([rows.tags for rows in sides])[events.rows[which]]
                tally.results(events.keys[which], tags, counts)
            yield from emitter.emit(runs[0], runs[1], np.minimum(mine, theirs), np.maximum(mine, theirs) - right)
        recall.feed(all_events, fed, len(all_events.keys), _NONE, _NONE)
        yield from emitter.flush()
        return emitter.results


def _met(a: Index, b: Index, probes: npt.NDArray[np.int8], arrived: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which pairs are those of the exact join: what only probes meets rows of earlier batches."""
    wrong = (probes[a] != 0) & (arrived[b] >= arrived[a]) | (probes[b] != 0) & (arrived[a] >= arrived[b])
    met: npt.NDArray[np.bool_] = ~wrong
    return met


def _main(buffer: Buffer | AdaptiveBuffer) -> Buffer:
    return buffer.main if isinstance(buffer, AdaptiveBuffer) else buffer


def _attach(
    buffer: Buffer | AdaptiveBuffer, entering: Entering, keys: list[npt.NDArray[np.uint64]], join: WindowJoin
) -> None:
    """Give a buffer that was read from state its rows again."""
    main = _main(buffer)
    if not main.rows_elsewhere:
        return
    left = main.row_streams() == 0
    rank = np.where(left, np.cumsum(left), np.cumsum(~left)) - 1
    kept = [rows.rows.slice(0, len(k)) for rows, k in zip(entering.sides, keys, strict=True)]
    times = [join.times_of(side, kept[side]) for side in (0, 1)]
    at = np.where(left, rank, len(keys[0]) + rank)
    main.attach(np.concatenate(keys)[at], np.concatenate(times)[at], np.where(left, rank, entering.right + rank))


def _as_run(rows: Rows) -> Run:
    """Return rows as something to gather results from; nothing searches it."""
    none = np.zeros(0, np.uint64)
    tags = rows.tags if rows.tags.any() else None
    return Run(rows.rows, none, none.view(np.int64), none.view(np.int32), none.view(np.uint8), tags)
