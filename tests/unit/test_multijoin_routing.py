"""The join of many streams stays exact across every change of routing: random tables against a nested loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.multi_cases import SCHEMA, batches, expected, histories, ids, operator_of, restarted, rows_of
from support.profiles import examples
from support.routing_cases import apply, changes

import braided
from braided.balance.controller import Controller
from braided.errors import BraidedError
from braided.local.runtime import LocalRuntime
from braided.operators.bounded.budget import limit_multijoin
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.grid import Grid, even_grid
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.time.clocks import Span

WORKERS = 4


@st.composite
def rerouted(draw: st.DrawFn) -> dict[str, Any]:
    """A history with a few changes of routing before every batch; every grid has one column."""
    case = draw(histories(most=4))
    case["workers"] = draw(st.integers(1, WORKERS))
    case["changes"] = [
        [{**change, "grid": Grid((change["grid"].workers,))} for change in draw(changes(case["workers"], case["keys"]))]
        for _ in case["cuts"][1:]
    ]
    return case


def run_rerouted(case: dict[str, Any], **budget: Any) -> tuple[Counter[tuple[int, ...]], LocalRuntime]:
    operator = operator_of(case, adaptive=True)
    runtime = LocalRuntime(limit_multijoin(operator, shed=None, **budget) if budget else operator, case["workers"])
    deaths = AssignmentExpiry(case["window"])
    hashes = operator.hasher.hash([pa.array(range(case["keys"]))], case["keys"]).tolist()
    found: Counter[tuple[int, ...]] = Counter()
    for number, (tasks, wanted) in enumerate(zip(batches(case), case["changes"], strict=True)):
        runtime.table = apply(runtime.table, wanted, hashes, deaths)
        for piece in runtime.run_batch(tasks):
            found.update(ids(piece, len(case["streams"])))
        if runtime.reports and tasks:
            clocks = tuple(stream["clock"] for stream in runtime.reports[0]["streams"])
            deaths.observe(number, runtime.table.version, clocks)
        if case["restart"]:
            runtime = restarted(runtime)
    if budget:
        for piece in runtime.run_batch([(0, [])], final=True):
            found.update(ids(piece, len(case["streams"])))
    return found, runtime


@settings(max_examples=examples(250, quick=15), deadline=None)
@given(rerouted())
def test_every_change_of_routing_is_exact(case: dict[str, Any]) -> None:
    found, _ = run_rerouted(case)
    assert found == expected(case)


@settings(max_examples=examples(60), deadline=None)
@given(rerouted())
def test_late_rows_are_never_wrong_or_double(case: dict[str, Any]) -> None:
    strict = {**case, "window": Span(case["window"].within, (0,) * len(case["streams"]))}
    found, _ = run_rerouted(strict)
    assert not found - expected(case)


@settings(max_examples=examples(60, quick=6), deadline=None)
@given(rerouted(), st.sampled_from(["prob", "fifo", braided.GDJ(initial=0.3)]), st.integers(2, 8))
def test_a_budget_gives_a_part_and_one_for_the_whole_window_all(case: dict[str, Any], evict: Any, memory: int) -> None:
    exact = expected(case)
    options = {"evict": evict, "share": "unified"}
    assert run_rerouted(case, memory=400, **options)[0] == exact
    found, runtime = run_rerouted(case, memory=memory, **options)
    assert not found - exact, "a wrong or double row"
    assert all(report["last"]["stored_rows"] <= memory for report in runtime.reports)


def test_grids_of_several_columns_are_refused() -> None:
    case = {"streams": [[]] * 3, "window": Span(10, (0, 0, 0))}
    runtime = LocalRuntime(operator_of(case, adaptive=True), 4)
    runtime.table = RoutingTable.gridded(4, even_grid(range(4), 2), "grid")
    rows = rows_of([{"k": 1, "t": 1, "id": 1}])
    with pytest.raises(BraidedError, match="routing table 1: does not belong to a join of many streams"):
        list(runtime.run_batch([(0, [rows])]))


def test_a_hot_key_is_split_and_workers_are_scaled() -> None:
    rng = np.random.default_rng(2)
    tables = []
    for rows in (4000, 800, 800):
        keys = np.where(rng.random(rows) < 0.5, 7, rng.integers(0, 500, rows))
        times = pa.array(np.linspace(0, 100_000_000, rows).astype(np.int64), pa.timestamp("us"))
        tables.append(pa.table({"k": keys, "ts": times, "id": np.arange(rows)}))
    options: dict[str, Any] = {
        "on": "k",
        "time": "ts",
        "within": "1 second",
        "lateness": "0 seconds",
        "batch_rows": 200,
    }
    alone = braided.local.multijoin(tables, **options)
    spread = braided.local.multijoin(tables, **options, workers=4)
    everything = [(name, "ascending") for name in alone.table.column_names]
    assert spread.table.sort_by(everything) == alone.table.sort_by(everything)
    work = [worker["total"]["results"] for worker in spread.report.workers]
    assert max(work) < 0.6 * sum(work), "the hot key stayed on one worker"


@pytest.mark.long
def test_a_controller_spreads_a_hot_key_of_a_bounded_join() -> None:
    rng = np.random.default_rng(4)
    workers, within = 4, 30_000
    batches_ = []
    for rows in (3000, 600, 600):
        keys = np.where(rng.random(rows) < 0.6, 3, rng.integers(0, 200, rows))
        times = np.linspace(0, 3_000_000, rows).astype(np.int64)
        columns = {"k": keys, "t": pa.array(times, pa.timestamp("us")), "id": np.arange(rows)}
        batches_.append(pa.record_batch(columns, schema=SCHEMA))
    case = {"streams": batches_, "window": Span(within, (0, 0, 0))}
    exact = operator_of(case, adaptive=True)
    counts = []
    for memory in (None, 1000, 15):
        operator = (
            exact if memory is None else limit_multijoin(exact, memory, braided.GDJ(initial=0.3), "unified", None)
        )
        table = first_table("auto", workers, keyed=True, version=1)
        controller = Controller(table, case["window"], measure="work", most_columns=1)
        runtime = LocalRuntime(operator, workers, controller=controller)
        found: Counter[tuple[int, ...]] = Counter()
        for part in range(20):
            tasks = [(side, [b.slice(part * len(b) // 20, len(b) // 20)]) for side, b in enumerate(batches_)]
            for piece in runtime.run_batch(tasks):
                found.update(ids(piece, 3))
        if memory is not None:
            for piece in runtime.run_batch([(0, [])], final=True):
                found.update(ids(piece, 3))
        assert any(len(grid.workers) > 1 for grid in runtime.table.grids.values()), "the hot key stayed where it was"
        counts.append(found)
    assert counts[1] == counts[0]
    assert not counts[2] - counts[0]
    recall = runtime.report().query["recall"]
    assert abs(recall - counts[2].total() / counts[0].total()) <= 0.03
