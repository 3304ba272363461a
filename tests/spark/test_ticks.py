"""Batches without rows on Spark: with `idle=` a silence releases what waits, once, also after a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from support.control_roots import DDL
from support.streams import SECOND, UTC, file_stream, run_to_end, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

IDLE = 1


def write(root: Path, side: str, number: int, keys: list[int]) -> None:
    times = pa.array([1_700_000_000 * SECOND + 100 * number + key for key in keys], UTC)
    write_batch(root / side, number, pa.table({"k": keys, "ts": times, "id": keys}))


def start(frame: DataFrame, root: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(root / "check"))
    return writer.trigger(processingTime="100 milliseconds").start(str(root / "out"))


def wait_until(holds: Callable[[], bool], query: StreamingQuery, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < end, query.lastProgress
        time.sleep(0.1)


def batches(root: Path) -> int:
    return sum(path.name.isdigit() for path in (root / "check" / "commits").iterdir())


def committed(spark: SparkSession, root: Path) -> list[int]:
    """Return what is committed to the sink."""
    if not (root / "out" / "_spark_metadata").exists():
        return []
    return sorted(row[0] for row in spark.read.schema(DDL).parquet(str(root / "out")).select("id").collect())


def ticks(root: Path) -> list[int]:
    """Return how many ticks each batch's offsets have."""
    names = sorted(
        (path for path in (root / "check" / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(path.read_text().splitlines()[-1])["tick"] for path in names]


def test_a_silent_left_join_releases_its_rows_and_rests(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))
    joined = braided.join(
        left, right, on="k", time="ts", within="1 hour", how="left", lateness="1 hour", idle=f"{IDLE} seconds"
    )
    write(tmp_path, "left", 0, [1, 2, 3])
    write(tmp_path, "right", 0, [2])
    query = start(joined, tmp_path)
    try:
        wait_until(lambda: committed(spark, tmp_path) == [1, 2, 3], query)
        made = batches(tmp_path)
        assert made <= 3, "the rows, and a tick; another one after the start"
        deadline = time.monotonic() + 3 * IDLE
        wait_until(lambda: time.monotonic() > deadline, query)
        assert batches(tmp_path) <= max(made, 3), "a silent query rests"
        rested = batches(tmp_path)
        write(tmp_path, "right", 1, [1])
        # Its match comes after all: the pair comes out too, and nothing else.
        wait_until(lambda: committed(spark, tmp_path) == [1, 1, 2, 3], query)
        assert batches(tmp_path) <= rested + 2
    finally:
        query.stop()
    # A row that comes just before the query stops, and nothing after it is started again.
    write(tmp_path, "left", 2, [4])
    run_to_end(joined, tmp_path / "check", tmp_path / "out")
    assert committed(spark, tmp_path) == [1, 1, 2, 3], "such a run ends before any silence"
    query = start(joined, tmp_path)
    try:
        wait_until(lambda: committed(spark, tmp_path) == [1, 1, 2, 3, 4], query)
    finally:
        query.stop()
    assert ticks(tmp_path) == sorted(ticks(tmp_path))


def test_only_operators_whose_rows_wait_have_the_source(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))

    def has_source(frame: DataFrame) -> bool:
        return "braided_ticks" in frame._jdf.queryExecution().analyzed().toString()

    within = {"on": "k", "time": "ts", "within": "1 second", "lateness": "1 second"}
    assert has_source(braided.join(left, right, **within, how="left", idle="1 minute"))
    assert has_source(braided.order(left, time="ts", idle="30 seconds"))
    assert has_source(braided.match(left, time="ts", pattern="A", measures={"n": "count(*)"}, idle="1 minute"))
    assert not has_source(braided.join(left, right, **within, how="left"))
    assert not has_source(braided.join(left, right, **within, idle="1 minute"))
    assert not has_source(braided.order(left, time="ts"))
