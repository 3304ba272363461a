"""Patterns on Spark: the rows of the local runtime, with a restart; columns of all types; what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.streams import UTC, file_stream, run_to_end, write_batch

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DDL = "k string, ts timestamp, v long, p double"
OPTIONS: dict[str, Any] = {
    "key": "k",
    "time": "ts",
    "pattern": "LOW+ UP{1,3} END?",
    "define": {"LOW": "v < 4", "UP": "v > last(LOW.v) and p >= prev(p)", "END": "v = 9"},
    "measures": {
        "first": "first(LOW.ts)",
        "lows": "count(LOW.*)",
        "mean": "avg(UP.p)",
        "ended": "count(END.*) > 0",
        "what": "classifier()",
        "later": "last(ts) + INTERVAL 1 SECOND",
    },
    "within": "2 seconds",
    "lateness": "3 seconds",
}


def write_disordered(folder: Path, files: int = 6, rows: int = 400) -> pa.Table:
    """Write rows up to 3 s late, a file per batch, and rows of another key at the end that let all others go."""
    rng = np.random.default_rng(1)
    count = files * rows
    times = np.append(START + np.arange(count) * (SECOND // 100), START + count * SECOND + np.arange(100))
    arrival = np.argsort(times[:count] + rng.integers(0, 3 * SECOND, count), kind="stable")
    order = np.append(arrival, np.arange(count, count + 100))
    keys = np.append(rng.integers(0, 5, count), np.full(100, 99))[order]
    table = pa.table(
        {
            "k": pa.array(keys.astype(str)),
            "ts": pa.array(times[order], UTC),
            "v": np.append(rng.integers(0, 10, count), np.full(100, 7))[order],
            "p": rng.random(count + 100).round(2),
        }
    )
    for number in range(files):
        write_batch(folder, number, table.slice(number * rows, rows if number < files - 1 else rows + 100))
    return table


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return rows that can be counted."""
    return Counter(repr([getattr(value, "timestamp", lambda v=value: v)() for value in row.values()]) for row in rows)


@pytest.mark.parametrize("rows", ["all", "one"])
@pytest.mark.slow
def test_equals_the_local_runtime_with_a_restart(spark: SparkSession, tmp_path: Path, rows: Any) -> None:
    table = write_disordered(tmp_path / "in")
    hidden = sorted((tmp_path / "in").iterdir())[3:]
    for path in hidden:
        path.rename(tmp_path / path.name)

    def found() -> DataFrame:
        return braided.match(file_stream(spark, tmp_path / "in", DDL), rows=rows, name="found", **OPTIONS)

    run_to_end(found(), tmp_path / "check", tmp_path / "out")
    for path in hidden:
        (tmp_path / path.name).rename(path)
    query = run_to_end(found(), tmp_path / "check", tmp_path / "out")
    wanted = braided.local.match(table, rows=rows, **OPTIONS)
    on_spark = [row.asDict() for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert bag(on_spark) == bag(wanted.table.to_pylist())
    assert len(on_spark) > 100
    report = braided.report(query, "found")
    assert report.query["matches"] == wanted.report.query["matches"]
    assert report.streams[0]["late"] == 0
    assert report.streams[0]["waiting"] == 100


def test_columns_words_and_what_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = file_stream(spark, tmp_path / "in", DDL)
    found = braided.match(stream, name="found", **OPTIONS)
    assert found.dtypes == [
        ("k", "string"), ("first", "timestamp"), ("lows", "bigint"), ("mean", "double"), ("ended", "boolean"),
        ("what", "string"), ("later", "timestamp"),
    ]  # fmt: skip
    braided.explain(found)
    assert capsys.readouterr().out == "found: looks for LOW+ UP{1,3} END? in order of ts, per k\n"
    # What leaves has a time that the next operator waits for.
    assert braided.order(found, time="first").columns == [*found.columns, "seq", "late"]
    with pytest.raises(braided.OptionError, match="input: Table is not a Spark DataFrame; for Arrow data use"):
        braided.match(pa.table({"k": [1]}), **OPTIONS)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["k", None])
def test_a_batch_dataframe_gives_the_same_rows(spark: SparkSession, tmp_path: Path, key: Any) -> None:
    table = write_disordered(tmp_path / "in", files=3)
    options = {**OPTIONS, "key": key, "after": "skip to next row"}
    found = braided.match(spark.read.schema(DDL).parquet(str(tmp_path / "in")), **options)
    wanted = braided.local.match(table, **options).table.to_pylist()
    assert found.dtypes == braided.match(file_stream(spark, tmp_path / "in", DDL), **options).dtypes
    assert bag([row.asDict() for row in found.collect()]) == bag(wanted)
    assert len(wanted) > 100
