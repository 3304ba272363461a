"""`format("braided")` on Spark: streams, batches and tables of topics, found without a call of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braided

SUPPORT = Path(__file__).parents[1] / "support"


def _append(spark: SparkSession, path: Path, start: int, count: int = 100) -> None:
    rows = spark.range(start, start + count, 1, 1).select(
        "id", F.timestamp_micros(F.col("id") * 100_000).alias("t"), (F.col("id") % 7).alias("k")
    )
    rows.write.format("braided").mode("append").save(str(path))


def _stream(spark: SparkSession, path: Path) -> DataFrame:
    return spark.readStream.format("braided").option("max_files", 1).load(str(path))


def _run(frame: DataFrame, out: Path, checkpoint: Path) -> None:
    writer = frame.writeStream.format("braided").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()


def _unlink_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as if the driver had died between the commit of the sink and Spark's own."""
    max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()


def _ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("braided").load(str(path)).select("id").collect())


def test_a_stream_from_topic_to_topic_writes_each_batch_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, out, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "c"
    _append(spark, first, 0)
    _run(_stream(spark, first).where("id % 2 = 0"), out, checkpoint)
    assert [(entry.kind, entry.batch) for entry in braided.topic(str(out)).manifests()] == [("claim", -1), ("batch", 0)]
    files = braided.topic(str(out)).files()
    _unlink_last_commit(checkpoint)
    _run(_stream(spark, first).where("id % 2 = 0"), out, checkpoint)
    assert braided.topic(str(out)).files() == files
    assert _ids(spark, out) == list(range(0, 100, 2))
    braided.explain(braided.order(_stream(spark, first), time="t", key="k"))
    assert "its files are read by the routers" in capsys.readouterr().out


@pytest.mark.slow
def test_a_stream_goes_on_and_the_direct_path_after_it(spark: SparkSession, tmp_path: Path) -> None:
    first, out, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "c"
    for start in (0, 100):
        _append(spark, first, start)
    _run(_stream(spark, first).where("id % 2 = 0"), out, checkpoint)
    _append(spark, first, 200)
    _run(_stream(spark, first).where("id % 2 = 0"), out, checkpoint)
    assert _ids(spark, out) == list(range(0, 300, 2))
    assert [entry.batch for entry in braided.topic(str(out)).manifests() if entry.kind == "batch"] == [0, 1, 2]
    _append(spark, first, 300)
    frame = braided.files(spark, str(first), max_files=1).where("id % 2 = 0")
    braided.write_files(frame, str(out), checkpoint=str(checkpoint), trigger="available now").awaitTermination()
    assert _ids(spark, out) == list(range(0, 400, 2))


@pytest.mark.slow
def test_a_braided_operator_reads_it_directly_and_exactly(spark: SparkSession, tmp_path: Path) -> None:
    for side in ("l", "r"):
        _append(spark, tmp_path / side, 0)
    left, right = _stream(spark, tmp_path / "l"), _stream(spark, tmp_path / "r").withColumnRenamed("id", "other")
    joined = braided.join(left, right, on="k", time="t", within="2 seconds", lateness="1 second")
    _run(joined.select("id", "other"), tmp_path / "out", tmp_path / "c")
    rows = spark.read.format("braided").load(str(tmp_path / "out")).collect()
    wanted = Counter((a, b) for a in range(100) for b in range(100) if (a - b) % 7 == 0 and abs(a - b) <= 20)
    assert Counter((row["id"], row["other"]) for row in rows) == wanted


def test_sql_reads_tables_and_what_cannot_work_says_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "topic"
    _append(spark, path, 0)
    spark.sql(f"CREATE TABLE calls_of_source USING braided OPTIONS (path '{path}')")
    try:
        _append(spark, path, 100, count=10)
        assert spark.sql("SELECT count(*) FROM calls_of_source").collect()[0][0] == 110
        streamed = spark.readStream.table("calls_of_source")
        _run(streamed.select("id"), tmp_path / "out", tmp_path / "c")
        assert _ids(spark, tmp_path / "out") == list(range(110))
        with pytest.raises(Exception, match=r'path: format\("braided"\) needs one; write \.load'):
            spark.sql("INSERT INTO calls_of_source SELECT * FROM calls_of_source")
    finally:
        spark.sql("DROP TABLE calls_of_source")
    with pytest.raises(Exception, match=r'a topic is a log and cannot be overwritten; write mode\("append"\)'):
        spark.range(3).write.format("braided").mode("overwrite").save(str(path))
    with pytest.raises(Exception, match="the topic has another schema; write to a new path"):
        spark.range(3).write.format("braided").mode("append").save(str(path))


