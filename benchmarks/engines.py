"""One measured run of one engine on one workload, in a JVM of its own.

Every engine reads the same files in lock step (one file a side a batch), does its work in the same number of
partitions on two cores, and ends in the same sink: a count and a checksum of the result, then noop. Engines whose name
has `files` write Parquet instead, from which DuckDB takes count and checksum: `files_direct` by `braided.files` and
`braided.write_files`, the others by Spark's own source and sink.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads import ARROW_ROW_BYTES, Workload, checksum, written_result

from braided.spark.conf import SPARK_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SAME_FOR_ALL = {
    "spark.driver.memory": "6g",
    "spark.sql.adaptive.enabled": "false",
    # Where the routing is to adapt, a join is given a control directory.
    "spark.braided.control": "false",
    # Files of a local checkpoint without forking readlink and chmod for each (docs/how-to/runbook.md).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Spark keeps 100 by default; a run has more batches.
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# The rivals keep their state as Braided does; the other settings it asks for concern Python alone.
ROCKSDB = {name: value for name, value in SPARK_CONF.items() if ".stateStore." in name}
DDL = "k long, ts timestamp, v long"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

ENGINES: dict[str, dict[str, str]] = {
    "braided": SPARK_CONF,
    "braided_hash": SPARK_CONF,
    "braided_adaptive": SPARK_CONF,
    "braided_inner": SPARK_CONF,
    "native_hdfs": {},
    # Legal versions are 1 to 4; 2 is the default, 3 and 4 need RocksDB. 4 evicts by a time index.
    "native_rocksdb_v4": ROCKSDB | {JOIN_FORMAT: "4"},
    "native_rocksdb_v3": ROCKSDB | {JOIN_FORMAT: "3"},
    "native_rocksdb_v2": ROCKSDB | {JOIN_FORMAT: "2"},
    "passthrough": {},
    "files_direct": SPARK_CONF,
    "files_spark": SPARK_CONF,
    "native_files_hdfs": {},
    "native_files_rocksdb_v4": ROCKSDB | {JOIN_FORMAT: "4"},
}


def run(engine: str, workload: Workload, data: Path, scratch: Path) -> dict[str, Any]:
    """Run the whole input through `engine` and return its batch times, result and state size."""
    from pyspark.sql import functions as F

    import braided

    spark = _session(engine, workload, scratch)
    direct = engine == "files_direct"
    left, right = (
        braided.files(spark, str(data / side), schema=DDL, max_files=1)
        if direct
        else spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(data / side))
        for side in ("left", "right")
    )
    ours = engine.startswith(("braided", "files"))
    if engine == "passthrough":
        result, part = left.unionAll(right).repartition(workload.partitions, "k"), "v"
    else:
        result = _braided(left, right, workload, engine, scratch) if ours else _native(left, right, workload)
        part = checksum("v", "v_right", "k * 31 + unix_micros(ts) * 7 + unix_micros(ts_right) * 13")
    started = time.perf_counter()
    out, checkpoint = scratch / "out", str(scratch / "checkpoint")
    if direct:
        query = braided.write_files(result, str(out), checkpoint=checkpoint, trigger="available now")
    else:
        if "files" in engine:
            sink = result.writeStream.format("parquet").option("path", str(out))
        else:
            # Pairs are compared. Which rows without one have come out by the end differs between engines.
            counted = F.count(F.expr(part)).alias("count"), F.sum(F.expr(part)).alias("checksum")
            counted = (*counted, F.count(F.lit(1)).alias("rows"))
            sink = result.observe("benchmark", *counted).writeStream.format("noop")
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    total_s = time.perf_counter() - started
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    # On the direct path, what the source hands out are files: one a side.
    expected = [2 if direct else 2 * rows for rows in workload.batch_rows()]
    if (got := [p["numInputRows"] for p in batches]) != expected:
        raise RuntimeError(f"batches of {got} rows, where the files hold {expected}")
    if "files" in engine:
        written = braided.topic(str(out)).files() if direct else [str(path) for path in out.glob("*.parquet")]
        found = written_result(written)
    else:
        observed = [p["observedMetrics"]["benchmark"] for p in batches]
        found = {what: sum(o[what] or 0 for o in observed) for what in ("count", "checksum", "rows")}
    seconds = [p["durationMs"]["triggerExecution"] / 1_000 for p in batches]
    outcome = {
        "engine": engine,
        **found,
        "batch_s": seconds,
        "steady_s": statistics.median(seconds[-workload.measured :]),
        "total_s": round(total_s, 3),
        "state_disk_bytes": _disk_bytes(scratch / "checkpoint" / "state"),
        "last_duration_ms": dict(batches[-1]["durationMs"]),
        "spark": spark.version,
    }
    if ours:
        outcome |= _braided_state(query)
    spark.stop()
    return outcome


def _session(engine: str, workload: Workload, scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(f"benchmark-{engine}")
    for name, value in (
        SAME_FOR_ALL
        | ENGINES[engine]
        | {"spark.local.dir": str(scratch), "spark.sql.shuffle.partitions": str(workload.partitions)}
    ).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _native(left: DataFrame, right: DataFrame, workload: Workload) -> DataFrame:
    from pyspark.sql import functions as F

    lateness, within = f"{workload.lateness_s} seconds", f"interval {workload.within_s} seconds"
    on = F.expr(f"l.k = r.k and r.ts >= l.ts - {within} and r.ts <= l.ts + {within}")
    left, right = left.withWatermark("ts", lateness), right.withWatermark("ts", lateness)
    return (
        left.alias("l")
        .join(right.alias("r"), on, workload.how)
        .select("l.k", "l.ts", "l.v", F.col("r.ts").alias("ts_right"), F.col("r.v").alias("v_right"))
    )


def _braided(left: DataFrame, right: DataFrame, workload: Workload, engine: str, scratch: Path) -> DataFrame:
    import braided

    joined = braided.join(
        left, right, on="k", time="ts",
        within=f"{workload.within_s} seconds", lateness=f"{workload.lateness_s} seconds",
        how="inner" if engine == "braided_inner" else workload.how,
        partition="hash" if engine == "braided_hash" else "auto",
        control=str(scratch / "control") if engine == "braided_adaptive" else False,
    )  # fmt: skip
    return joined.select("k", "ts", "v", "ts_right", "v_right")


def _braided_state(query: StreamingQuery) -> dict[str, Any]:
    import braided

    report = braided.report(query).to_dict()
    last = [worker["last"] for worker in report["workers"]]
    rows, size = sum(w["stored_rows"] for w in last), sum(w["stored_bytes"] for w in last)
    return {
        "stored_rows": rows,
        "stored_bytes": size,
        "stored_over_arrow": round(size / rows / ARROW_ROW_BYTES, 3) if rows else None,
        "largest_over_mean": max(worker["share"] for worker in report["workers"]),
        "decisions": [f"batch {e['batch']}: {e['action']}" for e in report["routing"].get("decisions", [])],
    }


def _disk_bytes(folder: Path) -> int:
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder) for f in files)
