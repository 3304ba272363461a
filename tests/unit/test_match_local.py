"""Patterns in one process: results, measures, what is kept and for how long, and what stops a query."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import braided
import braided.local
from braided.errors import BraidedError, OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.match import match_operator, matcher, open_rows
from braided.operators.match.key_groups import by_key
from braided.operators.match.open_rows import Leaf, OpenRows
from braided.operators.match.spec import MatchSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.key_hashes import KeyHasher
from braided.runtime import ordering_stage
from braided.runtime.blocks import Blocks
from braided.runtime.store import MemoryStore

US = pa.timestamp("us")
SECOND = 1_000_000


def table(rows: list[tuple[Any, ...]], **types: pa.DataType) -> pa.Table:
    """Return rows of (key, seconds, value)."""
    keys, times, values = zip(*rows, strict=True) if rows else ([], [], [])
    moments = pa.array([round(time * SECOND) for time in times], US)
    return pa.table({"k": keys, "ts": moments, "v": pa.array(values, types.get("v"))})


def find(data: pa.Table, **options: Any) -> list[dict[str, Any]]:
    """Return matches as rows; they are the same for all cuts."""
    given = {"key": "k", "time": "ts", "within": "10 seconds", "lateness": "0 seconds", **options}
    found = [braided.local.match(data, batch_rows=size, **given).table for size in (1, 3, 1000)]
    assert len({tuple(sorted(map(repr, table.to_pylist()))) for table in found}) == 1
    rows: list[dict[str, Any]] = found[-1].to_pylist()
    return rows


LOGINS = pa.table(
    {
        "user": ["ann", "bob", "ann", "ann", "ann", "bob", "ann"],
        "ts": pa.array([0, 1, 2, 3, 4, 5, 6], pa.timestamp("s")).cast(US),
        "status": ["fail", "fail", "fail", "fail", "ok", "ok", "ok"],
        "ip": ["1", "1", "2", "2", "2", "9", "3"],
    }
)


def test_the_example_of_the_docs() -> None:
    found = braided.local.match(
        LOGINS, key="user", time="ts",
        pattern="FAIL{3,} OK",
        define={"FAIL": "status = 'fail'", "OK": "status = 'ok' AND ip <> first(FAIL.ip)"},
        measures={"first": "first(FAIL.ts)", "tries": "count(FAIL.*)", "ip": "last(OK.ip)"},
        within="5 minutes", after="skip past last row", lateness="auto",
    )  # fmt: skip
    assert [(row["user"], row["tries"], row["ip"]) for row in found.table.to_pylist()] == [("ann", 3, "2")]
    assert found.table.schema.field("first").type == US
    assert found.report.query["matches"] == 1
    assert found.report.query["open_matches"] == 0
    assert "  matches 1, open 0\n" in str(found.report)


def test_a_start_waits_for_rows_of_the_next_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows have arrived up to the end of the batch, but the search has seen those of the first pieces only."""
    monkeypatch.setattr(ordering_stage, "_PIECE_ROWS", 2)
    data = table([("a", time, time) for time in range(20)] + [("b", 60, 0)])
    options = {"pattern": "A B{2}", "define": {"A": "v IN (3, 8, 13)"}, "measures": {"last": "last(B.v)"}}
    assert [row["last"] for row in find(data, **options)] == [5, 10, 15]


def test_measures_of_one_row_and_of_all_rows() -> None:
    data = table([("a", 0, 1), ("a", 1, 5), ("a", 2, None), ("a", 3, 2)])
    measures = {
        "low": "min(v)", "high": "max(B.v)", "total": "sum(v) + 1", "mean": "avg(v)", "rows": "count(*)", "known": "count(v)",
        "twice": "last(v * 2)", "large": "max(v) > 4", "was": "prev(B.v)", "what": "classifier()",
        "sooner": "first(ts) - INTERVAL 1 SECOND", "whole": "final count(*)",
    }  # fmt: skip
    one = find(data, pattern="A B+", measures=measures)
    assert len(one) == 1
    assert {name: one[0][name] for name in ("low", "high", "total", "mean", "rows", "known", "twice")} == {
        "low": 1, "high": 5, "total": 9, "mean": 8 / 3, "rows": 4, "known": 3, "twice": 4,
    }  # fmt: skip
    assert (one[0]["large"], one[0]["was"], one[0]["what"], one[0]["whole"]) == (True, None, "B", 4)
    every = find(data, pattern="A B+", measures=measures, rows="all")
    by_time = sorted(every, key=lambda row: row["ts"])
    assert [row["v"] for row in by_time] == [1, 5, None, 2]
    assert [row["high"] for row in by_time] == [None, 5, 5, 5]
    assert [row["total"] for row in by_time] == [2, 7, 7, 9]
    assert [row["rows"] for row in by_time] == [1, 2, 3, 4]
    assert [row["whole"] for row in by_time] == [4, 4, 4, 4]
    assert [row["was"] for row in by_time] == [None, 1, 5, None]
    assert [row["what"] for row in by_time] == ["A", "B", "B", "B"]
    assert [row["large"] for row in by_time] == [False, True, True, True]
    assert by_time[0]["sooner"].timestamp() == by_time[0]["ts"].timestamp() - 1


def test_conditions_on_rows_before_and_on_earlier_symbols_at_once() -> None:
    data = table([("a", 0, 1), ("a", 1, 3), ("a", 2, 5), ("a", 3, 6)])
    given = {"pattern": "A B+", "measures": {"n": "count(*)", "last": "last(v)"}}
    assert find(data, define={"B": "v > prev(v) + first(v)"}, **given) == [{"k": "a", "n": 3, "last": 5}]
    assert find(data, define={"B": "v > prev(v, 1) + 1"}, **given) == [{"k": "a", "n": 3, "last": 5}]
    given["pattern"] = "A C B"
    assert find(data, define={"B": "v - prev(C.v) = 4 and v - prev(v, 2) = 4"}, **given) == [
        {"k": "a", "n": 3, "last": 5}
    ]


@pytest.mark.parametrize("define", [{"A": "v = 0"}, {"A": "v = 0 and count(A.*) < 1000", "B": "v >= first(v)"}])
def test_long_matches_and_many_of_them(define: dict[str, str]) -> None:
    """There is room for both to grow while a search runs."""
    ends = np.cumsum(np.random.default_rng(1).integers(1, 120, 2000))
    values = np.zeros(ends[-1], np.int64)
    values[ends - 1] = 1
    data = pa.table({"k": np.zeros(len(values), np.int64), "ts": pa.array(np.arange(len(values)), US), "v": values})
    found = braided.local.match(
        data, key="k", time="ts", pattern="A* B", define=define, within="1 second", batch_rows=50_000,
        measures={"n": "count(*)", "total": "sum(v)", "first": "first(ts)"},
    ).table  # fmt: skip
    lengths = np.diff(ends, prepend=0)
    assert found.sort_by("first")["n"].to_pylist() == lengths.tolist()
    assert found["total"].to_pylist() == [1] * len(ends)


