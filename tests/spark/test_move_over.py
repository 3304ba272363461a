"""Native streaming jobs, moved over by one line: the rows of Spark's own, or a refusal that says what to write."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from support.move_over_jobs import FROM, JOBS, Mode, NativeJob, Streams
from support.streams import SECOND, UTC, file_stream, write_batch

import braided

MOST_REFUSALS = 6
STARTS = (0, 12, 24, 200, 500)
"""When the files of a stream begin, in seconds. The last two close the windows of the others."""
MIDNIGHT = 1_700_006_400
ADS = "adId long, adTime timestamp, campaign string, cost double"
CLICKS = "clickAdId long, clickTime timestamp, user string, code string, amount int, site string"


class Native:
    """Jobs as they were."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def join(self, left: DataFrame, right: DataFrame, condition: str | Column, how: str = "inner") -> DataFrame:
        return left.join(right, condition, how)

    def sql(self, text: str, streams: dict[str, DataFrame]) -> DataFrame:
        for name, frame in streams.items():
            frame.createOrReplaceTempView(name)
        return self._spark.sql(text)


class MovedOver:
    """Jobs after the change of one line."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def join(self, left: DataFrame, right: DataFrame, condition: str | Column, how: str = "inner") -> DataFrame:
        return braided.join(left, right, condition, how)

    def sql(self, text: str, streams: dict[str, DataFrame]) -> DataFrame:
        return braided.sql(self._spark, text, streams)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both streams as files, with times up to four seconds out of order, nulls and duplicates."""
    random = np.random.default_rng(36)
    folder = tmp_path_factory.mktemp("move_over")
    for number, start in enumerate(STARTS):
        for name in ("ads", "clicks"):
            rows = 12 if number < 3 else 6
            # What the last file lets out must not depend on how far behind either stream's clock its rows are.
            last = number == len(STARTS) - 1
            span = 2 if last else 14
            seconds = np.sort(random.integers(0, span, rows)) + random.integers(-2, 3, rows).clip(-start, None)
            times = pa.array(((MIDNIGHT + start + seconds) * SECOND).tolist(), UTC)
            # None in the last file: Braided gives back a left row without a key at once, Spark after the watermark.
            ids = pa.array([None if n == 5 and not last else int(n) for n in random.integers(0, 6, rows)], pa.int64())
            words = pa.array([f"{'xyz'[n]}" for n in random.integers(0, 3, rows)])
            if name == "ads":
                costs = pa.array(random.integers(0, 80, rows) / 8)
                table = pa.table({"adId": ids, "adTime": times, "campaign": words, "cost": costs})
            else:
                users = pa.array([f"u{n}" for n in random.integers(0, 12, rows)])
                codes = pa.array([None if n is None else f"{'0' * (n % 2)}{n}" for n in ids.to_pylist()])
                amounts = pa.array(random.integers(0, 10, rows), pa.int32())
                table = pa.table({"clickAdId": ids, "clickTime": times, "user": users, "code": codes, "amount": amounts, "site": words})  # fmt: skip
            write_batch(folder / name, number, table)
    return folder


def _streams(spark: SparkSession, root: Path, *, is_table: bool = False) -> Streams:
    campaigns = spark.createDataFrame([("x", "ann"), ("y", "bob")], "campaign string, owner string")
    schemas = (("ads", ADS), ("clicks", CLICKS))
    if is_table:
        ads, clicks = (spark.read.schema(schema).parquet(str(root / name)) for name, schema in schemas)
    else:
        ads, clicks = (file_stream(spark, root / name, schema, files=2) for name, schema in schemas)
    return Streams(spark, ads, clicks, campaigns)


def _run(frame: DataFrame, folder: Path, mode: Mode, keys: int) -> Counter[tuple[Any, ...]]:
    """Return all rows of a query: in update mode the last one of each key, in complete mode those of the last batch."""
    batches: list[list[tuple[Any, ...]]] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, _: batches.append([tuple(row) for row in rows.collect()]))
        .outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if mode == "complete":
        return Counter(next((rows for rows in reversed(batches) if rows), []))
    if mode == "update":
        return Counter({row[:keys]: row for rows in batches for row in rows}.values())
    return Counter(row for rows in batches for row in rows)


def _cases() -> list[Any]:
    return [pytest.param(job, id=job.name, marks=() if job.quick else pytest.mark.slow) for job in JOBS]


@pytest.mark.parametrize("job", _cases())
def test_a_job_that_moved_over_gives_sparks_rows_or_says_what_to_write(
    spark: SparkSession, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], job: NativeJob
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    if job.refused is not None:
        with pytest.raises(braided.OptionError) as refusal:
            job.build(MovedOver(spark), _streams(spark, root))
        assert re.search(job.refused, str(refusal.value)), refusal.value
        return
    moved = job.build(MovedOver(spark), _streams(spark, root))
    if job.in_workers is not None:
        braided.explain(moved)
        assert ("the aggregate after it begins in its workers" in capsys.readouterr().out) == job.in_workers
    ours = _run(moved, tmp_path / "moved", job.mode, job.keys)
    # Spark refuses joins of streams in complete mode, in which the last batch has what a table of all rows would give.
    is_table = job.mode == "complete"
    native = job.build(Native(spark), _streams(spark, root, is_table=is_table))
    assert moved.columns == native.columns
    assert [field.dataType for field in moved.schema] == [field.dataType for field in native.schema]
    if is_table:
        theirs = Counter(tuple(row) for row in native.collect())
    else:
        theirs = _run(native, tmp_path / "native", job.mode, job.keys)
    assert theirs, "a job without rows shows nothing"
    assert ours == theirs


def test_few_jobs_are_refused() -> None:
    assert len(JOBS) >= 50
    assert len({job.name for job in JOBS}) == len(JOBS)
    assert sum(job.refused is not None for job in JOBS) <= MOST_REFUSALS


@pytest.mark.slow
def test_a_job_that_moved_over_starts_again_where_it_stopped(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """The files of the second run are not there in the first one."""
    text = f"SELECT window(a.adTime, '10 seconds') AS w, count(*) AS n {FROM} GROUP BY window(a.adTime, '10 seconds')"
    results = {}
    for name, api in (("native", Native(spark)), ("moved", MovedOver(spark))):
        folder = tmp_path / name
        found: Counter[tuple[Any, ...]] = Counter()
        for part in (slice(0, 2), slice(2, None)):
            for stream in ("ads", "clicks"):
                (folder / stream).mkdir(parents=True, exist_ok=True)
                for path in sorted((root / stream).glob("*.parquet"))[part]:
                    (folder / stream / path.name).hardlink_to(path)
            found += _run(api.sql(text, _streams(spark, folder).marked.by_name), folder, "append", 0)
        results[name] = found
    assert results["moved"]
    assert results["moved"] == results["native"]
