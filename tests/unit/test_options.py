"""Bad input gets an error that names the parameter, the value and what to do."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import braided
from braided import BraidedError, local

US = pa.timestamp("us", tz="UTC")
LEFT = pa.table({"k": pa.array([1], pa.int64()), "ts": pa.array([0], US), "cell": ["a"]})
RIGHT = pa.table({"k": pa.array([1], pa.int64()), "ts": pa.array([0], US), "text": ["b"]})
GOOD: dict[str, Any] = {"on": "k", "time": "ts", "within": "10 seconds"}

BAD = [
    ({"on": "phone"}, "on='phone': the left input has no such column; it has k, ts, cell"),
    ({"on": [("k", "phone")]}, "on='phone': the right input has no such column; it has k, ts, text"),
    ({"on": []}, "on=(): write a column name, a list of names, or a list of (left, right) pairs"),
    ({"on": [("k", 1)]}, "on=('k', 1): write a column name or a pair of names (left, right)"),
    ({"on": ["k", "k"]}, "on=('k', 'k'): names a column twice; name each once"),
    ({"on": [("cell", "k")]}, "on=('cell', 'k'): key types do not match, string on the left and int64 on the right; cast one side"),
    ({"time": "when"}, "time='when': the left input has no such column; it has k, ts, cell"),
    ({"time": "k"}, "time='k': has type int64, not a timestamp in microseconds; cast it"),
    ({"within": "10 parsecs"}, "within='10 parsecs': not a duration; write '10 seconds'"),
    ({"within": 10}, "within=10: not a duration; write '10 seconds'"),
    ({"within": "-1 second"}, "within='-1 second': negative; use between= for bounds on one side of zero"),
    ({"within": None}, "give within= or between=, exactly one of them; for example within='10 seconds'"),
    ({"between": ("1 second", "2 seconds")}, "give within= or between=, exactly one of them; for example within='10 seconds'"),
    (
        {"within": None, "between": ("5 seconds", "-5 seconds")},
        "between=('5 seconds', '-5 seconds'): the lower bound 5 seconds is above the upper bound -5 seconds, so no pair can match",
    ),
    ({"within": None, "between": "5 seconds"}, "between='5 seconds': write a pair, ('5 seconds', '10 seconds')"),
    ({"lateness": "-1 second"}, "lateness='-1 second': negative; write '0 seconds' or more"),
    ({"lateness": "soon"}, "lateness='soon': not a duration; write '10 seconds'"),
    ({"how": "lefft"}, "how='lefft': unknown; did you mean 'left'?"),
    ({"suffixes": ("", "")}, "suffixes=('', ''): the result would have two columns named 'ts'; choose other suffixes"),
    ({"suffixes": "x"}, "suffixes='x': write a pair of strings, ('', '_right')"),
    ({"workers": 0}, "workers=0: write a number of 1 or more"),
    ({"batch_rows": 0}, "batch_rows=0: write a number of 1 or more"),
    ({"arrival": "seq"}, "arrival='seq': the left input has no such column; it has k, ts, cell"),
    ({"where": "upper(l.cell) = 'A'"}, "where=\"upper(l.cell) = 'A'\": upper is not in the compiled subset"),
    ({"where": "l.nope = 1"}, "nope"),
    ({"memory": 10**18}, "memory=1000000000000000000: 1000000000000000000 rows; a worker keeps at most 268435456; write less"),
    ({"memory": "9000000 GB"}, "a worker keeps at most 268435456; write less, or leave memory= out"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_options(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BraidedError, match=re.escape(message)):
        local.join(LEFT, RIGHT, **{**GOOD, **change})


def test_inputs_that_are_no_tables() -> None:
    with pytest.raises(BraidedError, match="left: int does not have the Arrow C stream interface; pass a pyarrow"):
        local.join(3, RIGHT, **GOOD)
    with pytest.raises(BraidedError, match=r"left: list is not a Spark DataFrame; for Arrow data use braided\.local"):
        braided.join([], RIGHT, **GOOD)  # type: ignore[arg-type]


def test_columns_that_differ_only_in_case() -> None:
    with pytest.raises(BraidedError, match="left: the columns 'k' and 'K' differ only in case; rename one"):
        local.join(LEFT.append_column("K", LEFT["k"]), RIGHT, **GOOD)


def test_zoned_and_unzoned_times_do_not_mix() -> None:
    unzoned = RIGHT.set_column(1, "ts", RIGHT["ts"].cast(pa.timestamp("us")))
    with pytest.raises(BraidedError, match=r"time=\('ts', 'ts'\): one has a time zone and the other has none"):
        local.join(LEFT, unzoned, **GOOD)


def test_a_key_that_cannot_be_compared() -> None:
    nested = LEFT.set_column(0, "k", pa.array([[1]]))
    with pytest.raises(BraidedError, match=r"on='k': a left key of type list<.*> is not supported; join on its fields"):
        local.join(nested, RIGHT, **GOOD)


def test_versions_of_driver_and_executors_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.operators import join_operator

    from braided.local.runtime import LocalRuntime
    from braided.runtime import router
    from braided.spark import tasks as runtime
    from braided.time.clocks import Window

    join = join_operator((LEFT.schema, RIGHT.schema), Window(0, 0, (0, 0)), time="ts", suffixes=("", "_right"))
    task = runtime.RouteTask(join, 0, 2)
    monkeypatch.setattr(runtime, "__version__", "9.9.9")
    with pytest.raises(
        BraidedError, match=r"the driver has braided .*, this executor 9\.9\.9; install the same version"
    ):
        list(task([]))
    monkeypatch.setattr(router, "__version__", "9.9.9")
    with pytest.raises(
        BraidedError, match=r"a router runs braided 9\.9\.9, but a worker runs .*; install the same version"
    ):
        list(LocalRuntime(join).run_batch([(0, LEFT.to_batches())]))
