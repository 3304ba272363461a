"""Joins with the last rows of each key on Spark: the rows of the local runtime, with a restart; batch DataFrames; queries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.streams import read_rows, run_to_end
from support.trades import LATENESS, QUOTES, TRADES, comparable, found, streams, write_disordered

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS: dict[str, Any] = {"on": "symbol", "time": "ts", "rows": 3, "lateness": LATENESS}


def wanted(tables: Any, **options: Any) -> Counter[Any]:
    table = braided.local.join(*tables, **{**OPTIONS, **options}).table
    return Counter(tuple(row.values()) for row in table.to_pylist() if row["symbol"] != "end")


def test_the_rows_are_those_of_the_local_runtime_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    tables = write_disordered(tmp_path)
    first = tmp_path / "first"
    for name in ("trades", "quotes"):
        (first / name).mkdir(parents=True)
        for file in sorted((tmp_path / name).iterdir())[:2]:
            (first / name / file.name).hardlink_to(file)
    # The same folder with more files after a restart: two queries, one checkpoint.
    for _ in range(2):
        joined = braided.join(*streams(spark, first), **OPTIONS, forget="1 minute", where="l.n > 10")
        assert joined.columns == ["symbol", "ts", "n", "ts_right", "bid", "venue"]
        run_to_end(joined, tmp_path / "check", tmp_path / "out")
        for name in ("trades", "quotes"):
            for file in sorted((tmp_path / name).iterdir()):
                if not (first / name / file.name).exists():
                    (first / name / file.name).hardlink_to(file)
    result = comparable(found(spark, tmp_path / "out"))
    assert result == comparable(wanted(tables, forget="1 minute", where="l.n > 10"))
    assert sum(result.values()) > 1_000


def test_batch_dataframes_are_joined_key_by_key(spark: SparkSession, tmp_path: Path) -> None:
    tables = write_disordered(tmp_path)
    frames = [
        spark.read.schema(ddl).parquet(str(tmp_path / name)) for name, ddl in (("trades", TRADES), ("quotes", QUOTES))
    ]
    for options in ({}, {"within": "1 second", "rows": (2, 5)}, {"on": None, "where": "l.n > 10"}):
        joined = braided.join(*frames, **{**OPTIONS, **options})
        rows = Counter(tuple(row) for row in joined.collect() if row[0] != "end")
        assert comparable(rows) == comparable(wanted(tables, **{**options, "lateness": "1 hour"}))


def test_a_step_of_a_query_with_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    """The condition does not move below the join, where other rows would be the last."""
    tables = write_disordered(tmp_path)
    trades, quotes = (braided.stream(frame, time="ts", lateness=LATENESS) for frame in streams(spark, tmp_path))
    joined = trades.join(quotes, on="symbol", rows=2, within="5 seconds")
    assert joined.time == "ts"
    assert trades.join(quotes, on="symbol", rows=2).time is None
    query = joined.where("bid > 0.5").select("symbol", "n", "bid")
    run_to_end(query.df, tmp_path / "check", tmp_path / "out")
    local = wanted(tables, rows=2, within="5 seconds")
    assert found(spark, tmp_path / "out") == Counter(
        {key: count for key, count in _selected(local).items() if key[2] > 0.5}
    )


def _selected(rows: Counter[Any]) -> Counter[Any]:
    """Return symbol, number and bid of rows."""
    chosen: Counter[Any] = Counter()
    for (symbol, _, number, _, bid, _), count in rows.items():
        chosen[symbol, number, bid] += count
    return chosen


def test_what_cannot_be_on_spark_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_disordered(tmp_path, files=1, rows=10)
    with pytest.raises(braided.OptionError, match="filter the result instead"):
        braided.join(*streams(spark, tmp_path), **OPTIONS, where="soundex(l.symbol) = soundex(r.symbol)")
    with pytest.raises(braided.OptionError, match="control=: the last rows of a key must be on one worker"):
        braided.join(*streams(spark, tmp_path), **OPTIONS, control=True)


@pytest.mark.parametrize("time", ["ts", "ts_right"])
def test_a_native_aggregate_with_a_watermark_after_it(spark: SparkSession, tmp_path: Path, time: str) -> None:
    from pyspark.sql import functions as F

    tables = write_disordered(tmp_path)
    trades, quotes = (frame.withWatermark("ts", LATENESS) for frame in streams(spark, tmp_path))
    joined = braided.join(trades, quotes, on="symbol", time="ts", rows=3, within="2 seconds")
    counted = joined.groupBy(F.window(time, "1 second")).agg(F.count("*")).select("window.start", "count(1)")
    run_to_end(counted, tmp_path / "check", tmp_path / "out")
    windows: Counter[float] = Counter()
    for row, times in wanted(tables, within="2 seconds").items():
        windows[row[1 if time == "ts" else 3].timestamp() // 1] += times
    result = {start.timestamp(): count for start, count in read_rows(spark, tmp_path / "out")}
    assert {start: result[start] for start in windows} == windows


def test_without_a_window_of_time_spark_closes_no_windows_by_the_result(spark: SparkSession, tmp_path: Path) -> None:
    """Rows may be of any age: Spark would drop some in silence, if the result had a watermark."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    write_disordered(tmp_path, files=1, rows=10)
    trades, quotes = (frame.withWatermark("ts", LATENESS) for frame in streams(spark, tmp_path))
    joined = braided.join(trades, quotes, on="symbol", time="ts", rows=3)
    counted = joined.groupBy(F.window("ts", "1 second")).agg(F.count("*"))
    with pytest.raises(AnalysisException, match="watermark"):
        run_to_end(counted, tmp_path / "check", tmp_path / "out")
