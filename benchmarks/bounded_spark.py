"""Joins with a budget of 20% of the window against the exact join, on Spark: queries take turns (`turns.py`).

    python benchmarks/bounded_spark.py              one JSON line; progress goes to stderr

Two workers, 50,000 rows a side and batch, 400,000 rows in the window, Zipf keys. State is what the workers' last
reports say, shadows and counts included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engines import SAME_FOR_ALL
from turns import SIDES, ratios, take_turns

import braided
from braided.sim.gdj.zipf_pareto import zipf_pareto

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, BATCHES, MEASURED, WORKERS = 50_000, 24, 12, 2
WINDOW_ROWS, BUDGET = 400_000, 0.2
FILE_ROWS = ROWS - 100  # which stream a row belongs to is chance: one has a few rows less
RATE = 2 * ROWS  # of both streams, a second: a batch is a second
POLICIES: dict[str, Any] = {
    "auto": "auto",
    "gdj": "gdj",
    "gdj fixed": braided.GDJ(initial=0.2),
    "prob": "prob",
}
DDL = "key long, time timestamp, a long, b double"


def write_rows(root: Path, domain: int, alpha: float) -> None:
    """Write a file a side and batch."""
    stream = zipf_pareto(rows=2 * ROWS * BATCHES, rate=RATE, domain=domain, alpha=alpha, streams=2, seed=1)
    sides = stream["stream"].to_numpy()
    for number, side in enumerate(SIDES):
        (root / side).mkdir(parents=True)
        mine = stream.filter(pa.array(sides == number))
        for batch in range(BATCHES):
            part = mine.slice(batch * FILE_ROWS, FILE_ROWS)
            table = pa.table(
                {
                    "key": part["key"].cast(pa.int64()),
                    "time": part["time"].cast(pa.timestamp("us", "UTC")),
                    "a": np.arange(FILE_ROWS),
                    "b": np.random.default_rng(batch).random(FILE_ROWS),
                }
            )
            path = root / side / f"{batch:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (batch + 1, batch + 1))


def build(evict: Any, left: DataFrame, right: DataFrame, home: Path) -> DataFrame:
    """Return the exact join, or one with a budget."""
    # A row is kept for so many seconds; rows come in order, so none waits.
    options: dict[str, Any] = {"within": f"{WINDOW_ROWS // RATE} seconds", "lateness": "0 seconds", "name": home.name}
    if evict is not None:
        options |= {"memory": round(BUDGET * WINDOW_ROWS / WORKERS), "evict": evict}
    joined: DataFrame = braided.join(left, right, on="key", time="time", **options)
    return joined


def main() -> int:
    """Run all turns and print ratios of throughput and sizes of state."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--domain", type=int, default=100_000)
    parser.add_argument("--alpha", type=float, default=0.5)
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")
    builds = {"exact": partial(build, None)} | {name: partial(build, evict) for name, evict in POLICIES.items()}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_rows(root / "data", options.domain, options.alpha)
        builder = SparkSession.builder.master("local[2]")
        for name, value in (SAME_FOR_ALL | braided.SPARK_CONF | {"spark.sql.shuffle.partitions": str(WORKERS)}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        done = take_turns(spark, DDL, root / "data", root / "queries", builds, FILE_ROWS)
        exact = done["exact"]
        summary: dict[str, Any] = {"benchmark": "bounded_spark", "domain": options.domain, "alpha": options.alpha}
        for name, (times, query) in done.items():
            workers = braided.report(query, name).to_dict()["workers"]
            summary[name] = {
                "over_exact": round(statistics.median(ratios(exact[0], times, MEASURED)), 3),
                "stored_rows": sum(worker["last"]["stored_rows"] for worker in workers),
                "stored_bytes": sum(worker["last"]["stored_bytes"] for worker in workers),
                "results": sum(worker["total"]["results"] for worker in workers),
            }
        spark.stop()
    bar = 0.2 * summary["exact"]["stored_bytes"] + 16 * BUDGET * WINDOW_ROWS
    summary["bars"] = {"over_exact": 0.7, "stored_bytes": round(bar)}
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
