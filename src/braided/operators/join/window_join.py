"""The window join as an operator: probe the stored runs with a batch's new rows, then store those rows.

A pair is found exactly once: a new left row probes the stored right runs and the new right rows, a new
right row probes the stored left runs only. State expires after the whole batch has probed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from braided.durations import format_duration
from braided.operators.join.adoption import adopt_runs
from braided.operators.join.arrivals import KeyedInputs, OutputColumn
from braided.operators.join.emit import Emitter, Ranges
from braided.operators.join.stored import JoinState
from braided.routing.key_hashes import KeyHasher
from braided.routing.tally import Tally
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Outcome, Work
from braided.runtime.handover import Handover
from braided.time.clocks import Window
from braided.time.lateness import Lateness

if TYPE_CHECKING:
    from braided.expressions.compile import Predicate
    from braided.operators.join.theta.search import ThetaPredicate


@dataclass(frozen=True)
class WindowJoin(KeyedInputs):
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
    """The predicate, if the join has no keys."""
    learned: tuple[Lateness | None, ...] = (None, None)
    idle: int | None = None
    by_hash: ClassVar[bool] = True
    """See `stores_by_hash`."""

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        return {
            "operator": "join",
            "on": [list(names) for names in self.keys],
            "time": list(self.times),
            "between": [self.window.lo, self.window.hi],
            **self.time_options,
            "where": self.where_text,
            "left": [f"{field.name} {field.type}" for field in self.inputs[0]],
            "right": [f"{field.name} {field.type}" for field in self.inputs[1]],
        }

    @property
    def most_columns(self) -> int | None:
        """Grids may have any shape."""
        return None

    def describe(self) -> str:
        """Return a description of the join."""
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(*self.keys, strict=True))
        kind = f" ({self.theta.kind})" if self.theta else ""
        how = f"on {on}" if on else f"by {self.where_text or 'time alone'}{kind}"
        lo, hi = format_duration(self.window.lo), format_duration(self.window.hi)
        also = f", where {self.where_text}" if on and self.where_text else ""
        return f"joins {how}, {lo} <= r.t - l.t <= {hi}{also}"

    def adopt(self, handover: Handover, worker: int, blocks: Blocks) -> Json:
        """Return a worker's share of the rows that other workers stored (`braided.operators.join.adoption`)."""
        return adopt_runs(self, handover, worker, blocks)

    def process(
        self, work: Work, state: Json | None, blocks: Blocks, ranges: Ranges | None = None
    ) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch; matches that `ranges` takes are not turned into pairs."""
        join_state = JoinState.restore(self, state, blocks)
        new = [self.new_runs(side, work.blocks, stored=True) for side in (0, 1)]
        probing = [self.new_runs(side, work.blocks, stored=False) for side in (0, 1)]
        late = [self.count_late(side, work.blocks, join_state.streams[side].safe) for side in (0, 1)]
        lost = [
            self.count_lost(side, work.blocks, join_state.lost(side, self.window.reach(side)[0])) for side in (0, 1)
        ]
        tally = Tally() if work.watched else None
        if tally is not None:
            for side in (0, 1):
                for run in (*new[side], *probing[side]):
                    tally.rows(side, run.hashes, run.tags)
        emitter = Emitter(self, tally, ranges)
        yield from emitter.meet(join_state, new, probing)

        join_state.advance(work)
        for side in (0, 1):
            join_state.absorb(side, new[side])
        return Outcome(
            join_state.to_json(),
            counts={"results": emitter.results, **join_state.counts(late, lost)},
            load={} if tally is None else tally.to_json(),
            levels=join_state.levels(),
            streams=[stream.report() for stream in join_state.streams],
            progress=join_state.progress(),
        )
