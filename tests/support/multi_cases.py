"""Histories of several streams, and what a nested loop finds in them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from braided.local.runtime import LocalRuntime
from braided.operators.multijoin.multijoin import MultiJoin
from braided.time.clocks import Span
from support.operators import multijoin_operator
from support.oracle import nested_loop

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
SPARSE = {2: 25, 3: 16, 4: 10, 5: 7}


def rows_of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@st.composite
def histories(draw: st.DrawFn, most: int = 5) -> dict[str, Any]:
    """Streams at their own pace, each row at most its stream's lateness behind, cut into batches at random."""
    count = draw(st.integers(2, most))
    within = draw(st.integers(0, 9 if count < 4 else 20))
    lateness = tuple(draw(st.integers(0, 6)) for _ in range(count))
    keys = draw(st.integers(1, 3 if count < 4 else 2))
    streams: list[list[dict[str, Any]]] = []
    for side in range(count):
        rows: list[dict[str, Any]] = []
        clock = draw(st.integers(-9, 9) if count < 4 else st.integers(0, 3))
        for number in range(draw(st.integers(0 if count < 4 else 3, SPARSE[count]))):
            clock += draw(st.integers(0, 4))
            time = clock - draw(st.integers(0, lateness[side]))
            key = draw(st.one_of(st.integers(0, keys - 1), st.just(None) if number % 7 == 3 else st.nothing()))
            # A number that comes twice makes rows that are equal in every column.
            rows.append(
                {"k": key, "t": None if number % 11 == 5 else time, "id": number // 2 if number % 5 else number}
            )
        streams.append(rows)
    order = draw(st.permutations([side for side, rows in enumerate(streams) for _ in rows]))
    return {
        "streams": streams,
        "order": order,
        "cuts": draw(cuts_of(len(order))),
        "window": Span(within, lateness),
        "workers": draw(st.integers(1, 3)),
        "tasks": draw(st.integers(1, 2)),
        "shuffle": draw(st.integers(0, 1000)),
        "restart": draw(st.booleans()),
        "keys": keys,
    }


@st.composite
def cuts_of(draw: st.DrawFn, rows: int) -> list[int]:
    """Where a history of so many rows is cut into batches."""
    return [0, *sorted(draw(st.sets(st.integers(1, max(1, rows)), max_size=6))), rows]


def expected(case: dict[str, Any]) -> Counter[tuple[int, ...]]:
    """Return the combinations of ids that a nested loop finds."""
    within = case["window"].within
    return nested_loop(case["streams"], ["k"], -within, within)


def operator_of(case: dict[str, Any], *, adaptive: bool = False) -> MultiJoin:
    count = len(case["streams"])
    return multijoin_operator(SCHEMA, count, case["window"], adaptive=adaptive)


def batches(case: dict[str, Any], schema: pa.Schema = SCHEMA) -> Iterator[list[tuple[int, list[pa.RecordBatch]]]]:
    """Yield the tasks of each batch; the order of rows within a batch is nobody's promise."""
    at = [0] * len(case["streams"])
    rng = np.random.default_rng(case["shuffle"])
    for start, stop in pairwise(case["cuts"]):
        batch: list[list[dict[str, Any]]] = [[] for _ in at]
        for side in case["order"][start:stop]:
            batch[side].append(case["streams"][side][at[side]])
            at[side] += 1
        tasks = []
        for side, rows in enumerate(batch):
            shuffled = [rows[i] for i in rng.permutation(len(rows))]
            parts = [shuffled[number :: case["tasks"]] for number in range(case["tasks"])]
            tasks += [(side, [rows_of(part, schema)]) for part in parts if part]
        yield tasks


def ids(piece: pa.RecordBatch, count: int) -> list[tuple[int, ...]]:
    names = ["id", *(f"id_{number}" for number in range(2, count + 1))]
    return list(zip(*(piece[name].to_pylist() for name in names), strict=True))


def restarted(runtime: LocalRuntime) -> LocalRuntime:
    """Return the runtime as a new process would find it."""
    again = LocalRuntime(runtime.operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
    again.table, again.reports = runtime.table, runtime.reports
    return again


def run(case: dict[str, Any], operator: Any = None) -> tuple[Counter[tuple[int, ...]], LocalRuntime]:
    """Return what an operator, by default the exact join, finds in a history."""
    runtime = LocalRuntime(operator or operator_of(case), case["workers"])
    found: Counter[tuple[int, ...]] = Counter()
    for tasks in [*batches(case), None]:
        if tasks is None and operator is None:
            break
        for piece in runtime.run_batch([(0, [])] if tasks is None else tasks, final=tasks is None):
            found.update(ids(piece, len(case["streams"])))
        if case["restart"]:
            runtime = restarted(runtime)
    return found, runtime
