"""Joins by time alone, and windows that no pair is in: the same in SQL, as functions, step by step and locally."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from support.crashes import write_streams
from support.streams import file_stream, run_to_end

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "k long, ts timestamp, id long"
TEXT = (
    "SELECT l.id, r.id AS id_right FROM l JOIN r ON r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 1 SECOND"
)
EMPTY = (
    "SELECT l.id FROM l JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts + INTERVAL 5 SECONDS AND l.ts - INTERVAL 5 SECONDS"
)


def sides(spark: SparkSession, root: Path) -> list[DataFrame]:
    return [file_stream(spark, root / side, DDL) for side in ("left", "right")]


@pytest.mark.parametrize("how", ["sql", "join", "stream", "batch", "local"])
def test_a_join_by_time_alone_is_the_same_everywhere(spark: SparkSession, tmp_path: Path, how: str) -> None:
    write_streams(tmp_path, files=2, rows=60, seed=41)
    options: dict[str, Any] = {"within": "1 second", "lateness": "5 seconds"}
    left, right = sides(spark, tmp_path)
    if how == "local":
        tables = [pq.read_table(tmp_path / side) for side in ("left", "right")]
        rows = braided.local.join(*tables, time="ts", workers=3, **options).table.select(["id", "id_right"])
        found = Counter(map(tuple, zip(*rows.to_pydict().values(), strict=True)))
    else:
        if how == "sql":
            result = braided.sql(spark, TEXT, {"l": left, "r": right}, lateness="5 seconds")
        elif how == "join":
            result = braided.join(left, right, time="ts", **options)
        elif how == "stream":
            result = braided.stream(left, time="ts").join(braided.stream(right, time="ts"), **options).df
        else:
            batch = [spark.read.schema(DDL).parquet(str(tmp_path / side)) for side in ("left", "right")]
            result = braided.join(*batch, time="ts", **options)
        if how != "batch":
            run_to_end(result, tmp_path / "check", tmp_path / "out")
            result = spark.read.parquet(str(tmp_path / "out"))
        found = Counter((row["id"], row["id_right"]) for row in result.collect())
    with duckdb.connect() as database:
        pairs = database.execute(
            f"""select l.id, r.id from '{tmp_path}/left/*.parquet' l join '{tmp_path}/right/*.parquet' r
            on abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 1000000"""
        ).fetchall()
    assert len(pairs) > 1000
    assert found == Counter(pairs)


def test_an_aggregate_after_a_join_by_time_alone(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=3, rows=60, seed=42)
    left, right = sides(spark, tmp_path)
    joined = braided.stream(left, time="ts").join(
        braided.stream(right, time="ts"), within="1 second", lateness="5 seconds"
    )
    windows = joined.aggregate(window="2 seconds", n="count(*)", most="max(id_right)", total="sum(k)").df
    run_to_end(windows, tmp_path / "check", tmp_path / "out")
    found = {row["window"]["start"]: (row["n"], row["most"], row["total"]) for row in spark.read.parquet(str(tmp_path / "out")).collect()}  # fmt: skip
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        rows = database.execute(
            f"""select time_bucket(interval 2 seconds, l.ts::timestamp) w, count(*), max(r.id), sum(l.k)
            from '{tmp_path}/left/*.parquet' l join '{tmp_path}/right/*.parquet' r
            on abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 1000000 group by w"""
        ).fetchall()
    expected = {start: values for start, *values in rows}
    assert len(found) >= 3, "windows that are closed"
    assert {start: tuple(expected[start]) for start in found} == found


def test_a_window_that_no_pair_is_in_is_refused_everywhere(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=1, rows=10, seed=43)
    left, right = sides(spark, tmp_path)
    tables = [pq.read_table(tmp_path / side) for side in ("left", "right")]
    options: dict[str, Any] = {"on": "k", "between": ("5 seconds", "-5 seconds")}
    attempts = {
        "local": lambda: braided.local.join(*tables, time="ts", **options),
        "join": lambda: braided.join(left, right, time="ts", **options),
        "stream": lambda: braided.stream(left, time="ts").join(braided.stream(right, time="ts"), **options),
        "sql": lambda: braided.sql(spark, EMPTY, {"l": left, "r": right}),
    }
    said = r"the lower bound 5 seconds is above the upper bound -5 seconds, so no pair can match"
    for attempt in attempts.values():
        with pytest.raises(braided.OptionError, match=said):
            attempt()
