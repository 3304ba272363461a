"""The operator that runs a hierarchy of detectors: rows enter in order of time, and events are handed on in memory.

```
 streams -> ordering stage -> detectors, from the lowest up: ordering unit -> detector -> events -> results
                                                                   ^----------------------'
```

All detectors of a key run in one worker: a hierarchy costs one shuffle, whatever its depth.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from braided.detection.events import AT, TYPE, Keys, times_of
from braided.detection.hierarchy import Hierarchy, Published
from braided.detection.node import Node
from braided.operator.blocks import Blocks, parts_of
from braided.operator.contract import Admitted, Json, Outcome, Work
from braided.operator.ordering_stage import OrderingStage
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.time.clocks import MAX_TIME
from braided.time.lateness import Lateness
from braided.time.stream_clock import lateness_options

_PIECE_BYTES = 8 << 20
_PIECE_ROWS = 1 << 16


@dataclass(frozen=True)
class Detecting:
    """Runs detectors over the rows of each key, in order of time.

    Cost: a sort of each batch's rows by time, and of what each detector sees by key; the detectors themselves. State:
    rows and events that wait to be in order, and what detectors remember of each key.

    names : the streams, by the type of their events. nodes : the detectors, each after those below it.
    chosen : the types of the result; `flat` puts the columns of one type beside each other.
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
        """The Arrow schema of each stream."""
        return self.schemas

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column, the same in all streams."""
        return (self.keys.time,) * len(self.names)

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """How late rows may be."""
        return self.rules

    @property
    def idle(self) -> int | None:
        """After how much silence a stream holds the others back no longer."""
        return self.quiet

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of the results."""
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
        """Everything that gives the stored state its meaning."""
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
        """Return a row's key, its columns separated by commas."""
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.keys.key)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Run all detectors on one batch."""
        old: Json = state or {"stage": None, "hierarchy": None, "batch": 0}
        stage = OrderingStage(self, old["stage"], blocks, agreed=True)
        stage.take(work)
        streams = dict(zip(self.names, self.schemas, strict=True))
        hierarchy = Hierarchy(streams, self.nodes, blocks, old["hierarchy"], old["batch"])
        results = 0
        for sides, horizon in self._pieces(stage, final=work.final):
            for published in hierarchy.advance(sides, horizon):
                if published.type in self.chosen:
                    for piece in self._results(published):
                        results += piece.num_rows
                        yield piece
        hierarchy.tidy()
        waiting, kept = stage.stored(), hierarchy.levels()
        return Outcome(
            {"stage": stage.to_json(), "hierarchy": hierarchy.to_json(), "batch": old["batch"] + 1},
            counts={"results": results, **stage.counts(self.names)},
            levels={
                **{name: count + waiting.get(name, 0) for name, count in kept.items()},
                **stage.levels(self.names),
            },
            streams=[{"name": name, **told} for name, told in zip(self.names, stage.report(), strict=True)],
            detectors=hierarchy.report(),
        )

    def _pieces(self, stage: OrderingStage, *, final: bool) -> Iterator[tuple[list[pa.RecordBatch], int]]:
        """Yield rows of each stream, piece by piece, with the time before which all are there."""
        last = [pa.RecordBatch.from_pylist([], schema=schema) for schema in self.schemas]
        for sides in stage.release():
            ends = [int(times_of(rows, self.keys.time)[-1]) for rows in last if rows.num_rows]
            # One past the end of time would be none.
            if ends and max(ends) < MAX_TIME - 1:
                yield last, max(ends) + 1
                last = [rows.rows for rows in sides]
            else:
                last = [pa.concat_batches([a, b.rows]) for a, b in zip(last, sides, strict=True)]
        yield last, MAX_TIME if final else stage.until

    def _results(self, published: Published) -> Iterator[pa.RecordBatch]:
        """Yield events as rows of the result, in pieces of bounded size."""
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
