"""Joins without keys: any grid, any change of it and any predicate give the nested loop's rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.oracle import nested_loop
from support.profiles import examples, some
from support.routing_cases import grids
from support.two_streams import SCHEMA, histories, rows_of

import braided
from braided.local.runtime import LocalRuntime
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.edit import TableEdit
from braided.routing.start import first_table
from braided.routing.table import BUCKETS

PREDICATES: dict[str | None, Any] = {
    None: lambda _a, _b: True,
    "l.k < r.k": lambda a, b: a["k"] < b["k"],
    "abs(l.id - r.id) <= 2": lambda a, b: abs(a["id"] - b["id"]) <= 2,
    "l.k = r.k OR l.id = 3": lambda a, b: (a["k"] is not None and a["k"] == b["k"]) or a["id"] == 3,
    "l.k <> r.k AND l.id >= r.id - 1": lambda a, b: a["k"] != b["k"] and a["id"] >= b["id"] - 1,
}


@settings(max_examples=examples(400, quick=15), deadline=None)
@given(histories(), st.sampled_from(sorted(PREDICATES, key=str)), st.integers(1, 7), st.data())
def test_every_grid_and_change_of_grid_is_exact(
    case: dict[str, Any], where: str | None, workers: int, data: Any
) -> None:
    window = case["window"]
    operator = join_operator(SCHEMA, window, on=None, where=where)
    runtime = LocalRuntime(operator, workers)
    runtime.table = first_table("auto", workers, keyed=False, version=1)
    deaths = AssignmentExpiry(window)
    found: Counter[tuple[int, int]] = Counter()
    at = [0, 0]
    for number, (start, stop) in enumerate(zip(case["cuts"], case["cuts"][1:], strict=False)):
        edit = TableEdit(runtime.table)
        edit.drop(deaths.dead(runtime.table))
        if data.draw(st.booleans()) and edit.has_room(np.arange(BUCKETS)).all():
            edit.assign(np.arange(BUCKETS), edit.add_grid(data.draw(grids(workers))))
        runtime.table = edit.done()
        batch: list[list[dict[str, Any]]] = [[], []]
        for side in case["order"][start:stop]:
            batch[side].append(case["streams"][side][at[side]])
            at[side] += 1
        tasks = [(side, [rows_of(batch[side])]) for side in (0, 1) if batch[side]]
        for piece in runtime.run_batch(tasks):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        if tasks:
            clocks = [stream["clock"] for stream in runtime.reports[0]["streams"]]
            deaths.observe(number, runtime.table.version, (clocks[0], clocks[1]))

    def accept(a: dict[str, Any], b: dict[str, Any]) -> bool:
        if where is not None and "k" in where and "OR" not in where and (a["k"] is None or b["k"] is None):
            return False
        return bool(PREDICATES[where](a, b))

    assert found == nested_loop(case["streams"], [], window.lo, window.hi, accept)


@pytest.mark.parametrize("workers", some([7, 1, 4], 1))
@pytest.mark.parametrize(
    "where", [None, "l.p < r.p - 900 AND l.q > r.q", "abs(l.p - r.p) <= 2", "l.s = r.s AND l.p > r.p"]
)
def test_local_join_without_keys_equals_duckdb(where: str | None, workers: int) -> None:
    rng = np.random.default_rng(1)
    left, right = (
        pa.table(
            {
                "p": rng.integers(0, 1000, 2000),
                "q": rng.integers(0, 1000, 2000),
                "s": [f"x{i % 37}" for i in range(2000)],
                "ts": pa.array(np.sort(rng.integers(0, 60_000_000, 2000)), pa.timestamp("us")),
                "id": np.arange(2000),
            }
        )
        for _ in range(2)
    )
    result = braided.local.join(
        left, right, time="ts", within="5 seconds", where=where, workers=workers, batch_rows=700
    ).table
    with duckdb.connect() as db:
        db.register("l", left)
        db.register("r", right)
        expected = db.execute(
            f"select l.id, r.id from l join r on abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 5000000 and {where or 'true'}"
        ).fetchall()
    found = Counter(zip(result["id"].to_pylist(), result["id_right"].to_pylist(), strict=True))
    assert len(expected) > 100
    assert found == Counter(expected)


def test_a_join_by_time_alone_warns_that_a_key_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"ts": pa.array([1, None, 5_000_000], pa.timestamp("us"))})
    found = braided.local.join(table, table, time="ts", within="1 second").table
    assert found.to_pydict() == {"ts": table["ts"].to_pylist()[::2], "ts_right": table["ts"].to_pylist()[::2]}
    assert "join by time alone: every pair within the window is a result; give a key" in caplog.text
