"""The join on real Spark: the same rows as the nested loop, composed with what Spark offers."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC as ZONE
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.profiles import some
from support.streams import SECOND, UTC, batches_of, file_stream, read_rows, run_to_end, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("ts", UTC), ("id", pa.int64())])
DDL = "k long, ts timestamp, id long"


def make_rows(seed: int, count: int, keys: int, disorder_s: float, step_s: float = 0.5) -> list[dict[str, Any]]:
    """Rows in order of arrival, at most `disorder_s` behind, with some null keys and times."""
    rng = np.random.default_rng(seed)
    base = 1_700_000_000 * SECOND
    rows: list[dict[str, Any]] = []
    for number in range(count):
        late = int(rng.random() * disorder_s * SECOND) if rng.random() < 0.4 else 0
        time: int | None = base + int(number * step_s * SECOND) - late
        rows.append(
            {
                "k": None if number % 29 == 7 else int(rng.integers(0, keys)),
                "ts": None if number % 31 == 9 else time,
                "id": number,
            }
        )
    return rows


def oracle_pairs(left: list[dict[str, Any]], right: list[dict[str, Any]], lo: int, hi: int) -> Counter[Any]:
    tables = {"l": pa.Table.from_pylist(left, SCHEMA), "r": pa.Table.from_pylist(right, SCHEMA)}
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        found = db.execute(
            "select l.id, r.id from l join r on l.k = r.k and epoch_us(r.ts) - epoch_us(l.ts) between ? and ?",
            [lo, hi],
        ).fetchall()
    return Counter(found)


def two_streams(
    spark: SparkSession, folder: Path, left: list[dict[str, Any]], right: list[dict[str, Any]], size: int
) -> tuple[DataFrame, DataFrame]:
    for name, rows in (("left", left), ("right", right)):
        for number, table in enumerate(batches_of(rows, size, SCHEMA)):
            write_batch(folder / name, number, table)
    return file_stream(spark, folder / "left", DDL), file_stream(spark, folder / "right", DDL)


@pytest.mark.slow
def test_a_silence_of_hours_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Two silences, the right stream a few seconds behind and one row in twenty, in batches of forty rows."""
    seconds = [*range(0, 160, 2), *range(3 * 3600, 3 * 3600 + 160, 2), *range(30 * 3600, 30 * 3600 + 80, 2)]
    base = 1_700_000_000 * SECOND
    left = [{"k": 1, "ts": base + at * SECOND, "id": number} for number, at in enumerate(seconds)]
    right = [{**row, "ts": row["ts"] + 3 * SECOND} for row in left[::20]]
    for name, rows, size in (("left", left, 40), ("right", right, 2)):
        for number, table in enumerate(batches_of(rows, size, SCHEMA)):
            write_batch(tmp_path / name, number, table)
    streams = [file_stream(spark, tmp_path / name, DDL) for name in ("left", "right")]
    query = run_to_end(
        braided.join(*streams, on="k", time="ts", within="100 seconds"), tmp_path / "c", tmp_path / "out"
    )
    found = Counter((row[2], row[4]) for row in read_rows(spark, tmp_path / "out"))
    assert found == oracle_pairs(left, right, -100 * SECOND, 100 * SECOND)
    assert all(stream["late"] == stream["discarded"] == 0 for stream in braided.report(query).to_dict()["streams"])


