"""MATCH_RECOGNIZE in larger queries on Spark: over joins, matches and unions; before windows and joins of streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.streams import SECOND, UTC, file_stream, read_rows, run_to_end, write_batch

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = 1_700_000_000 * SECOND
DDL = "k string, ts timestamp, v long"
RISES = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
    MEASURES FIRST(A.ts) AS began, LAST(B.ts) AS ended, COUNT(*) AS n
    PATTERN (A B+) WITHIN INTERVAL 1 SECOND DEFINE B AS v > PREV(v))"""
OPTIONS: dict[str, Any] = {
    "key": "k",
    "time": "ts",
    "pattern": "A B+",
    "define": {"B": "v > prev(v)"},
    "measures": {"began": "first(A.ts)", "ended": "last(B.ts)", "n": "count(*)"},
    "within": "1 second",
}


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    """Rows of four keys up to a second late, in three files, and rows far later that let all others go."""
    random = np.random.default_rng(4)
    times = START + np.arange(900) * (SECOND // 40)
    order = np.argsort(times + random.integers(0, SECOND, 900), kind="stable")
    late = START + 500 * SECOND + np.arange(100)
    rows = pa.table(
        {
            "k": pa.array(np.append(random.integers(0, 4, 900), np.full(100, 9)).astype(str)),
            "ts": pa.array(np.append(times[order], late), UTC),
            "v": np.append(random.integers(0, 10, 900), np.full(100, 0)),
        }
    )
    for number in range(4):
        write_batch(tmp_path / "in", number, rows.slice(number * 250, 250))
    return rows


@pytest.fixture
def stream(spark: SparkSession, table: pa.Table, tmp_path: Path) -> DataFrame:
    return file_stream(spark, tmp_path / "in", DDL)


def run(spark: SparkSession, frame: DataFrame, folder: Path) -> Counter[tuple[Any, ...]]:
    run_to_end(frame, folder / "check", folder / "out")
    return Counter(
        tuple(getattr(value, "timestamp", lambda v=value: v)() for value in row)
        for row in read_rows(spark, folder / "out")
    )


def rises(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {**row, "began": row["began"].timestamp(), "ended": row["ended"].timestamp()}
        for row in braided.local.match(table, lateness="2 seconds", **OPTIONS).table.to_pylist()
    ]


def test_a_window_over_matches(spark: SparkSession, stream: DataFrame, table: pa.Table, tmp_path: Path) -> None:
    text = f"""SELECT unix_timestamp(window.start) AS s, k, sum(n) AS rows FROM readings {RISES} m
        GROUP BY window(began, '5 seconds'), k"""
    result = braided.sql(spark, text, {"readings": stream.withWatermark("ts", "2 seconds")})
    wanted: Counter[tuple[Any, ...]] = Counter()
    for row in rises(table):
        wanted[int(row["began"]) // 5 * 5, row["k"]] += row["n"]
    found = run(spark, result, tmp_path)
    assert found == Counter((*key, rows) for key, rows in wanted.items())
    assert len(found) > 10


def test_matches_of_matches_and_a_union(
    spark: SparkSession, stream: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    text = f"""WITH both AS (SELECT k, ts, v FROM one WHERE v % 2 = 0 UNION ALL SELECT k, ts, v FROM two WHERE v % 2 = 1)
        SELECT k, n, pairs FROM (SELECT k, ended, n FROM both {RISES})
        MATCH_RECOGNIZE (PARTITION BY k ORDER BY ended MEASURES B.n AS n, COUNT(*) AS pairs
          PATTERN (A B) WITHIN INTERVAL 3 SECONDS DEFINE B AS n > A.n) AS longer"""
    # Matches far later let those before them go, and rows far later these.
    for number, (count, after) in enumerate([(300, 1000), (100, 2000)], 4):
        times = START + after * SECOND + np.arange(count)
        keys = pa.array(["9"] * count)
        write_batch(
            tmp_path / "in", number, pa.table({"k": keys, "ts": pa.array(times, UTC), "v": np.arange(count) % 2})
        )
    result = braided.sql(spark, text, {"one": stream, "two": stream}, lateness="2 seconds")
    inner = pa.Table.from_pylist(rises(table))
    inner = inner.set_column(2, "ended", pa.array((np.asarray(inner["ended"]) * SECOND).round().astype(np.int64), UTC))
    wanted = braided.local.match(
        inner.sort_by("ended"), key="k", time="ended", pattern="A B", define={"B": "n > A.n"},
        measures={"n": "B.n", "pairs": "count(*)"}, within="3 seconds",
    ).table.to_pylist()  # fmt: skip
    found = Counter({row: n for row, n in run(spark, result, tmp_path).items() if row[0] != "9"})
    assert found == Counter(tuple(row.values()) for row in wanted)
    assert found.total() > 10


def test_a_join_of_matches_and_a_stream(
    spark: SparkSession, stream: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    text = f"""SELECT m.k, m.n, r.v FROM readings {RISES} AS m JOIN readings r ON r.k = m.k
        AND r.ts BETWEEN m.ended AND m.ended + INTERVAL 1 SECOND WHERE r.v > 7"""
    result = braided.sql(spark, text, {"readings": stream}, lateness="2 seconds")
    rows = [(row["k"], row["ts"].timestamp(), row["v"]) for row in table.to_pylist() if row["v"] > 7]
    wanted = Counter(
        (row["k"], row["n"], v)
        for row in rises(table)
        for k, ts, v in rows
        if k == row["k"] and 0 <= round((ts - row["ended"]) * SECOND) <= SECOND
    )
    found = run(spark, result, tmp_path)
    assert found == wanted
    assert found.total() > 100


def test_all_rows_of_matches_over_a_join(
    spark: SparkSession, stream: DataFrame, table: pa.Table, tmp_path: Path
) -> None:
    text = """WITH pairs AS (SELECT a.k, a.ts, b.v FROM readings a JOIN readings b ON a.k = b.k AND a.v = b.v
          AND b.ts BETWEEN a.ts AND a.ts)
        SELECT k, v, n FROM pairs MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FINAL COUNT(*) AS n
          ALL ROWS PER MATCH PATTERN (A B+) WITHIN INTERVAL 1 SECOND DEFINE B AS v > PREV(v))"""
    result = braided.sql(spark, text, {"readings": stream}, lateness="2 seconds")
    options = {**OPTIONS, "rows": "all", "measures": {"n": "final count(*)"}}
    wanted = braided.local.match(table, lateness="2 seconds", **options).table.to_pylist()
    found = run(spark, result, tmp_path)
    assert found == Counter((row["k"], row["v"], row["n"]) for row in wanted)
    assert found.total() > 100
