"""`braided.local.join`: any Arrow speaker in, a table and a report out."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from braided import local

US = pa.timestamp("us")


def tables(rows: int = 500, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in (0, 1):
        times = np.arange(rows) * 100_000 - rng.integers(0, 2_000_000, rows)
        made.append(
            pa.table(
                {
                    "k": rng.integers(0, 9, rows),
                    "ts": pa.array(times, US),
                    "seq": np.arange(rows),
                    "name": [f"n{i % 5}" for i in range(rows)],
                }
            )
        )
    return made[0], made[1]


def pairs(table: pa.Table) -> Counter[Any]:
    return Counter(zip(table["seq"].to_pylist(), table["seq_right"].to_pylist(), strict=True))


def expected(left: pa.Table, right: pa.Table, condition: str = "true") -> Counter[Any]:
    with duckdb.connect() as db:
        db.register("l", left)
        db.register("r", right)
        return Counter(
            db.execute(
                f"select l.seq, r.seq from l join r using (k) where abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 1000000 and {condition}"
            ).fetchall()
        )


@pytest.mark.parametrize("give", ["pyarrow", "reader", "pandas", "polars", "duckdb"])
def test_takes_anything_that_speaks_arrow(give: str) -> None:
    left, right = tables()
    with duckdb.connect() as db:
        db.register("l", left)
        convert: dict[str, Any] = {
            "pyarrow": lambda t: t,
            "reader": lambda t: t.to_reader(max_chunksize=50),
            "pandas": lambda t: t.to_pandas().astype({"ts": "datetime64[us]"}),
            "polars": pl.from_arrow,
            "duckdb": lambda t: db.sql("select * from l") if t is left else t,
        }
        result = local.join(convert[give](left), right, on="k", time="ts", within="1 second", arrival="seq")
    assert isinstance(result.table, pa.Table)
    assert pairs(result.table) == expected(left, right)


@pytest.mark.parametrize("batch_rows", [1, 7, 100, 10_000])
@pytest.mark.parametrize("workers", [1, 3])
def test_batch_cuts_and_workers_change_nothing(batch_rows: int, workers: int) -> None:
    left, right = tables(120)
    result = local.join(
        left, right, on=["k", "name"], time="ts", within="1 second", arrival="seq", lateness="2 seconds",
        batch_rows=batch_rows, workers=workers,
    )  # fmt: skip
    found = Counter(zip(result.table["seq"].to_pylist(), result.table["seq_right"].to_pylist(), strict=True))
    assert found == expected(left, right, "l.name = r.name")
    assert result.report.to_dict()["query"]["results"] == result.table.num_rows
    assert len(result.report.workers) == workers


def test_where_is_applied_inside_the_join() -> None:
    left, right = tables()
    result = local.join(
        left,
        right,
        on="k",
        time="ts",
        within="1 second",
        arrival="seq",
        where="l.name <> r.name and l.seq < r.seq + 3",
    )
    assert pairs(result.table) == expected(left, right, "l.name <> r.name and l.seq < r.seq + 3")


def test_result_columns_and_suffixes() -> None:
    left, right = tables(5)
    assert local.join(left, right, on="k", time="ts", within="1 day").table.column_names == [
        "k", "ts", "seq", "name", "ts_right", "seq_right", "name_right",
    ]  # fmt: skip
    renamed = right.rename_columns(["phone", "seen", "seq", "other"])
    result = local.join(left, renamed, on=[("k", "phone")], time=("ts", "seen"), within="1 day", suffixes=("_l", "_r"))
    assert result.table.column_names == ["k", "ts", "seq_l", "name", "seen", "seq_r", "other"]


def test_within_a_pair_is_one_bound_for_each_side() -> None:
    left = pa.table({"k": [1], "ts": pa.array([100], US)})
    right = pa.table({"k": [1] * 5, "ts": pa.array([97, 98, 100, 101, 102], US), "seq": range(5)})
    found = local.join(left, right, on="k", time="ts", within=("1 us", "2 us")).table
    assert sorted(found["seq"].to_pylist()) == [1, 2, 3]


def test_empty_inputs_give_an_empty_table() -> None:
    left, right = tables(5)
    result = local.join(left.slice(0, 0), right, on="k", time="ts", within="1 second")
    assert result.table.num_rows == 0
    assert "name_right" in result.table.column_names
    assert local.join(left.slice(0, 0), right.slice(0, 0), on="k", time="ts", within="1 second").table.num_rows == 0


def test_nanoseconds_are_refused_only_where_digits_would_be_lost() -> None:
    exact = pa.table({"k": [1], "ts": pa.array([1_000], pa.timestamp("ns"))})
    assert local.join(exact, exact, on="k", time="ts", within="1 us").table.num_rows == 1
    lossy = pa.table({"k": [1], "ts": pa.array([1_001], pa.timestamp("ns"))})
    with pytest.raises(ValueError, match="digits below a microsecond"):
        local.join(lossy, lossy, on="k", time="ts", within="1 us")


def test_the_report_prints() -> None:
    left, right = tables(50)
    report = local.join(left, right, on="k", time="ts", within="1 second", arrival="seq", name="calls").report
    assert str(report).startswith("calls: ")
    assert "10 seconds" in str(report)


def test_import_is_light() -> None:
    script = "import sys, braided; print([m for m in ('pyspark', 'numba', 'pyarrow', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pandas_2_is_what_pyspark_supports() -> None:
    assert int(pd.__version__.split(".")[0]) < 3