def test_columns_of_any_type_can_be_measured() -> None:
    data = table([("a", 0, [1]), ("a", 1, [2, 3])], v=pa.list_(pa.int64()))
    given = {
        "key": "k",
        "time": "ts",
        "pattern": "A B",
        "within": "1 minute",
        "measures": {"a": "A.v", "b": "last(B.v)"},
    }
    assert braided.local.match(data, batch_rows=1, **given).table.to_pylist() == [{"k": "a", "a": [1], "b": [2, 3]}]


def test_excluded_rows_are_part_of_the_match_and_not_of_the_result() -> None:
    data = table([("a", 0, 1), ("a", 1, 2), ("a", 2, 3)])
    for pattern in ("A {- B -} C", "A {- {- B -} -} C"):
        found = find(data, pattern=pattern, measures={"n": "count(*)"}, rows="all")
        assert sorted((row["v"], row["n"]) for row in found) == [(1, 1), (3, 3)]


def test_all_rows_need_no_measures() -> None:
    data = table([("a", 0, 1), ("a", 1, 2), ("a", 2, 3)])
    found = find(data, pattern="A B", define={"B": "v = 3"}, measures={}, rows="all")
    assert sorted(row["v"] for row in found) == [2, 3]


def test_subsets_count_together() -> None:
    data = table([("a", 0, 1), ("a", 1, 2), ("a", 2, 3)])
    measures = {"n": "count(AB.*)", "last": "last(ab.v)", "sum": "sum(AB.v)"}
    assert find(data, pattern="A B C", measures=measures, subsets={"AB": ["A", "B"]}) == [
        {"k": "a", "n": 2, "last": 2, "sum": 3}
    ]


# A clock counts once enough rows have been near it; until then nothing leaves.
SETTLED: list[tuple[Any, ...]] = [("z", 0, None)] * 70


@pytest.mark.parametrize(("pattern", "rows"), [("A B+?", 3), ("A B{1,2}", 5), ("A B+", 6), ("A B C", None)])
def test_a_match_leaves_when_nothing_better_can_come(pattern: str, rows: int | None) -> None:
    """A reluctant end leaves at once, a greedy one waits for a row that ends it, or for the time to pass."""
    data = [("a", 1, 1), ("a", 2, 1), ("b", 3, 9), ("a", 4, 1), ("b", 5, 9), ("b", 30, 9), ("b", 31, 9)]
    define = {name: "v = 1" for name in "ABC" if name in pattern}
    if pattern == "A B C":
        define["C"] = "v = 2"
    left = []
    for count in range(1, len(data) + 1):
        report = braided.local.match(
            table([*SETTLED, *data[:count]]), key="k", time="ts", pattern=pattern, define=define,
            measures={"n": "count(*)"}, within="10 seconds", lateness="0 seconds", batch_rows=1,
        ).report  # fmt: skip
        # The last batch is the end, which decides everything.
        worker = report.workers[0]
        left.append(worker["total"]["results"] - worker["last"]["results"])
    # A row is in order, and counts, when a later one has come.
    assert left == [int(rows is not None and count >= rows) for count in range(1, len(data) + 1)]


def test_a_negation_is_decided_by_the_horizon() -> None:
    data = table([("a", 0, "x"), ("a", 4, "y"), ("b", 0, "x"), ("b", 20, "y"), ("c", 0, "x"), ("c", 5, "z")])
    data = data.sort_by("ts")
    given = {"pattern": "X !Y", "define": {"X": "v = 'x'", "Y": "v = 'y'"}, "measures": {"at": "X.ts"}}
    assert sorted(row["k"] for row in find(data, **given)) == ["b", "c"]


def test_rows_of_equal_time_are_in_the_order_of_their_content() -> None:
    one = table([("a", 0, value) for value in range(6)])
    other = one.take([3, 1, 5, 0, 2, 4])
    given = {"pattern": "A B C", "measures": {"a": "A.v", "b": "B.v", "c": "C.v"}}
    assert find(one, **given) == find(other, **given)


def test_null_is_a_key_and_keys_that_share_a_hash_stay_apart() -> None:
    data = pa.table(
        {
            "a": pa.array([None, None, 1, None, None, 1.0, None], pa.float64()),
            "b": ["x", "y", None, "x", "y", None, None],
            "ts": pa.array(range(7), US),
        }
    )
    found = find(data, key=["a", "b"], pattern="A B", measures={"n": "count(*)"})
    assert sorted(map(str, found)) == sorted(
        map(str, [{"a": None, "b": "x", "n": 2}, {"a": None, "b": "y", "n": 2}, {"a": 1.0, "b": None, "n": 2}])
    )


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyHasher, "hash", lambda self, columns, rows: np.full(rows, 7, np.uint64))
    monkeypatch.setattr(KeyHasher, "exact", property(lambda self: False))
    data = table([("a", 0, 1), ("b", 1, 2), ("a", 2, 3), ("b", 3, 4), ("a", 4, 5)])
    found = find(data, pattern="A B", measures={"n": "sum(v)"})
    assert sorted((row["k"], row["n"]) for row in found) == [("a", 4), ("b", 6)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.decimal128(20, 2)])
def test_rows_of_a_key_are_brought_together(kind: pa.DataType) -> None:
    column = pa.array([1, 2, None, 1, 2, None]).cast(pa.string()).cast(kind)
    rows = pa.RecordBatch.from_arrays([column], ["k"])
    order, bounds = by_key(rows, np.arange(6), np.zeros(6, np.uint64), ["k"], exact=False)
    assert order is not None
    assert bounds.tolist() == [0, 2, 4, 6]
    assert all(order[low] + 3 == order[low + 1] for low in (0, 2, 4))


