"""The window join as an operator: probe the stored runs with a batch's new rows, then store those rows.

A pair is found exactly once: a new left row probes the stored right runs and the new right rows, a new
right row probes the stored left runs only. State expires after the whole batch has probed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.join.emit import Emitter
from braided.join.runs import Run, sorted_run
from braided.join.state import JoinState
from braided.order.clocks import Window
from braided.order.lateness import Lateness
from braided.order.stream_clock import update_all
from braided.routing.content import content_hashes
from braided.routing.kernels import salt
from braided.routing.keys import KeyHasher
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally
from braided.runtime.operator import Admitted, Block, Json, Outcome, Work
from braided.runtime.store import Store

if TYPE_CHECKING:
    from braided.join.theta import ThetaPredicate
    from braided.join.where import Predicate

# New rows are sorted into runs of at most this size in memory before they probe and are stored.
_NEW_RUN_BYTES = 64 << 20
_SIDES = ("left", "right")


@dataclass(frozen=True)
class OutputColumn:
    """One result column: its name, the side it comes from and its name there."""

    name: str
    side: int
    source: str


@dataclass(frozen=True)
class WindowJoin:
    """An exact inner join of two streams on equal keys and ``lo <= r.t - l.t <= hi``.

    Cost per batch: sorting the new rows, one directory look-up per new row and stored run, and one copy of
    each result. State: every row that can still match, once.
    """

    inputs: tuple[pa.Schema, pa.Schema]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    times: tuple[str, str]
    window: Window
    hasher: KeyHasher
    columns: tuple[OutputColumn, ...]
    where: Predicate | None = None
    where_text: str | None = None
    theta: ThetaPredicate | None = None
    """The predicate of a join without keys."""
    learned: tuple[Lateness | None, Lateness | None] = (None, None)
    """How each stream's lateness is learned; where it is, the window has the least that it may be."""
    idle: int | None = None

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each input's lateness, or how it is learned."""
        return tuple(k if rule is None else rule for k, rule in zip(self.window.lateness, self.learned, strict=True))

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return pa.schema([pa.field(c.name, self.inputs[c.side].field(c.source).type) for c in self.columns])

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        return {
            "operator": "join",
            "on": [list(names) for names in self.keys],
            "time": list(self.times),
            "between": [self.window.lo, self.window.hi],
            "lateness": [k if isinstance(k, int) else asdict(k) for k in self.lateness],
            "idle": self.idle,
            "where": self.where_text,
            "left": [f"{field.name} {field.type}" for field in self.inputs[0]],
            "right": [f"{field.name} {field.type}" for field in self.inputs[1]],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        total = rows.num_rows
        for name in self.keys[side]:
            if rows.column(name).null_count:
                rows = rows.filter(rows.column(name).is_valid())
        hashes = self.hashes(side, rows)
        routes = route(table, side, hashes, lambda at: content_hashes(rows.take(pa.array(at))))
        keyed = hashes if self.keys[side] else None
        return Admitted(rows, routes, self.times_of(side, rows), total - rows.num_rows, keyed)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.keys[side])

    def hashes(
        self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Return the key hash of each row, changed by its tag: rows of different grids are not to meet."""
        hashes = self.hasher.hash([rows.column(name) for name in self.keys[side]], rows.num_rows)
        if tags is not None:
            salt(hashes, tags)
        return hashes

    def times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the event time of each row."""
        times: npt.NDArray[np.int64] = rows.column(self.times[side]).view(pa.int64()).to_numpy()
        return times

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch."""
        kept = JoinState.restore(self, state, store)
        new = [self._new_runs(side, work.blocks, stored=True) for side in (0, 1)]
        probing = [self._new_runs(side, work.blocks, stored=False) for side in (0, 1)]
        late = [self._late(side, work.blocks, kept.streams[side].safe) for side in (0, 1)]
        tally = Tally() if work.watched else None
        if tally is not None:
            for side in (0, 1):
                for run in (*new[side], *probing[side]):
                    tally.rows(side, run.hashes, run.tags)
        emitter = Emitter(self, tally)
        for left in new[0]:
            for right in (*kept.runs_for(left, 1), *new[1]):
                yield from emitter.probe(0, left, right)
        for right in new[1]:
            for left in kept.runs_for(right, 0):
                yield from emitter.probe(1, right, left)
        # Rows sent to an older assignment meet only what is stored there: nothing new is stored under it.
        for side in (0, 1):
            for probe in probing[side]:
                for stored in kept.runs_for(probe, 1 - side):
                    yield from emitter.probe(side, probe, stored)
        yield from emitter.flush()

        update_all(kept.streams, work.streams, work.stamp)
        for side in (0, 1):
            kept.absorb(side, new[side])
        levels = kept.levels()
        return Outcome(
            kept.to_json(),
            counts={
                "results": emitter.results,
                **{f"late_{name}": late[side] for side, name in enumerate(_SIDES)},
                **{f"given_up_{name}": kept.given_up[side] for side, name in enumerate(_SIDES)},
            },
            load={} if tally is None else tally.to_json(),
            levels=levels | {f"quarantined_{name}": kept.quarantined(side) for side, name in enumerate(_SIDES)},
            streams=[stream.report() for stream in kept.streams],
        )

    def _new_runs(self, side: int, blocks: Sequence[Block], *, stored: bool) -> list[Run]:
        """Sort a batch's new rows of one side, those to store or those that only probe, into runs of bounded size."""
        runs = []
        for group in _groups([block for block in blocks if block.side == side and block.stored == stored]):
            rows = pa.concat_batches([block.rows for block in group])
            tags = None
            if any(block.tags is not None for block in group):
                tags = np.concatenate(
                    [np.zeros(b.rows.num_rows, np.int32) if b.tags is None else b.tags for b in group]
                )
            runs.append(sorted_run(rows, self.hashes(side, rows, tags), self.times_of(side, rows), tags))
        return runs

    def _late(self, side: int, blocks: Sequence[Block], safe: int) -> int:
        """Count rows late against the committed clock or, at the end of a block, within their router task."""
        count = 0
        for block in blocks:
            if block.side == side:
                count += block.late
                on_time = self.times_of(side, block.rows)[: block.on_time]
                count += int(np.count_nonzero(on_time < safe))
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