def test_equals_the_oracle_and_reports(spark: SparkSession, tmp_path: Path) -> None:
    left, right = make_rows(1, 400, 12, 8), make_rows(2, 300, 12, 8)
    streams = two_streams(spark, tmp_path, left, right, 100)
    result = braided.join(*streams, on="k", time="ts", within="10 seconds", lateness="8 seconds")
    assert result.isStreaming
    assert result.columns == ["k", "ts", "id", "ts_right", "id_right"]
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    found = Counter((row[2], row[4]) for row in read_rows(spark, tmp_path / "out"))
    assert found == oracle_pairs(left, right, -10 * SECOND, 10 * SECOND)
    report = braided.report(query)
    plain = report.to_dict()
    assert plain["query"]["results"] == found.total()
    assert [stream["rows"] for stream in plain["streams"]] == [400, 300]
    assert plain["streams"][0]["null_times"] == sum(row["ts"] is None for row in left)
    assert plain["streams"][1]["null_keys"] == sum(row["ts"] is not None and row["k"] is None for row in right)
    assert [stream["late"] for stream in plain["streams"]] == [0, 0]
    assert plain["streams"][0]["lateness"] == 8 * SECOND
    assert plain["streams"][0]["clock"] == max(row["ts"] for row in left if row["ts"] is not None)
    assert len(plain["workers"]) == 2
    for worker in plain["workers"]:
        assert set(worker["last"]) == set(worker["total"]) == {
            "rows", "results", "cpu_ms", "stored_rows", "stored_bytes", "runs", "state_reads", "cached_reads",
        }  # fmt: skip
    assert sum(worker["total"]["results"] for worker in plain["workers"]) == found.total()
    assert "worker" in str(report)
    assert "stored rows" in str(report)


@pytest.mark.slow
def test_restart_goes_on_and_totals_survive(spark: SparkSession, tmp_path: Path) -> None:
    left, right = make_rows(3, 200, 5, 5), make_rows(4, 200, 5, 5)
    for half in (0, 1):
        for name, rows in (("left", left), ("right", right)):
            for number, table in enumerate(batches_of(rows[100 * half : 100 * half + 100], 50, SCHEMA)):
                write_batch(tmp_path / name, 2 * half + number, table)
        streams = (file_stream(spark, tmp_path / "left", DDL), file_stream(spark, tmp_path / "right", DDL))
        result = braided.join(*streams, on="k", time="ts", between=("-3 seconds", "7 seconds"), lateness="5 seconds")
        query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    found = Counter((row[2], row[4]) for row in read_rows(spark, tmp_path / "out"))
    assert found == oracle_pairs(left, right, -3 * SECOND, 7 * SECOND)
    plain = braided.report(query).to_dict()
    assert plain["query"]["results"] == found.total()
    assert [stream["rows"] for stream in plain["streams"]] == [200, 200]


@pytest.mark.slow
def test_late_rows_are_counted_and_never_doubled(spark: SparkSession, tmp_path: Path) -> None:
    left, right = make_rows(5, 200, 3, 60), make_rows(6, 200, 3, 60)
    streams = two_streams(spark, tmp_path, left, right, 50)
    result = braided.join(*streams, on="k", time="ts", within="5 seconds", lateness="1 second")
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    found = Counter((row[2], row[4]) for row in read_rows(spark, tmp_path / "out"))
    full = oracle_pairs(left, right, -5 * SECOND, 5 * SECOND)
    assert not found - full
    assert found.total() < full.total()
    assert all(stream["late"] > 0 for stream in braided.report(query).to_dict()["streams"])


KEYS: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    "int with long": ("int", "long", [1, 2, -3, None], [1, 2, 2**40, -3]),
    "byte with short": ("byte", "short", [1, -128, 127, 0], [1, -128, 300, 0]),
    "string": ("string", "string", ["a", "", "ü" * 9, "zebra"], ["a", "", "ü" * 9, "A"]),
    "binary": ("binary", "binary", [b"a", b"", b"\0" * 9, b"\0"], [b"a", b"", b"\0" * 9, b"\0\0"]),
    "boolean": ("boolean", "boolean", [True, False, None, True], [True, True, False, None]),
    "date": ("date", "date", [datetime(2020, 1, d).date() for d in (1, 2, 3, 4)], [datetime(2020, 1, d).date() for d in (1, 1, 3, 9)]),
    "timestamp": (
        "timestamp", "timestamp",
        [datetime(1960, 1, d, tzinfo=ZONE) for d in (1, 2, 3, 4)], [datetime(1960, 1, d, tzinfo=ZONE) for d in (1, 1, 3, 9)],
    ),
    "decimal": (
        "decimal(5,1)", "decimal(9,3)",
        [Decimal("1.5"), Decimal("2.0"), None, Decimal("-9.9")], [Decimal("1.500"), Decimal("2.001"), Decimal("-9.9"), None],
    ),
    "wide decimal": (
        "decimal(38,0)", "decimal(38,0)",
        [Decimal(10**37), Decimal(1), Decimal(2**64), Decimal(-1)], [Decimal(10**37), Decimal(2**64 + 1), Decimal(0), Decimal(-1)],
    ),
    "float with double": (
        "float", "double",
        [math.nan, -0.0, 0.5, math.inf], [math.nan, 0.0, 0.5, -math.inf],
    ),
}  # fmt: skip


