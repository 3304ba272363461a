"""Failures change nothing: failed tasks, a re-executed map stage, a plan that runs twice."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.crashes import committed, expected, write_streams
from support.streams import file_stream, run_to_end

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "k long, ts timestamp, id long"
Batches = Iterable[pa.RecordBatch]


def joined(spark: SparkSession, root: Path, before: Any = None) -> DataFrame:
    left, right = (file_stream(spark, root / side, DDL) for side in ("left", "right"))
    if before is not None:
        left = left.mapInArrow(before, DDL)
    return braided.join(left, right, on="k", time="ts", within="10 seconds", lateness="5 seconds")


def fail_first_attempt(marker: Path) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a map function that passes its rows on, then fails in every task's first attempt."""
    folder = str(marker)

    def apply(batches: Batches) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            Path(folder, f"{context.stageId()}-{context.partitionId()}").touch()
            raise RuntimeError("injected")

    return apply


def lose_shuffle_files_once(marker: Path, local_dir: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a map function that deletes all shuffle files and fails, once in the whole query."""
    done = str(marker / "lost")

    def apply(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not Path(done).exists():
            Path(done).touch()
            for path in Path(local_dir).rglob("shuffle_*"):
                path.unlink(missing_ok=True)
            raise RuntimeError("injected")

    return apply


def count_executions(folder: Path) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a map function that leaves a file for each time a task runs it."""
    name = str(folder)

    def apply(batches: Batches) -> Iterator[pa.RecordBatch]:
        Path(name, uuid.uuid4().hex).touch()
        yield from batches

    return apply


@pytest.mark.slow
def test_failed_router_tasks_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=3)
    marker = tmp_path / "marker"
    marker.mkdir()
    run_to_end(joined(spark, tmp_path, fail_first_attempt(marker)), tmp_path / "check", tmp_path / "out")
    assert len(list(marker.iterdir())) >= 4
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.slow
def test_failed_worker_tasks_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=4)
    marker = tmp_path / "marker"
    marker.mkdir()
    result = joined(spark, tmp_path)
    failing = result.mapInArrow(fail_first_attempt(marker), result.schema)
    query = run_to_end(failing, tmp_path / "check", tmp_path / "out")
    assert len(list(marker.iterdir())) >= 4
    found = committed(spark, tmp_path)
    assert found == expected(tmp_path)
    assert braided.report(query).to_dict()["query"]["results"] == found.total()


@pytest.mark.slow
def test_a_re_executed_map_stage_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Lose the shuffle files before a worker task's second attempt: Spark must run the routers again."""
    write_streams(tmp_path, files=3, rows=200, seed=5)
    marker = tmp_path / "marker"
    marker.mkdir()
    local_dir = str(spark.conf.get("spark.local.dir"))
    executions = tmp_path / "executions"
    executions.mkdir()
    result = joined(spark, tmp_path, count_executions(executions))
    failing = result.mapInArrow(lose_shuffle_files_once(marker, local_dir), result.schema)
    run_to_end(failing, tmp_path / "check", tmp_path / "out")
    # One router task of the left input in each of three batches; every further one is a re-execution.
    assert len(list(executions.iterdir())) > 3
    assert committed(spark, tmp_path) == expected(tmp_path)


def test_a_sink_that_runs_the_plan_twice_sees_the_same_rows_twice(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=6)
    seen: list[tuple[Counter[Any], Counter[Any]]] = []

    def sink(frame: DataFrame, _batch: int) -> None:
        runs = [Counter((row["id"], row["id_right"]) for row in frame.collect()) for _ in range(2)]
        seen.append((runs[0], runs[1]))

    query = (
        joined(spark, tmp_path)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert all(first == second for first, second in seen)
    assert sum((first for first, _ in seen), Counter()) == expected(tmp_path)
    shutil.rmtree(tmp_path / "check")
