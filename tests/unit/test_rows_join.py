"""Joins with the last rows of each key, in one process: oracles, ties, when pairs come out, state, and what is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

import braided
from braided import local
from braided.errors import OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures, InputColumn, Plan, describe
from braided.operators.registry import build
from braided.operators.rows_join.rows_join import RowsJoin
from braided.operators.stream import Stream, TimeMarks
from braided.routing.key_hashes import KeyHasher

US = pa.timestamp("us")
ROWS = pa.schema([("k", pa.int64()), ("t", US), ("id", pa.int64())])
FINAL: list[Any] = [(0, [])]
Event = tuple[int, int, int]


def table(events: Sequence[Event]) -> pa.Table:
    """Return rows of (key, time, number)."""
    return pa.Table.from_pylist([dict(zip(ROWS.names, event, strict=True)) for event in events], schema=ROWS)


def joined(left: Sequence[Event], right: Sequence[Event], **options: Any) -> list[tuple[int, int]]:
    """Return the numbers of the rows that meet."""
    given = {"on": "k", "time": "t", "lateness": "0 us", **options}
    found = local.join(table(left), table(right), **given).table
    return sorted(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True))


def plan_of(**options: Any) -> Plan:
    given = {"on": "k", "time": "t", "rows": 2, "lateness": "0 us", **options}
    return build(JoinSpec(**given), [Stream("left", ROWS), Stream("right", ROWS)])


class Run:
    """Batches of left and right rows, one after the other."""

    def __init__(self, **options: Any) -> None:
        self.runtime = LocalRuntime(plan_of(**options).operator)

    def batch(
        self, left: Sequence[Event] = (), right: Sequence[Event] = (), *, final: bool = False
    ) -> list[tuple[int, int]]:
        """Run a batch, and return the numbers of the rows that come out together."""
        sides = [(side, table(events)) for side, events in enumerate((left, right)) if events]
        tasks = [(side, rows.to_batches()) for side, rows in sides] or FINAL
        pieces = self.runtime.run_batch(tasks, final=final)
        pairs = [(row["id"], row["id_right"]) for piece in pieces for row in piece.to_pylist()]
        return sorted(pair for pair in pairs if min(pair) >= 0)

    def settle(self) -> None:
        """Let both clocks count: some rows of another key at time 0, whose results are not looked at."""
        many = [(99, 0, -number) for number in range(1, 70)]
        self.batch(many, many)

    @property
    def stored(self) -> int:
        return sum(report["last"]["stored_rows"] for report in self.runtime.reports)


def test_each_row_meets_the_last_rows_before_it() -> None:
    left = [(1, 10, 0), (1, 20, 1), (1, 30, 2), (1, 60, 3), (2, 31, 4)]
    right = [(1, 40, 0), (1, 50, 1), (1, 55, 2)]
    assert joined(left, right, rows=2) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert joined(left, right, rows=1) == [(2, 0), (2, 1), (2, 2), (3, 2)]
    assert joined(left, right, rows=(0, 2)) == [(3, 1), (3, 2)]
    assert joined(left, right, rows=(1, 0)) == [(2, 0), (2, 1), (2, 2)]


def test_a_window_of_time_is_a_further_condition() -> None:
    left = [(1, 10, 0), (1, 20, 1), (1, 30, 2)]
    right = [(1, 35, 0), (1, 45, 1)]
    assert joined(left, right, rows=2, within="20 us") == [(1, 0), (2, 0), (2, 1)]
    # The third row from the end is near enough, but not one of the last two.
    assert joined(left, right, rows=2, within="1 hour") == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert joined(left, right, rows=2, between=("10 us", "20 us")) == [(1, 0), (2, 1)]
    assert joined(right, left, rows=2, between=("-20 us", "-10 us")) == [(0, 1), (1, 2)]


def test_a_predicate_chooses_among_the_last_rows() -> None:
    left = [(1, 10, 7), (1, 20, 1), (1, 30, 2)]
    assert joined(left, [(1, 40, 0)], rows=2, where="l.id > 5") == []
    assert joined(left, [(1, 40, 0)], rows=3, where="l.id > 5") == [(7, 0)]


def test_of_one_time_left_rows_are_first() -> None:
    """A right row meets left rows of its time; a left row meets none that is not before it."""
    assert joined([(1, 10, 0)], [(1, 10, 0), (1, 10, 1)], rows=1) == [(0, 0), (0, 1)]
    assert joined([(1, 10, 0)], [(1, 10, 0)], rows=(0, 1)) == []
    assert joined([(1, 11, 0)], [(1, 10, 0)], rows=(0, 1)) == [(0, 0)]


def test_of_one_stream_and_time_the_content_decides_and_not_the_arrival() -> None:
    tied = [(1, 10, number) for number in range(6)]
    found = [joined(rows, [(1, 20, 0)], rows=2) for rows in (tied, tied[::-1], tied[3:] + tied[:3])]
    assert len(found[0]) == 2
    assert found[0] == found[1] == found[2]


def test_without_a_key_the_streams_count_as_a_whole() -> None:
    left, right = [(1, 10, 0), (2, 20, 1)], [(3, 30, 0)]
    assert joined(left, right, on=None, rows=1) == [(1, 0)]
    assert joined(left, right, on=None, rows=1, workers=3) == [(1, 0)]


def test_rows_with_a_null_key_or_time_meet_nothing_and_do_not_count() -> None:
    left: list[Any] = [(1, 10, 0), (None, 20, 1), (1, None, 2)]
    assert joined(left, [(1, 30, 0), (None, 30, 1)], rows=1) == [(0, 0)]  # type: ignore[list-item]


events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.booleans()), max_size=60, unique_by=lambda e: e[1]
)


@settings(max_examples=examples(200, quick=20), deadline=None)
@given(events, st.integers(1, 4), st.integers(1, 7))
def test_tie_free_streams_give_the_rows_of_a_window_function(
    rows: list[tuple[int, int, bool]], last: int, batch_rows: int
) -> None:
    """DuckDB numbers the rows of each key and stream; a row meets those numbered just before it."""
    left = [(key, time, number) for number, (key, time, is_left) in enumerate(rows) if is_left]
    right = [(key, time, number) for number, (key, time, is_left) in enumerate(rows) if not is_left]
    both = {"l": table(left), "r": table(right)}
    numbered = "SELECT *, row_number() OVER (PARTITION BY k ORDER BY t) AS n FROM {}"
    connection = duckdb.connect()
    for name, content in both.items():
        connection.register(name, content)
    wanted = connection.execute(
        f"""
        WITH ln AS ({numbered.format("l")}), rn AS ({numbered.format("r")}),
        lasts AS (
            SELECT x.id, x.t, x.k, (SELECT count(*) FROM r WHERE r.k = x.k AND r.t < x.t) AS seen FROM l AS x
        ),
        firsts AS (
            SELECT x.id, x.t, x.k, (SELECT count(*) FROM l WHERE l.k = x.k AND l.t < x.t) AS seen FROM r AS x
        )
        SELECT lasts.id, rn.id FROM lasts JOIN rn ON rn.k = lasts.k AND rn.n <= seen AND rn.n > seen - {last}
        UNION ALL
        SELECT ln.id, firsts.id FROM firsts JOIN ln ON ln.k = firsts.k AND ln.n <= seen AND ln.n > seen - {last}
        """
    ).fetchall()
    found = joined(left, right, rows=last, batch_rows=batch_rows)
    assert Counter(found) == Counter(wanted)


def test_many_rows_of_few_keys_in_many_batches() -> None:
    """More rows than fit in a leaf or in a piece, against plain lists."""
    rng = np.random.default_rng(7)
    size, last = 60_000, 5
    keys, times = rng.integers(0, 9_000, size), np.arange(size)
    sides = rng.random(size) < 0.4
    tables = [
        pa.table({"k": keys[own], "t": pa.array(times[own]).cast(US), "id": np.flatnonzero(own)})
        for own in (sides, ~sides)
    ]
    found = local.join(*tables, on="k", time="t", rows=last, lateness="0 us", batch_rows=7_000, workers=2).table
    seen: dict[int, tuple[list[int], list[int]]] = {}
    wanted: list[tuple[int, int]] = []
    for number, (key, is_left) in enumerate(zip(keys.tolist(), sides.tolist(), strict=True)):
        lists = seen.setdefault(key, ([], []))
        others = lists[1 if is_left else 0][-last:]
        wanted += [(number, other) if is_left else (other, number) for other in others]
        lists[0 if is_left else 1].append(number)
    assert Counter(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)) == Counter(wanted)


def test_keys_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyHasher, "hash", lambda self, columns, rows: np.zeros(rows, np.uint64))
    texts = pa.schema([("k", pa.string()), ("t", US), ("id", pa.int64())])
    left = pa.Table.from_pylist([{"k": key, "t": at, "id": at} for at, key in enumerate("abcab")], texts)
    right = pa.Table.from_pylist([{"k": key, "t": 10 + at, "id": at} for at, key in enumerate("ba")], texts)
    found = local.join(left, right, on="k", time="t", rows=1, lateness="0 us", batch_rows=3).table
    assert sorted(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)) == [(3, 1), (4, 0)]


def test_a_pair_comes_out_when_both_streams_have_passed_its_later_row() -> None:
    run = Run(rows=1, lateness=("0 us", "5 us"))
    run.settle()
    assert run.batch([(1, 10, 0)], [(1, 20, 0)]) == []
    assert run.batch([(1, 30, 1)], []) == []  # the right clock is at 20, and a row at 15 may still come
    assert run.batch([], [(1, 17, 1)]) == []
    assert run.batch([], [(1, 27, 2)]) == [(0, 0), (0, 1)]
    assert run.batch(final=True) == [(0, 2), (1, 2)]


def test_a_late_row_is_counted_and_takes_no_part() -> None:
    run = Run(rows=1)
    run.settle()
    run.batch([(1, 10, 0)], [(1, 5, 0)])
    run.batch([(1, 50, 1)], [(1, 50, 1)])
    assert run.batch([(1, 20, 2)], [(1, 60, 2)]) == []
    assert run.batch([(1, 70, 3)], [(1, 70, 3)]) == [(1, 0), (1, 1), (1, 2)]
    assert [stream["late"] for stream in run.runtime.report().to_dict()["streams"]] == [1, 0]


def test_state_is_the_last_rows_of_each_key() -> None:
    run = Run(rows=(3, 1))
    run.settle()
    for at in range(1, 200):
        run.batch([(at % 2, at, at)], [(at % 2, at, at)])
    assert run.stored <= 3 * (3 + 1) + 2
    timed = Run(rows=100, within="10 us")
    for at in range(1, 200):
        timed.batch([(1000 + at, at, at)], [(1000 + at, at, at)])
    assert timed.stored <= 50


def test_a_key_is_forgotten_after_a_time_without_rows() -> None:
    left, right = [(1, 0, 0), (1, 30, 1)], [(1, 8, 0), (1, 16, 1), (1, 40, 2)]
    # Rows of either stream keep a key: 0, 8 and 16 are near each other, 30 is not.
    assert joined(left, right, rows=2, forget="10 us") == [(0, 0), (0, 1), (1, 2)]
    assert joined(left, right, rows=2, forget="14 us") == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    run = Run(rows=2, forget="10 us")
    for at in range(1, 400):
        run.batch([(1000 + at, at, at)], [(1000 + at, at, at)])
    assert run.stored <= 60


@pytest.mark.parametrize("rows", [1, (1, 0)])
def test_a_row_that_is_not_among_the_last_keeps_its_key_alive_all_the_same(rows: Any) -> None:
    """The right row at 18 is not stored any more at 32, yet no gap is longer than 10."""
    run = Run(rows=rows, forget="10 us")
    run.settle()
    run.batch([(1, 10, 0)])
    found = []
    for number, time in enumerate((18, 25, 32)):
        run.batch([], [(1, time, number)])
        found += run.batch([(99, time + 1, -1)], [(99, time + 1, -1)])
    assert found == [(0, 0), (0, 1), (0, 2)]


def test_results_are_behind_by_the_window_alone() -> None:
    """Rows leave in order, so the plan does not add the lateness; without a window nobody may rely on a time."""
    plan = plan_of(within=("3 us", "5 us"), lateness="7 us")
    marks = {column.name: column.marks for column in plan.columns if isinstance(column, InputColumn)}
    assert marks["t"] == TimeMarks(delay=3, watermark_delay=12, exact=True, offsets=(0, 0))
    assert marks["t_right"] == TimeMarks(delay=5, watermark_delay=12, exact=True, offsets=(-5, 3))
    untimed = plan_of(lateness="7 us")
    assert all(column.marks is None for column in untimed.columns if isinstance(column, InputColumn))
    assert plan.fixed is not None
    assert describe(plan_of(rows=(1, 2), where="l.id < r.id")) == (
        "joins each row with the last 2 right or 1 left rows of the other stream on k, where l.id < r.id"
    )
    assert isinstance(plan.operator, RowsJoin)


@pytest.mark.parametrize(("time", "within"), [("t", ("30 us", "5 us")), ("t_right", ("5 us", "30 us"))])
def test_an_operator_after_the_join_finds_no_row_late(time: str, within: tuple[str, str]) -> None:
    """Results come in batches of any length, each at most as late as the plan says: by the window."""
    plan = plan_of(rows=3, within=within, lateness="20 us")
    join = LocalRuntime(plan.operator)
    order = LocalRuntime(build(OrderSpec(time=time, lateness="0 us"), [plan.as_stream("input")]).operator)
    rng = np.random.default_rng(3)
    at = oldest = latest = 0
    for number in range(150):
        batch = []
        for side in (0, 1):
            times = at + rng.integers(-20, 1, 8) + 20
            events = [(int(rng.integers(0, 3)), int(moment), number) for moment in times]
            batch.append((side, table(events).to_batches()))
        at += int(rng.integers(0, 60)) if number % 3 else 0
        results = list(join.run_batch(batch))
        found = [moment for piece in results for moment in piece.column(time).cast(pa.int64()).to_pylist()]
        oldest = max([oldest, *(latest - moment for moment in found)])
        latest = max([latest, *found])
        list(order.run_batch([(0, results)]))
    assert [stream["late"] for stream in join.report().to_dict()["streams"]] == [0, 0]
    assert order.report().to_dict()["streams"][0]["late"] == 0
    assert oldest > 20, "no result is behind"


def test_a_query_in_one_process_takes_rows_and_aggregates_nothing_in_its_workers() -> None:
    stream = local.stream(table([(1, 10, 0), (1, 20, 1)]), time="t")
    query = stream.join(stream, on="k", rows=1, lateness="0 us")
    assert query.result.table.num_rows == 3
    with pytest.raises(OptionError, match="aggregate: cannot run in one process"):
        query.aggregate(by="k", window="1 minute", n="count(*)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows=0: write a number of rows from 1 to 1,000,000, or a pair (left, right), of which one may"),
        ({"rows": -3}, "rows=-3: write a number"),
        ({"rows": True}, "rows=True: write a number"),
        ({"rows": 2.0}, "rows=2.0: write a number"),
        ({"rows": "100"}, "rows='100': write a number"),
        ({"rows": (0, 0)}, "rows=(0, 0): write a number"),
        ({"rows": (1, 2, 3)}, "rows=(1, 2, 3): write a number"),
        ({"rows": 10**7}, "rows=10000000: write a number"),
        ({"how": "left"}, "how='left': a join with rows= is an inner join; leave out how=, or write join_asof"),
        ({"partition": "grid"}, "partition='grid': with rows= the rows of a key must be on one worker; write 'auto'"),
        ({"memory": 100}, "memory=: with rows= state is the last rows of each key"),
        ({"shed": 0.5}, "shed=: with rows= state is the last rows of each key"),
        ({"forget": "0 seconds"}, "forget='0 seconds': write a duration above zero, or None"),
        ({"rows": None, "within": "1 second", "forget": "1 hour"}, "forget='1 hour': is for joins with rows="),
        ({"rows": None}, "give within= or between=, exactly one of them"),
        ({"within": "1 second", "between": ("0 us", "1 us")}, "give within= or between=, exactly one of them"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        JoinSpec(**{"on": "k", "time": "t", "rows": 2, **options})


def test_a_predicate_that_only_spark_evaluates_is_refused() -> None:
    texts = pa.schema([("k", pa.int64()), ("t", US), ("v", pa.string())])
    spec = JoinSpec(on="k", time="t", rows=2, where="soundex(l.v) = soundex(r.v)")
    with pytest.raises(OptionError, match="filter the result instead, which gives the same rows"):
        build(spec, [Stream("left", texts), Stream("right", texts)], EngineFeatures(filters=True))
    with pytest.raises(braided.BraidedError, match="soundex"):
        build(spec, [Stream("left", texts), Stream("right", texts)])