@pytest.mark.slow
def test_keys_of_every_type_match_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A join for each type, all of them in one query: to start one costs more than ten joins."""
    from pyspark.sql import functions as F

    moment = datetime(2024, 1, 1, tzinfo=ZONE)
    static, streams = [], []
    for side, name in enumerate(("left", "right")):
        columns = [f"k{number} {types[side]}" for number, (*types, _, _) in enumerate(KEYS.values())]
        ddl = ", ".join([*columns, "ts timestamp", "id int"])
        keys = zip(*(case[2 + side] for case in KEYS.values()), strict=True)
        rows = [(*row, moment, number) for number, row in enumerate(keys)]
        spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(tmp_path / name))
        static.append(spark.read.parquet(str(tmp_path / name)))
        streams.append(file_stream(spark, tmp_path / name, ddl))
    ours, native = [], []
    for number, case in enumerate(KEYS):
        left, right = (frame.selectExpr(f"k{number} k", "ts", "id") for frame in streams)
        joined = braided.join(left, right, on="k", time="ts", within="1 second", name=case)
        assert joined.schema["k"].dataType == left.schema["k"].dataType, case
        ours.append(joined.select(F.lit(case).alias("case"), "id", "id_right"))
        left, right = (frame.selectExpr(f"k{number} k", "id") for frame in static)
        native.append(left.alias("l").join(right.alias("r"), on="k").select(F.lit(case), "l.id", "r.id"))
    run_to_end(reduce(lambda a, b: a.union(b), ours), tmp_path / "check", tmp_path / "out")
    wanted = Counter(tuple(row) for row in reduce(lambda a, b: a.union(b), native).collect())
    assert {case for case, _, _ in wanted} == set(KEYS)
    assert Counter(read_rows(spark, tmp_path / "out")) == wanted


def test_payload_of_every_type_passes_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        """select 1L k, timestamp'2024-01-01 00:00:00' ts, array(1, null) a, map('x', 1.5D) m, named_struct('p', 1, 'q', array('z')) s,
        cast(1.25 as decimal(10, 2)) d, X'00ff' b, date'2024-02-29' dt, timestamp_ntz'2024-03-10 02:30:00' ntz, interval '1 02:03:04' day to second i,
        cast(null as string) n, array(named_struct('t', timestamp'2024-05-05 05:05:05')) deep, 1.5f f, parse_json('{"v": [1]}') va, cast(null as void) vo"""
    ).createOrReplaceTempView("payload")
    source = spark.table("payload").drop("vo")
    source.coalesce(1).write.parquet(str(tmp_path / "left"))
    source.select("k", "ts").coalesce(1).write.parquet(str(tmp_path / "right"))
    left = file_stream(spark, tmp_path / "left", source.schema)
    right = file_stream(spark, tmp_path / "right", "k long, ts timestamp")
    result = braided.join(left, right, on="k", time="ts", within="0 seconds")
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    columns = [name for name in source.columns if name not in ("va",)]
    out = spark.read.parquet(str(tmp_path / "out"))
    assert out.select(columns).collect() == source.select(columns).collect()
    assert out.selectExpr("to_json(va)").collect() == source.selectExpr("to_json(va)").collect()


def test_windows_of_one_stream_joined_with_each_other(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both aggregates read one shuffle if Spark may reuse it, and the second then has no watermark."""
    from pyspark.sql import functions as F

    spark.conf.set("spark.sql.exchange.reuse", "true")
    rows = [{"k": at % 3, "ts": 1_700_000_000 * SECOND + at * SECOND, "id": at} for at in range(60)]
    for number, table in enumerate(batches_of(rows, 20, SCHEMA)):
        write_batch(tmp_path / "in", number, table)
    stream = file_stream(spark, tmp_path / "in", DDL).withWatermark("ts", "1 second")
    counted = stream.groupBy(F.window("ts", "5 seconds").alias("w"), "k").count()
    windows = counted.select(F.col("w.start").alias("ts"), F.unix_seconds("w.start").alias("s"), "k", "count")
    joined = braided.join(windows, windows, on="s", time="ts", within="0 seconds", lateness="1 minute")
    assert "spark.sql.exchange.reuse=true: set to false in this session" in caplog.text
    run_to_end(joined, tmp_path / "check", tmp_path / "out")
    # Of twelve windows eleven are closed, with three keys each.
    assert len(read_rows(spark, tmp_path / "out")) == 11 * 9


