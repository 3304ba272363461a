"""Windows of a number of rows in one process: values of all types, what is forgotten, and what is refused."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from braided import local
from braided.errors import BraidedError, OptionError

US = pa.timestamp("us")
NAN = float("nan")


def table(**columns: Any) -> pa.Table:
    """Return rows of one key a microsecond apart."""
    count = len(next(iter(columns.values())))
    return pa.table({"k": ["a"] * count, "ts": pa.array(range(count), US), **columns})


def found(data: pa.Table, **options: Any) -> list[dict[str, Any]]:
    """Return windows in order; they are the same for all cuts."""
    given = {"time": "ts", "key": "k", "lateness": "0 seconds", **options}
    every = [local.row_windows(data, batch_rows=size, **given).table.sort_by("ts") for size in (1, 3, 1000)]
    assert all(repr(one.to_pylist()) == repr(every[0].to_pylist()) for one in every)
    return [{name: value for name, value in row.items() if name not in ("k", "ts")} for row in every[0].to_pylist()]


def test_a_window_leaves_with_the_row_that_exceeds_it() -> None:
    rows = table(v=[1, 2, 3, 4, 5, 6, 7])
    assert found(rows, rows=3, values={"n": "sum(v)"}) == [{"n": 6}, {"n": 15}]
    assert found(rows.slice(0, 6), rows=3, values={"n": "sum(v)"}) == [{"n": 6}]
    assert found(rows, rows=3, every=2, values={"n": "sum(v)"}) == [{"n": 6}, {"n": 12}]
    times = local.row_windows(rows, time="ts", rows=3, every=2, values={"n": "count(*)"}).table["ts"].to_pylist()
    assert [time.microsecond for time in times] == [0, 2]


def test_values_of_all_types() -> None:
    rows = table(
        i=pa.array([5, None, -3, None, 7], pa.int8()),
        f=pa.array([1.5, NAN, None, -0.0, 0.0], pa.float32()),
        d=pa.array([3, 1, None, 2, 0], pa.int32()).cast(pa.date32()),
        t=pa.array([3, 1, None, 2, 0], pa.timestamp("us", "UTC")),
    )
    values = {
        f"{kind}_{column}": f"{kind}({column})"
        for kind in ("min", "max", "count") for column in "ifdt"
    } | {"sum_i": "sum(i)", "sum_f": "SUM(`f`)", "avg_i": "avg(i)"}  # fmt: skip
    (window,) = found(rows, rows=4, values=values)
    assert {name: window[name] for name in ("min_i", "max_i", "count_i", "sum_i", "avg_i")} == {
        "min_i": -3, "max_i": 5, "count_i": 2, "sum_i": 2, "avg_i": 1.0,
    }  # fmt: skip
    # As in Spark, NaN is the largest.
    assert (window["min_f"], window["count_f"]) == (0.0, 3)
    assert np.isnan([window["max_f"], window["sum_f"]]).all()
    assert (window["min_d"], window["max_d"]) == (datetime.date(1970, 1, 2), datetime.date(1970, 1, 4))
    assert (window["min_t"].microsecond, window["max_t"].microsecond) == (1, 3)
    (empty,) = found(
        table(i=pa.array([None, None], pa.int64())), rows=1, values={"s": "sum(i)", "m": "avg(i)", "x": "max(i)"}
    )
    assert empty == {"s": None, "m": None, "x": None}


def test_sums_fail_only_where_they_do_not_fit() -> None:
    most = 2**63 - 1
    rows = table(v=[most, most, -most, -most, 0])
    assert found(rows, rows=4, values={"n": "sum(v)", "m": "avg(v)"}) == [{"n": 0, "m": 0.0}]
    assert found(rows, rows=2, values={"m": "avg(v)"}) == [{"m": float(most)}, {"m": -float(most)}]
    with pytest.raises(BraidedError, match=re.escape("n: sum(v) of a window does not fit 64 bits")):
        found(rows, rows=2, values={"n": "sum(v)"})
    assert found(table(v=[-most - 1, most, 0]), rows=1, values={"n": "sum(v)"}) == [{"n": -most - 1}, {"n": most}]


def test_a_key_that_is_silent_for_long_begins_anew() -> None:
    rows = pa.table({"k": ["a"] * 6, "ts": pa.array([0, 1, 2, 9, 10, 11], US), "v": [1, 2, 3, 4, 5, 6]})
    values = {"n": "sum(v)"}
    assert found(rows, rows=2, every=1, values=values) == [{"n": 3}, {"n": 5}, {"n": 7}, {"n": 9}]
    assert found(rows, rows=2, every=1, values=values, forget="6 us") == [{"n": 3}, {"n": 9}]
    assert found(rows, rows=2, every=1, values=values, forget="7 us") == found(rows, rows=2, every=1, values=values)


def test_a_step_of_a_query() -> None:
    rows = table(v=[1, 2, 3, 4])
    stream = local.stream(rows, time="ts")
    assert stream.aggregate(by="k", rows=2, n="sum(v)").table["n"].to_pylist() == [3]
    joined = stream.join(stream, on="k", within="0 seconds")
    assert joined.aggregate(by="k", rows=2, every=1, n="sum(v_right)").table["n"].to_pylist() == [3, 5]
    assert pc.sum(joined.aggregate(window="1 second", n="count(*)").table["n"]).as_py() == 4
    for options, message in (
        (
            {"rows": 2, "window": "1 second"},
            "window='1 second': cannot be used with rows=2; omit one",
        ),
        (
            {"rows": 2, "every": "1 second"},
            "every='1 second': windows have a number of rows=; write after how many rows",
        ),
        (
            {"window": "1 second", "forget": "1 day"},
            "forget='1 day': needs windows of a number of rows=; omit it",
        ),
        ({}, "aggregate: no window; set window= to a duration, or rows= to a number of rows"),
    ):
        with pytest.raises(OptionError, match=re.escape(message)):
            joined.aggregate(**{"n": "count(*)", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows=0: write a number of rows from 1 to 1,000,000"),
        ({"rows": "3"}, "rows='3': write a number of rows"),
        ({"every": 3}, "every=3: write a number of rows from 1 to rows=2"),
        ({"values": {}}, "values={}: write at least one"),
        ({"values": {"n": "sum(v) + 1"}}, "n='sum(v) + 1': write an aggregate of one column, such as 'avg(price)'"),
        ({"values": {"n": "summ(v)"}}, "n='summ(v)': no such aggregate; did you mean sum?"),
        ({"values": {"n": "sum(*)"}}, "n='sum(*)': of no column; write sum and a column in brackets"),
        ({"values": {"n": "sum(w)"}}, "n='w': the input has no such column; it has k, ts, v"),
        ({"values": {"n": "max(k)"}}, "n: max of string is not supported; cast it to a number or a time before"),
        ({"values": {"n": "sum(ts)"}}, "n: sum of timestamp[us] is not supported; cast it to bigint or double before"),
        ({"values": {"K": "sum(v)"}}, "K=: the result already has a column of that name; choose another"),
        ({"key": ("k", "ts")}, "key=('k', 'ts'): names a column twice, or the time; name each once"),
        ({"forget": "0 seconds"}, "forget='0 seconds': write a duration above zero, or None"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], message: str) -> None:
    given = {"time": "ts", "key": "k", "rows": 2, "values": {"n": "sum(v)"}, **options}
    with pytest.raises(OptionError, match=re.escape(message)):
        local.row_windows(table(v=[1, 2, 3]), **given)
