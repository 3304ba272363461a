"""Several joins over the same streams under one budget, as one operator.

```
 rows of all streams, in order -> each matched in every join it serves -> kept or not, by its one credit
 results: a column that names the join, and a struct per join, null but for that one
```

A budget cannot span workers. Where every stream has one key for all its joins, rows are routed by it, and the budget
is per worker. Else a row would have to be in several places at once, so all rows go to one worker.

Routing that changes needs a stream that is in every join, the *centre*, which comes first. On the grid of a hot key it
is the left side of all joins and every other stream the right one, so each pair of a join meets once, as in
`braided.join`; pairs of other streams, which are no results, may meet more than once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.buffers.group_buffer import GroupBuffer, GroupEvents, GroupWindow
from braided.buffers.policies.policy import Policy
from braided.buffers.recall.joins import GroupRecall
from braided.buffers.shed import Shed, Shedding
from braided.joins.bounded.ordered import Entering, OrderedRows, Saved
from braided.joins.bounded.pairs import met_before
from braided.joins.many.emit import MultiEmitter, OneRun
from braided.joins.window_join import WindowJoin
from braided.operator.blocks import Blocks
from braided.operator.contract import Admitted, Json, Outcome, Work
from braided.operator.rows import Index, Rows
from braided.routing.content import content_hashes
from braided.routing.routes import Routes, route
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally
from braided.time.clocks import GroupSpan
from braided.time.lateness import Lateness
from braided.time.resolve import least
from braided.time.stream_clock import lateness_options

JOIN = "join"
_ROOM = 1 << 16
Words = npt.NDArray[np.uint64]


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

    names: tuple[str, ...]
    inputs: tuple[pa.Schema, ...]
    times: tuple[str, ...]
    lateness: tuple[int | Lateness, ...]
    members: tuple[Member, ...]
    capacity: int
    policy: Policy
    shed: Shed | None = None
    most_bytes: int | None = None
    """Bytes of the rows kept, where rows differ in size and the budget is one; else None."""
    adapts: bool = False
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
            "shed": self.shed,
            "bytes": self.most_bytes,
        }

    @cached_property
    def one_key(self) -> bool:
        """Whether each stream has one key for all its joins, so that rows can be routed by it."""
        kinds = {member.join.hasher.types for member in self.members}
        keys = {(stream, m.join.keys[role]) for m in self.members for role, stream in enumerate(m.streams)}
        return len(kinds) == 1 and len(keys) == len(self.inputs)

    @property
    def windows(self) -> list[GroupWindow]:
        """The time condition of each join."""
        return [GroupWindow(*m.streams, m.join.window.lo, m.join.window.hi) for m in self.members]

    @property
    def window(self) -> GroupSpan:
        """How long rows can match, over all joins."""
        joins = tuple((w.left, w.right, w.lo, w.hi) for w in self.windows)
        return GroupSpan(joins, tuple(map(least, self.lateness)))

    @property
    def most_columns(self) -> int | None:
        """Grids may have any shape."""
        return None

    def describe(self) -> str:
        """Return the joins as people would say it."""
        told = []
        for member in self.members:
            left, right = (self.names[stream] for stream in member.streams)
            told.append(f"{member.name}: {left} (l) with {right} (r) {member.join.describe().removeprefix('joins ')}")
        return "joins under one budget, " + "; ".join(told)

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

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Put in order what can be, join it with the buffer, and keep what the policy keeps."""
        old: Json = state or {"rows": None, "buffer": None, "recall": None}
        buffer = GroupBuffer(self.capacity, self.policy, streams=len(self.inputs), joins=self.windows)
        shedding = None
        if self.shed is not None:
            shedding = Shedding(self.shed, capacity=self.capacity, retention=buffer.state.streams["retention"].tolist())
        ordered = OrderedRows(self, old["rows"], blocks, marked=self.adapts, shedding=shedding)
        entering = ordered.enter(work)
        recall = GroupRecall(self.capacity, self.windows)
        known, learned = ordered.saved(old["buffer"]), ordered.saved(old["recall"])
        if known is not None and learned is not None:
            buffer.restore(known, entering.kept_ids)
            recall.restore(learned)
        sizes = None
        if self.most_bytes is not None:
            sizes = entering.sizes()
            buffer.describe(sizes, self.most_bytes)
        tally = self._tally(work)
        results = yield from self._join(buffer, recall, entering, tally)
        recall.moved(ordered.keep(buffer.ids))
        saved: dict[str, Saved] = {
            name: ordered.replace(old[name], content)
            for name, content in (("buffer", buffer.to_bytes()), ("recall", recall.to_bytes()))
        }
        streams = [{"name": name, **known} for name, known in zip(self.names, ordered.stage.report(), strict=True)]
        return Outcome(
            {"rows": ordered.to_json(), **saved},
            counts={
                "results": sum(results),
                **{f"results_{m.name}": count for m, count in zip(self.members, results, strict=True)},
                **ordered.stage.counts(self.names),
                **entering.dropped(sizes, self.most_bytes),
            },
            levels={**ordered.levels(buffer.rows, buffer.counts, saved.values()), **ordered.stage.levels(self.names)},
            streams=streams,
            load={} if tally is None else tally.to_json(),
            recall=recall.sums(),
        )

    def _tally(self, work: Work) -> Tally | None:
        """Count the rows of a batch for a controller, if there is one; rows of several keys have one worker anyway."""
        if not work.watched or not self.one_key:
            return None
        tally = Tally()
        for block in work.blocks:
            member, role = next((m, role) for m in self.members if (role := m.role(block.side)) is not None)
            tally.rows(min(block.side, 1), member.join.hashes(role, block.rows, block.tags), block.tags)
        return tally

    def _events(self, entering: Entering) -> GroupEvents:
        """Return the rows with their key and role in each join."""
        keys, roles = [], []
        for side, rows in enumerate(entering.arriving):
            keys.append(np.zeros((len(rows), len(self.members)), np.uint64))
            roles.append(np.full((len(rows), len(self.members)), -1, np.int8))
            for number, member in enumerate(self.members):
                role = member.role(side)
                if role is not None:
                    at = np.flatnonzero(_valid(rows.rows, member.join.keys[role]))
                    keys[-1][at, number] = _keys(member.join, role, rows if len(at) == len(rows) else rows.pick(at))
                    roles[-1][at, number] = role
        in_order = entering.in_order(keys), entering.in_order(roles)
        return GroupEvents(*in_order, entering.times, entering.streams, entering.contents, entering.ids)

    def _join(
        self, buffer: GroupBuffer, recall: GroupRecall, entering: Entering, tally: Tally | None
    ) -> Generator[pa.RecordBatch, None, list[int]]:
        """Run the rows through the buffer and yield the pairs in pieces; return how many each join has."""
        events = self._events(entering)
        probes, arrived, tags = (entering.by_id(name) for name in ("probes", "arrived", "tags"))
        probing, marked = bool(probes.any()), bool(probes.any() or tags.any())
        recall.begin(events, len(probes), entering.starts, probes if probing else None)
        entered = np.append(np.flatnonzero(events.rows >= 0), len(events.rows))
        events = GroupEvents(*(column[entered[:-1]] for column in events))
        emitters = [
            MultiEmitter(m.join, [OneRun(entering.sides[stream].rows) for stream in m.streams]) for m in self.members
        ]
        pair_event, pair_row = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        pair_join = np.empty(_ROOM, np.int8)
        at = fed = 0
        while at < len(events.rows):
            at, pairs = buffer.step(events, at, pair_event=pair_event, pair_join=pair_join, pair_row=pair_row)
            of, join, theirs = pair_event[:pairs], pair_join[:pairs], pair_row[:pairs]
            if marked:
                mine = events.rows[of]
                met = (tags[mine] == tags[theirs]) & ((probes[mine] == 0) | (probes[theirs] == 0))
                of, join, theirs = of[met], join[met], theirs[met]
            recall.feed(fed, int(entered[at]), entered[of], join, theirs)
            fed = int(entered[at])
            if probing:
                met = met_before(events.rows[of], theirs, probes, arrived)
                of, join, theirs = of[met], join[met], theirs[met]
            for number in range(len(self.members)):
                mine = join == number
                if tally is not None:
                    which, counts = np.unique(of[mine], return_counts=True)
                    tally.results(events.keys[which, number], tags[events.rows[which]], counts)
                places = self._places(number, entering, events, of[mine], theirs[mine])
                yield from self._tagged(number, emitters[number].emit(places))
        none = np.zeros(0, np.int64)
        recall.feed(fed, len(entering.ids), none, none.view(np.int8), none)
        for number, emitter in enumerate(emitters):
            yield from self._tagged(number, emitter.flush())
        return [emitter.results for emitter in emitters]

    def _places(self, number: int, entering: Entering, events: GroupEvents, of: Index, theirs: Index) -> list[Index]:
        """Return where the left and the right row of each pair of a join is."""
        streams = self.members[number].streams
        mine, from_left = events.rows[of], events.streams[of] == streams[0]
        ids = np.where(from_left, mine, theirs), np.where(from_left, theirs, mine)
        return [rows - entering.starts[stream] for stream, rows in zip(streams, ids, strict=True)]

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


def _keys(join: WindowJoin, role: int, rows: Rows) -> Words:
    return join.hashes(role, rows.rows, rows.tags if rows.tags.any() else None)


def _valid(rows: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    valid = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows.column(name).null_count:
            valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return valid
