"""Rows of several streams put in order, for joins with a budget: what a policy sees does not depend on batches.

```
 new rows -> waiting (up to the lateness) -> in order of (time, stream, content), or shed -> kept while wanted
```

A row waits until no row that is not late can come before it. Rows later than what has entered are left out, and so are
doubted ones that are given up (`braided.time.quarantine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.buffer import Buffer, Events, sorted_events
from braided.buffers.shed import Shedding
from braided.joins.bounded.kept import Blocks, Index, Kept, Mask, Rows, together
from braided.joins.bounded.sizes import sizes_of_rows
from braided.operator.contract import Block, Json, Operator, Work
from braided.operator.entrance import Entrance
from braided.operator.store import Store
from braided.routing.content import row_hashes
from braided.time.clocks import GroupSpan, Span, Window
from braided.time.quarantine import Gone

Words = npt.NDArray[np.uint64]
Saved = list[int] | None
"""A block of a worker's store by its number and size; None: not yet written."""


class OrderedStreams(Operator, Protocol):
    """What is asked of an operator whose rows are put in order."""

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
    contents: Words
    ids: Index
    sides: list[Rows]
    starts: Index
    kept: list[int]
    order: Index
    arriving: list[Rows]

    def in_order(self, values: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return what each stream's arriving rows have as one array, in the order in which they enter."""
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
        keys: Callable[[int, Rows], Words],
        times: Callable[[int, pa.RecordBatch], Index],
    ) -> None:
        """Give a buffer that was read from state its rows again."""
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
    """What waits and what is kept of each stream, between load and save of one batch.

    marked : whether rows keep the marks of their routing. Cost: a sort of the rows that enter; blocks of kept rows are
    read once a batch.
    """

    def __init__(
        self,
        streams: OrderedStreams,
        state: Json | None,
        store: Store,
        *,
        marked: bool,
        shedding: Shedding | None = None,
    ) -> None:
        self._streams, self._shedding = streams, shedding
        self._state: Json = state or {
            "entrance": None, "batch": 0, "block": 0, "alive": None, "shed": None,
            **{name: [[] for _ in streams.inputs] for name in ("kept", "waiting", "apart")},
        }  # fmt: skip
        if shedding is not None and self._state["shed"] is not None:
            shedding.restore(self._state["shed"])
        self.entrance = Entrance(streams.lateness, streams.idle, self._state["entrance"])
        self._blocks = Blocks(store, self._state["block"], marked=marked)
        self._kept = self._read_kept()
        self._sides: list[Rows] = []

    def enter(self, work: Work) -> Entering:
        """Take a batch, and put in order the rows that nothing can come before any more."""
        entrance = self.entrance
        entrance.advance(work.streams, work.moment, final=work.final)
        sides = range(len(self._streams.inputs))
        entrance.late = [self._late(side, work.blocks) for side in sides]
        arriving = [self._arriving(side, work.blocks) for side in sides]
        times = np.concatenate([self._times_of(side, rows.rows) for side, rows in enumerate(arriving)])
        streams = np.repeat(np.array(sides, np.int8), [len(rows) for rows in arriving])
        contents = np.concatenate([row_hashes(rows.rows) for rows in arriving])
        events = sorted_events(Events(contents, times, streams, contents, np.arange(len(times))))
        entered = np.ones(len(times), np.bool_) if self._shedding is None else ~self._shedding.drop(events)
        first = np.cumsum([0, *map(len, arriving)])
        kept = [len(kept.rows) for kept in self._kept]
        positions = [events.rows[entered & (events.streams == side)] - first[side] for side in sides]
        self._sides = [
            together([self._kept[side].rows, arriving[side].pick(positions[side])], self._streams.inputs[side])
            for side in sides
        ]
        starts = np.cumsum([0, *map(len, self._sides)])[:-1]
        ids = np.full(len(times), -1, np.int64)
        for side in sides:
            ids[entered & (events.streams == side)] = starts[side] + kept[side] + np.arange(len(positions[side]))
        return Entering(
            events.times, events.streams, events.contents, ids, self._sides, starts, kept, events.rows, arriving
        )

    def keep(self, ids: Index) -> Index:
        """Keep the rows of these ids and no others; return where each row of its stream is now, -1 where it went."""
        alive = np.zeros(sum(map(len, self._sides)), np.bool_)
        alive[ids] = True
        parts = np.split(alive, np.cumsum([len(rows) for rows in self._sides])[:-1])
        for kept, rows, part in zip(self._kept, self._sides, parts, strict=True):
            kept.update(rows, part)
        bits = np.packbits(
            np.concatenate([np.zeros(0, np.bool_), *(mask for kept in self._kept for mask in kept.masks)])
        )
        self._state["alive"] = self.replace(self._state["alive"], bits.tobytes())
        return np.concatenate([np.where(part, np.cumsum(part) - 1, -1) for part in parts])

    def replace(self, saved: Saved, content: bytes) -> list[int]:
        """Store a block in place of an earlier one."""
        return [self._blocks.replace(saved and saved[0], content), len(content)]  # type: ignore[arg-type]

    def to_json(self) -> Json:
        """Return the bookkeeping."""
        state = self._state
        state |= {"entrance": self.entrance.to_json(), "batch": state["batch"] + 1, "block": self._blocks.next}
        state["kept"] = [kept.entries for kept in self._kept]
        if self._shedding is not None:
            state["shed"] = self._shedding.to_json()
        return state

    def levels(self, rows: int, counts: dict[str, int], saved: Iterable[Saved]) -> dict[str, int]:
        """Return what a report says of the state: `rows` in a buffer with these counts, and blocks besides."""
        entries = [entry for kept in self._kept for entry in kept.entries]
        blocks = [block[1] for block in (self._state["alive"], *saved) if block is not None]
        return {
            "stored_rows": rows,
            "stored_bytes": sum(entry.bytes for entry in entries) + sum(blocks),
            "runs": len(entries),
            **{name: counts[name] for name in ("evicted", "refused")},
        }

    def _late(self, side: int, blocks: Sequence[Block]) -> int:
        """Count rows that come after what has entered; copies are counted where they are primary."""
        count = 0
        for block in blocks:
            if block.side == side and block.stored:
                times = self._times_of(side, block.rows)[: block.rows.num_rows - block.copies]
                count += int(np.count_nonzero(times < self.entrance.before))
        return count

    def _arriving(self, side: int, blocks: Sequence[Block]) -> Rows:
        """Return the rows that can enter, of those that waited and the new ones, and let the others wait."""
        schema, waiting = self._streams.inputs[side], self._state["waiting"]
        parts = [self._blocks.read(entry, schema) for entry in waiting[side]]
        parts += [Rows.of_block(block, self._state["batch"]) for block in blocks if block.side == side]
        parts += self._believed(side)
        rows = together(parts, schema)
        times = self._times_of(side, rows.rows)
        ahead = times > self.entrance.quarantine.limit
        for entry in waiting[side]:
            self._blocks.delete(entry[0])
        waiting[side] = self._blocks.write(rows.pick((times >= self.entrance.until) & ~ahead))
        self._put_apart(side, rows.pick(ahead), self.entrance.quarantine.since(side))
        return rows.pick(self.entrance.enters(times))

    def _believed(self, side: int) -> list[Rows]:
        """Return the rows put apart earlier that some stream has got near to; forget those that are given up."""
        rule, groups, believed = self.entrance.quarantine, self._state["apart"][side], []
        self._state["apart"][side] = []
        for mark, first, entries in groups:
            since = Gone(*mark)
            verdict = rule.judge(side, first, since, self._patience(side))
            if verdict == "doubted":
                self._state["apart"][side].append([mark, first, entries])
                continue
            if verdict == "believed":
                rows = self._read(side, entries)
                near = self._times_of(side, rows.rows) <= rule.limit
                believed.append(rows.pick(near))
                self._put_apart(side, rows.pick(~near), since)
            else:
                self.entrance.given_up[side] += sum(entry[2] for entry in entries)
            for entry in entries:
                self._blocks.delete(entry[0])
        return believed

    def _put_apart(self, side: int, rows: Rows, since: Gone) -> None:
        """Keep doubted rows, together with those that came shortly before."""
        if not len(rows):
            return
        groups = self._state["apart"][side]
        rule, schema = self.entrance.quarantine, self._streams.inputs[side]
        if since == rule.since(side) and groups and rule.same(side, Gone(*groups[-1][0]), self._patience(side)):
            _, _, entries = groups.pop()
            rows = together([self._read(side, entries), rows], schema)
            for entry in entries:
                self._blocks.delete(entry[0])
        groups.append([since, int(self._times_of(side, rows.rows).min()), self._blocks.write(rows)])

    def _read(self, side: int, entries: Sequence[Sequence[Any]]) -> Rows:
        schema = self._streams.inputs[side]
        return together([self._blocks.read(entry, schema) for entry in entries], schema)

    def _patience(self, side: int) -> int:
        window = replace(self._streams.window, lateness=tuple(clock.lateness for clock in self.entrance.clocks))
        return window.patience(side)

    def _read_kept(self) -> list[Kept]:
        counts = [sum(entry[2] for entry in entries) for entries in self._state["kept"]]
        bits: Mask = np.zeros(0, np.bool_)
        if self._state["alive"] is not None:
            packed = np.frombuffer(self._blocks.get(self._state["alive"][0]), np.uint8)
            bits = np.unpackbits(packed, count=sum(counts)).view(np.bool_)
        parts = np.split(bits, np.cumsum(counts)[:-1])
        known = zip(self._state["kept"], parts, self._streams.inputs, strict=True)
        return [Kept(self._blocks, entries, part, schema) for entries, part, schema in known]

    def _times_of(self, side: int, rows: pa.RecordBatch) -> Index:
        times: Index = rows.column(self._streams.times[side]).view(pa.int64()).to_numpy()
        return times