def test_a_directory_of_files_is_read_once_in_batches_that_are_the_same_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, out, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "c"
    for start in range(0, 300, 100):
        rows = spark.range(start, start + 100, 1, 1).withColumn("day", F.col("id") % 2)
        rows.write.partitionBy("day").mode("append").parquet(str(folder))
    assert spark.read.format("braided").load(str(folder)).where("day = '1'").count() == 150
    ddl = "id long, day int"

    def run() -> None:
        stream = spark.readStream.format("braided").schema(ddl).option("max_files", 2)
        _run(stream.load(str(folder)).where("day = id % 2").select("id"), out, checkpoint)

    run()
    if not spark.version.startswith(("4.0.", "4.1.")):
        assert [entry.kind for entry in braided.topic(str(out)).manifests()] == ["claim", *["batch"] * 3]
    files = braided.topic(str(out)).files()
    _unlink_last_commit(checkpoint)
    run()
    assert braided.topic(str(out)).files() == files
    _unlink_last_commit(checkpoint)
    spark.range(300, 400, 1, 1).withColumn("day", F.col("id") % 2).write.partitionBy("day").mode("append").parquet(
        str(folder)
    )
    run()
    assert _ids(spark, out) == list(range(400))


def test_a_stream_of_changes_is_no_input_of_a_join(spark: SparkSession, tmp_path: Path) -> None:
    _append(spark, tmp_path / "t", 0)
    rows = _stream(spark, tmp_path / "t")
    changes = rows.withColumn("_change_type", F.lit("insert"))
    with pytest.raises(
        braided.OptionError, match=r"right: column '_change_type': a stream of changes, .* write \.where"
    ):
        braided.join(rows, changes, on="k", time="t", within="2 seconds")
    added = changes.where("_change_type = 'insert'").drop("_change_type").withColumnRenamed("id", "other")
    assert "other" in braided.join(rows, added, on="k", time="t", within="2 seconds").columns
    assert "_change_type" in braided.order(changes, time="t", key="k").columns


@pytest.mark.slow
def test_a_delta_table_is_written_once_and_read_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for start in (0, 100):
        _append(spark, tmp_path / "in", start)
    table, checkpoint = f"delta:{tmp_path}/table", tmp_path / "c"

    def run() -> None:
        writer = _stream(spark, tmp_path / "in").writeStream.format("braided").option("partition_by", "k")
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start(table).awaitTermination()

    run()
    version = deltalake.DeltaTable(f"{tmp_path}/table").version()
    _unlink_last_commit(checkpoint)
    run()
    written = deltalake.DeltaTable(f"{tmp_path}/table")
    assert written.version() == version, "a batch that ran again was added again"
    assert sorted(written.to_pyarrow_table()["id"].to_pylist()) == list(range(200))
    _run(spark.readStream.format("braided").load(table).select("id"), tmp_path / "out", tmp_path / "c2")
    assert _ids(spark, tmp_path / "out") == list(range(200))
    with pytest.raises(Exception, match=r'a table cannot be read by format\("braided"\)'):
        spark.read.format("braided").load(table).count()


@pytest.mark.slow
def test_a_stream_survives_kills_of_its_driver(spark: SparkSession, tmp_path: Path) -> None:
    for start in range(0, 2000, 100):
        _append(spark, tmp_path / "in", start)
    random = Random(7)
    for batch in (3, 7, 12, 16, None):
        command = [sys.executable, str(SUPPORT / "source_query.py"), str(tmp_path)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as driver:
            try:
                if batch is None:
                    assert driver.wait(timeout=300) == 0
                    break
                while not (tmp_path / "c" / "commits" / str(batch)).exists():
                    assert driver.poll() is None, f"the query never did batch {batch}"
                    time.sleep(0.02)
                time.sleep(random.uniform(0, 0.7))
                assert driver.poll() is None, "the query ended before it was killed"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(driver.pid, signal.SIGKILL)
    assert _ids(spark, tmp_path / "out") == list(range(2000))
