"""The join of many streams on real Spark: the same rows as DuckDB, across restarts, and as a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from support.routing_cases import RandomController
from support.streams import SECOND, batches_of, file_stream, read_rows, run_to_end, write_batch
from test_join_spark import DDL, SCHEMA, make_rows, oracle_pairs

import braided
from braided.routing.grid import Grid
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: dict[str, Any] = {"on": "k", "time": "ts", "within": "6 seconds", "lateness": "5 seconds"}
NAMES = ("a", "b", "c")


class OneColumn(RandomController):
    """Changes the routing after every batch, with grids that a join of many streams can have."""

    keys = 8

    def grid(self, grid: Grid) -> Grid:
        return Grid((grid.workers,))


def oracle(streams: list[list[dict[str, Any]]], within: int) -> Counter[Any]:
    with duckdb.connect() as db:
        for name, rows in zip(NAMES, streams, strict=True):
            db.register(name, pa.Table.from_pylist(rows, SCHEMA))
        return Counter(
            db.execute(
                "select a.id, b.id, c.id from a join b on a.k = b.k join c on a.k = c.k where a.ts is not null and b.ts is "
                "not null and c.ts is not null and epoch_us(greatest(a.ts, b.ts, c.ts)) - epoch_us(least(a.ts, b.ts, c.ts)) <= ?",
                [within],
            ).fetchall()
        )


def open_streams(spark: SparkSession, folder: Path) -> list[DataFrame]:
    return [file_stream(spark, folder / name, DDL) for name in NAMES]


def found(spark: SparkSession, output: Path) -> Counter[Any]:
    return Counter((row[2], row[4], row[6]) for row in read_rows(spark, output))


def test_equals_the_oracle_across_a_restart_and_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = [make_rows(seed, count, 8, 5) for seed, count in ((1, 160), (2, 120), (3, 120))]
    wanted = oracle(rows, 6 * SECOND)
    assert wanted.total() > 500
    for half in (0, 1):
        for name, stream in zip(NAMES, rows, strict=True):
            middle = len(stream) // 2
            part = stream[middle:] if half else stream[:middle]
            for number, table in enumerate(batches_of(part, 40, SCHEMA)):
                write_batch(tmp_path / name, 10 * half + number, table)
        result = braided.multijoin(open_streams(spark, tmp_path), **OPTIONS, name="three")
        assert result.columns == ["k", "ts", "id", "ts_2", "id_2", "ts_3", "id_3"]
        query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert found(spark, tmp_path / "out") == wanted
    report = braided.report(query, "three")
    assert report.query["results"] == wanted.total()
    assert [stream["rows"] for stream in report.streams] == [160, 120, 120]
    assert [stream["late"] for stream in report.streams] == [0, 0, 0]
    assert "stream 3" in str(report)
    batch = braided.multijoin([spark.read.schema(DDL).parquet(str(tmp_path / name)) for name in NAMES], **OPTIONS)
    assert batch.columns == result.columns
    assert Counter((row[2], row[4], row[6]) for row in batch.collect()) == wanted


@pytest.mark.slow
def test_routing_that_changes_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_of(spark), "make_controller", OneColumn)
    rows = [make_rows(seed, count, 8, 5) for seed, count in ((21, 160), (22, 120), (23, 120))]
    for name, stream in zip(NAMES, rows, strict=True):
        for number, table in enumerate(batches_of(stream, len(stream) // 4, SCHEMA)):
            write_batch(tmp_path / name, number, table)
    control = tmp_path / "control"
    result = braided.multijoin(open_streams(spark, tmp_path), **OPTIONS, name="moving", control=str(control))
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert found(spark, tmp_path / "out") == oracle(rows, 6 * SECOND)
    routing = braided.report(query, "moving").routing
    assert routing is not None
    assert routing["version"] > 1, "the routing never changed"
    limits: dict[str, Any] = {"memory": 10_000, "evict": "prob", "control": str(tmp_path / "bounded")}
    bounded = braided.multijoin(open_streams(spark, tmp_path), **OPTIONS, **limits, name="bounded")
    query = run_to_end(bounded, tmp_path / "check2", tmp_path / "out2")
    # What still waits at the end has not come out.
    assert not found(spark, tmp_path / "out2") - found(spark, tmp_path / "out"), "a wrong or double row"
    report = braided.report(query, "bounded").to_dict()
    assert report["routing"]["version"] > 1, "the routing never changed"
    assert report["query"]["results"] > 0
    assert report["query"]["recall"] == 1


def test_explains_itself_and_refuses_what_it_cannot_do(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = open_streams(spark, tmp_path)
    braided.explain(braided.multijoin(streams, **OPTIONS, name="explained"))
    assert "explained: joins 3 streams on k, max(t) - min(t) <= 6 seconds" in capsys.readouterr().out
    with pytest.raises(braided.BraidedError, match=r"streams\[1\]: int is not a Spark DataFrame"):
        braided.multijoin([streams[0], 3], **OPTIONS)  # type: ignore[list-item]
    with pytest.raises(braided.BraidedError, match=r"streams\[0\] is streaming and streams\[2\] is not"):
        braided.multijoin([*streams[:2], spark.createDataFrame([], DDL)], **OPTIONS)
    with pytest.raises(braided.BraidedError, match="partition='grid': a join of many streams is hashed"):
        braided.multijoin(streams, **OPTIONS, partition="grid")


@pytest.mark.slow
def test_a_native_aggregation_after_it_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    rows = [make_rows(seed, 80, 4, 5) for seed in (7, 8, 9)]
    for name, stream in zip(NAMES, rows, strict=True):
        # A last row far ahead, of a key of its own, closes all windows.
        far = {"k": 99, "ts": max(row["ts"] for row in stream if row["ts"]) + 500 * SECOND, "id": 0}
        for number, table in enumerate([*batches_of(stream, 40, SCHEMA), *batches_of([far], 1, SCHEMA)]):
            write_batch(tmp_path / name, number, table)
    streams = [frame.withWatermark("ts", "5 seconds") for frame in open_streams(spark, tmp_path)]
    result = braided.multijoin(streams, on="k", time="ts", within="6 seconds")
    counted = result.groupBy(F.window("ts", "10 seconds")).count().select("count")
    run_to_end(counted, tmp_path / "check", tmp_path / "out")
    total = sum(row[0] for row in read_rows(spark, tmp_path / "out"))
    wanted = oracle(rows, 6 * SECOND).total()
    assert total == wanted > 0


@pytest.mark.slow
def test_budgets_give_what_the_local_runtime_gives(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [make_rows(seed, 150, 6, 4) for seed in (4, 5, 6)]
    arrow = {name: pa.Table.from_pylist(stream, SCHEMA) for name, stream in zip(NAMES, rows, strict=True)}
    for name, table in arrow.items():
        write_batch(tmp_path / name, 0, table.slice(0, 80))
        write_batch(tmp_path / name, 1, table.slice(80))
    streams = dict(zip(NAMES, open_streams(spark, tmp_path), strict=True))
    budget: dict[str, Any] = {"memory": 20, "evict": "prob", "shed": 0.1}
    run_to_end(braided.multijoin(list(streams.values()), **OPTIONS, **budget), tmp_path / "c1", tmp_path / "o1")
    here = braided.local.multijoin(list(arrow.values()), **OPTIONS, **budget, workers=2).table
    local = Counter(zip(*(here[name].to_pylist() for name in ("id", "id_2", "id_3")), strict=True))
    part = found(spark, tmp_path / "o1")
    # What still waits at the end comes out only locally.
    assert not part - local
    assert part.total() > 0.7 * local.total() > 0

    joins = [
        braided.Join("ab", left="a", right="b", on="k", within="6 seconds"),
        braided.Join("bc", left="b", right="c", on="id", within="9 seconds"),
    ]
    options: dict[str, Any] = {"time": "ts", "lateness": "5 seconds", **budget}
    result = braided.join_group(joins, streams=streams, **options, name="group")
    assert result.columns == ["join", "ab", "bc"]
    query = run_to_end(result, tmp_path / "c2", tmp_path / "o2")
    tables = braided.local.join_group(joins, streams=arrow, **options).tables
    output = spark.read.parquet(str(tmp_path / "o2"))
    for name, table in tables.items():
        wanted = Counter(
            zip(
                table["id"].to_pylist() if name == "ab" else table["ts"].to_pylist(),
                table["ts_right"].to_pylist(),
                strict=True,
            )
        )
        rows_ = output.where(f"join = '{name}'").select(f"{name}.*").collect()
        got = Counter(
            (row["id"] if name == "ab" else row["ts"].astimezone(), row["ts_right"].astimezone()) for row in rows_
        )
        assert not got - wanted
        assert got.total() > 0.7 * wanted.total() > 0
    report = braided.report(query, "group")
    assert all(worker["last"]["stored_rows"] <= 20 for worker in report.workers)
    assert 0 < report.query["recall"] < 1
    assert [stream["name"] for stream in report.streams] == ["b", "a", "c"], "the one in every join comes first"
    braided.explain(result)
    assert "group: joins under one budget, ab: a (l) with b (r) on k, " in capsys.readouterr().out


def test_routing_that_changes_loses_nothing_of_a_group(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    rows = [make_rows(seed, 120, 8, 5) for seed in (31, 32, 33)]
    for name, stream in zip(NAMES, rows, strict=True):
        for number, table in enumerate(batches_of(stream, 40, SCHEMA)):
            write_batch(tmp_path / name, number, table)
    joins = [
        braided.Join(f"{left}{right}", left=left, right=right, on="k", within="6 seconds")
        for left, right in ("ab", "ca")
    ]
    streams = dict(zip(NAMES, open_streams(spark, tmp_path), strict=True))
    options: dict[str, Any] = {
        "time": "ts",
        "lateness": "5 seconds",
        "memory": 10_000,
        "control": str(tmp_path / "control"),
    }
    result = braided.join_group(joins, streams=streams, **options, name="moving group")
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    report = braided.report(query, "moving group").to_dict()
    assert report["routing"]["version"] > 1, "the routing never changed"
    horizon = min(stream["clock"] - stream["lateness"] for stream in report["streams"])
    output = spark.read.parquet(str(tmp_path / "out"))
    by_name = dict(zip(NAMES, rows, strict=True))
    for join in joins:
        found_ = output.where(f"join = '{join.name}'").select(f"{join.name}.*").collect()
        sides = [by_name[side] for side in (join.left, join.right)]
        entered = [[row for row in side if row["ts"] is not None and row["ts"] < horizon] for side in sides]
        found_pairs = Counter((row["id"], row["id_right"]) for row in found_)
        assert found_pairs == oracle_pairs(entered[0], entered[1], -6 * SECOND, 6 * SECOND)
        assert len(found_) > 0.5 * oracle_pairs(sides[0], sides[1], -6 * SECOND, 6 * SECOND).total()
