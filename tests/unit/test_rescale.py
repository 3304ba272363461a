"""Another number of workers for stored state: results are those of one run, however often and from what routing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract.driving import OneColumn
from support.folder_store import FolderStore, folder_stores
from support.operators import join_operator
from support.profiles import examples
from support.routing_cases import RandomController

from braided.errors import StateError
from braided.local import runtime as local
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.join.window_join import WindowJoin
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.handover import Handover
from braided.runtime.worker import run_worker
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
REACH, LATE, BATCH = 60, 10, 40
DOUBTED = 120
"""In batches of so many rows one is so far ahead that it is doubted."""


def a_batch(seed: int, number: int, rows: int) -> list[pa.RecordBatch]:
    """Rows of both sides: few keys, one of them hot, times in disorder within the lateness; one row is far ahead."""
    rng = np.random.default_rng((seed, number))
    sides = []
    for side in (0, 1):
        times = number * 25 + np.sort(rng.integers(0, 25, rows)) - rng.integers(0, LATE, rows)
        if number == 3 and side == 0 and rows == DOUBTED:
            times[-1] += 10**13
        keys = np.where(rng.random(rows) < 0.5, 0, rng.integers(0, 30, rows))
        columns = [pa.array(keys), pa.array(times, pa.timestamp("us")), pa.array(number * 1000 + np.arange(rows))]
        sides.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return sides


def wanted(batches: list[list[pa.RecordBatch]], *, keyed: bool) -> Counter[tuple[int, int]]:
    """All pairs: each left row beside all right ones."""
    left, right = (pa.Table.from_batches([batch[side].cast(_PLAIN) for batch in batches]) for side in (0, 1))
    keys, times, ids = (column.to_numpy() for column in right.columns)
    pairs: Counter[tuple[int, int]] = Counter()
    for row in left.to_pylist():
        meets = np.abs(times - row["t"]) <= REACH
        if keyed:
            meets &= keys == row["k"]
        pairs.update((row["id"], other) for other in ids[meets].tolist())
    return pairs


_PLAIN = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("id", pa.int64())])


@dataclass(frozen=True)
class Changed:
    """A change of the number of workers, for tasks of one batch."""

    handover: Handover
    batch: int

    @property
    def generation(self) -> int:
        return self.handover.generation

    def read(self, options: dict[str, Any]) -> Handover:
        assert json.loads(json.dumps(options)) == self.handover.records[0]["options"]
        return self.handover


class Query:
    """A query whose number of workers changes between batches; its routing changes at random too."""

    def __init__(self, operator: WindowJoin, scheme: str, workers: int, *, adapts: bool, retained: int = 1) -> None:
        self.operator, self.adapts = operator, adapts
        self.first = partial(first_table, scheme, keyed=bool(operator.keys[0]), version=1)
        self.stores = folder_stores(workers, retained)
        self.batch, self.changed = 0, None
        self.results: Counter[tuple[int, int]] = Counter()
        self._start(workers)

    def _start(self, workers: int) -> None:
        table = self.first(workers)
        controller = None
        if self.adapts:
            kind = RandomController if self.operator.keys[0] else OneColumn
            controller = kind(table, self.operator.window, slots=0)
            controller.keys = 4
        self.runtime = LocalRuntime(self.operator, stores=self.stores, controller=controller)
        self.runtime.table = table

    def run(self, batch: list[pa.RecordBatch], *, twice: bool = False) -> None:
        """Run a batch; `twice`, after an attempt that did not commit."""
        changed = self.changed

        def with_change(operator: Any, task: Any, packets: Any, store: Any) -> Any:
            change = None if changed is None else Changed(changed, self.batch)
            return run_worker(operator, replace(task, rescaling=change), packets, store)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "run_worker", with_change)
            before = [store.bookkeeping for store in self.stores]
            tasks = [(side, [rows]) for side, rows in enumerate(batch)]
            if twice:
                table, controller = self.runtime.table, self.runtime.controller
                self.runtime.controller = None
                list(self.runtime.run_batch(tasks))
                self.runtime.table, self.runtime.controller = table, controller
                for store, bookkeeping in zip(self.stores, before, strict=True):
                    store.bookkeeping = bookkeeping
            for piece in self.runtime.run_batch(tasks):
                self.results.update(zip(piece.column("id").to_pylist(), piece.column("id_r").to_pylist(), strict=True))
        self.batch += 1

    def rescale(self, workers: int) -> None:
        records = [read_bookkeeping(store.bookkeeping or b"") for store in self.stores]
        old = {tuple(bookkeeping["table"]) for bookkeeping in records if bookkeeping["table"] is not None}
        table = next(t for t in (self._last, self.first(len(records))) if (t.version, t.digest) in old)
        root = self.stores[0].root
        self.changed = Handover(self.batch, workers, records, root, self.first, table)
        kept = {worker: store.bookkeeping for worker, store in enumerate(self.stores)}
        self.stores = [FolderStore(root, worker, self.stores[0].retained) for worker in range(workers)]
        for worker, store in enumerate(self.stores[::2]):  # some workers find the bookkeeping of an old one
            store.bookkeeping = kept.get(worker)
        self._start(workers)

    @property
    def _last(self) -> RoutingTable:
        return self._tables[-1]

    def note_table(self) -> None:
        self._tables = [*getattr(self, "_tables", ()), self.runtime.table]

    def leftovers(self) -> set[str]:
        """Return files below the folder of the state that no bookkeeping names."""
        named = {
            (store.path / name).resolve()
            for store in self.stores
            for name in store.named()
        }  # fmt: skip
        return {str(path) for path in self.stores[0].root.rglob("*") if path.is_file() and path.resolve() not in named}


@settings(max_examples=examples(200, quick=8), deadline=None)
@given(st.data())
def test_the_result_does_not_depend_on_how_often_the_workers_change(data: Any) -> None:
    keyed, adapts = data.draw(st.booleans()), data.draw(st.booleans())
    scheme = data.draw(st.sampled_from(("auto", "hash", "ssp", "grid") if keyed else ("auto", "ssp")))
    options = {} if keyed else {"on": None, "where": "l.id >= 0"}
    operator = join_operator(SCHEMA, Window(-REACH, REACH, (LATE, LATE)), **options)
    query = Query(operator, scheme, data.draw(st.integers(1, 5)), adapts=adapts)
    seed, rows = data.draw(st.integers(0, 99)), data.draw(st.sampled_from((3, BATCH)))
    batches = [a_batch(seed, number, rows) for number in range(9)]
    changes = data.draw(st.dictionaries(st.integers(1, 8), st.integers(1, 6), min_size=1, max_size=3))
    for number, batch in enumerate(batches):
        if number in changes and changes[number] != len(query.stores):
            query.rescale(changes[number])
        query.note_table()
        query.run(batch, twice=number in changes)
    assert query.results == wanted(batches, keyed=keyed)


def live(store: FolderStore) -> set[str]:
    """Return the names of the blocks that a worker has."""
    blocks = read_bookkeeping(store.bookkeeping or b"")["blocks"]
    return {name for number, name in blocks.items() if number != "next"}


def test_files_from_before_stay_until_nobody_needs_them_and_then_go() -> None:
    """From four workers to two and to three: the folders of workers that there are no more become empty too."""
    operator = join_operator(SCHEMA, Window(-REACH, REACH, (LATE, LATE)))
    query = Query(operator, "auto", 4, adapts=True, retained=2)
    batches = [a_batch(4, number, DOUBTED) for number in range(40)]
    apart = []
    for number, batch in enumerate(batches):
        if number in (6, 12):
            old = {store.path / name for store in query.stores for name in live(store)}
            query.rescale(2 if number == 6 else 3)
        query.note_table()
        query.run(batch, twice=number in (6, 12))
        if number in (6, 12):
            assert old <= set(query.stores[0].root.rglob("*")), "a file that this batch needs, should it run again"
        records = [read_bookkeeping(store.bookkeeping or b"") for store in query.stores]
        apart.append(
            sum(info[2] for bookkeeping in records for _, infos in bookkeeping["state"]["apart"][0] for info in infos)
        )
        assert len({json.dumps(bookkeeping["state"]["streams"]) for bookkeeping in records}) == 1, "clocks differ"
    assert query.results == wanted(batches, keyed=True)
    assert apart[5] >= apart[6] == 1, "the doubted row, of which a grid may have had copies"
    assert not query.leftovers()
    assert not list((query.stores[0].root / "join-1" / "3").iterdir())
    totals = [read_bookkeeping(store.bookkeeping or b"")["counts"]["results"] for store in query.stores]
    assert sum(totals) == sum(query.results.values())


def test_an_operator_that_cannot_be_divided_is_refused() -> None:
    spec = JoinSpec(on="k", time="t", within="60 us", lateness="10 us", how="left", suffixes=("", "_r"))
    operator = build(spec, [Stream(label, SCHEMA) for label in spec.labels]).operator
    assert isinstance(operator, WindowJoin)
    query = Query(operator, "auto", 2, adapts=False)
    query.note_table()
    query.run(a_batch(1, 0, 20))
    query.rescale(3)
    with pytest.raises(StateError, match="the state of this operator cannot be divided again"):
        query.run(a_batch(1, 1, 20))


def test_a_handover_to_another_number_of_workers_is_refused() -> None:
    """As where Spark's part of a checkpoint was restored from before, and ours was not."""
    query = Query(join_operator(SCHEMA, Window(-REACH, REACH, (LATE, LATE))), "auto", 2, adapts=False)
    query.note_table()
    query.run(a_batch(1, 0, 20))
    stores = query.stores
    query.rescale(3)
    query.stores = stores
    query._start(2)
    with pytest.raises(
        StateError, match=r"changed this query to 3 workers, but it has 2, so Spark's part of the checkpoint"
    ):
        query.run(a_batch(1, 1, 20))
