"""As-of joins in one process: other engines as oracles, ties, when answers come out, late rows, silences, nulls, state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.contract.case_asof import answer as nested_loop
from support.profiles import examples

import braided
from braided import local
from braided.errors import OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.asof.asof_join import AsofJoin
from braided.operators.asof.closest import Merged, Search
from braided.operators.asof.spec import AsofSpec
from braided.operators.asof.ties import winners
from braided.operators.physical import Plan
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.key_hashes import KeyHasher
from braided.time.clocks import MAX_TIME, MIN_TIME

US = pa.timestamp("us")
SECOND = 1_000_000
ROWS = pa.schema([("k", pa.int64()), ("t", US), ("id", pa.int64())])
FINAL: list[Any] = [(0, [])]
DIRECTIONS = ("backward", "forward", "nearest")


def rows(*given: tuple[Any, ...]) -> pa.RecordBatch:
    """Return rows of (key, time, number)."""
    return pa.RecordBatch.from_pylist([dict(zip(ROWS.names, row, strict=True)) for row in given], schema=ROWS)


def plan_of(**options: Any) -> Plan:
    given = {"on": "k", "time": "t", "tolerance": "10 us", "lateness": "0 us", **options}
    return build(AsofSpec(**given), [Stream("left", ROWS), Stream("right", ROWS)])


class Run:
    """Batches of left and right rows, one after the other; keeps pairs of numbers that come out."""

    def __init__(self, workers: int = 1, **options: Any) -> None:
        self.runtime = LocalRuntime(plan_of(**options).operator, workers)
        self.moment = 0

    def batch(
        self, left: Sequence[tuple[Any, ...]] = (), right: Sequence[tuple[Any, ...]] = (), *, final: bool = False
    ) -> list[tuple[Any, Any]]:
        """Run a batch a second after the last one, and return the numbers of the rows that come out together."""
        tasks = [(side, [rows(*given)]) for side, given in enumerate((left, right)) if given] or FINAL
        self.moment += SECOND
        moment = None if self.runtime.operator.idle is None else self.moment
        pieces = list(self.runtime.run_batch(tasks, final=final, moment=moment))
        found = [(row["id"], row["id_right"]) for piece in pieces for row in piece.to_pylist()]
        return sorted(pair for pair in found if pair[0] >= 0)

    @property
    def stored(self) -> int:
        """How many rows are stored."""
        return sum(report["last"]["stored_rows"] for report in self.runtime.reports)

    def late(self) -> list[int]:
        """How many rows of each stream came late."""
        return [stream["late"] for stream in self.runtime.report().to_dict()["streams"]]


def settled(run: Run) -> None:
    """Let both clocks count: some rows of another key at time 0, whose results are not looked at."""
    many = [(99, 0, -number) for number in range(1, 70)]
    run.batch(many, many)


# Other engines: no two right rows of a key and time, and no two as close on both sides.


@st.composite
def streams(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    keys = draw(st.integers(1, 6))
    tables = []
    for side in (0, 1):
        count = draw(st.integers(0, 60))
        # Left times are even and right ones odd, but for some that are equal: none is as close before as after.
        times = 2 * rng.permutation(200)[:count] + side
        same = rng.random(count) < 0.2
        times = np.where(same, 4 * times, 4 * times + side)
        key = rng.integers(0, keys, count)
        tables.append(pa.table({"k": key, "t": pa.array(times, US), "id": np.arange(count)}))
    return tables[0], tables[1]


def unambiguous(left: pa.Table, right: pa.Table) -> bool:
    """Whether no left row has two right rows of its key as close, before and after."""
    pairs = left.to_pandas().merge(right.to_pandas(), on="k")
    apart = (pairs["t_x"] - pairs["t_y"]).abs()
    return not pd.DataFrame({"id": pairs["id_x"], "apart": apart}).duplicated().any()


def ours(left: pa.Table, right: pa.Table, **options: Any) -> Counter[Any]:
    given = {"on": "k", "time": "t", "lateness": "0 us", **options}
    table = local.join_asof(left, right, **given).table
    return Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_rows_are_those_of_pandas(direction: Any) -> None:
    @settings(max_examples=examples(200), deadline=None)
    @given(streams(), st.integers(1, 200), st.booleans(), st.integers(1, 50), st.integers(1, 3))
    def holds(tables: Any, tolerance: int, exact: bool, batch_rows: int, workers: int) -> None:
        left, right = tables
        if direction == "nearest" and not unambiguous(left, right):
            return
        wanted = pd.merge_asof(
            left.to_pandas().sort_values("t"),
            right.to_pandas().sort_values("t"),
            on="t",
            by="k",
            direction=direction,
            tolerance=pd.Timedelta(microseconds=tolerance),
            allow_exact_matches=exact,
            suffixes=("", "_right"),
        )
        pairs = Counter(
            (int(a), None if pd.isna(b) else int(b)) for a, b in zip(wanted["id"], wanted["id_right"], strict=True)
        )
        options = {"direction": direction, "tolerance": f"{tolerance} us", "allow_exact_matches": exact}
        assert ours(left, right, **options, batch_rows=batch_rows, workers=workers) == pairs
        inner = Counter({pair: count for pair, count in pairs.items() if pair[1] is not None})
        assert ours(left, right, **options, how="inner", batch_rows=batch_rows) == inner

    holds()


@settings(max_examples=examples(200), deadline=None)
@given(streams(), st.booleans(), st.booleans(), st.integers(1, 50))
def test_the_rows_are_those_of_duckdb(tables: Any, exact: bool, outer: bool, batch_rows: int) -> None:
    left, right = tables
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        text = (
            f"SELECT l.id, r.id FROM l ASOF {'LEFT' if outer else 'INNER'} JOIN r "
            f"ON l.k = r.k AND l.t {'>=' if exact else '>'} r.t"
        )
        wanted = Counter(connection.execute(text).fetchall())
    options: dict[str, Any] = {"allow_exact_matches": exact, "how": "left" if outer else "inner"}
    assert ours(left, right, tolerance=None, **options, batch_rows=batch_rows) == wanted


# Kernels and rules.


@settings(max_examples=examples(400), deadline=None)
@given(
    st.sampled_from(DIRECTIONS),
    st.integers(1, 9),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=8, unique=True),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=8),
    st.integers(0, 21),
    st.integers(0, 21),
)
@example("nearest", 7, False, [(0, 0), (0, 2)], [(0, 2)], 3, 3)  # the answer is not the last right row before
def test_an_answer_is_known_when_nothing_that_comes_can_change_it(
    direction: Any, tolerance: int, exact: bool, right: Any, left: Any, horizon: int, earliest: int
) -> None:
    """What is decided at a horizon stays so with all right rows, and what waits has the right rows that it needs."""
    spec = AsofSpec(on="k", time="t", direction=direction, tolerance=f"{tolerance} us", allow_exact_matches=exact)
    search = Search(direction, tolerance, exact)
    left = [row for row in left if row[1] < horizon]
    early = [row for row in right if row[1] < horizon]
    merged, found = searched(search, early, left, horizon)
    answers = search.answer(merged, horizon)
    every = [{"k": key, "t": time} for key, time in right]
    needed = [row for row, wanted in zip(found, search.needed(merged, answers, earliest), strict=True) if wanted]
    for at, row in enumerate(found):
        if merged.is_right[at]:
            continue
        wanted = nested_loop(spec, {"k": row[0], "t": row[1]}, every, (("k",), ("k",)))
        if not answers.waits[at]:
            answer = found[answers.right[at]] if answers.right[at] >= 0 else None
            assert answer == (None if wanted is None else (wanted["k"], wanted["t"]))
        else:
            assert answers.due[at] >= horizon
            later = [{"k": key, "t": time} for key, time in (*needed, *(r for r in right if r[1] >= horizon))]
            assert nested_loop(spec, {"k": row[0], "t": row[1]}, later, (("k",), ("k",))) == wanted
    for key in (0, 1):
        for time in range(earliest, 30):  # of every left row that may still come
            later = [{"k": k, "t": t} for k, t in (*needed, *(r for r in right if r[1] >= horizon))]
            row = {"k": key, "t": time}
            assert nested_loop(spec, row, later, (("k",), ("k",))) == nested_loop(spec, row, every, (("k",), ("k",)))


def searched(search: Search, right: Any, left: Any, horizon: int) -> tuple[Merged, list[tuple[int, int]]]:
    """Return rows of both streams sorted as a search wants them."""
    found = sorted([(*row, 0) for row in right] + [(*row, 1) for row in left], key=lambda row: row)
    keys = [row[0] for row in found]
    bounds = [0, *(at for at in range(1, len(keys)) if keys[at] != keys[at - 1]), len(keys)] if keys else [0]
    times = np.array([row[1] for row in found], np.int64)
    is_right = np.array([row[2] == 0 for row in found], np.bool_)
    return Merged(np.array(bounds, np.int64), times, is_right), [row[:2] for row in found]


def test_times_of_any_size() -> None:
    """No distance overflows."""
    times = np.array([MIN_TIME, MIN_TIME + 5, MAX_TIME - 3, MAX_TIME - 1], np.int64)
    is_right = np.array([True, False, True, False])
    merged = Merged(np.array([0, 4]), times, is_right)
    for direction, wanted in (("backward", [0, 2]), ("forward", [-1, -1]), ("nearest", [0, 2])):
        search = Search(direction, 10, True)  # type: ignore[arg-type]
        assert search.answer(merged, MAX_TIME, final=True).right[[1, 3]].tolist() == wanted
        assert search.answer(merged, MAX_TIME).waits.tolist() == [False, False, False, direction != "backward"]
    answers = Search("backward", None, True).answer(merged, MAX_TIME)
    assert answers.right.tolist() == [-1, 0, -1, 2]


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-3, None, 5]),
    (pa.uint64(), [0, 2**63, None, 2**64 - 1]),
    (pa.float64(), [None, -1.5, 0.0, 7.0, float("nan")]),
    (pa.float32(), [None, -1.5, 0.0]),
    (pa.string(), [None, "", "a", "b"]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.bool_(), [None, False, True]),
    (pa.date32(), [None, 3, 5]),
    (pa.timestamp("us", "UTC"), [None, -3, 5]),
    (pa.duration("us"), [None, -3, 5]),
    (pa.time32("ms"), [None, 3, 5]),
    (pa.decimal128(38, 2), [None, -3, 5]),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), [None, {"x": None, "y": "z"}, {"x": 1, "y": "a"}]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_of_equal_times_the_largest_row_answers(kind: pa.DataType, values: list[Any]) -> None:
    """Null is the least, NaN the greatest; where a column is equal the next one decides; cuts and order do not."""
    ordered = sorted(values, key=lambda value: (value is not None, _rank(value)))
    largest = pa.array([ordered[-1]], kind)
    rng = np.random.default_rng(3)
    for last in (1, 2):
        places = rng.permutation(len(ordered))
        column = pa.array([ordered[at] for at in places] + [ordered[-1]] * last, kind)
        second = pa.array([0] * len(ordered) + list(range(1, last + 1)))
        found = winners(
            pa.record_batch({"a": column, "b": second}),
            np.arange(len(column)),
            np.append(False, np.ones(len(column) - 1, np.bool_)),
        )
        at = np.flatnonzero(found)
        assert len(at) == 1
        assert second[int(at[0])].as_py() == last
        assert str(column[int(at[0])]) == str(largest[0])
    left = pa.table({"k": [1], "t": pa.array([5], US)})
    for order in ([*range(len(ordered))], [*reversed(range(len(ordered)))]):
        right = pa.table(
            {
                "k": [1] * len(order),
                "t": pa.array([5] * len(order), US),
                "v": pa.array([ordered[at] for at in order], kind),
            }
        )
        for batch_rows in (1, 2, 100):
            result = local.join_asof(
                left, right, on="k", time="t", tolerance="1 us", lateness="1 us", batch_rows=batch_rows
            )
            assert str(result.table["v"][0]) == str(largest[0])


def test_lists_and_maps_are_not_compared() -> None:
    left = pa.table({"k": [1], "t": pa.array([5], US), "of": pa.array([[1]], pa.list_(pa.int64()))})
    lists = pa.array([[3], [], None], pa.list_(pa.int64()))
    maps = pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()))
    right = pa.table({"k": [1, 1, 1], "t": pa.array([4, 4, 4], US), "n": [7, 9, 8], "lists": lists, "maps": maps})
    for direction in ("backward", "nearest"):
        for batch_rows in (1, 100):
            table = local.join_asof(
                left, right, on="k", time="t", direction=direction, tolerance="1 us", batch_rows=batch_rows
            ).table
            assert table.select(["of", "n", "lists", "maps"]).to_pylist() == [
                {"of": [1], "n": 9, "lists": [], "maps": []}
            ]


def _rank(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((part is not None, part or 0) for part in value.values())
    return np.inf if value != value else 0 if value is None else value  # noqa: PLR0124


def test_of_two_as_close_the_earlier_answers() -> None:
    run = Run(direction="nearest")
    assert run.batch([(1, 5, 0)], [(1, 3, 0), (1, 7, 1)]) == []
    assert run.batch(final=True) == [(0, 0)]


# Keys.


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_hash(self: KeyHasher, columns: Any, count: int) -> Any:
        return np.full(count, 7, np.uint64)

    left = pa.table({"a": ["x", "y", "z"], "b": [1, 1, 1], "t": pa.array([5, 5, 5], US)})
    right = pa.table(
        {
            "b": pa.array([1, 1, 2, 1], pa.int16()),
            "a": pa.array(["x", "y", "y", "y"], pa.large_string()),
            "t": pa.array([4, 3, 5, 9], US),
            "v": [1, 2, 3, 4],
        }
    )
    options: dict[str, Any] = {"on": ["a", "b"], "time": "t", "tolerance": "9 us", "lateness": "0 us"}
    wanted = {"x": 1, "y": 2, "z": None}
    for kernel in (None, one_hash):
        if kernel is not None:
            monkeypatch.setattr(KeyHasher, "hash", kernel)
        for batch_rows in (1, 3, 100):
            table = local.join_asof(left, right, **options, batch_rows=batch_rows).table
            assert dict(zip(table["a"].to_pylist(), table["v"].to_pylist(), strict=True)) == wanted
    assert local.join_asof(left, right, **options).table.column_names == ["a", "b", "t", "t_right", "v"]


def test_keys_and_times_of_other_names_and_no_key_at_all() -> None:
    left = pa.table({"x": [1, 2], "at": pa.array([5, 6], US)})
    right = pa.table({"y": [2.0, 1.0], "when": pa.array([4, 3], US), "v": [7, 8]}).cast(
        pa.schema([("y", pa.int32()), ("when", US), ("v", pa.int64())])
    )
    given: dict[str, Any] = {"time": ("at", "when"), "tolerance": "9 us"}
    found = local.join_asof(left, right, on=[("x", "y")], **given).table
    assert found.to_pydict()["v"] == [8, 7]
    assert found.column_names == ["x", "at", "when", "v"]
    assert local.join_asof(left, right, **given).table["v"].to_pylist() == [7, 7]


# When answers come out.


def test_backward_waits_for_the_right_stream_alone() -> None:
    run = Run(lateness=("100 us", "5 us"))
    settled(run)
    assert run.batch([(1, 10, 1)], [(1, 8, 1)]) == []
    assert run.batch([], [(2, 15, 2)]) == []  # a row at 10 may still come
    assert run.batch([], [(2, 16, 3)]) == [(1, 1)]
    # The left stream may be behind: what comes in its lateness is answered at once.
    assert run.batch([(1, 9, 2), (1, 7, 3), (1, 10, 4)]) == [(2, 1), (3, None), (4, 1)]
    assert run.late() == [0, 0]


def test_a_right_row_of_the_same_time_may_still_come() -> None:
    run = Run(lateness="0 us")
    settled(run)
    run.batch([(1, 10, 1)], [(1, 8, 1)])
    assert run.batch([], [(1, 10, 2)]) == []
    assert run.batch([], [(1, 10, 3), (1, 11, 4)]) == [(1, 3)]
    # Also where the left row comes last.
    assert run.batch([(1, 11, 2)]) == []
    assert run.batch([], [(1, 11, 5), (1, 12, 6)]) == [(2, 5)]


def test_forward_comes_out_with_the_first_row_after_or_the_tolerance() -> None:
    run = Run(direction="forward", tolerance="10 us")
    settled(run)
    run.batch([(1, 10, 1), (2, 10, 2), (3, 10, 3)], [])
    assert run.batch([], [(1, 12, 1), (9, 20, 2)]) == [(1, 1)]
    assert run.batch([], [(9, 21, 3)]) == [(2, None), (3, None)]


def test_nearest_comes_out_when_nothing_can_be_closer() -> None:
    run = Run(direction="nearest", tolerance="10 us")
    settled(run)
    run.batch([(1, 10, 1), (2, 10, 2), (3, 10, 3)], [(1, 8, 1), (2, 4, 2)])
    assert run.batch([], [(9, 11, 3)]) == []
    assert run.batch([], [(9, 12, 4)]) == [(1, 1)]  # what comes now is 2 away at least
    assert run.batch([], [(2, 13, 5), (9, 14, 6)]) == [(2, 5)]
    assert run.batch([], [(9, 20, 7)]) == []
    assert run.batch([], [(9, 21, 8)]) == [(3, None)]


def test_without_a_right_row_the_end_answers() -> None:
    run = Run()
    assert run.batch([(1, 10, 1)]) == []
    assert run.batch(final=True) == [(1, None)]
    assert local.join_asof(
        pa.table({"k": [1], "t": pa.array([1], US)}), ROWS.empty_table(), on="k", time="t", tolerance="1 us"
    ).table.to_pylist() == [{"k": 1, "t": pd.Timestamp(1, unit="us").to_pydatetime(), "t_right": None, "id": None}]


# Late rows, silences, nulls.


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_late_left_row_is_counted_and_never_comes_out_with_nulls(direction: Any) -> None:
    run = Run(direction=direction, tolerance="30 us")
    settled(run)
    run.batch([(1, 100, 1)], [(1, 99, 1), (1, 101, 2)])
    run.batch([(9, 120, 2)], [(9, 120, 3)])
    found = run.batch([(1, 99, 3), (1, 101, 4), (1, 50, 5), (7, 100, 6)])
    assert run.late() == [4, 0]
    assert all(right is not None for _, right in found)
    found += run.batch([(9, 150, 7)], [(9, 150, 8)])
    assert {left for left, _ in found} & {5, 6} == set()
    # Of key 1 only the last right row before the left horizon is left, and with `forward` none.
    assert {pair for pair in found if pair[0] in (3, 4)} == {
        "backward": {(4, 2)}, "forward": set(), "nearest": {(3, 2), (4, 2)},
    }[direction]  # fmt: skip


def test_a_late_left_row_may_wait_for_its_answer() -> None:
    run = Run(direction="forward", tolerance="30 us")
    settled(run)
    run.batch([(9, 120, 1)], [(9, 120, 1)])
    assert run.batch([(1, 101, 2), (2, 101, 3)]) == []
    assert run.batch([(9, 126, 4)], [(1, 125, 2), (9, 126, 3)]) == [(1, 1), (2, 2)]
    assert run.batch([(9, 150, 5)], [(9, 150, 4)]) == [(4, 3)]
    assert run.late() == [2, 0]


def test_a_late_right_row_answers_what_is_open() -> None:
    run = Run(direction="forward", tolerance="50 us")
    settled(run)
    run.batch([(1, 10, 1)], [(9, 30, 1)])
    assert run.batch([], [(1, 20, 2)]) == [(1, 2)]
    assert run.late() == [0, 1]


def test_a_late_right_row_is_stored_only_if_it_can_matter() -> None:
    run = Run(tolerance="100 us")
    settled(run)
    run.batch([(1, 50, 1), (9, 60, 2)], [(1, 50, 1), (9, 60, 2)])
    run.batch([(9, 61, 3)], [(9, 61, 3)])
    before = run.stored
    run.batch([], [(1, 49, 4)])  # not the last before the left horizon
    assert run.stored == before
    run.batch([], [(1, 51, 5)])
    assert run.stored == before  # it takes the place of the other
    assert run.late() == [0, 2]
    assert (4, 5) in run.batch([(1, 70, 4)], [(9, 80, 6)])


def test_a_silent_right_stream_holds_back_unless_it_is_idle() -> None:
    for idle, wanted in ((None, []), ("3 seconds", [(1, 1), (2, None)])):
        run = Run(idle=idle)
        settled(run)
        run.batch([(1, 10, 1)], [(1, 8, 1)])
        found = []
        for number in range(2, 7):
            found += run.batch([(9, 20 * number, number)])
        assert [pair for pair in found if pair[0] in (1, 2)] == wanted
        run.batch([], [(1, 9, 2)])
        assert run.late() == ([0, 0] if idle is None else [0, 1])


def test_a_silent_left_stream_keeps_right_rows_unless_it_is_idle() -> None:
    for idle, least, most in ((None, 40, 60), ("3 seconds", 1, 9)):
        run = Run(idle=idle)
        settled(run)
        for number in range(50):
            run.batch([], [(number % 2, 40 + number, number)])
        run.batch([], [(2, 200, 99)])
        run.batch([], [(2, 300, 99)])
        assert least <= run.stored <= most


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_without_a_key_or_a_time(how: Any, workers: int) -> None:
    run = Run(workers, how=how)
    nulls = [(None, 5, 1), (1, None, 2), (None, None, 3)]
    found = run.batch([*nulls, (1, 6, 4)], [(None, 5, 1), (1, None, 2), (1, 5, 3)])
    # One without a time waits for nothing; one without a key leaves when others of its time do.
    assert found == ([(2, None), (3, None)] if how == "left" else [])
    assert sorted(run.batch(final=True)) == ([(1, None), (4, 3)] if how == "left" else [(4, 3)])
    told = run.runtime.report().to_dict()["streams"]
    assert [(stream["rows"], stream["null_times"], stream["null_keys"]) for stream in told] == [(4, 2, 1), (3, 1, 1)]


def test_left_rows_without_a_key_are_spread_over_workers() -> None:
    run = Run(workers=4)
    assert run.batch([(None, 5, 7)] * 400) == []
    assert all(report["last"]["rows"] > 50 for report in run.runtime.reports)
    assert len(run.batch(final=True)) == 400


# State.


def test_without_a_tolerance_one_right_row_of_each_key_stays() -> None:
    run = Run(tolerance=None)
    settled(run)
    for number in range(1, 30):
        same = [(key, 10 * number + key, number) for key in range(10)]
        run.batch(same, same)
    run.batch([(99, 1000, 0)], [(99, 1000, 0)])
    run.batch([(99, 1001, 0)], [(99, 1001, 0)])
    run.batch([(99, 2000, 0)], [(99, 2000, 0)])
    assert run.stored <= 11 + 2
    run.batch([(3, 3000, 7)])
    assert run.batch([(99, 4000, 0)], [(99, 4000, 1)])[-1] == (7, 29)


def test_right_rows_expire_once_the_left_stream_has_caught_up() -> None:
    run = Run(tolerance="10 us", lateness="0 us")
    settled(run)
    for number in range(100):
        run.batch([], [(number, 1000 + 100 * number, number)])
    assert run.stored > 95
    run.batch([(5, 100_000, 1)], [(5, 100_000, 1)])
    run.batch([(5, 200_000, 2)], [(5, 200_000, 2)])
    assert run.stored < 10


def test_blocks_are_not_read_in_every_batch_while_left_rows_may_need_them() -> None:
    search = Search("backward", 10, True)
    assert search.expiry(np.array([995]), 1000, 1000).tolist() == [1010]
    assert search.expiry(np.array([0, 900]), 1000, 0).tolist() == [1500, 1500]
    assert search.expiry(np.array([600, 900]), 1000, MIN_TIME).tolist() == [1200, 1200]
    for_ever = Search("backward", None, True)
    assert for_ever.expiry(np.array([600, 900]), 1000, 800).tolist() == [MAX_TIME, 1100]


# What is said.


def test_its_plan_says_what_it_does_and_how_late_its_rows_are() -> None:
    plan = plan_of(direction="nearest", tolerance="7 us", lateness=("3 us", "5 us"))
    assert plan.description == "finds the row nearest to each left row on k, at most 7 microseconds away"
    assert plan_of(tolerance=None).description == "finds the last row before each left row on k"
    assert plan.watermark_delays == (3 + 7, 5 + 7 + 7)
    marks = {column.name: column.marks for column in plan.columns if column.marks is not None}  # type: ignore[union-attr]
    assert {name: mark.delay for name, mark in marks.items()} == {"t": 7, "t_right": 21}
    unbounded = plan_of(tolerance=None)
    assert [c.name for c in unbounded.columns if getattr(c, "marks", None) is not None] == ["t"]
    assert plan_of(lateness="auto").propagated_delay is not None
    assert isinstance(plan.operator, AsofJoin)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_results_are_no_later_than_the_plan_says(data: Any) -> None:
    """The times of results are behind the largest before them by the delay that is handed on, at most."""
    late = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    direction = data.draw(st.sampled_from(DIRECTIONS))
    tolerance = data.draw(st.integers(1, 9))
    options = {"direction": direction, "tolerance": f"{tolerance} us", "lateness": tuple(f"{k} us" for k in late)}
    plan = plan_of(**options)
    runtime = LocalRuntime(plan.operator, 1)
    delays = {c.name: c.marks.delay for c in plan.columns if getattr(c, "marks", None) is not None}  # type: ignore[union-attr]
    largest = dict.fromkeys(delays, MIN_TIME)
    clocks = [0, 0]
    for _ in range(data.draw(st.integers(1, 12))):
        tasks = []
        for side in (0, 1):
            given_rows = []
            for step, back in data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, late[side])), max_size=4)):
                clocks[side] += step
                given_rows.append((0, clocks[side] - back, 0))
            tasks += [(side, [rows(*given_rows)])] if given_rows else []
        pieces = list(runtime.run_batch(tasks or FINAL))
        for name, delay in delays.items():
            times = [time for piece in pieces for time in piece[name].cast(pa.int64()).to_pylist() if time is not None]
            assert all(time >= largest[name] - delay for time in times)
            largest[name] = max([largest[name], *times])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "backwards"}, "direction='backwards': unknown; did you mean 'backward'?"),
        ({"direction": 3}, "direction=3: unknown; write 'backward', 'forward' or 'nearest'"),
        ({"how": "Inner"}, "how='Inner': unknown; did you mean 'inner'?"),
        ({"how": "outer"}, "how='outer': unknown; "),
        ({"tolerance": "-1 second"}, "tolerance='-1 second': negative; write '0 seconds' or more"),
        ({"tolerance": "5 parsecs"}, "tolerance='5 parsecs': not a duration"),
        (
            {"tolerance": "0 seconds", "allow_exact_matches": False},
            "tolerance='0 seconds': no row can match with allow_exact_matches=False; write a longer one",
        ),
        (
            {"tolerance": None, "direction": "forward"},
            "tolerance=None: with direction='forward' a left row could wait for ever; write a duration, such as",
        ),
        ({"allow_exact_matches": "no"}, "allow_exact_matches='no': write True or False"),
        ({"time": None}, "time=None: write the event-time column, such as 'ts', or a pair of them (left, right)"),
        ({"time": "when"}, "time='when': the left input has no such column; it has k, t, id"),
        ({"on": "key"}, "on='key': the left input has no such column; it has k, t, id"),
        ({"idle": "0 seconds"}, "idle='0 seconds': not above 0; write a longer duration, or None"),
        ({"lateness": "-1 second"}, "lateness='-1 second': negative"),
        ({"suffixes": ("", "")}, "suffixes=('', ''): the result would have two columns named"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        plan_of(**options)


def test_a_step_of_a_query() -> None:
    left = local.stream(pa.table({"k": [1], "t": pa.array([5], US)}), time="t")
    right = local.stream(pa.table({"k": [1], "at": pa.array([4], US), "v": [7]}), time="at")
    assert left.join_asof(right, on="k", tolerance="1 us").table["v"].to_pylist() == [7]
    with pytest.raises(OptionError, match=re.escape("within=: unknown option of join_asof; ")):
        left.join_asof(right, on="k", within="1 us")
    with pytest.raises(OptionError, match=re.escape("other: str is not a stream")):
        left.join_asof("right", on="k", tolerance="1 us")  # type: ignore[arg-type]
    assert "join_asof" in braided.__all__
