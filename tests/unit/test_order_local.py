"""Putting streams in order, in one process: against a plain sort, for every cut into batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import ordering_operator
from support.profiles import examples, size

import braided
from braided.local.runtime import LocalRuntime
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.input_parts import COLUMN as PART
from braided.time.learning.learner import Learner

SECOND = 1_000_000
YEAR = 365 * 86_400 * SECOND
NOW = 1_700_000_000 * SECOND
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("id", pa.int64())])
Row = tuple[int | None, int | None, int]
NEXT = braided.Lateness(
    margin=0, floor="0 seconds", measure="next", clock_rows=lambda rows: pc.equal(rows.column("k"), 0)
)


def rows_of(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@st.composite
def arrivals(draw: Any) -> dict[str, Any]:
    """Rows of one to three inputs in order of arrival, each a time and a delay, and where they are cut."""
    inputs = draw(st.integers(1, 3))
    events = draw(
        st.lists(
            st.tuples(
                st.integers(0, inputs - 1),
                st.none() | st.integers(0, 3),
                st.integers(0, 4),  # how far this row's stream goes on
                st.integers(0, 30),  # how late the row is
                st.integers(0, 2),  # content: ties in time and content happen
            ),
            max_size=40,
        )
    )
    clocks = [0] * inputs
    rows: list[tuple[int, Row]] = []
    for side, key, step, delay, content in events:
        clocks[side] += step
        rows.append((side, (key, NOW + clocks[side] - delay, content)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(rows))), max_size=6)))
    return {"inputs": inputs, "rows": rows, "cuts": [0, *cuts, len(rows)], "restart": draw(st.booleans())}


def run(case: dict[str, Any], lateness: Any, key: str | None = None, workers: int = 1, late: str = "flag") -> Any:
    operator = ordering_operator([SCHEMA] * case["inputs"], "ts", key, lateness, late)
    runtime = LocalRuntime(operator, workers)
    out: list[list[dict[str, Any]]] = []
    for start, stop in [*zip(case["cuts"], case["cuts"][1:], strict=False), (None, None)]:
        tasks = [(0, [])] if start is None else []
        for side in range(case["inputs"]):
            part = [row for at, row in case["rows"][start:stop] if at == side] if start is not None else []
            tasks += [(side, [rows_of(part)])] if part else []
        pieces = runtime.run_batch(tasks, final=start is None)
        out.append([row for piece in pieces for row in piece.to_pylist()])
        if case["restart"]:
            runtime = LocalRuntime(operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
    return out


def micros(row: dict[str, Any]) -> int:
    return int(pa.scalar(row["ts"], pa.timestamp("us")).value)


@settings(max_examples=examples(100), deadline=None)
@given(arrivals())
def test_dropped_and_flagged_rows_are_the_same(case: dict[str, Any]) -> None:
    flagged = [row for batch in run(case, "3 us") for row in batch]
    dropped = [row for batch in run(case, "3 us", late="drop") for row in batch]
    kept = [(row["k"], row["ts"], row["id"]) for row in flagged if not row["late"]]
    last = 0
    for row in flagged:
        assert row["late"] == (micros(row) < last), "late is what comes after a later row, and nothing else"
        last = max(last, micros(row))
    assert [(row["k"], row["ts"], row["id"]) for row in dropped] == kept


def test_figure_3_of_the_paper_through_the_operator() -> None:
    """A0, A2, C1, A4, B3, A6: A sets the clock, C1 is 3 late when A4 comes, and from then on K = 3 keeps B3 in order.

    C1 itself leaves in order, unlike in the paper: rows leave strictly before the clock minus K, so A2 is still here.
    """
    names = ["A0", "A2", "C1", "A4", "B3", "A6"]
    times = pa.array([int(name[1]) * SECOND for name in names], pa.timestamp("us"))
    table = pa.table({"stream": [name[0] for name in names], "ts": times, "name": names})
    spec = braided.Lateness(
        margin=0, floor="0 seconds", measure="next", clock_rows=lambda rows: pc.equal(rows.column("stream"), "A")
    )
    expected = [[0, 0], [4 * SECOND, 3 * SECOND]]
    result = braided.local.order(table, time="ts", lateness=spec, batch_rows=1)
    assert result.report.to_dict()["streams"][0]["lateness_history"] == expected
    assert result.table["name"].to_pylist() == ["A0", "C1", "A2", "B3", "A4", "A6"]
    assert not any(result.table["late"].to_pylist())
    for rows in (2, 5, 6):
        whole = braided.local.order(table, time="ts", lateness=spec, batch_rows=rows, workers=2)
        assert whole.report.to_dict()["streams"][0]["lateness"] == 3 * SECOND
        assert whole.table.equals(result.table)
    # A join's K is learned in the same way: 3 s on the left, and nothing to learn on the right.
    alone = braided.Lateness(margin=0, floor="0 seconds", measure="next")
    left = table.append_column("n", pa.array(range(6)))
    joined = braided.local.join(
        left, left.take([0, 1, 3, 5]), on="stream", time="ts", within="1 second", lateness=(spec, alone), arrival="n",
        batch_rows=1,
    )  # fmt: skip
    assert joined.table["name"].to_pylist() == ["A0", "A2", "A4", "A6"]
    assert [stream["lateness"] for stream in joined.report.to_dict()["streams"]] == [3 * SECOND, 0]


def test_a_predicate_for_clock_rows_must_tell_of_every_row() -> None:
    spec = braided.Lateness(measure="next", clock_rows=lambda rows: [True])
    with pytest.raises(
        braided.BraidedError, match="clock_rows=: the function returned 1 values for 3 rows; return one boolean per row"
    ):
        braided.local.order(pa.table({"ts": pa.array([1, 2, 3], pa.timestamp("us"))}), time="ts", lateness=spec)


def test_learned_lateness_puts_the_papers_delays_in_order() -> None:
    rng = np.random.default_rng(5)
    times = NOW + np.arange(20_000) * 1000
    arrival = times + rng.integers(5_000, 45_000, len(times))
    by_arrival = np.argsort(arrival, kind="stable")
    table = pa.table({"ts": pa.array(times[by_arrival], pa.timestamp("us"))})
    result = braided.local.order(table, time="ts", batch_rows=100)
    late = np.array(result.table["late"].to_pylist())
    assert late.sum() < 100
    assert not late[2000:].any()
    stream = result.report.to_dict()["streams"][0]
    assert 30_000 < stream["lateness"] < 80_000
    assert stream["lateness_history"][-1][1] == stream["lateness"]
    assert stream["late"] == late.sum()


def test_a_target_is_learned_from_what_came_too_late() -> None:
    """Without a key the learner counts exactly the late rows; with one all workers count the same, which is not less."""
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.exponential(50_000, 250)).astype(np.int64)
    times = times[np.argsort(times + rng.exponential(60_000, len(times)), kind="stable")]
    spec = braided.Lateness(recall=0.9, floor="0 seconds")
    table = pa.table({"k": pa.array(np.arange(len(times)) % 7), "ts": pa.array(times, pa.timestamp("us"))})
    mean: dict[str | None, float] = {}
    for key in (None, "k"):
        runtime = LocalRuntime(ordering_operator([table.schema], "ts", key, spec), 2)
        found, late = [], 0
        for row in range(len(times)):
            for piece in runtime.run_batch([(0, table.slice(row, 1).to_batches())]):
                late += sum(piece["late"].to_pylist())
            found.append(runtime.report().streams[0]["lateness"])
        mean[key] = float(np.mean(found[50:]))
        states = [
            read_bookkeeping(store.load() or b"")["state"]["stage"]["clocks"][0]["learner"] for store in runtime.stores
        ]
        learner = Learner.from_json(states[0], spec)
        if key is None:
            assert learner.achieved == 1 - late / len(times) < 1
        else:
            assert learner.achieved <= 1 - late / len(times)
            assert states[0] == states[1]
    assert mean[None] < 0.8 * mean["k"]


@pytest.mark.parametrize("years", [3, -3])
@pytest.mark.parametrize("batch_rows", [1, 50, 1000])
def test_a_gateway_years_off_neither_stalls_the_output_nor_is_lost(years: int, batch_rows: int) -> None:
    count = 3000 if batch_rows > 1 else size(quick=1000, slow=3000)
    times = [NOW + 10 * i * SECOND for i in range(count)]
    broken = {i for i in range(count) if i % 20 == 19}
    sent = [time + years * YEAR if i in broken else time for i, time in enumerate(times)]
    schema = pa.schema([("ts", pa.timestamp("us")), ("id", pa.int64())])
    table = pa.table([pa.array(sent, pa.timestamp("us")), list(range(count))], schema=schema)
    operator = ordering_operator([schema], "ts", None, "auto")
    runtime = LocalRuntime(operator)
    most, good = 0, []
    for start in range(0, count, batch_rows):
        for piece in runtime.run_batch([(0, table.slice(start, batch_rows).to_batches())]):
            good += [row for row in piece.to_pylist() if row["id"] not in broken]
        most = max(most, runtime.reports[0]["last"]["quarantined:input"])
    assert [row["id"] for row in good] == [i for i in range(count) if i not in broken][: len(good)]
    assert not any(row["late"] for row in good)
    assert len(good) >= count * 19 // 20 - batch_rows
    # One in twenty, for an hour, 360 rows, or a little more than that where small runs were merged.
    assert (most > 0) == (years > 0)
    assert most <= (360 + batch_rows) // 10 + 3, "quarantined rows pile up"
    rest = [row for piece in runtime.run_batch([(0, [])], final=True) for row in piece.to_pylist()]
    total = runtime.reports[0]["total"]
    assert total["results"] == count
    assert len(good) + sum(row["id"] not in broken for row in rest) == count * 19 // 20


def test_an_idle_input_stops_holding_the_other_back() -> None:
    schema = pa.schema([("ts", pa.timestamp("us"))])
    operator = ordering_operator([schema, schema], "ts", None, 0, idle="30 seconds")
    runtime = LocalRuntime(operator)

    def batch(moment: int, **sides: list[int]) -> tuple[list[int], bool]:
        tasks = []
        for side, times in sides.items():
            tasks.append((int(side[1]), [pa.record_batch([pa.array(times, pa.timestamp("us"))], schema=schema)]))
        rows = [row for piece in runtime.run_batch(tasks, moment=moment * SECOND) for row in piece.to_pylist()]
        return [micros(row) for row in rows], any(row["late"] for row in rows)

    assert batch(0, s0=[10] * 8 + [20], s1=[10]) == ([], False)
    assert batch(1, s0=[30]) == ([], False)
    assert batch(29, s0=[40]) == ([], False)
    assert batch(31, s0=[50]) == ([10] * 9 + [20, 30, 40], False)
    assert runtime.report().streams[1]["idle"]
    # It returns: what is behind the other is late, what is not is in order.
    assert batch(32, s1=[35]) == ([35], True)
    assert batch(33, s0=[60], s1=[55]) == ([50], False)
    streams = runtime.report().streams
    assert not streams[1]["idle"]
    assert [stream["waiting"] for stream in streams] == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "tz"}, "time='tz': the input has no such column; it has ts, seq2"),
        ({"time": "seq2"}, "time='seq2': has type int64, not a timestamp"),
        ({"key": "q"}, "key='q': the input has no such column"),
        ({"late": "skip"}, "late='skip': write 'flag', 'drop' or 'side'"),
        ({"lateness": "-1 second"}, "lateness='-1 second': negative"),
        ({"lateness": "soon"}, "lateness='soon': not a duration"),
        ({"lateness": ["1 second", "2 seconds"]}, r"lateness=\('1 second', '2 seconds'\): write one duration$"),
        ({"idle": "0 seconds"}, "idle='0 seconds': not above 0; write a longer duration, or None"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us")), "seq2": [1]})
    with pytest.raises(braided.BraidedError, match=message):
        braided.local.order(table, **{"time": "ts", **options})


def test_clashing_columns_and_schemas_are_refused() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("us")), "seq": [1]})
    with pytest.raises(
        braided.BraidedError, match="column 'seq': the result already has a column of that name; rename it"
    ):
        braided.local.order(table, time="ts")
    with pytest.raises(braided.BraidedError, match="inputs: number 1 has columns ts timestamp"):
        braided.local.merge([table, table.drop_columns(["seq"])], time="ts", key="seq")


def test_late_rows_go_aside() -> None:
    """The first eight rows only settle the clock."""
    times = pa.array([0] * 7 + [0, 5 * SECOND, 10 * SECOND, SECOND, 11 * SECOND], pa.timestamp("us"))
    result = braided.local.order(
        pa.table({"ts": times, "id": range(-7, 5)}), time="ts", lateness="1 second", late="side", batch_rows=1
    )
    assert result.table["id"].to_pylist()[8:] == [1, 2, 4]
    assert result.late is not None
    assert result.late["id"].to_pylist() == [3]
    stream = result.report.to_dict()["streams"][0]
    assert (stream["late"], stream["late_by_most"]) == (1, 4 * SECOND)


@pytest.mark.parametrize(("lateness", "late"), [(("1 second", "5 seconds"), [6]), (("5 seconds", "1 second"), [])])
def test_every_input_may_have_a_lateness_of_its_own(lateness: tuple[str, str], late: list[int]) -> None:
    """The first input has a row 4 s behind its clock, after a row of 8 s of the second may have left."""

    def table(first: int, *seconds: int) -> pa.Table:
        times = pa.array([0] * 8 + [second * SECOND for second in seconds], pa.timestamp("us"))
        return pa.table({"ts": times, "came": range(first, first + len(times))})

    inputs = [table(100, 10, 6, 31), table(0, 8, 30)]
    merged = braided.local.merge(inputs, time="ts", lateness=lateness, arrival="came", batch_rows=1).table
    assert merged.filter(merged["late"])["ts"].cast(pa.int64()).to_pylist() == [second * SECOND for second in late]


def test_times_at_the_edges_of_int64_leave_at_the_end() -> None:
    edges = [-(2**63) + 1, 0, 2**63 - 1]
    rows = pa.table({"k": [1, 1, 1], "t": pa.array(edges, pa.timestamp("us"))})
    assert braided.local.order(rows, time="t").table["t"].cast(pa.int64()).to_pylist() == edges
    assert braided.local.merge([rows, rows], time="t").table.num_rows == 6


def test_a_task_that_reads_a_later_part_of_a_file_first_sees_no_delay() -> None:
    """Rows are in order, with a gap of 30 minutes in the middle; one row of each part has no time."""
    half = [(1, NOW + second * SECOND, second) for second in range(300)]
    later = [(1, time + 1800 * SECOND + 300 * SECOND, at) for _, time, at in half]
    runtime = LocalRuntime(ordering_operator([SCHEMA], "ts", None, "auto"))
    parts = [rows_of([(1, None, 0), *part]) for part in (later, half)]
    batches = [
        part.append_column(pa.field(PART, pa.int64()), pa.array([number] * part.num_rows))
        for number, part in enumerate(parts)
    ]
    pieces = list(runtime.run_batch([(0, batches)]))
    assert runtime.report().to_dict()["streams"][0]["lateness"] == 0
    assert sum(piece.num_rows for piece in pieces) == 599  # the last one waits for the next
