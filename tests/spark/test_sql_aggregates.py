"""Aggregates inside the workers of a join: equal to DuckDB's, closed by the horizon, for every kind of window."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.profiles import some
from support.streams import file_stream, read_rows, run_to_end, write_batch, write_closing

import braided
from braided.operators.aggregate.partial import PartialAggregate
from braided.spark.session_operators import registry_of

FILES = 5
ROWS = 300


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    def make(random: np.random.Generator, times: pa.Array) -> pa.Table:
        rows = len(times)
        return pa.table({
            "phone": pa.array([None if n == 0 else f"p{n}" for n in random.integers(0, 20, rows)]),
            "ts": times,
            "n": pa.array([None if n == 5 else int(n) - 2**62 * (n == 7) for n in random.integers(0, 100, rows)], pa.int64()),
            "i": pa.array(random.integers(-50, 50, rows), pa.int32()),
            "v": random.integers(0, 1000, rows) / 8,
            "d": pa.array([Decimal(int(n)).scaleb(-2) for n in random.integers(-(10**11), 10**11, rows)], pa.decimal128(12, 2)),
            "cell": pa.array([f"x{n}" for n in random.integers(0, 4, rows)]),
        })  # fmt: skip

    root = tmp_path_factory.mktemp("aggregates")
    return root, write_closing(root, seed=11, files=FILES, rows=ROWS, make=make)


JOINED = (
    "calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 2 SECONDS"
)
VALUES = "count(*) AS rows, count(a.n) AS some, sum(a.i) AS total, min(c.ts) AS first, max(a.n) AS most, sum(c.v) AS v, avg(a.i) AS mean"
# Computed of one stream, of both, and by the order of rows.
COMPUTED = (
    "sum(CASE WHEN a.cell = 'x1' THEN a.i END) AS some_cells, count(*) FILTER (WHERE c.v > 60) AS large, sum(c.i * 2) AS doubled, "
    "sum(5) FILTER (WHERE a.i > 3) AS fives, max(7) FILTER (WHERE a.i > 3) AS sevens, sum(c.i - a.i) AS apart, bool_or(a.i > 40) AS warm, bool_and(c.v < 124) AS calm, max(length(c.phone)) AS long, avg(c.v * a.i) AS product"
)
ORDERED = "first(a.cell) AS opened, last(c.v) AS closed"
ORDERED_ORACLE = (
    "first(a.cell ORDER BY c.ts, a.cell NULLS FIRST) AS opened, last(c.v ORDER BY c.ts, c.v NULLS FIRST) AS closed"
)
QUERIES = {
    "tumbling": (
        f"SELECT window.start AS s, upper(c.cell) AS cell, {VALUES}, {COMPUTED}, {ORDERED} FROM {JOINED} GROUP BY window(c.ts, '5 seconds'), upper(c.cell)",
        f"SELECT time_bucket(INTERVAL 5 SECONDS, c.ts) AS s, upper(c.cell) AS cell, {VALUES}, {COMPUTED}, {ORDERED_ORACLE} FROM {JOINED} GROUP BY 1, 2",
    ),
    "with keys of both sides": (
        f"SELECT window.start AS s, a.phone AS p, c.cell AS cell, {VALUES}, sum(c.d) AS d FROM {JOINED} AND c.v < a.v GROUP BY window(a.ts, '4 seconds'), a.phone, c.cell HAVING count(*) > 1",
        f"SELECT time_bucket(INTERVAL 4 SECONDS, a.ts) AS s, a.phone AS p, c.cell AS cell, {VALUES}, sum(c.d) AS d FROM {JOINED} AND c.v < a.v GROUP BY 1, 2, 3 HAVING count(*) > 1",
    ),
    "sliding": (
        f"SELECT w.start AS s, rows, total FROM (SELECT window(c.ts, '6 seconds', '4 seconds') AS w, count(*) AS rows, sum(a.i) AS total FROM {JOINED} GROUP BY window(c.ts, '6 seconds', '4 seconds'))",
        f"""SELECT s, count(*) AS rows, sum(i) AS total FROM (SELECT unnest(generate_series(
              epoch_us(c.ts) - (epoch_us(c.ts) - epoch_us(c.ts) // 4000000 * 4000000), epoch_us(c.ts) - 6000000, -4000000)) AS s, a.i, c.ts FROM {JOINED})
            WHERE s <= epoch_us(ts) AND epoch_us(ts) < s + 6000000 GROUP BY 1""",
    ),
}


def _run(frame: DataFrame, folder: Path) -> list[tuple[Any, ...]]:
    query = braided.write_files(frame, str(folder / "out"), checkpoint=str(folder / "c"), trigger="available now")
    query.awaitTermination()
    dropped = [op["numRowsDroppedByWatermark"] for p in query.recentProgress for op in p["stateOperators"]]
    assert sum(dropped) == 0
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        return database.execute("from read_parquet(?)", [braided.topic(str(folder / "out")).files()]).fetchall()


def _oracle(text: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return database.sql(text).fetchall()


def _micros(value: Any) -> Any:
    return int(value.timestamp() * 1_000_000) if hasattr(value, "timestamp") else value


def _normal(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    plain = [tuple(round(v, 6) if isinstance(v, float) else _micros(v) for v in row) for row in rows]
    return sorted(
        (tuple((int(v) if v == int(v) else float(v)) if isinstance(v, Decimal) else v for v in row) for row in plain),
        key=repr,
    )


@pytest.mark.parametrize("what", some(QUERIES, quick=2))
def test_an_aggregate_in_the_workers_equals_the_oracles(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path, what: str
) -> None:
    streams = {name: braided.files(spark, str(tables[0] / name), max_files=1) for name in tables[1]}
    ours, theirs = QUERIES[what]
    frame = braided.sql(spark, ours, streams, lateness="4 seconds")
    watched = list(registry_of(spark)._operators.values())[-1]
    assert isinstance(watched.plan.operator, PartialAggregate)
    found = _normal(_run(frame, tmp_path))
    last = 120_000_000 + FILES * 10_000_000
    wanted = [row for row in _normal(_oracle(theirs, tables[1])) if row[0] + 6_000_000 < last]
    assert len(wanted) >= 9
    assert [row for row in found if row[0] + 6_000_000 < last] == wanted


def test_sums_of_large_numbers_fail_only_where_the_total_does_not_fit(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path
) -> None:
    streams = {name: braided.files(spark, str(tables[0] / name), max_files=1) for name in tables[1]}
    text = f"SELECT window.start AS s, sum(a.n) AS total FROM {JOINED} GROUP BY window(c.ts, '5 seconds')"
    with pytest.raises(Exception, match=r"CAST_OVERFLOW|overflow"):
        _run(braided.sql(spark, text, streams, lateness="4 seconds"), tmp_path)


def _explained(
    spark: SparkSession, text: str, streams: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]
) -> str:
    braided.explain(braided.sql(spark, text, streams))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "the aggregate after it is Spark's" in line]
    return line


def test_what_does_not_merge_is_left_to_spark(
    spark: SparkSession,
    tables: tuple[Path, dict[str, pa.Table]],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = {name: braided.files(spark, str(tables[0] / name)) for name in tables[1]}
    for value in (
        "stddev(c.v)",
        "sum(a.d + 1)",
        "min(c.cell)",
        "count(*) FILTER (WHERE a.i > c.i)",
        "first(a.i) IGNORE NULLS",
        "sum(if(a.cell = 1, 1, 0))",
        "count(*) AS n, try_sum(5)",
        "count(*) AS n, any(c.v > 3)",
        "sum(CASE WHEN c.phone IS NULL THEN CAST('abc' AS DOUBLE) ELSE 1D END)",
    ):
        braided.sql(spark, f"SELECT {value} AS x FROM {JOINED} GROUP BY window(c.ts, '5 seconds')", streams)
        watched = list(registry_of(spark)._operators.values())[-1]
        assert not isinstance(watched.plan.operator, PartialAggregate), value
    assert "the aggregate after the join of c and a is Spark's own: only Spark can" in caplog.text
    assert "LIKE" in _explained(
        spark,
        f"SELECT count(*) AS x FROM {JOINED} AND c.cell LIKE a.cell GROUP BY window(c.ts, '5 seconds')",
        streams,
        capsys,
    )
    plain = {name: frame.withColumn("ts", F.col("ts").cast("timestamp_ntz")) for name, frame in streams.items()}
    counted = f"SELECT count(*) AS x FROM {JOINED} GROUP BY window(c.ts, '5 seconds')"
    assert "has no time zone, but Spark's watermark needs one: cast it to timestamp" in _explained(
        spark, counted, plain, capsys
    )
    braided.explain(
        braided.stream(plain["calls"], time="ts")
        .join(braided.stream(plain["alerts"], time="ts"), on="phone", within="1 second")
        .aggregate(window="5 seconds", n="count(*)")
        .df
    )
    assert "ts has no time zone, but Spark's watermark needs one" in capsys.readouterr().out
    marked = {name: frame.withWatermark("ts", "4 seconds") for name, frame in streams.items()}
    once = {name: frame.dropDuplicates(["ts", "phone"]) for name, frame in marked.items()}
    assert "the watermark of c.ts is below dropDuplicates" in _explained(spark, counted, once, capsys)
    braided.sql(spark, counted, marked)
    watched = list(registry_of(spark)._operators.values())[-1]
    assert isinstance(watched.plan.operator, PartialAggregate)
    assert watched.plan.operator.lateness == (4_000_000, 4_000_000)


def test_what_looks_like_a_part_of_the_aggregate_is_none(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]
) -> None:
    """Subqueries have aggregates of their own, keys may be computed by any function of Spark's."""
    streams = {name: braided.files(spark, str(tables[0] / name)) for name in tables[1]}
    spark.range(3).createOrReplaceTempView("dim")
    for chosen, rest in (
        ("count(*) AS n", " HAVING count(*) > (SELECT count(*) FROM dim)"),
        ("count(*) AS n, sum(a.i) AS x", " HAVING (n > 3 AND x > 0) OR max(a.i * 2) > 10"),
        ("count(*) AS n, (SELECT max(id) FROM dim) AS most", ""),
        ("count(*) AS n, soundex(upper(c.cell)) AS s", ", upper(c.cell)"),
    ):
        keys, having = (rest, "") if rest.startswith(",") else ("", rest)
        text = f"SELECT window.start, {chosen} FROM {JOINED} GROUP BY window(c.ts, '5 seconds'){keys}{having}"
        braided.sql(spark, text, streams, lateness="4 seconds")
        watched = list(registry_of(spark)._operators.values())[-1]
        assert isinstance(watched.plan.operator, PartialAggregate), text


def test_a_column_named_as_a_copy_of_the_key_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """The right key is carried beside the left one where they may look different."""
    times = pa.array([at * 1_000_000 for at in range(20)], pa.timestamp("us", "UTC"))
    rows = pa.table({"kd": [0.0, 1.5] * 10, "kd__copy0": [100.0, 200.0] * 10, "ts": times})
    for name in ("calls", "alerts"):
        write_batch(tmp_path / name, 0, rows)
    streams = {name: braided.files(spark, tmp_path / name) for name in ("calls", "alerts")}
    text = """SELECT c.kd AS k, a.kd AS other, a.kd__copy0 AS copy FROM calls c JOIN alerts a ON c.kd = a.kd
        AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"""
    assert (
        sorted(_run(braided.sql(spark, text, streams), tmp_path)) == [(0.0, 0.0, 100.0)] * 10 + [(1.5, 1.5, 200.0)] * 10
    )


@pytest.mark.parametrize("having", some([" HAVING c.k > 0", " HAVING c.s IS NOT NULL", ""], quick=1))
def test_windows_close_also_where_no_pair_comes_any_more(spark: SparkSession, tmp_path: Path, having: str) -> None:
    """Workers say how far time has gone by rows of their own, which no filter of the query may drop on the way."""
    for name, odd in (("calls", 0), ("alerts", 1)):
        for number in range(3):
            # After the first file the streams have no key in common.
            keys = [1, 2] * 10 if number == 0 else [100 + odd] * 20
            times = pa.array([(number * 100 + at) * 1_000_000 for at in range(20)], pa.timestamp("us", "UTC"))
            write_batch(tmp_path / name, number, pa.table({"k": keys, "ts": times, "s": ["x"] * 20}))
    streams = {name: braided.files(spark, tmp_path / name, max_files=1) for name in ("calls", "alerts")}
    text = f"""SELECT window.start, c.k AS k, c.s AS s, count(*) AS n FROM calls c JOIN alerts a ON c.k = a.k
        AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND GROUP BY window(c.ts, '10 seconds'), c.k, c.s{having}"""
    frame = braided.sql(spark, text, streams, lateness="1 second")
    found = [row[1:] for row in _run(frame, tmp_path)]
    assert sorted(found) == [(1, "x", 5), (1, "x", 5), (2, "x", 5), (2, "x", 5)]


def _hours(root: Path, name: str, columns: tuple[str, str], hours: list[float], files: int) -> None:
    """Write rows at these hours of a day, in so many files, a batch each."""
    times = pa.array([1_714_521_600_000_000 + round(hour * 3_600_000_000) for hour in hours], pa.timestamp("us", "UTC"))
    table = pa.table([np.arange(len(hours)), times], list(columns))
    for number in range(files):
        write_batch(root / name, number, table.slice(number * len(hours) // files, len(hours) // files))


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 6])
def test_six_rows_hours_apart_give_the_windows_that_spark_gives(
    spark: SparkSession, tmp_path: Path, files: int
) -> None:
    """The example of Spark's guide, grouped by windows after the join, by Spark, as SQL and step by step."""
    _hours(tmp_path, "impressions", ("ad", "shown"), [10, 12, 14.5, 16, 18, 21], files)
    _hours(tmp_path, "clicks", ("clicked_ad", "clicked"), [10.2, 12.5, 14.6, 16.9, 18.3, 21.5], files)
    impressions = file_stream(spark, tmp_path / "impressions", "ad long, shown timestamp")
    clicks = file_stream(spark, tmp_path / "clicks", "clicked_ad long, clicked timestamp")
    condition = "ad = clicked_ad AND clicked >= shown AND clicked <= shown + INTERVAL 1 HOUR"
    native = (
        impressions.withWatermark("shown", "2 hours")
        .join(clicks.withWatermark("clicked", "3 hours"), F.expr(condition))
        .groupBy(F.window("shown", "1 hour"))
        .agg(F.count("*").alias("n"))
    )
    text = f"""SELECT /*+ BRAIDED('i', 'lateness=2 hours'), BRAIDED('c', 'lateness=3 hours') */ window, count(*) AS n
               FROM impressions i JOIN clicks c ON {condition} GROUP BY window(shown, '1 hour')"""
    steps = (
        braided.stream(impressions, time="shown", lateness="2 hours")
        .join(
            braided.stream(clicks, time="clicked", lateness="3 hours"),
            on=[("ad", "clicked_ad")],
            between=("0 seconds", "1 hour"),
        )
        .aggregate(window="1 hour", n="count(*)")
    )
    found = []
    for number, frame in enumerate(
        (native, braided.sql(spark, text, {"impressions": impressions, "clicks": clicks}), steps.df)
    ):
        run_to_end(frame.selectExpr("window.start AS s", "n"), tmp_path / f"c{number}", tmp_path / f"{number}")
        found.append(read_rows(spark, tmp_path / f"{number}"))
    assert len(found[0]) == 4
    assert found[1] == found[2] == found[0]


def test_windows_of_a_time_that_an_earlier_join_compared_are_reported(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark refuses them when the query starts, and does not say that a join took the watermark away."""
    streams = {name: braided.files(spark, str(tables[0] / name)).withWatermark("ts", "3 seconds") for name in tables[1]}
    three = f"{JOINED} JOIN alerts b ON b.phone = a.phone AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND"
    for time, is_reported in (("a.ts", False), ("c.ts", True)):
        caplog.clear()
        braided.sql(spark, f"SELECT stddev(c.v) AS x FROM {three} GROUP BY window({time}, '5 seconds')", streams)
        assert ("c.ts has no watermark after the joins" in caplog.text) == is_reported
