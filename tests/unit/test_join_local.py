"""The exact join on the local runtime, against a nested loop, however the input is cut, ordered or restarted."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import join_operator
from oracle import nested_loop
from profiles import examples

from braided.joins import runs as runs_module
from braided.joins import stored as state_module
from braided.local.runtime import LocalRuntime
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def rows_of(side: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(side, schema=SCHEMA)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Two streams at their own pace, each row at most its stream's lateness behind, cut into batches at random."""
    lo = draw(st.integers(-8, 6))
    hi = draw(st.integers(lo, 8))
    lateness = (draw(st.integers(0, 6)), draw(st.integers(0, 6)))
    keys = draw(st.integers(1, 4))
    streams: list[list[dict[str, Any]]] = []
    for side in (0, 1):
        rows: list[dict[str, Any]] = []
        clock = draw(st.integers(-20, 20))
        for number in range(draw(st.integers(0, 25))):
            clock += draw(st.integers(0, 4))
            time = clock - draw(st.integers(0, lateness[side]))
            key = draw(st.one_of(st.integers(0, keys - 1), st.just(None) if number % 7 == 3 else st.nothing()))
            rows.append({"k": key, "t": None if number % 11 == 5 else time, "id": number})
        streams.append(rows)
    arrivals = [0] * len(streams[0]) + [1] * len(streams[1])
    order = draw(st.permutations(arrivals))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order))), max_size=8)))
    return {
        "streams": streams,
        "order": order,
        "cuts": [0, *cuts, len(order)],
        "window": Window(lo, hi, lateness),
        "workers": draw(st.integers(1, 3)),
        "tasks": draw(st.integers(1, 3)),
        "shuffle": draw(st.integers(0, 1000)),
        "restart": draw(st.booleans()),
    }


def run(case: dict[str, Any]) -> tuple[Counter[tuple[int, int]], LocalRuntime, list[dict[str, int]]]:
    operator = join_operator(SCHEMA, case["window"])
    runtime = LocalRuntime(operator, case["workers"])
    found: Counter[tuple[int, int]] = Counter()
    levels = []
    at = [0, 0]
    rng = np.random.default_rng(case["shuffle"])
    for start, stop in zip(case["cuts"], case["cuts"][1:], strict=False):
        batch: list[list[dict[str, Any]]] = [[], []]
        for side in case["order"][start:stop]:
            batch[side].append(case["streams"][side][at[side]])
            at[side] += 1
        tasks = []
        for side in (0, 1):
            # Within a batch the order of rows is nobody's promise; the lateness in each task is only a count.
            shuffled = [batch[side][i] for i in rng.permutation(len(batch[side]))]
            for number in range(case["tasks"]):
                part = shuffled[number :: case["tasks"]]
                if part:
                    tasks.append((side, [rows_of(part)]))
        for piece in runtime.run_batch(tasks):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        if case["restart"]:
            runtime = LocalRuntime(operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
        levels += [report["last"] for report in runtime.reports]
    return found, runtime, levels


def expected(case: dict[str, Any]) -> Counter[tuple[int, int]]:
    window = case["window"]
    return nested_loop(*case["streams"], ["k"], window.lo, window.hi)


@settings(max_examples=examples(1000), deadline=None)
@given(histories())
def test_equals_the_nested_loop(case: dict[str, Any]) -> None:
    found, _, _ = run(case)
    assert found == expected(case)


@settings(max_examples=examples(300), deadline=None)
@given(histories(), st.integers(64, 400), st.integers(200, 2000))
def test_run_and_merge_limits_change_nothing(case: dict[str, Any], run_bytes: int, merge_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_module, "RUN_BYTES", run_bytes)
        patch.setattr(state_module, "_MERGE_BYTES", merge_bytes)
        found, _, _ = run(case)
    assert found == expected(case)
