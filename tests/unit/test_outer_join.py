"""Joins that must know that nothing matched, against a nested loop: cuts, order, restarts, late rows, nulls, silences."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract.driving import state_of
from support.folder_store import folder_stores
from support.profiles import examples
from support.two_streams import SCHEMA, histories, rows_of

import braided
from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.runtime.contract import Operator
from braided.time.clocks import Window

KINDS = ("left", "right", "full", "left_semi", "left_anti")
Result = Counter[tuple[int | None, ...]]


def operator(how: str, case: dict[str, Any], **options: Any) -> Operator:
    window = case["window"]
    lateness = tuple(f"{late} us" for late in window.lateness)
    between = f"{window.lo} us", f"{window.hi} us"
    spec = JoinSpec(on="k", time="t", between=between, how=how, lateness=lateness, **options)  # type: ignore[arg-type]
    return build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)]).operator


def wanted(how: str, case: dict[str, Any], accepts: Any = lambda left, right: True) -> Result:
    """Return ids of the result, as a batch join over the finished streams gives them."""
    left, right = case["streams"]
    window = case["window"]
    pairs = [
        (a, b)
        for a, one in enumerate(left)
        for b, other in enumerate(right)
        if None not in (one["k"], one["t"], other["k"], other["t"])
        and one["k"] == other["k"]
        and window.lo <= other["t"] - one["t"] <= window.hi
        and accepts(one, other)
    ]
    met = [{pair[side] for pair in pairs} for side in (0, 1)]
    ids = [[row["id"] for row in side] for side in (left, right)]
    if how == "left_semi":
        return Counter((ids[0][a],) for a in met[0])
    if how == "left_anti":
        return Counter((ids[0][a],) for a in range(len(left)) if a not in met[0])
    out: Result = Counter((ids[0][a], ids[1][b]) for a, b in pairs)
    if how in ("left", "full"):
        out.update((ids[0][a], None) for a in range(len(left)) if a not in met[0])
    if how in ("right", "full"):
        out.update((None, ids[1][b]) for b in range(len(right)) if b not in met[1])
    return out


def run(how: str, case: dict[str, Any], *, final: bool = True, files: bool = False, **options: Any) -> Result:
    """Run a case batch by batch and return the ids of its results."""
    join = operator(how, case, **options)
    stores = folder_stores(case["workers"]) if files else None
    runtime = LocalRuntime(join, case["workers"], stores)
    taken, found = [0, 0], Counter[tuple[int | None, ...]]()
    rng = np.random.default_rng(case["shuffle"])

    def collect(batch: list[tuple[int, list[pa.RecordBatch]]], *, last: bool = False) -> None:
        if stores is not None:
            runtime.shuffle = stores[0].shuffle(0)
        for piece in runtime.run_batch(batch, final=last):
            names = [name for name in ("id", "id_right") if name in piece.schema.names]
            found.update(zip(*(piece[name].to_pylist() for name in names), strict=True))

    for start, stop in zip(case["cuts"], case["cuts"][1:], strict=False):
        rows: list[list[dict[str, Any]]] = [[], []]
        for side in case["order"][start:stop]:
            rows[side].append(case["streams"][side][taken[side]])
            taken[side] += 1
        tasks = [
            (side, [rows_of(list(part))])
            for side in (0, 1)
            for part in np.array_split(np.array(rows[side], dtype=object), case["tasks"])
        ]
        collect([tasks[at] for at in rng.permutation(len(tasks))])
        if case["restart"]:
            runtime.stores = pickle.loads(pickle.dumps(runtime.stores))
    if final:
        collect([(0, [])], last=True)
    return found


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=examples(600, quick=25), deadline=None)
@given(case=histories(), files=st.booleans())
def test_equals_a_nested_loop_over_the_finished_streams(how: str, case: dict[str, Any], files: bool) -> None:
    assert run(how, case, files=files) == wanted(how, case)


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=examples(200), deadline=None)
@given(case=histories())
def test_a_predicate_belongs_to_the_condition(how: str, case: dict[str, Any]) -> None:
    accepts = lambda left, right: left["id"] < right["id"]  # noqa: E731
    assert run(how, case, where="l.id < r.id") == wanted(how, case, accepts)


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=examples(300), deadline=None)
@given(case=histories(), late=st.integers(1, 30), every=st.integers(2, 6))
def test_late_rows_lose_nothing_of_others_and_never_come_out_wrongly_alone(
    how: str, case: dict[str, Any], late: int, every: int
) -> None:
    """Rows that come later than the lateness: what comes out is right of all rows that are on time."""
    moved = set()
    for side in (0, 1):
        for number, row in enumerate(case["streams"][side]):
            if number % every == every - 1 and row["t"] is not None:
                row["t"] -= late
                moved.add((side, row["id"]))
    found = run(how, case)
    assert all(count == 1 for count in found.values())
    everything = wanted(how, case)
    on_time = {
        **case,
        "streams": [[r for r in rows if (s, r["id"]) not in moved] for s, rows in enumerate(case["streams"])],
    }
    least = wanted(how, on_time)
    pairs = {row for row in found if None not in row}
    if how in ("left", "right", "full"):
        assert pairs <= {row for row in everything if None not in row}, "no such pair"
        assert {row for row in least if None not in row} <= pairs, "a pair of rows on time is missing"
        for row in found:
            if None in row:
                side = row.index(None) ^ 1
                matches = {(1 - side, pair[1 - side]) for pair in everything if pair[side] == row[side]}
                # Wrong only if a match was late, and that the join cannot know.
                matches -= {(1 - side, None)}
                assert matches <= moved, f"row {row[side]} of side {side} has a match that was on time"
    elif how == "left_semi":
        assert set(least) <= set(found) <= set(everything)
    else:
        met = {(row["id"],) for row in case["streams"][0]} - set(everything)
        late_only = {
            (id_,) for (id_,) in met if not any((id_, other) in wanted("left", on_time) for other in range(99))
        }
        assert set(found) <= set(everything) | late_only


def test_rows_leave_as_soon_as_it_is_certain() -> None:
    rows = {"k": [1, 2, 3], "t": [0, 10, 20], "id": [0, 1, 2]}
    left = pa.table({"k": rows["k"], "t": pa.array(rows["t"], pa.timestamp("us")), "id": rows["id"]})
    join = build(
        JoinSpec(on="k", time="t", between=("0 us", "5 us"), how="left", lateness="2 us"),
        [Stream("left", SCHEMA), Stream("right", SCHEMA)],
    ).operator
    runtime = LocalRuntime(join)
    seen = []
    first = left.to_batches()[0]
    batches: list[list[tuple[int, list[pa.RecordBatch]]]] = [[(0, [first])]]
    for time in range(1, 40):
        right = {"k": [9] * 9, "t": [time] * 9, "id": list(range(9))}
        batches.append([(1, [pa.RecordBatch.from_pydict(right, schema=SCHEMA)])])
    for number, batch in enumerate(batches):
        for piece in runtime.run_batch(batch):
            seen += [(number, row["id"], row["id_right"]) for row in piece.to_pylist()]
    # A left row at t leaves when the right clock is past t + 5 + 2.
    assert seen == [(8, 0, None), (18, 1, None), (28, 2, None)]


@pytest.mark.parametrize("how", KINDS)
def test_state_stays_bounded_where_nothing_ever_matches(how: str) -> None:
    runtime = LocalRuntime(operator(how, {"window": Window(-50, 50, (5, 5))}))
    sizes = []
    for number in range(60):
        times = np.arange(number * 20, number * 20 + 20)
        sides = []
        for side in (0, 1):
            columns = [pa.array(times * 2 + side), pa.array(times, pa.timestamp("us")), pa.array(times)]
            sides.append((side, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
        out = sum(piece.num_rows for piece in runtime.run_batch(sides))
        sizes.append((runtime.reports[0]["last"]["stored_rows"], len(runtime.stores[0].blocks), out))
    assert max(rows for rows, _, _ in sizes[40:]) <= max(rows for rows, _, _ in sizes[10:40]) * 1.2
    assert max(blocks for _, blocks, _ in sizes) < 60
    leaving = {"left": 20, "right": 20, "full": 40, "left_semi": 0, "left_anti": 20}[how]
    assert sum(out for _, _, out in sizes[20:]) == pytest.approx(40 * leaving, rel=0.1)


def test_equals_duckdb_on_composite_keys_and_texts() -> None:
    rng = np.random.default_rng(5)
    tables = []
    for side in (0, 1):
        keys = rng.integers(0, 40, 3000)
        times = np.sort(rng.integers(0, 100_000, 3000))
        nulls = rng.random(3000) < 0.05
        tables.append(
            pa.table(
                {
                    "a": pa.array(
                        [None if null else int(key) for key, null in zip(keys, nulls, strict=True)], pa.int64()
                    ),
                    "b": pa.array([f"text {key % 7}" for key in rng.integers(0, 40, 3000)]),
                    "t": pa.array(times, pa.timestamp("us")),
                    f"v{side}": pa.array(np.arange(3000)),
                }
            )
        )
    left, right = tables
    words = {"left": "left", "right": "right", "full": "full", "left_semi": "semi", "left_anti": "anti"}
    for how in KINDS:
        ours = braided.local.join(
            left, right, on=["a", "b"], time="t", within="300 us", how=how, lateness="0 us", batch_rows=700, workers=3
        ).table
        columns = "l.v0" if how in ("left_semi", "left_anti") else "l.v0, r.v1, coalesce(l.a, r.a), coalesce(l.b, r.b)"
        with duckdb.connect() as db:
            theirs = db.execute(
                f'select {columns} from "left" l {words[how]} join "right" r on l.a = r.a and l.b = r.b and '
                "abs(epoch_us(l.t) - epoch_us(r.t)) <= 300"
            ).fetchall()
        names = ["v0"] if how in ("left_semi", "left_anti") else ["v0", "v1", "a", "b"]
        found = list(zip(*(ours[name].to_pylist() for name in names), strict=True))
        assert Counter(found) == Counter(theirs), how
        assert len(found) > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "lefft"}, "how='lefft': unknown; did you mean 'left'?"),
        ({"how": 7}, "how=7: unknown"),
        ({"how": "left", "on": None, "where": "l.id = r.id"}, "on=None: how='left' needs a key"),
        ({"how": "full", "partition": "ssp"}, "partition='ssp': how='full' must know all matches"),
        ({"how": "left", "memory": 100}, "memory=: how='left' would give nulls for rows that were dropped"),
        ({"how": "anti", "suffixes": ("_a", "_b")}, "suffixes=: how='anti' returns only the left stream's columns"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(braided.OptionError, match=message.replace("(", r"\(")):
        JoinSpec(**{"on": "k", "time": "t", "within": "1 second", **options})


@pytest.mark.parametrize("spelling", ["outer", "full_outer", "FULLOUTER", "LeftSemi", "semi", "left_outer", "anti"])
def test_spark_s_spellings_mean_the_same(spelling: str) -> None:
    kind = JoinSpec(on="k", time="t", within="1 second", how=spelling).join_kind  # type: ignore[arg-type]
    assert kind in KINDS


@pytest.mark.parametrize("how", ["left", "full", "left_anti"])
def test_a_late_row_whose_match_has_expired_never_comes_out_alone(how: str) -> None:
    runtime = LocalRuntime(operator(how, {"window": Window(-5, 5, (2, 2))}))
    found: list[dict[str, Any]] = []

    def batch(side: int, *rows: tuple[int, int, int]) -> None:
        content = [{"k": key, "t": time, "id": number} for key, time, number in rows]
        for piece in runtime.run_batch([(side, [rows_of(content)])]):
            found.extend(piece.to_pylist())

    batch(1, (1, 0, 10))
    for time in range(0, 60, 5):
        batch(0, *[(7, time, 100 + time)] * 9)
        batch(1, *[(8, time, 200 + time)] * 9)
    batch(0, (1, 0, 1), (2, 0, 2))  # both are 55 late; the first one's match expired long ago
    batch(0, *[(7, 100, 300)] * 9)
    batch(1, *[(8, 100, 400)] * 9)
    assert not [row for row in found if row["id"] in (1, 2)]
    assert sum(report["total"]["late:left"] for report in runtime.reports) == 2


def test_a_batch_that_runs_again_repeats_itself_and_other_kinds_are_refused() -> None:
    window = {"window": Window(-50, 50, (5, 5))}
    stores = LocalRuntime(operator("full", window), 2).stores
    for number in range(6):
        again = pickle.loads(pickle.dumps(stores))
        outcomes = []
        for each in (stores, again):
            runtime = LocalRuntime(operator("full", window), stores=each)
            rng = np.random.default_rng(number)
            batch = []
            for side in (0, 1):
                times = number * 20 + np.sort(rng.integers(0, 30, 40))
                columns = [pa.array(rng.integers(0, 30, 40)), pa.array(times, pa.timestamp("us")), pa.array(times)]
                batch.append((side, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
            pieces = [piece.serialize().to_pybytes() for piece in runtime.run_batch(batch)]
            outcomes.append((pieces, [state_of(store) for store in runtime.stores]))
        assert outcomes[0] == outcomes[1]
    with pytest.raises(StateError, match='how was "full" and is "left"; restore'):
        list(LocalRuntime(operator("left", window), stores=stores).run_batch([(0, [])]))


MINUTE = 60_000_000


def by_the_minute(how: str) -> tuple[LocalRuntime, Any]:
    """Return a join within ten minutes, and what runs a batch: of each side, times in minutes and how many rows have them."""
    runtime = LocalRuntime(operator(how, {"window": Window(-10 * MINUTE, 10 * MINUTE, (0, 0))}))

    def batch(*sides: dict[int, int]) -> list[int]:
        tasks = [
            (
                side,
                [rows_of([{"k": side, "t": at * MINUTE, "id": at} for at, rows in times.items() for _ in range(rows)])],
            )
            for side, times in enumerate(sides)
        ]
        return [row for piece in runtime.run_batch(tasks) for row in piece["id"].to_pylist()]

    return runtime, batch


@pytest.mark.parametrize("how", ["left", "left_anti"])
def test_a_doubted_row_that_a_leap_believes_and_passes_comes_out(how: str) -> None:
    runtime, batch = by_the_minute(how)
    batch({0: 10}, {0: 10})
    assert 180 not in batch({180: 1}, {1: 1})
    assert runtime.reports[0]["last"]["quarantined:left"] == 1
    assert batch({600: 100}, {600: 100}).count(180) == 1
    assert 180 not in batch({601: 10}, {601: 10})
    assert runtime.reports[0]["total"]["discarded:left"] == 0


def test_of_doubted_rows_that_came_together_each_is_judged_by_itself() -> None:
    """In one batch a stream gets near to one of them, and has gone on for long enough to give the other up."""
    runtime, batch = by_the_minute("left")
    batch({0: 10}, {0: 10})
    batch({0: 1, 90: 1, 3000: 1}, {0: 1})
    assert runtime.reports[0]["last"]["quarantined:left"] == 2
    batch({60: 70}, {60: 70})
    assert runtime.reports[0]["last"]["quarantined:left"] == 0
    assert runtime.reports[0]["total"]["discarded:left"] == 1, "by this report the controller takes it for discarded"


@pytest.mark.parametrize("how", ["left", "left_anti", "full"])
def test_rows_are_on_time_again_after_a_wrong_clock_was_taken_back(how: str) -> None:
    """The first rows are of a device whose clock is years ahead; the others outvote them after some batches."""
    second = 1_000_000
    left = [(-1 - at, (1 << 50) + at * second, at) for at in range(30)] + [
        (at % 50, at * second, 100 + at) for at in range(600)
    ]
    right = [(at % 50 if at % 3 else 1000 + at, at * second, 100 + at) for at in range(600)]
    tables = []
    for rows in (left, right):
        keys, times, arrivals = zip(*rows, strict=True)
        tables.append(pa.table({"k": keys, "ts": pa.array(times, pa.timestamp("us")), "at": arrivals}))
    options: Any = {
        "on": "k",
        "time": "ts",
        "within": "5 seconds",
        "lateness": "10 seconds",
        "arrival": "at",
        "how": how,
    }
    result = braided.local.join(*tables, batch_rows=30, **options)
    late = result.report.to_dict()["streams"][0]["late"]
    assert 0 < late < 100, "the wrong clock was never there, or stays"
    alone = [row["at"] for row in result.table.to_pylist() if row["at"] is not None and row.get("ts_right") is None]
    regular = Counter(at for at in alone if at >= 100)
    unmatched = Counter(100 + at for at in range(600) if at % 3 == 0)
    assert regular <= unmatched
    assert 200 - late <= regular.total() < 200
