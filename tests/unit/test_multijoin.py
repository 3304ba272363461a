"""The join of many streams on the local runtime, against a nested loop, however the input is cut and ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.multi_cases import ids, operator_of, rows_of

import braided
from braided.local.runtime import LocalRuntime
from braided.time.clocks import MIN_TIME, Span


def test_a_row_stays_as_long_as_some_other_stream_can_reach_it_and_no_longer() -> None:
    window = Span(10, (3, 5, 0))
    assert window.horizon(0, (None, 100, 200)) == 100 - 5 - 10
    assert window.horizon(1, (90, 100, 80)) == 80 - 0 - 10
    assert window.horizon(2, (90, 100, 80)) == min(90 - 3, 100 - 5) - 10
    assert window.horizon(0, (90, None, 80)) == MIN_TIME
    # A row at the horizon itself meets one that is just not late, and one before it meets none.
    for time, stored, results in ((85, 1, 1), (84, 0, 0)):
        case = {"streams": [[], [], []], "window": Span(10, (0, 5, 0))}
        runtime = LocalRuntime(operator_of(case))
        first = [(0, time), (1, 100), (2, 200), (2, 90)]
        tasks = [(side, [rows_of([{"k": 1, "t": t, "id": t}])]) for side, t in first]
        tasks.append((1, [rows_of([{"k": 2, "t": 100, "id": n} for n in range(8)])]))  # so that the clocks count
        assert not list(runtime.run_batch(tasks))
        kept = [len(side) for side in _stored(runtime)]
        assert kept[0] == stored
        last = [(1, [rows_of([{"k": 1, "t": 95, "id": 95}])])]
        found = [combination for piece in runtime.run_batch(last) for combination in ids(piece, 3)]
        assert found == [(time, 95, 90)] * results


def _stored(runtime: LocalRuntime) -> list[list[Any]]:
    from braided.runtime.bookkeeping import read_bookkeeping

    return read_bookkeeping(runtime.stores[0].bookkeeping or b"")["state"]["sides"]


def tables(count: int, rows: int = 300, seed: int = 5) -> list[pa.Table]:
    rng = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "k": rng.integers(0, 20, rows),
                "ts": pa.array(np.sort(rng.integers(0, rows * 100_000, rows)), pa.timestamp("us")),
                "id": np.arange(rows),
            }
        )
        for _ in range(count)
    ]


def test_two_streams_give_what_the_join_gives() -> None:
    left, right = tables(2)
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "3 seconds", "suffixes": ("", "_right")}
    two = braided.local.join(left, right, **options, batch_rows=70).table
    many = braided.local.multijoin([left, right], **options, batch_rows=90, workers=2)
    assert two.num_rows > 100
    assert many.table.schema == two.schema
    everything = [(name, "ascending") for name in two.column_names]
    assert many.table.sort_by(everything) == two.sort_by(everything)
    assert [stream["name"] for stream in many.report.streams] == ["left", "right"]


def test_keys_of_several_columns_and_other_names_with_colliding_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    from braided.routing.key_hashes import KeyHasher

    monkeypatch.setattr(KeyHasher, "hash", lambda self, columns, rows: np.full(rows, 7, np.uint64))
    moment = pa.array([0, 0, 1, 1], pa.timestamp("us"))
    first = pa.table({"a": ["x", "y", "x", None], "b": [1, 1, 2, 2], "ts": moment, "v": [0, 1, 2, 3]})
    second = pa.table({"c": ["x", "y", "x", "x"], "b": [1, 1, 2, 2], "at": moment, "v": [0, 1, 2, 3]})
    third = pa.table({"a": ["x", "y", "x", "x"], "b": [1, 9, 2, 2], "ts": moment, "w": [0, 1, 2, 3]})
    result = braided.local.multijoin(
        [first, second, third], on=[("a", "c", "a"), "b"], time=("ts", "at", "ts"), within="1 second",
        suffixes=("_1", "_2", "_3"), arrival=("ts", "at", "ts"), name="three",
    )  # fmt: skip
    assert result.table.column_names == ["a", "b", "ts_1", "v_1", "at", "v_2", "ts_3", "w"]
    found = sorted(zip(*(result.table[name].to_pylist() for name in ("v_1", "v_2", "w")), strict=True))
    assert found == [(0, 0, 0), (2, 2, 2), (2, 2, 3), (2, 3, 2), (2, 3, 3)]
    assert result.report.query["name"] == "three"
    assert [stream["name"] for stream in result.report.streams] == ["stream 1", "stream 2", "stream 3"]
    assert result.report.streams[0]["null_keys"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "x"}, r"on='x': streams\[0\] has no such column; it has k, ts, id"),
        ({"on": None}, "on=None: a join of many streams needs a key; two streams join without one in braided.join"),
        ({"on": []}, "on=\\(\\): write a column name, a list of names, or a list of tuples of 3 names"),
        ({"on": [("k", "k")]}, "on=\\('k', 'k'\\): write a column name or one for each of 3 streams"),
        ({"on": ["k", "K"]}, "names a column twice; name each once"),
        ({"time": "t"}, r"time='t': streams\[0\] has no such column"),
        ({"time": "id"}, "time='id': has type int64, not a timestamp in microseconds; cast it"),
        ({"within": ("1 second", "2 seconds")}, "write one duration, such as '10 seconds'"),
        ({"within": "-1 second"}, "within='-1 second': negative; write '0 seconds' or more"),
        ({"lateness": ("1 second", "2 seconds")}, "write one duration, or one for each of 3 streams"),
        ({"lateness": "-1 second"}, "lateness='-1 second': negative"),
        ({"suffixes": ("", "_2")}, r"suffixes=\('', '_2'\): write one string for each of 3 streams"),
        ({"suffixes": ("", "_x", "_x")}, "the result would have two columns named 'ts_x'; choose other suffixes"),
        ({"arrival": "x"}, "arrival='x': the stream 1 input has no such column"),
        ({"workers": 0}, "workers=0: write a number of 1 or more"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second"}
    with pytest.raises(braided.BraidedError, match=message):
        braided.local.multijoin(tables(3, 5), **{**good, **options})


def test_bad_streams_are_refused() -> None:
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second"}
    with pytest.raises(braided.BraidedError, match="streams: 1 given; give 2 to 8"):
        braided.local.multijoin(tables(1, 5), **options)
    with pytest.raises(braided.BraidedError, match="streams: give a list of streams, not a Table"):
        braided.local.multijoin(tables(1, 5)[0], **options)
    with pytest.raises(braided.BraidedError, match=r"streams\[1\]: int does not have the Arrow C stream interface"):
        braided.local.multijoin([tables(1, 5)[0], 3], **options)
