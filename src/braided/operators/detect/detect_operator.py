"""The operator that runs a hierarchy of detectors: rows enter in order of time, and events are passed on in memory.

```
 streams -> ordering stage -> detectors, from the lowest up: ordering unit -> detector -> events -> results
                                                                   ^----------------------'
```

All detectors of a key run in one worker: a hierarchy costs one shuffle, whatever its depth.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from braided.operators.detect.event_batches import AT, TYPE, Keys, times_of
from braided.operators.detect.hierarchy import Hierarchy, Published
from braided.operators.detect.node import Node
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks, parts_of
from braided.runtime.contract import Admitted, Json, Outcome, Work
from braided.runtime.ordering_stage import OrderingStage
from braided.runtime.rows import Rows
from braided.runtime.store import MemoryStore
from braided.storage.topic_progress import Progress
from braided.time.clocks import MAX_TIME, MIN_TIME
from braided.time.lateness import Lateness
from braided.time.stream_clock import lateness_options

_PIECE_BYTES = 8 << 20
_PIECE_ROWS = 1 << 16
# How many rows of complete streams are processed at a time, about.
_ENOUGH_ROWS = 1 << 18


@dataclass(frozen=True)
class DetectOperator:
    """Runs detectors over the rows of each key, in order of time.

    Cost: a sort of each batch's rows by time, and of what each detector sees by key; the detectors themselves. State:
    rows and events that wait to be in order, and what detectors remember of each key.

    names : the streams, by the type of their events. nodes : the detectors, each after those below it.
    chosen : the types of the result. `flat` : the result has the columns of the one type, not a struct.
    """

    names: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    keys: Keys
    rules: tuple[int | Lateness, ...]
    nodes: tuple[Node, ...]
    chosen: tuple[str, ...]
    flat: bool
    quiet: int | None
    meaning: Json
    """What gives the state its meaning, as plain JSON."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return self.schemas

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column, the same in all streams."""
        return (self.keys.time,) * len(self.names)

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        return self.rules

    @property
    def idle(self) -> int | None:
        return self.quiet

    @cached_property
    def output(self) -> pa.Schema:
        types = {node.publishes: node.schema for node in self.nodes}
        if self.flat:
            return types[self.chosen[0]]
        schema = next(iter(types.values()))
        first = [schema.field(name) for name in (*self.keys.key, self.keys.time, AT)]
        structs = [pa.field(name, pa.struct(self._own(types[name]))) for name in self.chosen]
        return pa.schema([pa.field(TYPE, pa.string()), *first, *structs])

    def _own(self, schema: pa.Schema) -> list[pa.Field]:
        return [field for field in schema if field.name not in (*self.keys.key, AT)]

    @property
    def options(self) -> Json:
        return {
            "operator": "detect",
            "time": self.keys.time,
            "key": list(self.keys.key),
            "lateness": lateness_options(self.rules),
            **self.meaning,
            "columns": [[f"{field.name} {field.type}" for field in schema] for schema in self.schemas],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key; rows whose key has a null go together."""
        hashes = self.keys.hashes(rows)
        routes = route(table, side, hashes, lambda at: hashes[at])
        return Admitted(rows, routes, times_of(rows, self.keys.time), 0)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.keys.key)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        old: Json = state or {"stage": None, "hierarchy": None, "batch": 0}
        stage = OrderingStage(self, old["stage"], blocks, agreed=True)
        behind = stage.take(work).late
        streams = dict(zip(self.names, self.schemas, strict=True))
        hierarchy = Hierarchy(streams, self.nodes, blocks, old["hierarchy"], old["batch"])
        results, horizon = 0, MIN_TIME
        for sides, horizon in self._pieces(stage, behind, final=work.final):
            for published in hierarchy.advance(sides, horizon):
                if published.type in self.chosen:
                    for piece in self._results(published):
                        results += piece.num_rows
                        yield piece
        hierarchy.tidy()
        waiting, levels = stage.stored(), hierarchy.levels()
        return Outcome(
            {"stage": stage.to_json(), "hierarchy": hierarchy.to_json(), "batch": old["batch"] + 1},
            counts={"results": results, **stage.counts(self.names)},
            levels={
                **{name: count + waiting.get(name, 0) for name, count in levels.items()},
                **stage.levels(self.names),
            },
            streams=[{"name": name, **report} for name, report in zip(self.names, stage.report(), strict=True)],
            progress=self._progress(stage, hierarchy, horizon),
            # One worker reports the history, so that the reports of all workers together stay small.
            detectors=hierarchy.report(history=work.worker == 0),
        )

    def _progress(self, stage: OrderingStage, hierarchy: Hierarchy, horizon: int) -> list[Progress]:
        """Return the promised progress of the events in the result: detectors that see them rely on it."""
        until = min(hierarchy.least[type_] for type_ in self.chosen)
        behind = max(0, horizon - until) if MIN_TIME < until < MAX_TIME else 0
        return [Progress(until, stage.progress().lateness, behind)] * len(self.names)

    def detect_all(self, batches: Iterable[Sequence[tuple[pa.RecordBatch, pa.Array]]]) -> Iterator[pa.RecordBatch]:
        """Yield the results of complete streams: of each stream its rows, and their positions in the batch.

        Precondition: rows of a key, of all streams, come one after the other.
        """
        pending = [[pa.RecordBatch.from_pylist([], schema=schema)] for schema in self.schemas]
        hashes = np.zeros(0, np.uint64)
        sides, enough = np.zeros(0, np.int8), _ENOUGH_ROWS
        for batch in batches:
            of_batch, of = np.zeros(len(batch[0][1]), np.uint64), np.zeros(len(batch[0][1]), np.int8)
            for side, (rows, own) in enumerate(batch):
                at = own.to_numpy(zero_copy_only=False)
                of_batch[at], of[at] = self.keys.hashes(rows), side
                pending[side].append(rows)
            hashes, sides = np.concatenate([hashes, of_batch]), np.concatenate([sides, of])
            if len(hashes) < enough:
                continue
            others = np.flatnonzero(hashes != hashes[-1])
            cut = int(others[-1]) + 1 if len(others) else 0
            together = [pa.concat_batches(rows) for rows in pending]
            ends = [int((sides[:cut] == side).sum()) for side in range(len(self.schemas))]
            yield from self._all([rows.slice(0, end) for rows, end in zip(together, ends, strict=True)])
            pending = [[rows.slice(end)] for rows, end in zip(together, ends, strict=True)]
            hashes, sides = hashes[cut:], sides[cut:]
            enough = max(_ENOUGH_ROWS, 2 * len(hashes))
        yield from self._all([pa.concat_batches(rows) for rows in pending])

    def _all(self, rows: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        streams = dict(zip(self.names, self.schemas, strict=True))
        hierarchy = Hierarchy(streams, self.nodes, Blocks(MemoryStore(), 0, {}), None, 0)
        for published in hierarchy.advance(rows, MAX_TIME):
            if published.type in self.chosen:
                yield from self._results(published)

    def _pieces(
        self, stage: OrderingStage, behind: Sequence[Rows], *, final: bool
    ) -> Iterator[tuple[list[pa.RecordBatch], int]]:
        """Yield rows of each stream, piece by piece, with the time before which all are there.

        Rows that came too late are dropped, except those of a stream whose progress another job promises: these are
        events of lower detectors. An ordering unit that has not reached their time sees them, as it would in one query.
        """
        last = [
            rows.rows if clock.promise is not None else pa.RecordBatch.from_pylist([], schema=schema)
            for schema, rows, clock in zip(self.schemas, behind, stage.clocks, strict=True)
        ]
        for sides in stage.release():
            ends = [int(times_of(rows, self.keys.time)[-1]) for rows in last if rows.num_rows]
            # There is no time after the last one.
            if ends and max(ends) < MAX_TIME - 1:
                yield last, max(ends) + 1
                last = [rows.rows for rows in sides]
            else:
                last = [pa.concat_batches([a, b.rows]) for a, b in zip(last, sides, strict=True)]
        yield last, MAX_TIME if final else stage.until

    def _results(self, published: Published) -> Iterator[pa.RecordBatch]:
        for start, stop in parts_of(published.rows, _PIECE_BYTES):
            for first in range(start, stop, _PIECE_ROWS):
                yield self._result(published.type, published.rows.slice(first, min(_PIECE_ROWS, stop - first)))

    def _result(self, type_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.flat:
            return pa.RecordBatch.from_arrays(rows.columns, schema=self.output)
        own = self._own(rows.schema)
        struct = pa.StructArray.from_arrays([rows.column(field.name) for field in own], fields=own)
        columns = []
        for field in self.output:
            if field.name == TYPE:
                columns.append(pa.repeat(pa.scalar(type_, pa.string()), rows.num_rows))
            elif field.name in self.chosen:
                columns.append(struct if field.name == type_ else pa.nulls(rows.num_rows, field.type))
            else:
                columns.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)
