"""A small operator of a new kind, and ways in which it may break its promises: it lets every row go a batch later."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import strategies as st

from braided.errors import StateError
from braided.operators.physical import InputColumn, Plan
from braided.operators.spec import Spec, option
from braided.routing.content import row_hashes
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work
from support.contract.histories import SCHEMA
from support.contract.kinds import Case, Change, Kind

PIECE = 50_000
FAULTS = {
    "forgets what it holds in a new process": ("forgets", "a row is missing"),
    "loses what it holds where a batch has no rows": ("loses", "a row is missing"),
    "lets a row go twice": ("doubles", "a wrong or double row"),
    "has something random in its state": ("random", "a batch that runs again has other state"),
    "ignores damage": ("ignores", "a wrong result: block"),
    "says nothing of an option that gives state its meaning": ("silent", "DID NOT RAISE"),
    "leaves blocks behind": ("leaks", "blocks of state grow"),
    "remembers the number of every row": ("numbers", "bytes of bookkeeping of state grow"),
    "lets all go in one piece": ("large", "a piece of too many rows"),
    "calls its results by another name": ("renames", "not the schema that was promised"),
    "counts results wrong": ("counts", "the report counts other results"),
}
"""What may be wrong with the operator, and what the contract suite says then."""


@dataclasses.dataclass(frozen=True)
class Echo:
    """Holds the rows of a batch and lets them go in the next; with a fault it does something else."""

    schema: pa.Schema
    time: str
    fault: str
    held: dict[int, pa.RecordBatch] = dataclasses.field(default_factory=dict)
    lateness: tuple[int, ...] = (5,)
    idle: int | None = None

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return (self.schema,)

    @property
    def times(self) -> tuple[str, ...]:
        return (self.time,)

    @property
    def output(self) -> pa.Schema:
        return self.schema

    @property
    def options(self) -> Json:
        columns = [f"{field.name} {field.type}" for field in self.schema]
        return {"operator": "echo", "rows": columns, **({} if self.fault == "silent" else {"time": self.time})}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        hashes = row_hashes(rows)
        times = rows.column(self.time).view(pa.int64()).to_numpy()
        return Admitted(rows, route(table, side, hashes, lambda at: hashes[at]), times, 0)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return ""

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        state = state or {"block": None, "numbers": []}
        new = [block.rows for block in work.blocks]
        old = self._read(work.worker, state["block"], blocks)
        if self.fault == "loses" and not new:
            old = []
        out = [*old, *new] if work.final else old
        results = 0
        for rows in out * 2 if self.fault == "doubles" else out:
            results += rows.num_rows
            yield from self._pieces(rows)
        if state["block"] is not None and self.fault != "leaks":
            blocks.delete(state["block"])
        kept = None
        if new and not work.final:
            together = pa.concat_batches(new)
            kept = blocks.write(together.serialize().to_pybytes()).number
            if self.fault == "forgets":
                self.held[work.worker] = together
        after: Json = {"block": kept, "numbers": state["numbers"]}
        if self.fault == "numbers":
            after["numbers"] += [number for rows in new for number in rows.column("id").to_pylist()]
        if self.fault == "random":
            after["salt"] = os.urandom(2).hex()
        stored = 0 if kept is None else sum(rows.num_rows for rows in new)
        return Outcome(
            after,
            counts={"results": results + (self.fault == "counts")},
            levels={"stored_rows": stored},
            streams=[{"clock": None, "lateness": 5}],
        )

    def _read(self, worker: int, block: int | None, blocks: Blocks) -> list[pa.RecordBatch]:
        if self.fault == "forgets":
            return [self.held.pop(worker)] if worker in self.held else []
        if block is None:
            return []
        try:
            return [pa.ipc.read_record_batch(blocks.read(block)[0], self.schema)]
        except StateError:
            if self.fault == "ignores":
                return []
            raise

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        size = rows.num_rows if self.fault == "large" else min(PIECE, max(1, rows.num_rows * (4 << 20) // rows.nbytes))
        for start in range(0, rows.num_rows, size):
            piece = rows.slice(start, size)
            yield piece.rename_columns([name.upper() for name in SCHEMA.names]) if self.fault == "renames" else piece


def make_spec() -> type[Spec]:
    """Return a new kind of spec."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class EchoSpec(Spec):
        kind: ClassVar[str] = "echo"
        time: str = option("The event-time column.")

        @property
        def labels(self) -> tuple[str, ...]:
            return ("input",)

        def time_of(self, stream: int) -> object:
            return self.time

    return EchoSpec


def make_builder(fault: str) -> Any:
    """Return what builds the operator."""

    def build_echo(spec: Any, streams: Any, setting: Any) -> Plan:
        schema = streams[0].schema
        columns = tuple(InputColumn(name, 0, name) for name in schema.names)
        operator = Echo(schema, spec.time, fault)
        return Plan(spec, streams, operator, (spec.time,), (0,), columns, fixed="it never adapts", waits=True)

    return build_echo


def make_kind(spec: type[Any]) -> Kind:
    """Return what the contract suite must know."""
    return Kind(
        wanted=lambda one, streams: Counter(tuple(row.values()) for row in streams[0] if row[one.time] is not None),
        cases=(Case("all", spec(time="t"), st.builds(spec, time=st.just("t"))),),
        changes=(Change("time", "time", {"time": "u"}),),
        crowded=lambda one: (one, 300_000, 2_000),
    )