def test_late_rows_are_counted_and_left_out() -> None:
    """A row that comes after the horizon has passed changes nothing that was decided, and nothing that is open."""
    rows = [*SETTLED, ("a", 1, 1), ("a", 10, 2), ("a", 20, 3), ("a", 5, 9), ("a", 17, 7), ("a", 25, 4)]
    given = {"key": "k", "time": "ts", "pattern": "A B", "measures": {"a": "A.v", "b": "B.v"}, "within": "1 minute"}
    found = braided.local.match(table(rows), lateness="5 seconds", batch_rows=1, **given)
    kept = [row for row in rows if row[2] != 9]
    again = braided.local.match(table(kept), lateness="5 seconds", **given)
    assert found.table.sort_by("a").equals(again.table.sort_by("a"))
    assert [(row["a"], row["b"]) for row in again.table.to_pylist() if row["k"] == "a"] == [(1, 2), (7, 3)]
    assert found.report.streams[0]["late"] == 1


def test_a_row_at_the_very_end_of_the_time_still_counts() -> None:
    """The horizon is the first time that may still come: at 11 s it has not passed the last moment of a match from 1 s."""
    data = table([*SETTLED, ("a", 1, 1), ("z", 11, 3), ("a", 11, 2)])
    given = {"pattern": "A B+", "define": {"A": "v = 1", "B": "v = 2"}, "measures": {"n": "count(*)"}}
    assert find(data, **given) == [{"k": "a", "n": 2}]
    assert find(data, **{**given, "within": "9.999999 seconds"}) == []


def test_a_match_leaves_with_the_first_row_beyond_its_time() -> None:
    """All rows before a microsecond after the end are there: that decides."""
    for beyond, left in ((11, 0), (11.000001, 1)):
        data = table([*SETTLED, ("a", 1, 1), ("a", 2, 2), ("z", beyond, 3)])
        worker = braided.local.match(
            data, key="k", time="ts", pattern="A B+", define={"A": "v = 1", "B": "v = 2"}, measures={"n": "count(*)"},
            within="10 seconds", lateness="0 seconds", batch_rows=1,
        ).report.workers[0]  # fmt: skip
        assert worker["total"]["results"] - worker["last"]["results"] == left


def test_a_row_behind_the_horizon_is_late_even_if_no_later_one_has_left() -> None:
    """Once the horizon has decided that no Y follows, a Y that follows after all changes nothing."""
    data = table([*SETTLED, ("a", 1, "x"), ("z", 30, None), ("a", 5, "y"), ("z", 31, None)])
    found = braided.local.match(
        data, key="k", time="ts", pattern="X !Y", define={"X": "v = 'x'", "Y": "v = 'y'"}, measures={"n": "count(*)"},
        within="10 seconds", lateness="0 seconds", batch_rows=1,
    )  # fmt: skip
    assert found.table.to_pylist() == [{"k": "a", "n": 1}]
    assert found.report.streams[0]["late"] == 1


