"""Runs operators in one process as a cluster would: restarted, re-run, on changing routes. Knows no operator."""

from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braided
from braided.local import runtime as local
from braided.local.runtime import LocalRuntime
from braided.operators.physical import EngineFeatures, Plan
from braided.operators.registry import build
from braided.operators.spec import Spec
from braided.operators.stream import Stream
from braided.routing.grid import Grid
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.cache import FileCache
from braided.runtime.store import MemoryStore
from braided.runtime.worker import run_worker
from support.contract.histories import SCHEMA, History, Row, Tasks, Way, batches
from support.folder_store import FolderStore, ObjectStore, folder_stores
from support.routing_cases import RandomController

FINAL: Tasks = [(0, [])]
SECOND = 1_000_000
LIMIT = re.compile(r"_?(NEW_RUN|RUN|MERGE|BLOCK|HELD|PIECE)_(BYTES|ROWS)|_?ROOM")
"""Constants that say how much is read, held, stored or given at once; no result depends on them."""


def plan_of(spec: Spec, *, adaptive: bool = False, schema: pa.Schema = SCHEMA) -> Plan:
    """Build a spec over streams of one schema."""
    return build(spec, [Stream(label, schema) for label in spec.labels], EngineFeatures(adaptive=adaptive))


def can_adapt(plan: Plan) -> bool:
    """Whether the routing of a plan may change while it runs."""
    return plan.joined is not None and plan.fixed is None


class OneColumn(RandomController):
    """Changes the routing at random, with grids of one column."""

    def grid(self, grid: Grid) -> Grid:
        return Grid((grid.workers,))


@lru_cache(maxsize=32)
def _first_table(scheme: str, workers: int, *, keyed: bool) -> RoutingTable:
    """The table that a query starts with; to make one and its digest takes longer than a batch here."""
    return first_table(scheme, workers, keyed=keyed, version=1)


@lru_cache(maxsize=1)
def host_cache() -> FileCache:
    """The cache of a host on which processes come and go."""
    folder = Path(tempfile.mkdtemp(prefix="braided-contract-"))
    return FileCache(folder / "cache", 1 << 28)


@dataclass
class Ran:
    """What came out of a run: rows in order, the report, and how many rows a worker stored at most after a batch."""

    rows: list[Row] = field(default_factory=list)
    most_stored: int = 0
    runtime: LocalRuntime | None = None

    @property
    def report(self) -> dict[str, Any]:
        """The report at the end."""
        assert self.runtime is not None
        return self.runtime.report().to_dict()


class Host:
    """Runs the batches of a spec one after the other, each in a new process where the way says so.

    The operator itself is built anew with every restart: what it remembers is in its stores, or lost.
    """

    def __init__(self, spec: Spec, way: Way, *, schema: pa.Schema = SCHEMA) -> None:
        self.way = way
        self.plans = [plan_of(spec, adaptive=way.rerouted, schema=schema) for _ in range(2)]
        plan = self.plans[0]
        table = _first_table(plan.scheme, way.workers, keyed=plan.keyed)
        kinds = {"files": FolderStore, "objects": ObjectStore}
        stores = folder_stores(way.workers, kind=kinds[way.restart]) if way.restart in kinds else None
        self.runtime = LocalRuntime(plan.operator, way.workers, stores, controller=self._controller(table))
        self.runtime.table = table
        self.batch = 0
        if way.restart == "kept":
            for store in self.runtime.stores:
                store.cache = host_cache()

    def _controller(self, table: RoutingTable) -> Any:
        """Return who changes the routing, if anybody does."""
        joined = self.plans[0].joined
        if not self.way.rerouted or joined is None:
            return None
        kind = OneColumn if joined.most_columns == 1 else RandomController
        controller = kind(table, joined.window, slots=0, home=joined.home)
        controller.keys = 4
        return controller

    @property
    def moment(self) -> int | None:
        """The moment of the batch, for operators that ask."""
        return None if self.plans[0].operator.idle is None else self.batch * SECOND

    def run(self, tasks: Tasks, *, final: bool = False) -> list[pa.RecordBatch]:
        """Run a batch, and be restarted after it."""
        first = self.runtime.stores[0]
        if isinstance(first, FolderStore):
            self.runtime.shuffle = first.shuffle(self.batch)
        pieces = list(self.runtime.run_batch(tasks, final=final, moment=self.moment))
        self.batch += 1
        if self.way.restart != "never":
            self.restart()
        return pieces

    def restart(self) -> None:
        """Go on as a new process would."""
        old = self.runtime
        self.plans.reverse()
        table = RoutingTable.from_bytes(old.table.to_bytes()) if self.way.rerouted else old.table
        # Workers come and go while the driver stays, or it starts anew with them.
        controller = old.controller if (self.way.shuffle or 0) % 2 else self._controller(table)
        self.runtime = LocalRuntime(self.plans[0].operator, stores=reloaded(old.stores), controller=controller)
        self.runtime.table = table
        self.runtime.reports = old.reports
        if self.way.restart == "kept":
            for store in self.runtime.stores:
                store.cache = host_cache()


