"""As-of joins on Spark: the rows of the local runtime, with a restart; batch DataFrames; queries step by step; a watermark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.streams import read_rows, run_to_end
from support.trades import LATENESS, QUOTES, TRADES, comparable, found, streams, write_disordered

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS: dict[str, Any] = {"on": "symbol", "time": "ts", "tolerance": "2 seconds", "lateness": LATENESS}


def wanted(tables: tuple[pa.Table, pa.Table], **options: Any) -> Counter[Any]:
    table = braided.local.join_asof(*tables, **{**OPTIONS, **options}).table
    return Counter(tuple(row.values()) for row in table.to_pylist() if row["symbol"] != "end")


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_the_rows_are_those_of_the_local_runtime_with_a_restart(
    direction: Any, spark: SparkSession, tmp_path: Path
) -> None:
    tables = write_disordered(tmp_path)
    first = tmp_path / "first"
    for name in ("trades", "quotes"):
        (first / name).mkdir(parents=True)
        for file in sorted((tmp_path / name).iterdir())[:2]:
            (first / name / file.name).hardlink_to(file)
    how = "inner" if direction == "forward" else "left"
    # The same folder with more files after a restart: two queries, one checkpoint.
    for _ in range(2):
        joined = braided.join_asof(*streams(spark, first), direction=direction, how=how, **OPTIONS)
        run_to_end(joined, tmp_path / "check", tmp_path / "out")
        for name in ("trades", "quotes"):
            for file in sorted((tmp_path / name).iterdir()):
                if not (first / name / file.name).exists():
                    (first / name / file.name).hardlink_to(file)
    result = comparable(found(spark, tmp_path / "out"))
    assert result == comparable(wanted(tables, direction=direction, how=how))
    assert sum(row[3] is not None for row in result) > 300


def test_batch_dataframes_are_joined_key_by_key(spark: SparkSession, tmp_path: Path) -> None:
    tables = write_disordered(tmp_path)
    frames = [
        spark.read.schema(ddl).parquet(str(tmp_path / name)) for name, ddl in (("trades", TRADES), ("quotes", QUOTES))
    ]
    for options in ({}, {"direction": "nearest", "how": "inner"}, {"tolerance": None, "on": None}):
        joined = braided.join_asof(*frames, **{**OPTIONS, **options})
        rows = Counter(tuple(row) for row in joined.collect() if row[0] != "end")
        local = wanted(tables, **{**options, "lateness": "1 hour"})
        if "on" in options:  # other columns come first
            names = joined.columns
            assert names == ["symbol", "ts", "n", "symbol_right", "ts_right", "bid", "venue"]
        assert comparable(rows) == comparable(local)


def test_a_step_of_a_query_with_a_condition_and_an_aggregate(spark: SparkSession, tmp_path: Path) -> None:
    """Neither moves below the join: a condition on the right row is one on the answer."""
    tables = write_disordered(tmp_path)
    trades, quotes = (braided.stream(frame, time="ts", lateness=LATENESS) for frame in streams(spark, tmp_path))
    joined = trades.join_asof(quotes, on="symbol", tolerance="2 seconds")
    assert joined.time == "ts"
    query = joined.where("bid > 0.5").select("symbol", "n", "bid")
    run_to_end(query.df, tmp_path / "check", tmp_path / "out")
    expected = Counter(
        (row[0], row[2], row[4]) for row in wanted(tables).elements() if row[4] is not None and row[4] > 0.5
    )
    assert found(spark, tmp_path / "out") == expected
    with pytest.raises(braided.OptionError, match="join_asof: give tolerance="):
        trades.join_asof(quotes, on="symbol")
    with pytest.raises(braided.OptionError, match="control=: unknown option of join_asof"):
        trades.join_asof(quotes, on="symbol", tolerance="1 second", control=True)


def test_a_native_aggregate_with_a_watermark_after_it(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    tables = write_disordered(tmp_path)
    trades, quotes = (frame.withWatermark("ts", LATENESS) for frame in streams(spark, tmp_path))
    joined = braided.join_asof(trades, quotes, on="symbol", time="ts", tolerance="2 seconds", direction="nearest")
    counted = (
        joined.groupBy(F.window("ts", "1 second"))
        .agg(F.count("*"), F.count("bid"))
        .select("window.start", "count(1)", "count(bid)")
    )
    run_to_end(counted, tmp_path / "check", tmp_path / "out")
    rows = wanted(tables, direction="nearest")
    windows: dict[float, list[int]] = {}
    for row, times in rows.items():
        if row[1] is not None:
            window = windows.setdefault(row[1].timestamp() // 1, [0, 0])
            window[0] += times
            window[1] += times * (row[4] is not None)
    result = {start.timestamp(): [every, matched] for start, every, matched in read_rows(spark, tmp_path / "out")}
    assert {start: result[start] for start in windows} == windows


def test_what_explain_and_the_report_say(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_disordered(tmp_path, files=2)
    joined = braided.join_asof(*streams(spark, tmp_path), name="prices", **OPTIONS)
    assert [field.nullable for field in joined.schema][-3:] == [True, True, True]
    braided.explain(joined)
    text = capsys.readouterr().out
    assert "prices: finds the last row before each left row on symbol, at most 2 seconds away" in text
    query = run_to_end(joined, tmp_path / "check", tmp_path / "out")
    report = braided.report(query).to_dict()
    assert report["query"]["name"] == "prices"
    assert [stream["name"] for stream in report["streams"]] == ["left", "right"]
    assert report["streams"][0]["null_times"] > 0
    assert report["streams"][1]["null_keys"] > 0
