"""New rows of keyed streams: which are admitted and where they go, how they become sorted runs, which are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.runs import Run, sorted_block, sorted_run
from braided.routing.content import content_hashes
from braided.routing.hash_kernels import salt
from braided.routing.key_hashes import KeyHasher
from braided.routing.routes import Routes, route
from braided.routing.table import RoutingTable
from braided.runtime.contract import Admitted, Block, Json
from braided.time.clocks import MIN_TIME, Span, Window
from braided.time.lateness import Lateness
from braided.time.stream_clock import StreamClock, lateness_options

# New rows are sorted into runs of at most this size in memory before they probe and are stored.
_NEW_RUN_BYTES = 64 << 20
# At most this number of router files is adopted per side and batch. Each file is one more run to search, while one
# sorted run of all of them would be a single one.
_MOST_ADOPTED = 2


@dataclass(frozen=True)
class OutputColumn:
    """One result column: its name, the side it comes from and its name there."""

    name: str
    side: int
    source: str


class KeyedInputs:
    """The common part of operators on keys, for any number of inputs."""

    inputs: tuple[pa.Schema, ...]
    columns: tuple[OutputColumn, ...]
    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]
    hasher: KeyHasher
    window: Window | Span
    learned: tuple[Lateness | None, ...]
    """How each stream's lateness is learned. If it is, the window has the least value that it may have."""
    idle: int | None

    @property
    def preserved(self) -> tuple[int, ...]:
        """The inputs whose rows are returned even if nothing matches them."""
        return ()

    @property
    def home(self) -> int | None:
        """The input whose rows have one home while the routing changes (`braided.routing.home_routes`); None: none."""
        return None

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each input's lateness, or how it is learned."""
        return tuple(k if rule is None else rule for k, rule in zip(self.window.lateness, self.learned, strict=True))

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return pa.schema([pa.field(c.name, self.inputs[c.side].field(c.source).type) for c in self.columns])

    @property
    def time_options(self) -> Json:
        """The part of an operator's options that concerns time."""
        return {"lateness": lateness_options(self.lateness), "idle": self.idle}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        total = rows.num_rows
        for name in self.keys[side]:
            if rows.column(name).null_count:
                rows = rows.filter(rows.column(name).is_valid())
        hashes = self.hashes(side, rows)
        routes = self.routes(side, rows, hashes, table)
        keyed = hashes if self.keys[side] else None
        return Admitted(rows, routes, self.times_of(side, rows), total - rows.num_rows, keyed)

    def routes(self, side: int, rows: pa.RecordBatch, hashes: npt.NDArray[np.uint64], table: RoutingTable) -> Routes:
        """Return where rows with these hashes go."""
        return route(table, side, hashes, lambda at: content_hashes(rows.take(pa.array(at))))

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.keys[side])

    def hashes(
        self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Return the key hash of each row, changed by its tag, so that rows of different grids do not meet."""
        hashes = self.hasher.hash([rows.column(name) for name in self.keys[side]], rows.num_rows)
        if tags is not None:
            salt(hashes, tags)
        return hashes

    def times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the event time of each row."""
        times: npt.NDArray[np.int64] = rows.column(self.times[side]).view(pa.int64()).to_numpy()
        return times

    def new_runs(self, side: int, blocks: Sequence[Block], *, stored: bool) -> list[Run]:
        """Sort a batch's new rows of one side, those to store or those that only probe, into runs of bounded size."""
        arrived = [block for block in blocks if block.side == side and block.stored == stored]
        runs = self._adopted(side, arrived) if stored else []
        for group in _groups([block for block in arrived if all(run.rows is not block.rows for run in runs)]):
            rows = pa.concat_batches([block.rows for block in group])
            tags = None
            if any(block.tags is not None for block in group):
                tags = np.concatenate(
                    [np.zeros(b.rows.num_rows, np.int32) if b.tags is None else b.tags for b in group]
                )
            runs.append(sorted_run(rows, self.hashes(side, rows, tags), self.times_of(side, rows), tags))
        return runs

    def _adopted(self, side: int, blocks: Sequence[Block]) -> list[Run]:
        """Return blocks that already are runs: sorted by the router, each in its own file."""
        files = [block.own_file for block in blocks if block.own_file is not None]
        if len(files) > _MOST_ADOPTED:
            return []
        runs = (sorted_block(f.rows, self.hashes(side, f.rows), self.times_of(side, f.rows), f) for f in files)
        return [run for run in runs if run is not None]

    def late_before(self, state: Json | None) -> list[int]:
        """Return the times before which rows of each stream are late, by the state before a batch."""
        if state is None:
            return [MIN_TIME for _ in self.inputs]
        clocks = [StreamClock(rule, self.window.span, self.idle) for rule in self.lateness]
        for clock, known in zip(clocks, state["streams"], strict=True):
            clock.restore(known)
        return [clock.safe for clock in clocks]

    def count_late(self, side: int, blocks: Sequence[Block], safe: int) -> int:
        """Count rows that are late by the committed clock or, at the end of a block, late within their task."""
        count = 0
        for block in blocks:
            if block.side == side:
                count += block.late
                on_time = self.times_of(side, block.rows)[: block.on_time]
                count += int(np.count_nonzero(on_time < safe))
        return count

    def count_lost(self, side: int, blocks: Sequence[Block], until: int) -> int:
        """Count rows, each where it is primary, that are so late that rows which they could have met have expired."""
        count = 0
        for block in blocks if until > MIN_TIME else ():
            if block.side == side and block.timed:
                primary = self.times_of(side, block.rows)[: block.on_time + block.late * block.stored]
                count += int(np.count_nonzero(primary <= until))
        return count


def _groups(blocks: list[Block]) -> Iterator[list[Block]]:
    group: list[Block] = []
    size = 0
    for block in blocks:
        if group and size + block.rows.nbytes > _NEW_RUN_BYTES:
            yield group
            group, size = [], 0
        group.append(block)
        size += block.rows.nbytes
    if group:
        yield group
