"""A join with a budget under routing that changes: exact where all fits, else a part, never a wrong or double row."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_cases import apply
from test_join_local import SCHEMA, expected, rows_of
from test_routing_exact import rerouted

import braided
from braided.balance.controller import Controller
from braided.join.budget import bound
from braided.join.options import build_join, resolve_names
from braided.order.clocks import Window
from braided.routing.deaths import Deaths
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.runtime.local import LocalRuntime

POLICIES = ("auto", "gdj", "prob", "age", "fifo", "random")
NAMES = resolve_names("k", "t", SCHEMA.names, SCHEMA.names)


def run_bounded(case: dict[str, Any], memory: int, evict: Any) -> Counter[tuple[int, int]]:
    exact = build_join(NAMES, (SCHEMA, SCHEMA), case["window"], ("", "_r"), None, None)
    operator = bound(exact, memory, evict, "unified", adapts=True)
    runtime = LocalRuntime(operator, case["workers"])
    deaths = Deaths(case["window"])
    hashes = exact.hasher.hash([pa.array(range(case["keys"]))], case["keys"]).tolist()
    found: Counter[tuple[int, int]] = Counter()
    at = [0, 0]
    rng = np.random.default_rng(case["shuffle"])
    for number, (start, stop, wanted) in enumerate(zip(case["cuts"], case["cuts"][1:], case["changes"], strict=False)):
        runtime.table = apply(runtime.table, wanted, hashes, deaths)
        batch: list[list[dict[str, Any]]] = [[], []]
        for side in case["order"][start:stop]:
            batch[side].append(case["streams"][side][at[side]])
            at[side] += 1
        tasks = []
        for side in (0, 1):
            shuffled = [batch[side][i] for i in rng.permutation(len(batch[side]))]
            tasks += [(side, [rows_of(part)]) for i in range(case["tasks"]) if (part := shuffled[i :: case["tasks"]])]
        for piece in runtime.run_batch(tasks):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        assert all(report["last"]["stored_rows"] <= memory for report in runtime.reports)
        if runtime.reports and tasks:
            clocks = [stream["clock"] for stream in runtime.reports[0]["streams"]]
            deaths.observe(number, runtime.table.version, (clocks[0], clocks[1]))
        if case["restart"]:
            table = RoutingTable.from_bytes(runtime.table.to_bytes())
            runtime = LocalRuntime(operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
            runtime.table = table
    for piece in runtime.run_batch([(0, [])], final=True):
        found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
    return found


@settings(max_examples=150, deadline=None)
@given(rerouted(), st.sampled_from((braided.GDJ(initial=0.3), "prob", "fifo")))
def test_a_budget_for_the_whole_window_is_exact_under_every_change_of_routing(case: dict[str, Any], evict: Any) -> None:
    assert run_bounded(case, 400, evict) == expected(case)


@settings(max_examples=100, deadline=None)
@given(rerouted(), st.sampled_from(POLICIES), st.integers(2, 8))
def test_a_small_budget_gives_a_part_under_every_change_of_routing(
    case: dict[str, Any], evict: str, memory: int
) -> None:
    assert not run_bounded(case, memory, evict) - expected(case), "a wrong or double row"


def test_a_controller_spreads_a_hot_key_of_a_bounded_join() -> None:
    rng = np.random.default_rng(4)
    n, workers = 6000, 4
    window = Window(-200_000, 200_000, (0, 0))
    exact = build_join(NAMES, (SCHEMA, SCHEMA), window, ("", "_r"), None, None)
    tables = [
        pa.record_batch(
            {
                "k": np.where(rng.random(n) < 0.7, 3, rng.integers(0, 200, n)),
                "t": pa.array(np.arange(n) * 1000, pa.timestamp("us")),
                "id": np.arange(n),
            },
            schema=SCHEMA,
        )
        for _ in (0, 1)
    ]
    counts = []
    for memory in (None, 2000, 50):
        operator: Any = (
            exact if memory is None else bound(exact, memory, braided.GDJ(initial=0.3), "unified", adapts=True)
        )
        runtime = LocalRuntime(
            operator,
            workers,
            controller=Controller(first_table("auto", workers, keyed=True, version=1), window, measure="work"),
        )
        found: Counter[tuple[int, int]] = Counter()
        for start in range(0, n, 300):
            for piece in runtime.run_batch([(side, [tables[side].slice(start, 300)]) for side in (0, 1)]):
                found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        for piece in runtime.run_batch([(0, [])], final=True):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        assert any(len(grid.workers) > 1 for grid in runtime.table.grids.values()), "the hot key stayed where it was"
        counts.append(found)
    assert counts[1] == counts[0]
    assert not counts[2] - counts[0]
    recall = runtime.report().query["recall"]
    assert abs(recall - counts[2].total() / counts[0].total()) <= 0.03
