"""The join of many streams on a common key, as an operator.

Every combination of one row from each stream with equal keys and ``max(t) - min(t) <= within`` comes out once: when
the last of its rows arrives, in the batch of that row. State expires after the whole batch has probed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from braided.join.arrivals import KeyedInputs
from braided.join.multi_emit import MultiEmitter
from braided.join.multi_probe import Combiner, StreamRuns
from braided.join.operator import OutputColumn
from braided.join.state import JoinState
from braided.order.clocks import Span
from braided.order.lateness import Lateness
from braided.routing.keys import KeyHasher
from braided.runtime.operator import Json, Outcome, Work
from braided.runtime.store import Store


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

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return pa.schema([pa.field(c.name, self.inputs[c.side].field(c.source).type) for c in self.columns])

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        return {
            "operator": "multijoin",
            "on": [list(names) for names in self.keys],
            "time": list(self.times),
            "within": self.window.within,
            **self.time_options,
            "streams": [[f"{field.name} {field.type}" for field in schema] for schema in self.inputs],
        }

    def describe(self) -> str:
        """Return the join as people would say it."""
        same = [names[0] if len(set(names)) == 1 else " = ".join(names) for names in zip(*self.keys, strict=True)]
        return f"joins {len(self.inputs)} streams on {', '.join(same)}, max(t) - min(t) <= {self.window.within} us"

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch."""
        kept = JoinState.restore(self, state, store)
        sides = range(len(self.inputs))
        new = [self.new_runs(side, work.blocks, stored=True) for side in sides]
        late = [self.count_late(side, work.blocks, kept.streams[side].safe) for side in sides]
        streams = [StreamRuns(kept, side, new[side]) for side in sides]
        emitter = MultiEmitter(self, streams)
        combiner = Combiner(self.window.within, streams, emitter)
        for side in sides:
            yield from combiner.combine(side, new[side])
        yield from emitter.flush()

        kept.advance(work)
        for side in sides:
            kept.absorb(side, new[side])
        return Outcome(
            kept.to_json(),
            counts={"results": emitter.results, **kept.counts(late)},
            levels=kept.levels(),
            streams=[stream.report() for stream in kept.streams],
        )