@pytest.mark.slow
def test_two_joins_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = [make_rows(seed, 150, 3, 4) for seed in (7, 8, 9)]
    for name, part in zip("abc", rows, strict=True):
        for number, table in enumerate(batches_of(part, 50, SCHEMA)):
            write_batch(tmp_path / name, number, table)
    a, b, c = (file_stream(spark, tmp_path / name, DDL) for name in "abc")
    first = braided.join(a, b, on="k", time="ts", within="4 seconds", lateness="4 seconds", suffixes=("", "_b"))
    second = braided.join(first, c, on="k", time="ts", within="3 seconds", lateness="4 seconds", suffixes=("", "_c"))
    run_to_end(second, tmp_path / "check", tmp_path / "out")
    found = Counter((row[2], row[4], row[6]) for row in read_rows(spark, tmp_path / "out"))
    with duckdb.connect() as db:
        for name, part in zip("abc", rows, strict=True):
            db.register(name, pa.Table.from_pylist(part, SCHEMA))
        expected = db.execute(
            """select a.id, b.id, c.id from a, b, c where a.k = b.k and a.k = c.k
            and abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 4000000 and abs(epoch_us(a.ts) - epoch_us(c.ts)) <= 3000000"""
        ).fetchall()
    assert found == Counter(expected)
    assert found


