"""`braided.order` on Spark against the same pipeline whose worker passes rows through, on the same files in turns.

    python benchmarks/order_spark.py                one JSON line; progress goes to stderr
    python benchmarks/order_spark.py --rows 500000 --batches 24 --rounds 3

Rows are up to 2 s late and 100 us apart. Keyed, two workers share the rows; as a whole, one worker has them all, in
both pipelines. Every result of `order` is checked: all rows there, in order.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

import braided
from braided.operators.order.order_operator import OrderOperator
from braided.operators.order.spec import OrderSpec
from braided.operators.registry import build
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Outcome, Work
from braided.spark.dataflow import Dataflow, stateful
from braided.spark.inputs import stream_of
from braided.spark.routing import Routing

DDL = "k long, ts timestamp, a long, b double"
WARM_UP = 6
LATE_US = 2_000_000


@dataclass(frozen=True)
class PassThrough(OrderOperator):
    """The same routers and packets; the worker sends its rows on as they come."""

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        count = 0
        for block in work.blocks:
            count += block.rows.num_rows
            columns = [*block.rows.columns]
            if not self.key:
                columns.append(pa.array(np.zeros(block.rows.num_rows, np.int64)))
            columns.append(pa.array(np.zeros(block.rows.num_rows, np.bool_)))
            yield pa.RecordBatch.from_arrays(columns, schema=self.output)
        report = {"clock": None, "lateness": 0}
        return Outcome({}, counts={"results": count}, streams=[report], levels={"stored_rows": 0})


def write_rows(folder: Path, rows: int, batches: int) -> None:
    """Write a file per batch, rows in order of arrival."""
    rng = np.random.default_rng(1)
    total = rows * batches
    times = 1_700_000_000_000_000 + np.arange(total) * 100
    order = np.argsort(times + rng.integers(0, LATE_US, total), kind="stable")
    table = pa.table(
        {
            "k": rng.integers(0, 1000, total),
            "ts": pa.array(times[order], pa.timestamp("us", "UTC")),
            "a": order,
            "b": rng.random(total),
        }
    )
    folder.mkdir()
    for number in range(batches):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table.slice(number * rows, rows), path)
        os.utime(path, (number + 1, number + 1))


def pipeline(spark: SparkSession, folder: Path, engine: str, key: str | None) -> DataFrame:
    """Return the ordered stream, or the same rows passed through."""
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))
    if engine == "order":
        ordered: DataFrame = braided.order(frame, time="ts", key=key, name="order")
        return ordered
    spec = OrderSpec(time="ts", key=key, lateness="0 seconds")
    ordering = build(spec, [stream_of(frame, "input")]).operator
    operator = PassThrough(**vars(ordering))
    workers = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    routing = Routing("hash", True, workers)
    made = {"seq": LongType(), "late": BooleanType()}
    added = [StructField(name, kind) for name, kind in made.items() if name in operator.output.names]
    output = StructType([*frame.schema.fields, *added])
    return stateful(Dataflow(operator, [frame], output, "1-00000000:pass", routing))


def run(spark: SparkSession, folder: Path, engine: str, key: str | None) -> dict[str, Any]:
    """Run one query to its end; return the times of its batches and what came out."""
    totals = {"rows": 0, "late": 0}

    with tempfile.TemporaryDirectory() as scratch:
        frame = pipeline(spark, folder, engine, key)
        counted = frame.observe("rows", F.count(F.lit(1)).alias("rows"), F.sum(F.col("late").cast("int")).alias("late"))
        query = counted.writeStream.format("noop").option("checkpointLocation", scratch).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        progress = [p for p in running.recentProgress if p.numInputRows]
        for step in running.recentProgress:
            seen = step.observedMetrics.get("rows")
            totals["rows"] += seen["rows"] if seen else 0
            totals["late"] += (seen["late"] or 0) if seen else 0
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in progress][WARM_UP:]
    return {"median": statistics.median(seconds), **totals}


def main() -> int:
    """Compare both engines, keyed and as a whole."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.streaming.numRecentProgressUpdates", 1000)
        .config(map=braided.SPARK_CONF)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    summary: dict[str, Any] = {"benchmark": "order_spark", "rows": options.rows, "batches": options.batches}
    right = True
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "rows"
        write_rows(folder, options.rows, options.batches)
        for key in (None, "k"):
            times: dict[str, list[float]] = {"order": [], "pass": []}
            for _ in range(options.rounds):
                for engine in ("order", "pass"):
                    started = time.monotonic()
                    outcome = run(spark, folder, engine, key)
                    times[engine].append(outcome["median"])
                    print(f"{key} {engine}: {outcome}, {time.monotonic() - started:.0f} s", file=sys.stderr)
                    waiting = options.rows * options.batches - outcome["rows"]
                    right &= 0 <= waiting < 2 * options.rows and outcome["late"] == 0
            medians = {engine: statistics.median(of) for engine, of in times.items()}
            ratio = medians["order"] / medians["pass"]
            summary["whole" if key is None else "keyed"] = {**medians, "ratio": round(ratio, 3), "bar": 1.3}
    summary["right"] = right
    print(json.dumps(summary))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
