"""The join stays exact across every change of routing: random tables against a nested loop."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples
from support.routing_cases import apply, changes
from support.two_streams import SCHEMA, expected, histories, rows_of

from braided.local.runtime import LocalRuntime
from braided.operators.join.window_join import WindowJoin
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.grid import Grid, even_grid
from braided.routing.table import RoutingTable
from braided.runtime.contract import Operator

WORKERS = 5


@st.composite
def rerouted(draw: st.DrawFn) -> dict[str, Any]:
    """A history of two streams with a few changes of routing before every batch."""
    case = draw(histories())
    case["workers"] = draw(st.integers(1, WORKERS))
    keys = 1 + max((row["k"] for side in case["streams"] for row in side if row["k"] is not None), default=0)
    case["keys"] = keys
    case["changes"] = [draw(changes(case["workers"], keys)) for _ in case["cuts"][1:]]
    return case


def run_rerouted(
    case: dict[str, Any],
    around: Callable[[WindowJoin], Operator] = lambda join: join,
    after: Callable[[LocalRuntime], None] = lambda runtime: None,
) -> Counter[tuple[int, int]]:
    """Run a case, with something around the join, and look at the runtime after every batch."""
    join = join_operator(SCHEMA, case["window"])
    operator = around(join)
    runtime = LocalRuntime(operator, case["workers"])
    deaths = AssignmentExpiry(case["window"])
    hashes = join.hasher.hash([pa.array(range(case["keys"]))], case["keys"]).tolist()
    found: Counter[tuple[int, int]] = Counter()
    at = [0, 0]
    rng = np.random.default_rng(case["shuffle"])
    steps = zip(case["cuts"], case["cuts"][1:], case["changes"], strict=False)
    for number, (start, stop, wanted) in enumerate(steps):
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
        after(runtime)
        if runtime.reports and tasks:
            clocks = [stream["clock"] for stream in runtime.reports[0]["streams"]]
            deaths.observe(number, runtime.table.version, (clocks[0], clocks[1]))
        if case["restart"]:
            table = RoutingTable.from_bytes(runtime.table.to_bytes())
            runtime = LocalRuntime(operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
            runtime.table = table
            if case["shuffle"] % 2:
                deaths = AssignmentExpiry(case["window"])
    for piece in runtime.run_batch([(0, [])], final=True):
        found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
    return found


@settings(max_examples=examples(1200, quick=100), deadline=None)
@given(rerouted())
def test_every_change_of_routing_is_exact(case: dict[str, Any]) -> None:
    assert run_rerouted(case) == expected(case)


def test_a_pair_meets_in_exactly_one_worker_of_any_grid() -> None:
    content = np.random.default_rng(1).integers(0, 1 << 64, 500, dtype=np.uint64)
    for grid in (even_grid(range(7), 2), even_grid(range(8), 3), even_grid(range(5), 5), Grid(((4, 2), (1,)))):
        places = [[set() for _ in content] for _ in (0, 1)]
        for side in (0, 1):
            for positions, workers in grid.spread(side, content):
                rows = range(len(content)) if positions is None else positions.tolist()
                for row, worker in zip(rows, workers.tolist(), strict=True):
                    assert worker not in places[side][row]
                    places[side][row].add(worker)
        assert all(len(a & b) == 1 for a in places[0] for b in places[1])
