"""A join with a budget under routing that changes: exact where all fits, else a part, never a wrong or double row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples
from support.two_streams import SCHEMA, expected
from test_routing_exact import rerouted, run_rerouted

import braided
from braided.balance.controller import Controller
from braided.local.runtime import LocalRuntime
from braided.operators.bounded.budget import limit
from braided.routing.start import first_table
from braided.time.clocks import Window

POLICIES = ("auto", "gdj", "prob", "age", "fifo", "random")


def run_bounded(case: dict[str, Any], memory: int, evict: Any) -> Counter[tuple[int, int]]:
    def within_budget(runtime: LocalRuntime) -> None:
        assert all(report["last"]["stored_rows"] <= memory for report in runtime.reports)

    return run_rerouted(case, lambda join: limit(join, memory, evict, "unified", None, adapts=True), within_budget)


@settings(max_examples=examples(150, quick=12), deadline=None)
@given(rerouted(), st.sampled_from((braided.GDJ(initial=0.3), "prob", "fifo")))
def test_a_budget_for_the_whole_window_is_exact_under_every_change_of_routing(case: dict[str, Any], evict: Any) -> None:
    assert run_bounded(case, 400, evict) == expected(case)


@settings(max_examples=examples(100, quick=10), deadline=None)
@given(rerouted(), st.sampled_from(POLICIES), st.integers(2, 8))
def test_a_small_budget_gives_a_part_under_every_change_of_routing(
    case: dict[str, Any], evict: str, memory: int
) -> None:
    assert not run_bounded(case, memory, evict) - expected(case), "a wrong or double row"


@pytest.mark.long
def test_a_controller_spreads_a_hot_key_of_a_bounded_join() -> None:
    rng = np.random.default_rng(4)
    n, workers = 3000, 4
    window = Window(-200_000, 200_000, (0, 0))
    exact = join_operator(SCHEMA, window)
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
            exact if memory is None else limit(exact, memory, braided.GDJ(initial=0.3), "unified", None, adapts=True)
        )
        runtime = LocalRuntime(
            operator,
            workers,
            controller=Controller(first_table("auto", workers, keyed=True, version=1), window, measure="work"),
        )
        found: Counter[tuple[int, int]] = Counter()
        for start in range(0, n, 200):
            for piece in runtime.run_batch([(side, [tables[side].slice(start, 200)]) for side in (0, 1)]):
                found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        for piece in runtime.run_batch([(0, [])], final=True):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        assert any(len(grid.workers) > 1 for grid in runtime.table.grids.values()), "the hot key stayed where it was"
        counts.append(found)
    assert counts[1] == counts[0]
    assert not counts[2] - counts[0]
    recall = runtime.report().query["recall"]
    assert abs(recall - counts[2].total() / counts[0].total()) <= 0.03
