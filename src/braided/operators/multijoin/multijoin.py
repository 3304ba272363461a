"""The join of many streams on a common key, as an operator.

Every combination of one row from each stream with equal keys and ``max(t) - min(t) <= within`` is returned once: when
the last of its rows arrives, in the batch of that row. State expires after the whole batch has probed.

*Routing that changes.* Copies that only probe, as two streams have them, are not enough: if x is stored under an older
assignment and y under a newer one, a third row z meets x in one worker and y in another. So a row is stored under
*every* assignment that is alive when it arrives, and marked under all but the newest one. A combination counts only
under the newest assignment of its earliest batch:

```
 assignment a   x primary   y copy   z copy      all three meet; x is the earliest, and primary here: counted
 assignment b               y primary  z primary  x is not here: nothing to count
```

*Why it is exact:* rows of one batch and key have the same assignments. The newest of the earliest batch stays alive as
long as its rows can match, so all later rows of the combination are stored there too. Within this one assignment
the rows meet in one worker, so no other worker counts the combination again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa

from braided.durations import format_duration
from braided.errors import BraidedError
from braided.operators.join.arrivals import KeyedInputs, OutputColumn
from braided.operators.join.stored import JoinState
from braided.operators.multijoin.combination_emitter import MultiEmitter
from braided.operators.multijoin.probe import Combiner, StreamRuns
from braided.operators.multijoin.stamps import StampedStreams, add_stamps
from braided.routing.key_hashes import KeyHasher
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work
from braided.time.clocks import Span
from braided.time.lateness import Lateness


@dataclass(frozen=True)
class MultiJoin(KeyedInputs):
    """An exact inner join of n streams on equal keys and ``max(t) - min(t) <= within``.

    Cost per batch: sorting the new rows, one directory look-up per new row and stored run of each other stream, one
    step per partial combination, one copy of each result. State: every row that can still be part of a result, once.
    """

    inputs: tuple[pa.Schema, ...]
    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]
    window: Span
    hasher: KeyHasher
    columns: tuple[OutputColumn, ...]
    learned: tuple[Lateness | None, ...]
    idle: int | None = None
    adaptive: bool = False
    """Whether the routing may change: costs 4 bytes more per stored row."""

    @property
    def options(self) -> Json:
        return {
            "operator": "multijoin",
            "on": [list(names) for names in self.keys],
            "time": list(self.times),
            "within": self.window.within,
            **self.time_options,
            "streams": [[f"{field.name} {field.type}" for field in schema] for schema in self.inputs],
            "adaptive": self.adaptive,
        }

    @property
    def by_hash(self) -> bool:
        """See `stores_by_hash`. With stamps, stored rows differ from the rows that came."""
        return not self.adaptive

    @property
    def most_columns(self) -> int:
        """A grid of several columns would keep the rows of two copied streams apart."""
        return 1

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key. The first stream is the master of every grid."""
        wide = any(len(grid.columns) > 1 for grid in table.grids.values())
        if wide or not (self.adaptive or table.plain):
            raise BraidedError(
                f"routing table {table.version}: does not belong to a join of many streams; give another control "
                "directory"
            )
        return super().admit(side, rows, table)

    def describe(self) -> str:
        same = [names[0] if len(set(names)) == 1 else " = ".join(names) for names in zip(*self.keys, strict=True)]
        within = format_duration(self.window.within)
        return f"joins {len(self.inputs)} streams on {', '.join(same)}, max(t) - min(t) <= {within}"

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        stored = StampedStreams(self) if self.adaptive else self
        join_state = JoinState.restore(stored, state, blocks)
        batch = 1 if state is None else state["batch"] + 1
        sides = range(len(self.inputs))
        arrived = [add_stamps(block, batch) for block in work.blocks] if self.adaptive else work.blocks
        new = [[*self.new_runs(s, arrived, stored=True), *self.new_runs(s, arrived, stored=False)] for s in sides]
        tally = Tally() if work.watched else None
        if tally is not None:
            for side in sides:
                for run in new[side]:
                    tally.rows(min(side, 1), run.hashes, run.tags)
        late = [self.count_late(side, work.blocks, join_state.streams[side].safe) for side in sides]
        lost = [self.count_lost(side, work.blocks, join_state.lost(side, -self.window.within)) for side in sides]
        streams = [StreamRuns(join_state, side, new[side]) for side in sides]
        emitter = MultiEmitter(self, streams, tally, stamps=self.adaptive)
        combiner = Combiner(self.window.within, streams, emitter)
        for side in sides:
            yield from combiner.combine(side, new[side])
        yield from emitter.flush()

        join_state.advance(work)
        for side in sides:
            join_state.absorb(side, new[side])
        return Outcome(
            {"batch": batch, **join_state.to_json()},
            load={} if tally is None else tally.to_json(),
            counts={"results": emitter.results, **join_state.counts(late, lost)},
            levels=join_state.levels(),
            streams=[stream.report() for stream in join_state.streams],
            progress=join_state.progress(),
        )
