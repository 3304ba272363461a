"""Late rows of joins, dropped or apart: against plain clocks and a nested loop over the rows that are on time."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import nested_loop
from support.profiles import examples
from support.routing_cases import apply, random_changes
from support.two_streams import SCHEMA, rows_of

import braided
from braided.local.results import split_late
from braided.local.runtime import LocalRuntime
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.registry import build
from braided.operators.spec import Spec
from braided.operators.stream import Stream
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.key_hashes import KeyHasher
from braided.routing.start import first_table

US = pa.timestamp("us")
Row = dict[str, Any]
# Enough rows that every clock counts from the first batch on; their keys match nothing.
FIRST = [[{"k": 100 * (side + 1) + number, "t": 0, "id": 1000 + number} for number in range(10)] for side in (0, 1)]


@st.composite
def late_histories(draw: st.DrawFn) -> dict[str, Any]:
    """Batches of rows of two streams, some later than the lateness."""
    lo = draw(st.integers(-8, 6))
    batches: list[list[list[Row]]] = [FIRST]
    clocks, number = [0, 0], [0, 0]
    for _ in range(draw(st.integers(0, 6))):
        batch: list[list[Row]] = [[], []]
        for side in (0, 1):
            for _ in range(draw(st.integers(0, 6))):
                clocks[side] += draw(st.integers(0, 6))
                time = clocks[side] - draw(st.integers(0, 25))
                key = draw(st.one_of(st.integers(0, 1), st.just(None) if number[side] % 7 == 3 else st.nothing()))
                batch[side].append({"k": key, "t": None if number[side] % 11 == 5 else time, "id": number[side]})
                number[side] += 1
        batches.append(batch)
    return {
        "batches": batches,
        "bounds": (lo, draw(st.integers(lo, 8))),
        "lateness": (draw(st.integers(0, 6)), draw(st.integers(0, 6))),
        "workers": draw(st.integers(1, 4)),
        "tasks": draw(st.integers(1, 2)),
        "restart": draw(st.booleans()),
    }


def spec_of(case: dict[str, Any], **options: Any) -> JoinSpec:
    lateness = tuple(f"{late} us" for late in case["lateness"])
    between = tuple(f"{bound} us" for bound in case["bounds"])
    return JoinSpec(on="k", time="t", between=between, lateness=lateness, **options)


def sorted_out(case: dict[str, Any]) -> tuple[list[list[Row]], Counter[Any]]:
    """Return the rows of each stream that are on time, and the late ones: stream, id and by how much."""
    on_time: list[list[Row]] = [[], []]
    late: Counter[Any] = Counter()
    largest: list[int | None] = [None, None]
    for batch in case["batches"]:
        for side, rows in enumerate(batch):
            for row in rows:
                clock = largest[side]
                safe = None if clock is None else clock - case["lateness"][side]
                if safe is None or row["t"] is None or row["t"] >= safe:
                    on_time[side].append(row)
                elif row["k"] is None:
                    on_time[side].append(row)  # it matches nothing, and cannot be wrong
                else:
                    late[("left", "right")[side], row["id"], safe - row["t"]] += 1
        for side, rows in enumerate(batch):
            times = [row["t"] for row in rows if row["t"] is not None]
            largest[side] = max([*times, *([] if largest[side] is None else [largest[side]])], default=None)
    return on_time, late


def run(spec: Spec, case: dict[str, Any], *, moves: bool = False) -> tuple[pa.Table, list[int]]:
    """Run the batches of a case, then the end; return all results, and how many rows were counted as late.

    Where it `moves`, the routing changes at random before every batch.
    """
    plan = build(spec, [Stream(label, SCHEMA) for label in spec.labels])
    runtime = LocalRuntime(plan.operator, case["workers"])
    runtime.table = first_table(plan.scheme, case["workers"], keyed=plan.keyed, version=1)
    pieces: list[pa.RecordBatch] = []
    rng = np.random.default_rng(len(case["batches"]) + case["workers"])
    hashes = KeyHasher((pa.int64(),)).hash([pa.array([0, 1])], 2).tolist()
    for batch in case["batches"]:
        if moves:
            assert plan.joined is not None
            changes = [change for change in random_changes(rng, case["workers"], 2) if change["change"] != "drop"]
            runtime.table = apply(runtime.table, changes, hashes, AssignmentExpiry(plan.joined.window))
        tasks = [
            (side, [rows_of(rows[number :: case["tasks"]])])
            for side, rows in enumerate(batch)
            for number in range(case["tasks"])
        ]
        pieces += runtime.run_batch(tasks)
        if case["restart"]:
            runtime.stores = pickle.loads(pickle.dumps(runtime.stores))
    if plan.waits:
        pieces += runtime.run_batch([(0, [])], final=True)
    counts = [stream["late"] for stream in runtime.report().streams]
    return pa.Table.from_batches(pieces, plan.operator.output), counts


def pairs_of(table: pa.Table, names: Sequence[str] = ("id", "id_right")) -> Counter[Any]:
    kept = [name for name in names if name in table.column_names]
    found = Counter(zip(*(table[name].to_pylist() for name in kept), strict=True))
    return Counter({row: count for row, count in found.items() if all(id_ is None or id_ < 1000 for id_ in row)})


def late_of(table: pa.Table) -> Counter[Any]:
    return Counter(
        (row["stream"], row[row["stream"]]["id"], row["late_by"] // timedelta(microseconds=1))
        for row in table.to_pylist()
    )


@pytest.mark.parametrize(("partition", "moves"), [("auto", False), ("auto", True), ("grid", False), ("ssp", True)])
@settings(max_examples=examples(300, quick=12), deadline=None)
@given(case=late_histories())
def test_an_inner_join_never_sees_a_late_row(partition: Any, moves: bool, case: dict[str, Any]) -> None:
    on_time, late = sorted_out(case)
    expected = nested_loop(on_time, ["k"], *case["bounds"])
    late = Counter({row: count for row, count in late.items() if row[1] < 1000})
    table, counts = run(spec_of(case, late="side", partition=partition), case, moves=moves)
    joined, aside = split_late(table, [SCHEMA, SCHEMA])
    assert pairs_of(joined) == expected
    assert late_of(aside) == late
    assert counts == [sum(n for (stream, *_), n in late.items() if stream == side) for side in ("left", "right")]
    for row in aside.to_pylist():
        assert (row["left"] is None) == (row["stream"] == "right")
        assert (row["right"] is None) == (row["stream"] == "left")
    table, dropped = run(spec_of(case, late="drop", partition=partition), case, moves=moves)
    assert pairs_of(table) == expected
    assert dropped == counts


def _runtime(case: dict[str, Any]) -> tuple[LocalRuntime, pa.Table]:
    """Run the batches of a case through a join that drops no late row, by hash."""
    plan = build(spec_of(case, partition="hash"), [Stream(label, SCHEMA) for label in ("left", "right")])
    runtime = LocalRuntime(plan.operator, case["workers"])
    pieces = []
    for batch in case["batches"]:
        pieces += runtime.run_batch([(side, [rows_of(rows)]) for side, rows in enumerate(batch)])
        if case["restart"]:
            runtime.stores = pickle.loads(pickle.dumps(runtime.stores))
    return runtime, pa.Table.from_batches(pieces, plan.operator.output)


@settings(max_examples=examples(600), deadline=None)
@given(case=late_histories())
def test_rows_that_lost_pairs_are_among_those_that_are_counted(case: dict[str, Any]) -> None:
    runtime, table = _runtime(case)
    rows = [[row for batch in case["batches"] for row in batch[side]] for side in (0, 1)]
    arrived = [{row["id"]: n for n, batch in enumerate(case["batches"]) for row in batch[side]} for side in (0, 1)]
    missing = nested_loop(rows, ["k"], *case["bounds"]) - Counter(
        zip(*(table[n].to_pylist() for n in ("id", "id_right")), strict=True)
    )
    losers: list[set[int]] = [set(), set()]
    for pair in missing:
        side = 0 if arrived[0][pair[0]] > arrived[1][pair[1]] else 1
        losers[side].add(pair[side])
    streams = runtime.report().streams
    for side, stream in enumerate(streams):
        assert len(losers[side]) <= stream["lost"] <= sum(row["t"] is not None for row in rows[side])
    # In one batch rows are late, and none of them has lost anything.
    runtime, table = _runtime({**case, "batches": [[rows[0], rows[1]]]})
    assert [stream["lost"] for stream in runtime.report().streams] == [0, 0]


def test_rows_that_lost_nothing_are_not_counted_as_lost() -> None:
    first = [time for time in (0, 10, 20, 30, 39) for _ in range(10)]
    batches = [[[{"k": n % 7, "t": t, "id": n} for n, t in enumerate(times)]] * 2 for times in (first, [35, 0, 36])]
    case = {"batches": batches, "bounds": (-2, 2), "lateness": (3, 3), "workers": 1, "restart": False}
    runtime, _ = _runtime(case)
    for stream in runtime.report().streams:
        assert (stream["late"], stream["lost"]) == (2, 1)  # what 35 could have met was never there
    assert "lost pairs" in str(runtime.report())


@pytest.mark.parametrize("how", ["left", "right", "full", "left_semi", "left_anti"])
@settings(max_examples=examples(200, quick=10), deadline=None)
@given(case=late_histories())
def test_other_joins_are_those_of_the_rows_on_time(how: Any, case: dict[str, Any]) -> None:
    on_time, late = sorted_out(case)
    pairs = nested_loop(on_time, ["k"], *case["bounds"])
    met = [{pair[side] for pair in pairs} for side in (0, 1)]
    alone = [[row["id"] for row in rows if row["id"] not in met[side]] for side, rows in enumerate(on_time)]
    expected: Counter[Any] = Counter()
    if how == "left_semi":
        expected.update((number,) for number in met[0])
    elif how == "left_anti":
        expected.update((number,) for number in alone[0])
    else:
        expected.update(pairs)
        expected.update((number, None) for number in alone[0] if how in ("left", "full"))
        expected.update((None, number) for number in alone[1] if how in ("right", "full"))
    expected = Counter({row: n for row, n in expected.items() if all(id_ is None or id_ < 1000 for id_ in row)})
    # A row without a key that is not kept is dropped before anything is asked of its time.
    table, counts = run(spec_of(case, how=how, late="side"), case)
    joined, aside = split_late(table, [SCHEMA, SCHEMA])
    assert pairs_of(joined) == expected
    assert late_of(aside) == late
    assert sum(counts) == aside.num_rows
    table, dropped = run(spec_of(case, how=how, late="drop"), case)
    assert pairs_of(table) == expected
    assert dropped == counts


@settings(max_examples=examples(200), deadline=None)
@given(case=late_histories())
def test_an_as_of_join_is_that_of_the_rows_on_time(case: dict[str, Any]) -> None:
    lateness = tuple(f"{late} us" for late in case["lateness"])
    spec = AsofSpec(on="k", time="t", tolerance="20 us", lateness=lateness, late="side")
    table, counts = run(spec, case)
    joined, aside = split_late(table, [SCHEMA, SCHEMA])
    assert sum(counts) == aside.num_rows
    late = {(stream, number) for stream, number, _ in late_of(aside)}
    rows = [[row for batch in case["batches"] for row in batch[side]] for side in (0, 1)]
    right = [row for row in rows[1] if ("right", row["id"]) not in late and None not in (row["k"], row["t"])]
    wanted: Counter[Any] = Counter()
    for row in rows[0]:
        if ("left", row["id"]) in late:
            continue
        near = [
            (other["t"], other["id"])
            for other in right
            if row["t"] is not None and other["k"] == row["k"] and 0 <= row["t"] - other["t"] <= 20
        ]
        wanted[row["id"], max(near)[1] if near else None] += 1
    assert pairs_of(joined) == Counter({row: n for row, n in wanted.items() if row[0] < 1000})
    table, dropped = run(AsofSpec(on="k", time="t", tolerance="20 us", lateness=lateness, late="drop"), case)
    assert pairs_of(table) == pairs_of(joined)
    assert dropped == counts


def test_late_rows_of_an_as_of_join_are_those_behind_what_was_answered() -> None:
    def times(*values: int) -> list[Row]:
        return [{"k": 1, "t": value, "id": number} for number, value in enumerate(values)]

    case = {"batches": [FIRST, [times(50), times(60)], [times(40, 41, 60), times(49, 59, 70)]], "workers": 1}
    spec = AsofSpec(on="k", time="t", tolerance="20 us", lateness=("9 us", "10 us"), late="side")
    table, _ = run(spec, case | {"tasks": 1, "restart": False})
    # Left rows before 41 are late: 50 - 9 and 60 - 10 are safe. Right rows are late before 50.
    assert late_of(split_late(table, [SCHEMA, SCHEMA])[1]) == Counter({("left", 0, 1): 1, ("right", 0, 1): 1})


def test_many_streams() -> None:
    spec = MultiJoinSpec(streams=3, on="k", time="t", within="10 us", lateness="5 us", late="side")
    first = [{"k": 50 + number, "t": 0, "id": 1000} for number in range(10)]
    one = [{"k": 1, "t": 100, "id": 1}]
    old = [{"k": 1, "t": 90, "id": 2}]
    case = {"batches": [[first] * 3, [one, one, []], [[], [], one], [[], old, []]], "workers": 2}
    table, counts = run(spec, case | {"tasks": 1, "restart": False})
    joined, late = split_late(table, [SCHEMA] * 3)
    assert pairs_of(joined, ("id", "id_2", "id_3")) == Counter({(1, 1, 1): 1})
    [row] = late.to_pylist()
    assert (row["stream"], row["late_by"], row["stream_2"]["id"]) == ("stream_2", timedelta(microseconds=5), 2)
    assert (row["stream_1"], row["stream_3"]) == (None, None)
    assert counts == [0, 1, 0]


def test_as_a_user_calls_it() -> None:
    def table(times: list[int]) -> pa.Table:
        return pa.table({"k": [1] * len(times), "ts": pa.array(times, US), "at": range(len(times))})

    left, right = table([*range(100, 110), 5]), table(list(range(100, 111)))
    options = {"on": "k", "time": "ts", "within": "0 us", "lateness": "20 us", "arrival": "at", "batch_rows": 5}
    result = braided.local.join(left, right, late="side", **options)
    assert result.late is not None
    assert result.late.schema.names == ["stream", "late_by", "left", "right"]
    assert result.late["left"].to_pylist()[0]["at"] == 10
    assert result.late["late_by"].to_pylist() == [timedelta(microseconds=109 - 20 - 5)]
    plain = braided.local.join(left, right, **options)
    assert plain.late is None
    assert result.table.num_rows == plain.table.num_rows == 10
    assert result.table.schema == plain.table.schema
    assert braided.local.join(left, right, late="drop", **options).report.streams[0]["late"] == 1
    none = braided.local.join(right, right, late="side", **options)
    assert none.late is not None
    assert none.late.num_rows == 0


def test_an_aggregate_in_the_workers_counts_no_dropped_row() -> None:
    times = pa.array([*range(1000, 1010), 900], US)
    rows = pa.table({"k": [1] * 11, "ts": times, "at": range(11)})
    left, right = (braided.local.stream(rows, time="ts") for _ in (0, 1))
    options = {"on": "k", "within": "0 us", "lateness": "1 us", "arrival": "at", "batch_rows": 6}
    kept = left.join(right, **options).aggregate(window="1 second", n="count(*)")
    assert kept.table["n"].to_pylist() == [11]
    dropped = left.join(right, late="drop", **options).aggregate(window="1 second", n="count(*)")
    assert dropped.table["n"].to_pylist() == [10]
    with pytest.raises(braided.OptionError, match="with late='side' the join has a second result"):
        left.join(right, late="side", **options).aggregate(window="1 second", n="count(*)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"late": "flag"}, "late='flag': write 'join', 'drop' or 'side'"),
        ({"late": "drop", "memory": 10}, "late='drop': memory= drops rows itself; leave one of them out"),
        ({"late": "side", "shed": 0.5}, "late='side': shed= drops rows itself; leave one of them out"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(braided.OptionError) as error:
        JoinSpec(on="k", time="t", within="1 second", **options)
    assert message in str(error.value)
