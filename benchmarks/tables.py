"""Tables: a join from Parquet into a topic, a Delta table and an Iceberg table, in turn, in one run.

    python benchmarks/tables.py
    python benchmarks/tables.py --rows 20000 --batches 4 --rounds 1

The same files and the same join for all; only the sink differs. Needs the packages of the group `tables`. Each sink's
figure is the median batch of its rounds, which alternate, without the first batches of a query; results are counted
against DuckDB's. `ratio` is against the topic. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engines import SAME_FOR_ALL

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "k long, ts timestamp, id long"
EPOCH_US = 1_700_000_000_000_000
BATCH_S = 10
SKIPPED = 2
SINKS = ("topic", "delta", "iceberg")


def main() -> int:
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="braided-tables-"))
    spark = _session(root)
    try:
        for side, seed in (("left", 1), ("right", 2)):
            _make(root / side, options.batches, options.rows, seed)
        wanted = _expected(root)
        times: dict[str, list[float]] = {sink: [] for sink in SINKS}
        equal = True
        for number in range(options.rounds + 1):
            for sink in SINKS if number % 2 else SINKS[::-1]:
                batches, found = _run(spark, root, sink, root / f"{sink}-{number}")
                equal &= found == wanted
                if number:  # round 0 warms the session up
                    times[sink] += batches
                print(f"round {number} {sink}: {statistics.median(batches):.2f} s", file=sys.stderr)
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)
    medians = {sink: statistics.median(times[sink]) for sink in SINKS}
    print(
        json.dumps({
            "benchmark": "tables",
            "rows_a_batch": 2 * options.rows,
            "batch_s": {sink: round(median, 3) for sink, median in medians.items()},
            "ratio": {sink: round(median / medians["topic"], 3) for sink, median in medians.items()},
            "results": wanted,
            "equal": equal,
        })
    )  # fmt: skip
    return 0 if equal else 1


def _session(root: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = SAME_FOR_ALL | braided.SPARK_CONF | {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(root)}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _make(folder: Path, batches: int, rows: int, seed: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(seed)
    for number in range(batches):
        ids = np.arange(number * rows, (number + 1) * rows)
        times = EPOCH_US + ids * BATCH_S * 1_000_000 // rows
        table = pa.table(
            {"k": random.integers(0, rows, rows), "ts": pa.array(times, pa.timestamp("us", "UTC")), "id": ids}
        )
        pq.write_table(table, folder / f"{number:03}.parquet")


def _expected(root: Path) -> int:
    with duckdb.connect() as db:
        [(count,)] = db.execute(f"""
            select count(*) from '{root}/left/*.parquet' l join '{root}/right/*.parquet' r on l.k = r.k
            and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 5000000""").fetchall()
    return int(count)


def _run(spark: SparkSession, root: Path, sink: str, folder: Path) -> tuple[list[float], int]:
    """Return how long the batches of one query took, and how many rows are in what it wrote."""
    folder.mkdir()
    sides = [braided.files(spark, str(root / side), schema=DDL, max_files=1) for side in ("left", "right")]
    joined = braided.join(*sides, on="k", time="ts", within="5 seconds", lateness="1 second")
    given: dict[str, Any] = {"checkpoint": str(folder / "checkpoint"), "trigger": "available now"}
    out = f"{folder}/out"
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{out}"}
    if sink == "topic":
        query = braided.write_files(joined, out, **given)
    elif sink == "delta":
        query = braided.write_table(joined, f"delta:{out}", **given)
    else:
        query = braided.write_table(joined, "iceberg:lake.pairs.all", options=catalog, **given)
    query.awaitTermination()
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    return seconds[SKIPPED:], _count(sink, out, catalog)


def _count(sink: str, out: str, catalog: dict[str, str]) -> int:
    if sink == "topic":
        return sum(manifest.rows for manifest in braided.topic(out).manifests())
    if sink == "delta":
        from deltalake import DeltaTable

        return int(DeltaTable(out).count())
    from pyiceberg.catalog import load_catalog

    return int(load_catalog("lake", **catalog).load_table("pairs.all").scan().count())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="of each side in a batch (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=10, help="of a query (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
