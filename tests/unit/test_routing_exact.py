"""The join stays exact across every change of routing: random tables against a nested loop."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples
from support.routing_cases import apply, changes
from support.two_streams import SCHEMA, expected, histories, rows_of

from braided.local.runtime import LocalRuntime
from braided.operators.join.window_join import WindowJoin
from braided.routing.assignment_expiry import Ahead, AssignmentExpiry
from braided.routing.edit import TableEdit
from braided.routing.grid import Grid, even_grid
from braided.routing.table import BUCKETS, RoutingTable
from braided.runtime.contract import Operator
from braided.time.clocks import MIN_TIME, Window
from braided.time.quarantine import StreamProgress

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


@settings(max_examples=examples(1200, quick=50), deadline=None)
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


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with another doubted row"])
def test_a_doubted_row_is_met_or_discarded_whether_its_bucket_moves_or_not(others: bool) -> None:
    """A bucket moves while a row of it waits in quarantine, then another doubted row comes to the same worker."""
    outcomes = [_doubted(others=others, move=move) for move in (False, True)]
    assert outcomes[0] == outcomes[1]
    pairs, discarded = outcomes[0]
    assert (pairs == 1) != (discarded > 0), "neither met nor counted"


def _doubted(*, others: bool, move: bool) -> tuple[int, int]:
    """Return how many pairs the doubted row made, and how many rows were discarded."""
    minute = 60_000_000
    join = join_operator(SCHEMA, Window(-80 * minute, 0, (0, 0)))
    runtime = LocalRuntime(join, 2)
    buckets = join.hasher.hash([pa.array(range(50))], 50) & np.uint64(BUCKETS - 1)
    far, other, near = [key for key in range(50) if runtime.table.live[int(buckets[key]), 0] == 0][:3]
    expiry = AssignmentExpiry(join.window)
    found = discarded = number = 0

    def batch(left: Sequence[tuple[int, int]], right: Sequence[tuple[int, int]]) -> None:
        nonlocal found, discarded, number
        sides = [[{"k": key, "t": time * minute, "id": time} for key, time in rows] for rows in (left, right)]
        for piece in runtime.run_batch([(side, [rows_of(rows)]) for side, rows in enumerate(sides) if rows]):
            found += piece["k"].to_pylist().count(far)
        discarded += sum(report["last"].get("discarded:right", 0) for report in runtime.reports)
        trusts = [stream["trust"] for stream in runtime.reports[0]["streams"]]
        clocks = tuple(
            stream["clock"] if stream["trust"]["settled"] else None for stream in runtime.reports[0]["streams"]
        )
        limits = [trust["limit"] if trust["settled"] else MIN_TIME for trust in trusts]
        ahead = [
            Ahead(trust["top"], limit, StreamProgress(*trust["gone"]))
            for trust, limit in zip(trusts, limits, strict=True)
        ]
        expiry.observe(number, runtime.table.version, clocks, ahead)
        dead = expiry.dead(runtime.table)
        if dead.any():
            edit = TableEdit(runtime.table)
            edit.drop(dead)
            runtime.table = edit.done()
        number += 1

    batch([(near, 0)] * 10, [(near, 0)] * 10)
    batch([(near, 5)], [(near, 5), (far, 190)])
    if move:
        edit = TableEdit(runtime.table)
        edit.assign(np.array([int(buckets[far])]), 1)
        runtime.table = edit.done()
    batch([(near, 9)], [(near, 9)] + ([(other, 191)] if others else []))
    for time in range(14, 87, 6):
        batch([(near, time)], [(near, time)] * 8)
    batch([], [(near, 86)] * 3)
    for time in (*range(100, 229, 20), 228):
        batch([(near, time)], [])
    batch([(far, 230)], [])
    return found, discarded
