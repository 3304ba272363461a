"""Several joins over the same streams under one budget, as one operator.

```
 rows of all streams, in order -> each matched in every join it is in -> kept or not, by its one credit
 results: a column that names the join, and a struct per join, all null except that one
```

A budget cannot span workers. Where every stream has one key for all its joins, rows are routed by it, and the budget
is per worker. Otherwise a row would have to be in several workers at once, so all rows go to one worker.

Routing that changes needs a stream that is in every join, the *centre*, which comes first. On the grid of a hot key it
is the left side of all joins and every other stream the right one, so each pair of a join meets once, as in
`braided.join`; pairs of other streams, which are no results, may meet more than once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.group_buffer import GroupWindow, retention_of
from braided.eviction.policies.policy import Policy
from braided.eviction.shed import Shed
from braided.operators.bounded.driver import Batch, budget_options, drive
from braided.operators.bounded.join_tactic import Joins, valid_keys
from braided.operators.join.window_join import WindowJoin
from braided.routing.content import content_hashes
from braided.routing.routes import Routes, route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work
from braided.time.clocks import GroupSpan
from braided.time.lateness import Lateness
from braided.time.resolve import least
from braided.time.stream_clock import lateness_options
from braided.typing import JOIN, GroupShare

UInt64s = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Member:
    """One join of a group: its name, the numbers of its two streams, and the join itself."""

    name: str
    streams: tuple[int, int]
    join: WindowJoin

    def role(self, stream: int) -> int | None:
        """Return 0 where a stream is its left side, 1 where it is its right one."""
        return self.streams.index(stream) if stream in self.streams else None


@dataclass(frozen=True)
class JoinGroup:
    """Inner window joins that keep at most `capacity` rows per worker, of all streams for all joins together.

    Cost: one step per pair, and a copy of each result. State: the rows kept, once, and those that wait. Every result is
    a result of the exact join, once.
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
    """The bytes of the rows kept, if rows differ in size and the budget is in bytes; else None."""
    adapts: bool = False
    idle: int | None = None
    share: GroupShare = "unified"

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results: the name of the join, and a struct for each."""
        structs = [pa.field(member.name, pa.struct(list(member.join.output))) for member in self.members]
        return pa.schema([pa.field(JOIN, pa.string()), *structs])

    @property
    def options(self) -> Json:
        joins = [{"name": m.name, "streams": list(m.streams), **m.join.options} for m in self.members]
        return {
            "operator": "join group",
            "joins": joins,
            "lateness": lateness_options(self.lateness),
            "idle": self.idle,
            **budget_options(self),
            **({} if self.share == "unified" else {"share": self.share}),
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

    @property
    def home(self) -> int | None:
        """No stream's rows have one home."""
        return None

    def describe(self) -> str:
        lines = []
        for member in self.members:
            left, right = (self.names[stream] for stream in member.streams)
            lines.append(f"{member.name}: {left} (l) with {right} (r) {member.join.describe().removeprefix('joins ')}")
        return "joins under one budget, " + "; ".join(lines)

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows that have a null in the key of every join; route the others by their key, if there is one."""
        total = rows.num_rows
        serving = [(m, role) for m in self.members if (role := m.role(side)) is not None]
        valid = np.logical_or.reduce([valid_keys(rows, m.join.keys[role]) for m, role in serving])
        if not valid.all():
            rows = rows.filter(pa.array(valid))
        times: npt.NDArray[np.int64] = rows.column(self.times[side]).view(pa.int64()).to_numpy()
        if not self.one_key:
            routes = Routes(np.zeros(rows.num_rows, np.int32))
            return Admitted(rows, routes, times, total - rows.num_rows)
        hashes = self.hashes(side, rows, None)
        routes = route(table, side, hashes, lambda at: content_hashes(rows.take(pa.array(at))))
        return Admitted(rows, routes, times, total - rows.num_rows, hashes)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key in the first join that it is in."""
        member, role = next((m, role) for m in self.members if (role := m.role(side)) is not None)
        return member.join.label(role, row)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        return drive(self, work, state, blocks)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.names

    @property
    def keyed(self) -> bool:
        """Whether rows are routed by a key; rows with several keys all go to one worker."""
        return self.one_key

    @property
    def retention(self) -> list[int]:
        return retention_of(self.windows, len(self.inputs))

    def hashes(self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None) -> UInt64s:
        """Return the hash by which each row is routed, if rows are routed by a key."""
        member, role = next((m, role) for m in self.members if (role := m.role(side)) is not None)
        return member.join.hashes(role, rows, tags)

    def tactic(self, batch: Batch, buffer: bytes | None, recall: bytes | None) -> Joins:
        return Joins(self, batch, buffer, recall)