@pytest.mark.parametrize(("after", "count"), [("skip past last row", 2), ("skip to next row", 5)])
def test_open_matches_are_counted(after: str, count: int) -> None:
    """Where matches do not overlap a key has one open at most; else every row may begin one."""
    data = table([*SETTLED, ("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("b", 4, 1), ("b", 5, 1), ("z", 6, None)])
    spec = MatchSpec(
        key="k", time="ts", pattern="A+ B", define={"A": "v = 1", "B": "v = 2"}, measures={"n": "count(*)"},
        within="1 minute", after=after, lateness="0 seconds",
    )  # fmt: skip
    runtime = LocalRuntime(build(spec, [Stream("input", data.schema)]).operator)
    assert list(runtime.run_batch([(0, data.combine_chunks().to_batches())])) == []
    report = runtime.report()
    assert report.query["open_matches"] == count
    assert report.streams[0]["waiting"] == 1
    assert report.workers[0]["last"]["stored_rows"] == 6


def test_a_leaf_is_touched_by_its_keys_and_when_its_time_has_run_out() -> None:
    kept = OpenRows(Blocks(MemoryStore(), 0, {}), pa.schema([("ts", US)]), None)
    kept.leaves = [Leaf(0, oldest=5, rows=1), Leaf(100, oldest=9, rows=1), Leaf(200)]

    def lows(hashes: list[int], expired: int) -> list[list[int]]:
        return [[leaf.low for leaf in leaves] for leaves, _ in kept.touched(np.array(hashes, np.uint64), expired)]

    assert lows([], 5) == []
    assert lows([], 6) == [[0]]
    assert lows([], 10) == [[0, 100]]
    assert lows([99, 300, 0], 0) == [[0, 200]]
    assert lows([100, 199], 0) == [[100]]


def test_only_leaves_with_news_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open rows of many keys make many blocks; a batch of few keys reads and writes few of them."""
    monkeypatch.setattr(open_rows, "LEAF_ROWS", 64)
    written: list[int] = []
    write = Blocks.write
    monkeypatch.setattr(Blocks, "write", lambda self, content, *rest: written.append(1) or write(self, content, *rest))
    keys = [*range(1000), *([7] * 50)]
    data = pa.table({"k": keys, "ts": pa.array(range(1050), US), "v": [0] * 1050})
    found = braided.local.match(
        data, key="k", time="ts", pattern="A B", define={"A": "v = 0", "B": "v = 1"}, measures={"n": "count(*)"},
        within="1 hour", lateness="0 seconds", batch_rows=50,
    )  # fmt: skip
    assert found.table.num_rows == 0
    # 20 batches write about all leaves each, then one batch writes that of key 7 and the row that waits.
    everything = len(written)
    written.clear()
    braided.local.match(
        data.slice(0, 1000), key="k", time="ts", pattern="A B", define={"A": "v = 0", "B": "v = 1"},
        measures={"n": "count(*)"}, within="1 hour", lateness="0 seconds", batch_rows=50,
    )  # fmt: skip
    assert everything - len(written) <= 3
    assert len(written) > 100


@pytest.mark.parametrize("after", ["skip past last row", "skip to next row"])
@pytest.mark.parametrize("key", ["k", ["k", "s"]])
def test_leaves_that_split_and_join_change_nothing(monkeypatch: pytest.MonkeyPatch, after: str, key: Any) -> None:
    """Blocks of few rows, keys with nulls that share a hash, and a new process after every batch."""
    rng = np.random.default_rng(5)
    count = 3000
    keys = rng.integers(0, 150, count) + np.arange(count) // 10
    data = pa.table(
        {
            "k": pa.array(keys, mask=keys % 7 == 0),
            "s": pa.array(rng.choice(["x", "y"], count)),
            "ts": pa.array(np.sort(rng.integers(0, 60 * SECOND, count)), US),
            "v": rng.integers(0, 4, count),
        }
    )
    spec = MatchSpec(
        key=key, time="ts", pattern="A B* C", define={"A": "v = 0", "B": "v > 0", "C": "v = 3 and k >= A.k"}, after=after,
        measures={"a": "A.ts", "c": "C.ts", "n": "count(*)"}, within="5 seconds", lateness="1 second",
    )  # fmt: skip

    def found(size: int) -> tuple[list[dict[str, Any]], int]:
        runtime = LocalRuntime(build(spec, [Stream("input", data.schema)]).operator)
        rows, most = [], 0
        batches = [*data.to_batches(size), None]
        for batch in batches:
            tasks = [(0, [] if batch is None else [batch])]
            rows += [row for piece in runtime.run_batch(tasks, final=batch is None) for row in piece.to_pylist()]
            most = max(most, len(runtime.stores[0].blocks))
            runtime = LocalRuntime(runtime.operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
        assert not runtime.stores[0].blocks
        return sorted(rows, key=repr), most

    whole, few = found(count)
    monkeypatch.setattr(open_rows, "LEAF_ROWS", 16)
    monkeypatch.setattr(open_rows, "_CHUNK_ROWS", 64)
    split, many = found(100)
    assert split == whole
    assert len(whole) > 50
    assert many > few + 5


def test_rows_that_are_all_there_are_cut_between_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size, keys of any size: a key is searched as a whole."""
    rng = np.random.default_rng(3)
    keys = np.sort(np.append(rng.integers(0, 40, 400), np.full(200, 7)))
    data = pa.table({"k": keys, "ts": pa.array(rng.integers(0, SECOND, 600), US), "v": rng.integers(0, 3, 600)})
    spec = MatchSpec(
        key="k", time="ts", pattern="A B+ C?", define={"A": "v = 0", "B": "v >= prev(v)"}, within="1 minute",
        measures={"a": "A.ts", "n": "count(*)"},
    )  # fmt: skip
    operator: Any = build(spec, [Stream("input", data.schema)]).operator
    whole = pa.Table.from_batches(operator.find_all(data.to_batches()), operator.output)
    assert whole.sort_by([("k", "ascending"), ("a", "ascending")]).to_pylist() == sorted(
        braided.local.match(data, **{name: getattr(spec, name) for name in spec.descriptions()}).table.to_pylist(),
        key=lambda row: (row["k"], row["a"]),
    )
    monkeypatch.setattr(match_operator, "_ENOUGH_ROWS", 50)
    cut = pa.Table.from_batches(operator.find_all(data.to_batches(11)), operator.output)
    assert cut.sort_by([("k", "ascending"), ("a", "ascending")]).equals(
        whole.sort_by([("k", "ascending"), ("a", "ascending")])
    )
    assert whole.num_rows > 50


def test_many_rows_of_a_key_that_never_match_are_no_square() -> None:
    """All 100,000 rows may begin a match that no row ends: ten thousand million steps, had every start to try all."""
    count = 100_000
    data = pa.table(
        {"k": np.zeros(count, np.int64), "ts": pa.array(np.arange(count), US), "v": np.ones(count, np.int64)}
    )
    given: dict[str, Any] = {"key": "k", "time": "ts", "within": "1 minute", "measures": {"n": "count(*)"}}
    for pattern, found in (("A X* B", 0), ("A X*? B", 0), ("A (X | Y)* !B", 1)):
        define = {"A": "v = 1", "B": "v = 2"}
        table = braided.local.match(data, pattern=pattern, define=define, batch_rows=30_000, **given).table
        assert table.num_rows == found


def test_a_search_that_takes_too_long_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "MOST_STEPS", 1000)
    data = table([("a", time / 10, 1) for time in range(60)])
    with pytest.raises(BraidedError) as caught:
        find(data, pattern="A+ B+ C+ D", define={"D": "v > sum(A.v) + 1000"}, measures={"n": "count(*)"})
    assert str(caught.value) == (
        "pattern: the search took more than 1,000 steps from one row, or 10,000 per row of the key (key k='a'); shorten within=, "
        "let conditions exclude each other, or refer to fewer earlier symbols"
    )


@pytest.mark.parametrize("pattern", ["A B* C", "A !C"])
def test_many_searches_that_each_take_long_stop(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 20,000 starts tries all rows after it, which is below the limit of one search."""
    count = 20_000
    monkeypatch.setattr(matcher, "MOST_STEPS", 1_000_000)
    monkeypatch.setattr(matcher, "STEPS_PER_ROW", 500)
    data = pa.table(
        {"k": np.zeros(count, np.int64), "ts": pa.array(np.arange(count), US), "v": np.ones(count, np.int64)}
    )
    with pytest.raises(BraidedError, match=r"or 500 per row of the key \(key k=0\)"):
        braided.local.match(
            data, key="k", time="ts", pattern=pattern, define={"C": "v > count(*)"}, measures={"n": "count(*)"},
            within="1 minute", after="skip to next row",
        )  # fmt: skip


@pytest.mark.parametrize("condition", ["v > last(A.v) + 1000", "v > min(A.v) + 100 and v > 5", "count(B.*) > 60"])
def test_a_search_tries_no_place_twice(condition: str) -> None:
    """There are 2 to the power of 60 ways through these rows."""
    data = table([("a", time / 10, time) for time in range(60)])
    options = {"pattern": "(A | B)* X", "define": {"X": condition}, "measures": {"n": "count(*)"}}
    assert find(data, **options) == []
    assert find(data, **{**options, "define": {"X": "v = last(A.v) + 1 and v = 59"}}) == [{"k": "a", "n": 60}]


def test_a_place_is_tried_again_with_other_rows_of_earlier_symbols() -> None:
    data = table([("a", time / 10, time) for time in range(30)])
    condition = "v = 29 and last(A.v) = 28 and last(B.v) = 3 and count(A.*) = 27"
    options = {
        "pattern": "(A | B)* X",
        "define": {"X": condition},
        "measures": {"b": "array_agg(B.v)", "n": "count(*)"},
    }
    assert find(data, **options) == [{"k": "a", "b": [2, 3], "n": 30}]


def test_what_failed_for_one_start_is_not_tried_for_the_next() -> None:
    """400 starts of 400 rows, and as many rows in registers."""
    data = table([("a", time / 100, time) for time in range(400)])
    options: dict[str, Any] = {
        "key": "k",
        "time": "ts",
        "within": "10 s",
        "batch_rows": 1000,
        "measures": {"n": "count(*)"},
    }
    found = braided.local.match(data, pattern="(A | B)* X", define={"X": "v > last(A.v) + 1000"}, **options)
    assert found.table.num_rows == 0


def test_rows_that_a_match_has_gone_past_begin_no_other() -> None:
    """They stay where others look back at them."""
    data = table([("a", time, value) for time, value in enumerate([9, 8, 7, 8, 9, 5, 4, 6])])
    found = find(
        data, pattern="A B+ C+", define={"B": "v < prev(v)", "C": "v > prev(v)"},
        measures={"n": "match_number()", "first": "first(v)", "last": "last(v)"},
    )  # fmt: skip
    assert sorted(tuple(row.values()) for row in found) == [("a", 1, 9, 9), ("a", 2, 5, 6)]


def test_a_key_ends_when_it_was_silent_for_so_long() -> None:
    data = table([("a", 0, 1), ("a", 1, 2), ("a", 60, 3), ("a", 61, 4), ("b", 2, 5), ("a", 62, 6)])
    options: dict[str, Any] = {"measures": {"v": "last(v)"}, "define": {"A": "v > 0"}}
    assert sorted(row["v"] for row in find(data, pattern="A $", forget="20 seconds", **options)) == [2, 5, 6]
    assert sorted(row["v"] for row in find(data, pattern="^ A", forget="20 seconds", **options)) == [1, 3, 5]
    assert sorted(row["v"] for row in find(data, pattern="^ A", **options)) == [1, 5]
    assert sorted(row["v"] for row in find(data, pattern="A $", **options)) == [5, 6]


def test_what_a_key_ended_with_leaves_while_the_stream_goes_on() -> None:
    spec = MatchSpec(
        time="ts", key="k", pattern="A $", measures={"v": "v"}, within="5 seconds", forget="20 seconds", lateness="0 s"
    )
    data = table([("a", 0, 1), ("a", 1, 2), *(("b", 2 + time, 0) for time in range(60))])
    plan = build(spec, [Stream("input", data.schema)])
    runtime = LocalRuntime(plan.operator)
    found = [
        row
        for batch in data.to_batches(max_chunksize=10)
        for part in runtime.run_batch([(0, [batch])])
        for row in part.to_pylist()
    ]
    assert found == [{"k": "a", "v": 2}]
    with pytest.raises(
        OptionError, match=re.escape("pattern='A $': '$' is after the last row of a key, but keys of a stream have")
    ):
        build(replace(spec, forget=None), [Stream("input", data.schema)], EngineFeatures(ends=False))


def test_ties_order_rows_of_one_time() -> None:
    data = table([("a", 0, 2), ("a", 0, None), ("a", 0, 1), ("a", 1, 3), ("a", 1, 5), ("b", 0, 7)])
    options: dict[str, Any] = {"pattern": "A+", "measures": {"all": "array_agg(coalesce(v, 0))"}}
    for ties, wanted in ((["v"], [0, 1, 2, 3, 5]), (["v DESC"], [2, 1, 0, 5, 3])):
        found = {row["k"]: row["all"] for row in find(data, ties=ties, **options)}
        assert found == {"a": wanted, "b": [7]}


def test_aggregates_of_symbols_and_numbers() -> None:
    data = table([("a", 0, 3), ("a", 1, None), ("a", 2, 9), ("a", 3, 2), ("a", 4, 5), ("a", 5, 1)])
    measures = {
        "list": "array_agg(v)", "all": "final array_agg(v)", "what": "listagg(lower(classifier()), '-')",
        "by": "max_by(v, classifier())", "least": "min_by(classifier(), v)", "b": "min(classifier(B))",
        "sum": "sum(match_number())", "mean": "avg(v + match_number())", "count": "count(classifier(B))",
        "text": "cast(count(*) as string) || classifier()",
    }  # fmt: skip
    found = find(data, pattern="A B B", measures=measures, rows="all")
    assert [tuple(row[name] for name in measures) for row in sorted(found, key=lambda row: row["ts"])] == [
        ([3], [3, 9], "a", 3, "A", None, 1, 4.0, 0, "1A"),
        ([3], [3, 9], "a-b", None, "A", "B", 2, 4.0, 1, "2B"),
        ([3, 9], [3, 9], "a-b-b", None, "A", "B", 3, 7.0, 2, "3B"),
        ([2], [2, 5, 1], "a", 2, "A", None, 2, 4.0, 0, "1A"),
        ([2, 5], [2, 5, 1], "a-b", 5, "A", "B", 4, 5.5, 1, "2B"),
        ([2, 5, 1], [2, 5, 1], "a-b-b", 5, "B", "B", 6, 14 / 3, 2, "3B"),
    ]


def test_plain_conditions_are_never_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "MOST_STEPS", 500)
    data = table([("a", time / 100, 1) for time in range(300)])
    assert find(data, pattern="A+ B+ C+ D+ E", define={"E": "v > 1"}, measures={"n": "count(*)"}) == []


@pytest.mark.parametrize(
    ("define", "message"),
    [
        ({"B": "v + 1 > 0"}, r"define['B']='v + 1 > 0': overflows; cast an operand to a wider type"),
        ({"B": "v + A.v > 0"}, r"define['B']='v + A.v > 0': overflows; cast an operand to a wider type"),
        ({"B": "sum(v) > 0"}, r"define['B']='sum(v) > 0': overflows; cast an operand to a wider type"),
    ],
)
def test_integers_that_overflow_stop_the_query(define: dict[str, str], message: str) -> None:
    data = table([("a", 0, (1 << 63) - 1), ("a", 1, (1 << 63) - 1)])
    with pytest.raises(BraidedError, match=re.escape(message)):
        find(data, pattern="A B", define=define, measures={"n": "count(*)"})


def test_a_sum_that_overflows_in_a_measure_stops_the_query() -> None:
    data = table([("a", 0, (1 << 63) - 1), ("a", 1, 1)])
    with pytest.raises(BraidedError, match=re.escape("measures['n']='sum(v)': overflows; cast an operand")):
        find(data, pattern="A B", measures={"n": "sum(v)"})


def test_without_rows_there_are_no_results() -> None:
    data = table([("a", 0, 1)]).slice(0, 0)
    assert find(data, pattern="A B", measures={"n": "count(*)"}) == []


BASE: dict[str, Any] = {
    "key": "k",
    "time": "ts",
    "pattern": "A B+",
    "measures": {"n": "count(*)"},
    "within": "1 minute",
}
WRONG = [
    ({"pattern": ""}, "pattern='': write a pattern such as 'A B+ C'"),
    ({"pattern": "A (B"}, "pattern='A (B': position 5: expected ')' or a further part, found the end"),
    ({"pattern": "A B)"}, "pattern='A B)': position 4: expected the end or a further part, found ')'"),
    ({"pattern": "A # B"}, "pattern='A # B': position 3: unexpected '#'"),
    ({"pattern": "A{3, B"}, "pattern='A{3, B': position 6: expected a number or '}', found 'B'"),
    ({"pattern": "A{4,2}"}, "pattern='A{4,2}': position 2: {4,2} has no valid number of times; write the smaller number first"),
    ({"pattern": "A{9999}"}, "pattern='A{9999}': position 3: 9999 repetitions are too many; write at most 1,000"),
    ({"pattern": "A**"}, "pattern='A**': position 3: expected no second quantifier (put the part in brackets), found '*'"),
    ({"pattern": "A* !B"}, "pattern='A* !B': may match no rows, so nothing can follow a match; write + for *, or leave out the !B"),
    ({"pattern": "a `A`"}, "position 3: a and A differ only in case, and symbols are case-insensitive; rename one"),
    ({"pattern": "()"}, "pattern='()': has no symbol; write one, such as '() | A'"),
    ({"pattern": "A !B C"}, "position 6: expected the end: a negation must be the last part of the whole pattern, found 'C'"),
    ({"pattern": "(A !B)"}, "position 4: expected no '!' here: a negation must be the last part of the whole pattern"),
    ({"pattern": "PERMUTE(A, B, C, D, E, F)"}, "position 1: PERMUTE has 6 parts; write at most 5"),
    ({"pattern": "(A{100}){100}"}, "is too large, with more than 1,000 places of symbols"),
    ({"define": {"C": "v > 1"}}, "define['C']: the pattern has no such symbol; it has A, B"),
    ({"define": {"A": "v > 1", "a": "v > 2"}}, "define: 'A' is there twice, and names are case-insensitive; leave one out"),
    ({"define": ["A"]}, "define=('A',): write a dict with names as keys"),
    ({"define": {"A": "w > 1"}}, "define['A']='w > 1': 'w': no such column; there are k, ts, v"),
    ({"define": {"B": "v > C.v"}}, "define['B']='v > C.v': 'C': unknown symbol; write one of A, B"),
    ({"define": {"B": "v > k"}}, "define['B']='v > k': v > k: string with bigint does not compile; docs/reference/match.md lists"),
    ({"define": {"B": "v"}}, "define['B']='v': v is bigint, not a boolean; docs/reference/match.md lists what compiles"),
    ({"define": {"B": "trim(k) = 'A'"}}, "trim is not in the compiled subset; docs/reference/match.md lists what compiles"),
    ({"define": {"B": "v > (select 1)"}}, "a subquery is not supported; join the stream with it before"),
    ({"define": {"B": "k like 'a\\_'"}}, "LIKE takes a string in quotes, without a backslash"),
    ({"define": {"B": "lower(v) = 'a'"}}, "lower(v): expected a string, not bigint; cast it to string"),
    ({"define": {"B": "max(classifier()) = 'B'"}}, "a definition may use COUNT, SUM, AVG, MIN and MAX of columns; MAX of symbols"),
    ({"measures": {"n": "concat_ws(',', k)"}}, "CONCAT_WS takes a string and one ARRAY_AGG"),
    ({"measures": {"n": "coalesce(v)"}}, "COALESCE takes 2 to 32 values, not 1"),
    ({"ties": "v"}, "ties='v': write a list of columns, such as ['price DESC', 'id']"),
    ({"ties": ["v down"]}, "ties=('v down',): 'v down': write a column, with ASC or DESC if wanted"),
    ({"ties": ["v", "v DESC"]}, "v is there twice, or the time; name each once"),
    ({"rows": "all with unmatched", "pattern": "A {- B -}"}, "a row that {- -} leaves out would be neither matched"),
    ({"define": {"B": ""}}, "define['B']='': write a SQL expression"),
    ({"define": {"B": "v > prev(v, 1001)"}}, "PREV takes a number of rows from 0 to 1,000, not '1001'"),
    ({"define": {"B": "v > first(v, 101)"}}, "FIRST takes a number of rows from 0 to 100, not '101'"),
    ({"define": {"B": "v > sum(v, 1)"}}, "SUM takes no number of rows"),
    ({"define": {"B": "prev(v + last(v)) > 1"}}, "last(v) in an expression inside another function of rows"),
    ({"define": {"B": "match_number() = 1"}}, "MATCH_NUMBER can only be used in measures"),
    ({"define": {"B": "classifier() < 'B'"}}, "CLASSIFIER can only be compared with = and <>"),
    ({"define": {"B": "count(classifier()) < 2"}}, "count(classifier()): a definition may use COUNT, SUM, AVG, MIN and"),
    ({"define": {"B": "final prev(v) > 1"}}, "FINAL can only be used with FIRST, LAST and aggregates, inside PREV"),
    ({"define": {"C": "next(v) = 1"}, "pattern": "A !C"}, "NEXT is not supported in the definition of a negated symbol"),
    ({"pattern": "A", "measures": {"n": "next(v)"}, "within": None}, "within=None: NEXT would wait for ever; write how"),
    ({"forget": "1 hour"}, "forget='1 hour': only open matches of a key are stored, since no expression"),
    ({"forget": "1 second", "measures": {"n": "match_number()"}}, "forget='1 second': matches may be open for longer;"),
    ({"define": {"B": "final last(A.v) > 1"}}, "FINAL can only be used in measures; a definition sees the match so far"),
    ({"define": {"B": "sum(last(v)) > 1"}}, "LAST inside another function of rows is not supported yet"),
    ({"define": {"B": "count(distinct v) > 1"}}, "DISTINCT is not supported yet"),
    ({"define": {"B": "sum(A.v + B.v) > 1"}}, "sum(A.v + B.v) has columns of different symbols"),
    ({"define": {"B": "sum(k) > 1"}}, "sum(k): SUM of string; cast it to double"),
    ({"measures": None, "key": None}, "measures=None: the result would have no column; write at least one, such as {'first"),
    ({"measures": {"k": "count(*)"}}, "measures['k']: the result has a column of that name; choose another"),
    ({"measures": {"n": "first(C.v)"}}, "measures['n']='first(C.v)': 'C': unknown symbol; write one of A, B"),
    ({"subsets": {"A": ["B"]}}, "subsets['A']: the pattern has a symbol of that name; choose another"),
    ({"subsets": {"S": ["X"]}}, "subsets['S']: the pattern has no symbol 'X'; it has A, B"),
    ({"subsets": {"S": []}}, "subsets['S']=(): write a list of symbols"),
    ({"within": None}, "within=None: rows of 'A B+' would be stored for ever; write how long a match may take, such as '5"),
    ({"within": "-1 second"}, "within='-1 second': negative; write '0 seconds' or more"),
    ({"after": "skip"}, "after='skip': write 'skip past last row', 'skip to next row', 'skip to first X' or 'skip to last X'"),
    ({"after": "skip to first C"}, "after='skip to first C': the pattern has no symbol 'C'; it has A, B"),
    ({"after": "skip to first A"}, "after='skip to first A': this may be the first row of the match, from which the same"),
    ({"after": "skip to last C", "pattern": "A C? B"}, "after='skip to last C': a match may have no C; skip to a symbol that"),
    ({"after": "skip to last A", "pattern": "A B A?"}, "this may be the first row of the match, from which the same match"),
    ({"rows": "every"}, "rows='every': write 'one', 'all', 'all omit empty' or 'all with unmatched'"),
    ({"lateness": ("1 second", "2 seconds")}, "lateness=('1 second', '2 seconds'): there is only one input; write one duration"),
    ({"key": "z"}, "key='z': the input has no such column; it has k, ts, v"),
    ({"key": ["k", "k"]}, "key=('k', 'k'): names a column twice; name each once"),
    ({"time": "v"}, "time='v': has type int64, not a timestamp in microseconds; cast it"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(braided.OptionError, match=re.escape(message)):
        braided.local.match(table([("a", 0, 1)]), **{**BASE, **options})


def test_columns_are_found_as_spark_finds_them() -> None:
    data = table([("a", 0, 1), ("a", 1, 2)]).rename_columns(["k", "ts", "V"])
    spec = MatchSpec(key="k", time="ts", pattern="a B", measures={"n": "sum(v)", "m": "A.v"}, within="1 second")
    assert build(spec, [Stream("input", data.schema)]).operator.output.names == ["k", "n", "m"]
    with pytest.raises(
        BraidedError, match=re.escape("measures['n']='sum(v)': 'v': no such column; there are k, ts, V")
    ):
        build(spec, [Stream("input", data.schema, case_sensitive=True)])


def test_collated_columns_can_be_copied_and_not_compared() -> None:
    stream = Stream("input", table([("a", 0, "x")]).schema, collated=frozenset({"v"}))
    given: dict[str, Any] = {"key": "k", "time": "ts", "pattern": "A B", "within": "1 second"}
    assert build(MatchSpec(measures={"m": "last(B.v)"}, **given), [stream]).operator.output.names == ["k", "m"]
    for options in ({"define": {"A": "v = 'x'"}, "measures": {"n": "count(*)"}}, {"measures": {"m": "max(v)"}}):
        with pytest.raises(BraidedError, match="v has a collation; cast it to string before; docs"):
            build(MatchSpec(**options, **given), [stream])


def test_the_times_of_a_result_are_waited_for_by_the_next_operator() -> None:
    """A match leaves at most `within` after its first row, so times of results are that much behind each other."""
    schema = table([("a", 0, 1)]).schema
    spec = MatchSpec(
        key="k",
        time="ts",
        pattern="A B",
        measures={"a": "A.ts", "n": "count(*)"},
        within="10 seconds",
        lateness="1 second",
    )
    plan = build(spec, [Stream("input", schema)])
    assert plan.watermark_delays == (11 * SECOND,)
    after = build(OrderSpec(time="a", lateness="1 second"), [plan.as_stream("input")])
    assert after.operator.lateness == (11 * SECOND,)


def test_a_time_before_the_match_is_no_event_time_of_the_result() -> None:
    """It may be older than what the next operator waits for, which would lose rows."""
    given = {"key": "k", "time": "ts", "pattern": "A", "within": "10 seconds", "lateness": "1 second"}
    spec = MatchSpec(measures={"a": "prev(ts)", "b": "A.ts", "c": "next(ts)"}, **given)
    plan = build(spec, [Stream("input", FALLS.schema)])
    assert [getattr(column, "marks", None) is not None for column in plan.columns] == [False, False, True, True]
    assert plan.watermark_delays == (21 * SECOND,)


def test_decimals_are_compared_and_not_summed() -> None:
    data = table([("a", 0, Decimal("1.50")), ("a", 1, Decimal("2.25"))], v=pa.decimal128(20, 2))
    given = {"pattern": "A B", "define": {"B": "v > A.v"}, "measures": {"high": "max(v)", "low": "min(v)"}}
    assert find(data, **given) == [{"k": "a", "high": Decimal("2.25"), "low": Decimal("1.50")}]
    for options, message in (
        ({"measures": {"n": "sum(v)"}}, "measures['n']='sum(v)': sum(v): SUM of decimal(20,2); cast it to double"),
        ({"define": {"B": "v + A.v > 1"}}, "define['B']='v + A.v > 1': v + A.v is decimal arithmetic"),
        ({"define": {"B": "count(*) = 1.5"}}, "define['B']='count(*) = 1.5': computes decimal(21,1) of different rows"),
    ):
        with pytest.raises(braided.OptionError, match=re.escape(message)):
            find(data, **{**given, **options})


def test_columns_of_our_own_names_are_the_users() -> None:
    names = ["k", "ts", "__braided_hash"]
    data = table([*SETTLED, ("a", 1, 1), ("a", 2, 2), ("z", 3, 3)]).rename_columns(names)
    given = {"pattern": "A B", "define": {"A": "`__braided_hash` = 1"}, "measures": {"n": "last(`__braided_hash`)"}}
    assert find(data, **given) == [{"k": "a", "n": 2}]


def test_skips_that_are_possible() -> None:
    data = table([("a", 0, 1), ("a", 1, 2), ("a", 2, 3), ("a", 3, 4)])
    given = {"pattern": "A B+ C", "define": {"B": "count(*) < 3"}, "measures": {"a": "A.v", "c": "C.v"}}
    starts = {
        after: sorted(row["a"] for row in find(data, after=after, **given))
        for after in (
            "skip past last row",
            "skip to next row",
            "skip to first B",
            "skip to last C",
            "AFTER MATCH SKIP TO LAST b",
        )
    }
    assert starts == {
        "skip past last row": [1], "skip to next row": [1, 2], "skip to first B": [1, 2], "skip to last C": [1],
        "AFTER MATCH SKIP TO LAST b": [1, 2],
    }  # fmt: skip


FALLS = table([("a", at, value) for at, value in enumerate((90, 80, 70, 80, 90, 50, 40, 60))])


def test_measures_see_rows_before_and_after_the_match() -> None:
    """PREV and NEXT count rows of the key, whether they are part of the match or not."""
    measures = {
        "number": "match_number()", "label": "classifier()", "then": "next(classifier())", "was": "prev(classifier())",
        "before": "prev(first(v))", "after": "next(final last(v))", "two": "last(v, 1)", "second": "first(v, 1)",
        "long": "prev(v, 3)", "ends": "final last(classifier())", "falls": "classifier(F)",
    }  # fmt: skip
    define = {"B": "v < prev(v)", "C": "v > prev(v)"}
    given = {"pattern": "B+ C", "define": define, "measures": measures, "subsets": {"F": ["B"]}}
    names = ["v", *measures]
    found = find(FALLS, rows="all", **given)
    assert [tuple(row[name] for name in names) for row in sorted(found, key=lambda row: row["ts"])] == [
        (80, 1, "B", "B", None, 90, 90, None, None, None, "C", "B"),
        (70, 1, "B", "C", "B", 90, 90, 80, 70, None, "C", "B"),
        (80, 1, "C", None, "B", 90, 90, 70, 70, 90, "C", "B"),
        (50, 2, "B", "B", None, 90, None, None, None, 70, "C", "B"),
        (40, 2, "B", "C", "B", 90, None, 50, 40, 80, "C", "B"),
        (60, 2, "C", None, "B", 90, None, 40, 40, 90, "C", "B"),
    ]
    one = find(FALLS, **given)
    assert sorted((row["number"], row["label"], row["before"], row["after"], row["long"]) for row in one)[:1] == [
        (1, "C", 90, 90, 90)
    ]


def test_next_sees_rows_at_most_within_after_the_row() -> None:
    data = table([*SETTLED, ("a", 1, 1), ("a", 11, 2), ("a", 21.000001, 3), ("a", 22, 4)])
    given = {"pattern": "A", "measures": {"v": "A.v", "next": "next(v)", "two": "next(v, 2)"}}
    found = sorted((row["v"], row["next"], row["two"]) for row in find(data, **given) if (row["v"] or 4) < 4)
    assert found == [(1, 2, None), (2, None, None), (3, 4, None)]
    assert sorted(row["v"] for row in find(data, define={"A": "v > 0 and next(v) is null"}, **given)) == [2, 4]


@pytest.mark.parametrize("after", ["skip past last row", "skip to next row"])
def test_matches_are_numbered_in_their_key_for_the_whole_query(after: str) -> None:
    """A match that is certain waits for those before it, so that its number is."""
    data = table([(key, at, at % 3) for at in range(12) for key in "ab"])
    measures = {"n": "match_number()", "at": "first(ts)"}
    found = find(data, pattern="A+ B", define={"A": "v < 2", "B": "v = 2"}, measures=measures, after=after)
    for key in "ab":
        own = sorted((row["at"], row["n"]) for row in found if row["k"] == key)
        assert [number for _, number in own] == list(range(1, len(own) + 1))
        assert len(own) == (4 if after == "skip past last row" else 8)


def test_a_certain_match_waits_for_its_number() -> None:
    data = table([*SETTLED, ("a", 1, 0), ("a", 2, 1), ("a", 3, 1), ("a", 4, 2), ("z", 5, None)])
    define = {"A": "v = 0", "X": "v = 1", "B": "v = 1"}
    given = {"pattern": "A X* | B", "define": define, "after": "skip to next row"}
    found = find(data, measures={"n": "match_number()", "rows": "count(*)"}, **given)
    assert sorted((row["n"], row["rows"]) for row in found) == [(1, 3), (2, 1), (3, 1)]


def test_a_key_begins_anew_when_it_is_forgotten() -> None:
    """Nothing of it is stored then."""
    data = table([*SETTLED, ("a", 1, 5), ("a", 21, 4), ("a", 41.000001, 3), ("a", 42, 2), ("z", 100, None)])
    given = {"pattern": "A", "define": {"A": "v < prev(v)"}, "measures": {"n": "match_number()", "v": "A.v"}}
    given |= {"within": "1 second", "lateness": "0 seconds"}
    assert sorted((row["n"], row["v"]) for row in find(data, forget="20 seconds", **given)) == [(1, 2), (1, 4)]
    assert sorted((row["n"], row["v"]) for row in find(data, **given)) == [(1, 4), (2, 3), (3, 2)]
    stored = []
    for forget in (None, "20 seconds"):
        spec = MatchSpec(key="k", time="ts", forget=forget, **given)
        runtime = LocalRuntime(build(spec, [Stream("input", data.schema)]).operator)
        for batch in data.to_batches(max_chunksize=1):
            list(runtime.run_batch([(0, [batch])]))
        stored.append(runtime.report().workers[0]["last"]["stored_rows"])
    assert stored == [3, 1]


def test_stored_rows_of_other_patterns_have_no_new_columns() -> None:
    """Checkpoints from before there were numbers load."""
    spec = MatchSpec(
        key="k", time="ts", pattern="A B", define={"B": "v < prev(v)"}, measures={"n": "count(*)"}, within="1 h"
    )
    matcher_ = build(spec, [Stream("input", FALLS.schema)]).operator.matcher  # type: ignore[attr-defined]
    assert (matcher_.context, matcher_.reach, matcher_.numbered, matcher_.forget) == (0, {}, False, None)
    assert OpenRows(Blocks(MemoryStore(), 0, {}), FALLS.schema, None)._stored.names[-2:] == [
        "__braided_hash",
        "__braided_done",
    ]


def test_texts_of_no_value_are_null_and_empty_with_concat_ws() -> None:
    rows = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "s": pa.array([None, None], pa.string())})
    measures = {"l": "listagg(s, ',')", "c": "concat_ws(',', array_agg(s))", "a": "array_agg(s)"}
    result = braided.local.match(rows, time="ts", pattern="A+", within="1 second", measures=measures)
    assert result.table.to_pylist() == [{"l": None, "c": "", "a": []}]


@pytest.mark.parametrize("key", [pa.array([{"a": 1}]), pa.array([[1]])])
def test_a_nested_key_is_refused_under_its_option(key: pa.Array) -> None:
    rows = pa.table({"k": key, "ts": pa.array([0], pa.timestamp("us"))})
    for name, options in (("match", {"pattern": "A", "measures": {"n": "count(*)"}}), ("order", {})):
        with pytest.raises(braided.OptionError, match=r"^key='k': a column of type .* cannot be a key"):
            getattr(braided.local, name)(rows, time="ts", key="k", **options)