def reloaded(stores: Sequence[MemoryStore]) -> list[MemoryStore]:
    """Return stores as a new process finds them."""
    found: list[MemoryStore] = pickle.loads(pickle.dumps(list(stores)))
    return found


def drive(spec: Spec, history: History, way: Way, *, schema: pa.Schema = SCHEMA, final: bool = True) -> Ran:
    """Run a history in some way to its end, and see that no input was written to."""
    host = Host(spec, way, schema=schema)
    operator = host.plans[0].operator
    ran = Ran()
    todo = batches(history, way, operator.inputs)
    for number, tasks in enumerate([*todo, FINAL] if final else todo):
        before = contents(tasks)
        for piece in host.run(tasks, final=number == len(todo)):
            assert piece.schema == operator.output, "not the schema that was promised"
            ran.rows += rows_of(piece)
        assert contents(tasks) == before, "an input was written to"
        stored = [report["last"]["stored_rows"] for report in host.runtime.reports]
        ran.most_stored = max(ran.most_stored, *stored)
    ran.runtime = host.runtime
    return ran


@lru_cache(maxsize=1)
def limits() -> tuple[tuple[Any, str], ...]:
    """Return every such constant, with its module."""
    names = [f"braided.{package}." for package in ("operators", "runtime")]
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(braided.__path__, "braided.")
        if found.name.startswith(tuple(names))
    ]
    return tuple((module, name) for module in modules for name in vars(module) if LIMIT.fullmatch(name))


@contextmanager
def small_limits(rows: int, size: int) -> Iterator[None]:
    """Let little be done at once: so many rows, or rows of so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in limits():
            patch.setattr(module, name, size if name.endswith("_BYTES") else rows)
        yield


def contents(tasks: Tasks) -> list[bytes]:
    """Return the input of a batch as bytes."""
    return [batch.serialize().to_pybytes() for _, parts in tasks for batch in parts]


def rows_of(piece: pa.RecordBatch) -> list[Row]:
    """Return rows with their times in microseconds."""
    plain = pa.RecordBatch.from_arrays([_plain(column) for column in piece.columns], piece.schema.names)
    rows: list[Row] = plain.to_pylist()
    return rows


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_struct(column.type):
        names = [column.type.field(number).name for number in range(column.type.num_fields)]
        return pa.StructArray.from_arrays([_plain(part) for part in column.flatten()], names, mask=column.is_null())
    return column


@dataclass(frozen=True)
class Trace:
    """All that a batch leaves behind, as bytes: what crosses the shuffle, the results, the state."""

    packets: tuple[Any, ...]
    results: tuple[bytes, ...]
    state: tuple[Any, ...]


def traced(runtime: LocalRuntime, tasks: Tasks, *, final: bool, moment: int | None, backwards: bool = False) -> Trace:
    """Run a batch and return what it leaves behind; `backwards` lets packets arrive in the opposite order."""
    packets: list[str] = []

    def watched(operator: Any, place: Any, sent: Any, store: Any) -> Any:
        packets.extend(
            sorted(repr(replace(packet, block=packet.block and packet.block.to_pybytes())) for packet in sent)
        )
        return run_worker(operator, place, sent[::-1] if backwards else sent, store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "run_worker", watched)
        results = [piece.serialize().to_pybytes() for piece in runtime.run_batch(tasks, final=final, moment=moment)]
    return Trace(tuple(packets), tuple(results), tuple(map(state_of, runtime.stores)))


def state_of(store: MemoryStore) -> tuple[str, dict[int, bytes]]:
    """Return a worker's state as it is stored, but for what its report shows of CPU time and of the cache."""
    bookkeeping = {} if store.bookkeeping is None else read_bookkeeping(store.bookkeeping)
    for name in ("cpu_ms", "cached_reads"):
        bookkeeping.get("counts", {}).pop(name, None)
    return json.dumps(bookkeeping), dict(store.blocks)


def stored_bytes(runtime: LocalRuntime) -> int:
    """Return what all stores hold."""
    return sum(len(store.bookkeeping or b"") + sum(map(len, store.blocks.values())) for store in runtime.stores)


def steps(history: History, way: Way, spec: Spec) -> Iterator[tuple[Host, Tasks, bool]]:
    """Yield a host that is about to run each batch, the batch, and whether it is the last; then run it."""
    host = Host(spec, way)
    todo = batches(history, way, host.plans[0].operator.inputs)
    for number, tasks in enumerate([*todo, FINAL]):
        yield host, tasks, number == len(todo)
        host.run(tasks, final=number == len(todo))