def call_records(base: datetime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Calls and suspicious numbers, up to 4 seconds late."""
    rng = np.random.default_rng(11)
    calls, suspects = [], []
    for number in range(84):
        times = [base + timedelta(seconds=number * 0.5 - float(late)) for late in rng.random(2) * rng.integers(0, 5, 2)]
        end = times[0] + timedelta(seconds=int(rng.integers(1, 4)))
        calls.append({"caller": int(rng.integers(0, 6)), "start": times[0], "end": end})
        suspects.append({"phone": int(rng.integers(0, 6)), "seen_at": times[1]})
    return calls, suspects


@pytest.mark.parametrize("watermarks", some(["on both inputs", "on the result"], quick=1))
def test_native_aggregation_after_a_join(spark: SparkSession, tmp_path: Path, watermarks: str) -> None:
    """StreamCloud's Figure 1: calls joined with suspicious numbers, counted by duration per window."""
    from pyspark.sql import functions as F

    base = datetime(2024, 1, 1, tzinfo=ZONE)
    calls, suspects = call_records(base)
    call_schema = pa.schema([("caller", pa.int64()), ("start", UTC), ("end", UTC)])
    suspect_schema = pa.schema([("phone", pa.int64()), ("seen_at", UTC)])
    # A last pair, an hour later, lets the watermark pass all windows before it.
    last = base + timedelta(hours=1)
    endings = ({"caller": 99, "start": last, "end": last}, {"phone": 99, "seen_at": last})
    for name, rows, ending, schema in (
        ("calls", calls, endings[0], call_schema),
        ("suspects", suspects, endings[1], suspect_schema),
    ):
        # Batches of 3.5 seconds: results are older than the watermark of a batch or two before.
        for number, table in enumerate(batches_of(rows, 7, schema)):
            write_batch(tmp_path / name, number, table)
        write_batch(tmp_path / name, 99, pa.Table.from_pylist([ending], schema))
    left = file_stream(spark, tmp_path / "calls", "caller long, start timestamp, end timestamp")
    right = file_stream(spark, tmp_path / "suspects", "phone long, seen_at timestamp")
    names: dict[str, Any] = {"on": [("caller", "phone")], "time": ("start", "seen_at"), "within": "10 seconds"}
    if watermarks == "on both inputs":
        left, right = left.withWatermark("start", "4 seconds"), right.withWatermark("seen_at", "4 seconds")
        joined = braided.join(left, right, **names)
    else:
        # Lateness plus the span of the window, as docs/concepts/how_it_works.md says.
        joined = braided.join(left, right, lateness="4 seconds", **names).withWatermark("start", "24 seconds")
    counted = (
        joined.withColumn("duration", F.unix_seconds("end") - F.unix_seconds("start"))
        .groupBy(F.window("start", "5 seconds"), "duration")
        .count()
        .select(F.unix_seconds("window.start"), "duration", "count")
    )
    run_to_end(counted, tmp_path / "check", tmp_path / "out")
    found = Counter({row[:2]: row[2] for row in read_rows(spark, tmp_path / "out")})
    with duckdb.connect() as db:
        db.register("calls", pa.Table.from_pylist(calls, call_schema))
        db.register("suspects", pa.Table.from_pylist(suspects, suspect_schema))
        answer = db.execute(
            """select epoch_us(start) // 5000000 * 5, epoch_us("end") // 1000000 - epoch_us(start) // 1000000, count(*)
            from calls join suspects on caller = phone and abs(epoch_us(seen_at) - epoch_us(start)) <= 10000000
            group by all"""
        ).fetchall()
    assert found == Counter({row[:2]: row[2] for row in answer})
    assert len(found) > 15


@pytest.mark.slow
def test_a_stream_joined_with_itself_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Both sides start from one watermark, and need different delays."""
    from pyspark.sql import functions as F

    rows = [row for row in make_rows(31, 72, 3, 2) if row["ts"] is not None]
    last = {"k": 99, "ts": rows[-1]["ts"] + 3600 * SECOND, "id": 999}
    for number, table in enumerate(batches_of(rows, 6, SCHEMA)):
        write_batch(tmp_path / "in", number, table)
    write_batch(tmp_path / "in", 99, pa.Table.from_pylist([last], SCHEMA))
    stream = file_stream(spark, tmp_path / "in", DDL).withWatermark("ts", "2 seconds")
    joined = braided.join(stream, stream, on="k", time="ts", between=("0 seconds", "12 seconds"))
    counted = joined.groupBy(F.window("ts", "2 seconds")).count().select(F.unix_seconds("window.start"), "count")
    run_to_end(counted, tmp_path / "check", tmp_path / "out")
    found = dict(read_rows(spark, tmp_path / "out"))
    with duckdb.connect() as db:
        db.register("t", pa.Table.from_pylist(rows, SCHEMA))
        answer = db.execute(
            """select epoch_us(l.ts) // 2000000 * 2, count(*) from t l join t r
            on l.k = r.k and epoch_us(r.ts) - epoch_us(l.ts) between 0 and 12000000 group by all"""
        ).fetchall()
    assert found == dict(answer)
