#!/usr/bin/env python3
"""What format("braided") costs against the direct path: a join of two topics into a third, and a copy of one.

    python benchmarks/sources.py --rows 250000 --batches 6

`direct` is `braided.files` and `braided.write_files`; `format` the same topics by `readStream` and `writeStream`, where
the join's routers still read the files themselves; `connect` the same as a session of Spark Connect has it: rows come
and go through the JVM. `copy_*` has no operator between: `directory` reads the same files as a plain directory by
`format("braided")`, and `parquet` is Spark's own copy of them. The median of
the batches after the first two counts, in seconds; all in one run and one session.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braided

WARM_UP = 2
COLUMNS = "id long, k long, ts timestamp, v double"


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=250_000, help="rows of a stream in a batch")
    parser.add_argument("--batches", type=int, default=6)
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map={**braided.SPARK_CONF, **braided.FAST_START})
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(spark, Path(folder), arguments.rows, arguments.batches)
    print(json.dumps({"benchmark": "sources", "spark": spark.version, **vars(arguments), "seconds": figures}))


def measure(spark: SparkSession, root: Path, rows: int, batches: int) -> dict[str, float]:
    """Return seconds per batch for each way; all ways must give the same number of rows."""
    for side in ("left", "right"):
        make_topic(spark, root / side, rows, batches)
    parquet = root / "parquet"
    parquet.mkdir()
    for at, file in enumerate(braided.topic(root / "left").files()):
        (parquet / f"{at}.parquet").hardlink_to(file)
    joins: dict[str, Callable[[], DataFrame]] = {
        "join_direct": lambda: join(*(braided.files(spark, root / side, max_files=1) for side in ("left", "right"))),
        "join_format": lambda: join(*(read(spark, root / side) for side in ("left", "right"))),
        "join_connect": lambda: join(*(by_spark(read(spark, root / side)) for side in ("left", "right"))),
    }
    copies: dict[str, Callable[[], DataFrame]] = {
        "copy_direct": lambda: braided.files(spark, root / "left", max_files=1),
        "copy_format": lambda: read(spark, root / "left"),
        "copy_directory": lambda: (
            spark.readStream.format("braided").schema(COLUMNS).option("max_files", 1).load(str(parquet))
        ),
        "copy_parquet": lambda: spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(parquet)),
    }
    figures, counts = {}, {}
    for name, frame in (joins | copies).items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        query = write(frame(), root / f"out-{name}", root / f"check-{name}", name)
        query.awaitTermination()
        took = [batch["durationMs"]["triggerExecution"] for batch in query.recentProgress if batch["numInputRows"]]
        figures[name] = round(statistics.median(took[WARM_UP:]) / 1000, 3)
        out = str(root / f"out-{name}")
        counts[name] = (
            spark.read.parquet(out).count()
            if name == "copy_parquet"
            else sum(entry.rows for entry in braided.topic(out).manifests())
        )
    for kind in ("join", "copy"):
        if len({count for name, count in counts.items() if name.startswith(kind)}) != 1:
            raise SystemExit(f"the ways do not give the same rows: {counts}")
    return figures


def make_topic(spark: SparkSession, path: Path, rows: int, batches: int) -> None:
    """Write batches of rows, ten seconds each, in one file each."""
    seed = len(path.name)
    for batch in range(batches):
        frame = spark.range(batch * rows, (batch + 1) * rows, 1, 1).select(
            "id",
            F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(20_000)).alias("k"),
            F.timestamp_micros(F.col("id") * F.lit(10_000_000 // rows)).alias("ts"),
            F.rand(seed + batch).alias("v"),
        )
        frame.write.format("braided").mode("append").save(str(path))


def read(spark: SparkSession, path: Path) -> DataFrame:
    """Return a topic as a stream, a file a batch."""
    return spark.readStream.format("braided").option("max_files", 1).load(str(path))


def by_spark(frame: DataFrame) -> DataFrame:
    """Return a stream that routers cannot read themselves: a column is computed."""
    return frame.withColumn("v", F.col("v") + F.lit(0.0))


def join(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return a join of about half as many pairs as rows."""
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "200 milliseconds", "lateness": "1 second"}
    return braided.join(left, right.withColumnRenamed("id", "other").withColumnRenamed("v", "w"), **options)


def write(frame: DataFrame, out: Path, checkpoint: Path, name: str) -> Any:
    """Start the query of a way."""
    if name.endswith("direct"):
        return braided.write_files(frame, out, checkpoint=checkpoint, trigger="available now")
    writer = frame.writeStream.format("parquet" if name == "copy_parquet" else "braided")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(out))


if __name__ == "__main__":
    main()
