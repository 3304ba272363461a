"""Bad input on Spark gets an error that names the parameter, the value and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.profiles import some
from support.streams import UTC, file_stream, run_to_end, write_batch

import braided
from braided import BraidedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = pa.table({"k": pa.array([1], pa.int64()), "ts": pa.array([0], UTC), "v": pa.array([1], pa.int64())})
GOOD: dict[str, Any] = {"on": "k", "time": "ts", "within": "10 seconds"}


def stream(spark: SparkSession, folder: Path, ddl: str = "k long, ts timestamp, v long") -> DataFrame:
    return file_stream(spark, folder, ddl)


def test_errors_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    left, right = stream(spark, tmp_path / "l"), stream(spark, tmp_path / "r")
    batch = spark.createDataFrame([], "k long, ts timestamp, v long")
    cases: list[tuple[DataFrame, DataFrame, dict[str, Any], str]] = [
        (left, batch, {}, "left is streaming and right is not; give streams or batch DataFrames, not both"),
        (batch, right, {}, "right is streaming and left is not; give streams"),
        (left, right, {"on": "phone"}, "on='phone': the left input has no such column; it has k, ts, v"),
        (left, right, {"where": 3}, "where=3: write a SQL predicate over l. and r. columns"),
        (left, right, {"where": "l.v <"}, "where='l.v <': Spark reports: [PARSE_SYNTAX_ERROR] Syntax error at or near end of input."),
        (batch, batch, {"where": "nope(l.k)"}, "where='nope(l.k)': Spark reports: [UNRESOLVED_ROUTINE]"),
        (left, stream(spark, tmp_path / "n", "k long, ts timestamp_ntz"), {}, "one has a time zone and the other has none"),
        (
            stream(spark, tmp_path / "c", "k string collate UTF8_LCASE, ts timestamp"), right, {},
            "on='k': the left input has it with a collation; collated keys are not supported, cast it to string",
        ),
        (
            left.selectExpr("*", "make_interval(1, 2) i"), right, {},
            "left: column 'i' of type interval cannot be carried in Arrow; drop or cast it",
        ),
        (left.selectExpr("k", "k", "ts"), right, {}, "left: more than one column is named 'k'; rename one"),
    ]  # fmt: skip
    for a, b, change, message in cases:
        with pytest.raises(BraidedError, match=re.escape(message)):
            braided.join(a, b, **{**GOOD, **change})


def test_another_state_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    old = spark.conf.get(provider)
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(BraidedError, match=r"braided keeps its state in RocksDB; set it to 'org\.apache\.spark"):
            braided.join(stream(spark, tmp_path / "l"), stream(spark, tmp_path / "r"), **GOOD)
    finally:
        spark.conf.set(provider, str(old))


CHANGES: list[tuple[dict[str, Any], str]] = [
    (
        {"lateness": "1 second"},
        r"other options: lateness was \[.Lateness\(margin=0.5.* and is \[.1 second., .1 second.\]",
    ),
    ({"where": "l.v < r.v"}, r"other options: where was null and is \"l.v < r.v\""),
    ({"k": "int"}, r"other options: left was .*k int64.* and is .*k int32"),
]


@pytest.mark.slow
def test_a_checkpoint_accepts_no_other_options(spark: SparkSession, tmp_path: Path) -> None:
    for side in "lr":
        for number in range(2):
            write_batch(tmp_path / side, number, ROWS)

    def start(change: dict[str, Any]) -> Any:
        options = {**GOOD, **change}
        key = options.pop("k", "long")
        frames = [stream(spark, tmp_path / side).selectExpr(f"cast(k as {key}) k", "ts", "v") for side in "lr"]
        return run_to_end(braided.join(*frames, **options), tmp_path / "check", tmp_path / "out")

    start({})
    rows_before = spark.read.parquet(str(tmp_path / "out")).count()
    for side in "lr":
        write_batch(tmp_path / side, 2, ROWS)
    for change, message in some(CHANGES, quick=2):
        with pytest.raises(Exception, match=message):
            start(change)
        assert spark.read.parquet(str(tmp_path / "out")).count() == rows_before
    start({})
    assert spark.read.parquet(str(tmp_path / "out")).count() > rows_before
