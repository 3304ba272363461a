"""Several joins over the same streams under one budget, as one operator.

```
 rows of all streams, in order -> each matched in every join it serves -> kept or not, by its one credit
 results: a column that names the join, and a struct per join, null but for that one
```

A budget cannot span workers. Where every stream has one key for all its joins, rows are routed by it, and the budget
is per worker. Else a row would have to be in several places at once, so all rows go to one worker.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.group import GroupBuffer, GroupEvents, GroupWindow
from braided.buffers.policy import Policy
from braided.join.multi_emit import MultiEmitter, OneRun
from braided.join.operator import WindowJoin
from braided.join.ordered import Entering, Numbered, OrderedRows
from braided.order.lateness import Lateness
from braided.order.stream_clock import lateness_options
from braided.routing.content import content_hashes
from braided.routing.routes import Routes, route
from braided.routing.table import RoutingTable
from braided.runtime.operator import Admitted, Json, Outcome, Work, stream_labels
from braided.runtime.store import Store

JOIN = "join"
_ROOM = 1 << 16


@dataclass(frozen=True)
class Member:
    """One join of a group: its name, the numbers of its two streams, and what it is on its own."""

    name: str
    streams: tuple[int, int]
    join: WindowJoin

    def role(self, stream: int) -> int | None:
        """Return 0 where a stream is its left side, 1 where it is its right one."""
        return self.streams.index(stream) if stream in self.streams else None


@dataclass(frozen=True)
class JoinGroup:
    """Inner window joins that keep at most `capacity` rows a worker, of all streams for all joins together.

    Cost: one step per pair, and a copy of each result. State: the rows kept, once, and those that wait. Every row that
    comes out is a row of the exact join, once.
    """

    inputs: tuple[pa.Schema, ...]
    times: tuple[str, ...]
    lateness: tuple[int | Lateness, ...]
    members: tuple[Member, ...]
    capacity: int
    policy: Policy
    idle: int | None = None

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results: the name of the join, and a struct for each."""
        structs = [pa.field(member.name, pa.struct(list(member.join.output))) for member in self.members]
        return pa.schema([pa.field(JOIN, pa.string()), *structs])

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        joins = [{"name": m.name, "streams": list(m.streams), **m.join.options} for m in self.members]
        return {
            "operator": "join group",
            "joins": joins,
            "lateness": lateness_options(self.lateness),
            "idle": self.idle,
            "memory": self.capacity,
            "evict": repr(self.policy),
        }

    @cached_property
    def one_key(self) -> bool:
        """Whether each stream has one key for all its joins, so that rows can be routed by it."""
        kinds = {member.join.hasher.types for member in self.members}
        keys = {(stream, m.join.keys[role]) for m in self.members for role, stream in enumerate(m.streams)}
        return len(kinds) == 1 and len(keys) == len(self.inputs)

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows that have a null in the key of every join; route the others by their key, if there is one."""
        total = rows.num_rows
        serving = [(m, role) for m in self.members if (role := m.role(side)) is not None]
        valid = np.logical_or.reduce([_valid(rows, m.join.keys[role]) for m, role in serving])
        if not valid.all():
            rows = rows.filter(pa.array(valid))
        times: npt.NDArray[np.int64] = rows.column(self.times[side]).view(pa.int64()).to_numpy()
        if not self.one_key:
            routes = Routes(np.zeros(rows.num_rows, np.int32))
            return Admitted(rows, routes, times, total - rows.num_rows)
        member, role = serving[0]
        hashes = member.join.hashes(role, rows)
        routes = route(table, side, hashes, lambda at: content_hashes(rows.take(pa.array(at))))
        return Admitted(rows, routes, times, total - rows.num_rows, hashes)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key in the first join that it serves."""
        member, role = next((m, role) for m in self.members if (role := m.role(side)) is not None)
        return member.join.label(role, row)

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        old: Json = state or {"rows": None, "buffer": None}
        ordered = OrderedRows(self.inputs, self.times, self.lateness, self.idle, old["rows"], store)
        buffer = self._buffer(store, old["buffer"])
        entering = ordered.enter(work)
        streams = [ordered.rows(side) for side in range(len(self.inputs))]
        results = yield from self._join(buffer, entering, streams)
        ordered.keep(buffer.ids)
        saved = buffer.to_bytes()
        number = ordered.replace(old["buffer"], saved)
        sizes = ordered.block_sizes
        return Outcome(
            {"rows": ordered.to_json(), "buffer": number},
            counts={
                "results": sum(results),
                **{f"results_{m.name}": count for m, count in zip(self.members, results, strict=True)},
                **ordered.entrance.counts(stream_labels(len(self.inputs))),
            },
            levels={
                "stored_rows": buffer.rows,
                "stored_bytes": sum(sizes) + len(saved),
                "runs": len(sizes),
                **{name: buffer.counts[name] for name in ("evicted", "refused")},
            },
            streams=ordered.entrance.report(),
        )

    def _buffer(self, store: Store, number: int | None) -> GroupBuffer:
        windows = [GroupWindow(*m.streams, m.join.window.lo, m.join.window.hi) for m in self.members]
        buffer = GroupBuffer(self.capacity, self.policy, streams=len(self.inputs), joins=windows)
        if number is not None:
            buffer.restore(store.get(number))
        return buffer

    def _events(self, entering: Entering) -> GroupEvents:
        """Return the rows with their key and role in each join."""
        shape = (len(entering), len(self.members))
        keys, roles = np.zeros(shape, np.uint64), np.full(shape, -1, np.int8)
        for side, new in enumerate(entering.rows):
            for number, member in enumerate(self.members):
                role = member.role(side)
                if role is not None:
                    at = np.flatnonzero(_valid(new.rows, member.join.keys[role]))
                    rows = new.rows if len(at) == len(new.ids) else new.rows.take(pa.array(at))
                    keys[new.ids[at] - entering.first, number] = member.join.hashes(role, rows)
                    roles[new.ids[at] - entering.first, number] = role
        numbers = np.arange(entering.first, entering.first + len(entering))
        return GroupEvents(keys, roles, entering.times, entering.streams, entering.contents, numbers)

    def _join(
        self, buffer: GroupBuffer, entering: Entering, streams: Sequence[Numbered]
    ) -> Generator[pa.RecordBatch, None, list[int]]:
        """Run the rows through the buffer and yield the pairs in pieces; return how many each join has."""
        events = self._events(entering)
        emitters = [MultiEmitter(m.join, [OneRun(streams[s].rows) for s in m.streams]) for m in self.members]
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        pair_join = np.empty(_ROOM, np.int8)
        at = 0
        while at < len(entering):
            at, pairs = buffer.step(events, at, pair_event=pair_event, pair_join=pair_join, pair_row=pair_row)
            for number, member in enumerate(self.members):
                which = np.flatnonzero(pair_join[:pairs] == number)
                event = pair_event[which]
                mine, theirs = events.rows[event], pair_row[which]
                from_left = events.streams[event] == member.streams[0]
                ids = np.where(from_left, mine, theirs), np.where(from_left, theirs, mine)
                places = [np.searchsorted(streams[s].ids, of) for s, of in zip(member.streams, ids, strict=True)]
                yield from self._tagged(number, emitters[number].emit(places))
        for number, emitter in enumerate(emitters):
            yield from self._tagged(number, emitter.flush())
        return [emitter.results for emitter in emitters]

    def _tagged(self, number: int, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Put the results of one join into the columns of all."""
        for piece in pieces:
            columns = [pa.array([self.members[number].name] * piece.num_rows, pa.string())]
            for other, field in enumerate(list(self.output)[1:]):
                mine = other == number
                columns.append(
                    pa.StructArray.from_arrays(piece.columns, fields=list(piece.schema))
                    if mine
                    else pa.nulls(piece.num_rows, field.type)
                )
            yield pa.RecordBatch.from_arrays(columns, schema=self.output)


def _valid(rows: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    valid = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows.column(name).null_count:
            valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return valid
