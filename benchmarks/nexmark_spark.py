"""NEXMark's queries on Spark, in this process: by `braided.sql`, or by `spark.sql` with Spark's own operators."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines import JOIN_FORMAT, ROCKSDB, SAME_FOR_ALL
from nexmark_queries import LATENESS, QUERIES, Query
from processes import cpu_seconds

from braided.spark.conf import FAST_START, SPARK_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS: dict[str, dict[str, str]] = {
    "braided": SPARK_CONF | FAST_START,
    # Spark's default store was faster than RocksDB on most workloads of join.py.
    "spark": {},
    "spark_rocksdb": ROCKSDB | {JOIN_FORMAT: "4"},
}


def run(engine: str, queries: list[str], root: Path, cutoff_ms: int, files: int = 1) -> dict[str, Any]:
    """Run queries one after the other in one session, each on the first batches before it is measured."""
    scratch = root / f"scratch-{engine}"
    spark = _session(engine, scratch)
    outcomes = {}
    for name in queries:
        try:
            # Directories of their own: Spark may still write into those of a query that has ended.
            job(spark, engine, name, root / "warm" / "data", scratch / f"{name}-warm", cutoff_ms, files)
            outcomes[name] = job(spark, engine, name, root / "data", scratch / name, cutoff_ms, files)
        except Exception as error:
            outcomes[name] = {"error": str(error).splitlines()[0][:300]}
        for query in spark.streams.active:
            query.stop()
    spark.stop()
    return outcomes


def _session(engine: str, scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = SAME_FOR_ALL | SETTINGS[engine]
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(scratch.with_suffix(".local"))}
    spark = SparkSession.builder.master("local[2]").appName(f"nexmark-{engine}").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def job(
    spark: SparkSession, engine: str, name: str, data: Path, scratch: Path, cutoff_ms: int, files: int = 1
) -> dict[str, Any]:
    """Run a query to its end and return what it took, with count and checksum of its result."""
    from pyspark.sql import functions as F

    asked = QUERIES[name]
    result = (_braided if engine == "braided" else _native)(spark, asked, data, files)
    count, total = (F.expr(text) for text in asked.totals("spark", cutoff_ms))
    sink = result.observe("benchmark", count.alias("count"), total.alias("checksum")).writeStream.format("noop")
    started, before = time.perf_counter(), cpu_seconds()
    query = sink.option("checkpointLocation", str(scratch)).trigger(availableNow=True).start()
    query.awaitTermination()
    seconds, used = time.perf_counter() - started, cpu_seconds() - before
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    # Where Spark runs batches without rows, windows close in those.
    observed = [p["observedMetrics"]["benchmark"] for p in query.recentProgress if p["observedMetrics"]]
    return {
        "seconds": round(seconds, 3),
        "cpu_s": round(used, 2),
        **{what: sum(row[what] or 0 for row in observed) for what in ("count", "checksum")},
        "batches": len(batches),
        "median_batch_s": statistics.median(p["durationMs"]["triggerExecution"] for p in batches) / 1000,
        # The rest of a batch is Spark's planning, offsets and commits.
        "in_tasks_s": round(sum(p["durationMs"]["addBatch"] for p in batches) / 1000, 3),
        **({"python_s": _python_seconds(query)} if engine == "braided" else {}),
    }


def _braided(spark: SparkSession, asked: Query, data: Path, files: int) -> DataFrame:
    import braided

    streams = {stream: braided.files(spark, str(data / stream), max_files=files) for stream in asked.streams}
    streams |= {f"{stream}_marked": frame for stream, frame in _marked(spark, asked, data, files).items()}
    return braided.sql(spark, asked.text("braided"), streams, lateness=LATENESS)


def _native(spark: SparkSession, asked: Query, data: Path, files: int) -> DataFrame:
    for stream, frame in _marked(spark, asked, data, files).items():
        frame.createOrReplaceTempView(stream)
    return spark.sql(asked.text("spark"))


def _marked(spark: SparkSession, asked: Query, data: Path, files: int) -> dict[str, DataFrame]:
    return {
        stream: spark.readStream.schema(spark.read.parquet(str(data / stream)).schema)
        .option("maxFilesPerTrigger", files)
        .parquet(str(data / stream))
        .withWatermark("dateTime", LATENESS)
        for stream in asked.streams
    }


def _python_seconds(query: Any) -> float:
    """Return the CPU time of the workers, by their own reports; of a query that is all Spark's there are none."""
    import braided

    try:
        workers = braided.report(query).to_dict()["workers"]
    except braided.BraidedError:
        return 0.0
    return float(round(sum(worker["total"]["cpu_ms"] for worker in workers) / 1000, 3))
