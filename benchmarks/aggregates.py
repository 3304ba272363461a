"""A windowed count and sum after a join with many results a row: in the join's workers, after them, and native.

    python benchmarks/aggregates.py            20 results a row, 10 million pairs a batch
    python benchmarks/aggregates.py --rows 1000000    four times as many a batch
    python benchmarks/aggregates.py --rows 50000 --keys 10000 watermarks native    1 million pairs of 100,000 rows
    python benchmarks/aggregates.py --quick    tries everything in a few minutes; its times mean nothing

The same files for all, each engine in a JVM of its own, one file a side a batch. `merged` is `braided.sql`; `direct`
the same over `braided.files`; `watermarks` the same over inputs with watermarks, the text and the inputs of `native`,
which is `spark.sql`. Closed windows are compared with DuckDB's. One JSON line goes to
stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines import DDL, ENGINES, SAME_FOR_ALL
from workloads import WORKLOADS, Workload, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's own join with its default store was faster than with RocksDB on every workload of join.py.
SETTINGS = {
    "merged": ENGINES["braided"],
    "direct": ENGINES["braided"],
    "watermarks": ENGINES["braided"],
    "native": ENGINES["native_hdfs"],
}
# Of native batch times, by rows a side: 1 million pairs of 50,000, 10 million of 250,000.
BARS = {50_000: 3.0, 250_000: 10.0}
WORKLOAD = replace(WORKLOADS["files_20x"], rows=250_000, warm=5, measured=7)


def _text(workload: Workload) -> str:
    within = f"INTERVAL {workload.within_s} SECONDS"
    return f"""SELECT window.start AS s, count(*) AS n, sum(r.v) AS total FROM l JOIN r ON l.k = r.k
        AND r.ts BETWEEN l.ts - {within} AND l.ts + {within} GROUP BY window(l.ts, '1 second')"""


def main() -> int:
    options = _options()
    workload = WORKLOAD.quick() if options.quick else replace(WORKLOAD, rows=options.rows, keys=options.keys)
    if options.one:
        print(json.dumps(_run(options.one, workload, options.data, options.scratch)))
        return 0
    root = Path(tempfile.mkdtemp(prefix="braided-aggregates-"))
    try:
        generate(workload, root / "data")
        truth = _oracle(workload, root / "data")
        found = {engine: _measure(engine, options, root, truth) for engine in options.engines}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    summary: dict[str, Any] = {"benchmark": "aggregates", "quick": options.quick, "engines": found}
    bar = BARS.get(workload.rows, 0.0)
    for ours in sorted(set(found) - {"native"}) if "native" in found else ():
        ratio = found["native"]["median_s"] / found[ours]["median_s"]
        summary[f"{ours}_over_native"] = {"ratio": round(ratio, 2), "bar": bar, "met": ratio >= bar}
    print(json.dumps(summary))
    return 0 if all(engine["equal"] for engine in found.values()) else 1


def run_apart(script: str, words: list[str]) -> dict[str, Any]:
    """Run a script in a process and a JVM of its own, and return what it printed last."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, script, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, check=True,
    )  # fmt: skip
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def open_session(engine: str, scratch: Path) -> SparkSession:
    """Return a session with an engine's settings."""
    from pyspark.sql import SparkSession

    settings = SAME_FOR_ALL | SETTINGS[engine] | {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(scratch)}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _measure(engine: str, options: argparse.Namespace, root: Path, truth: dict[int, list[int]]) -> dict[str, Any]:
    scratch = Path(tempfile.mkdtemp(prefix=f"{engine}-", dir=root))
    words = ["--one", engine, "--data", str(root / "data"), "--scratch", str(scratch), *["--quick"] * options.quick]
    words += ["--rows", str(options.rows), "--keys", str(options.keys)]
    outcome = run_apart(__file__, words)
    windows = outcome.pop("windows")
    outcome["closed"] = len(windows)
    outcome["equal"] = bool(windows) and all(truth[start] == rest for start, *rest in windows)
    print(f"{engine}: {outcome}", file=sys.stderr)
    return outcome


def _run(engine: str, workload: Workload, data: Path, scratch: Path) -> dict[str, Any]:
    import braided

    spark = open_session(engine, scratch)
    sides = {
        short: braided.files(spark, str(data / side), schema=DDL, max_files=1)
        if engine == "direct"
        else spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(data / side))
        for short, side in (("l", "left"), ("r", "right"))
    }
    lateness = f"{workload.lateness_s} seconds"
    if engine in ("merged", "direct"):
        result = braided.sql(spark, _text(workload), sides, lateness=lateness)
    else:
        sides = {name: frame.withWatermark("ts", lateness) for name, frame in sides.items()}
        for name, frame in sides.items():
            frame.createOrReplaceTempView(name)
        result = braided.sql(spark, _text(workload), sides) if engine == "watermarks" else spark.sql(_text(workload))
    query = (
        result.writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(scratch / "out"))
    )
    query.awaitTermination()
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    windows = spark.read.parquet(str(scratch / "out")).selectExpr("unix_micros(s)", "n", "total").collect()
    measured = seconds[-workload.measured :]
    spark.stop()
    return {
        "median_s": round(statistics.median(measured), 3),
        "min_s": min(measured),
        "max_s": max(measured),
        "windows": [list(row) for row in windows],
    }


def _oracle(workload: Workload, data: Path) -> dict[int, list[int]]:
    import duckdb

    us = workload.within_s * 1_000_000
    left, right = (f"'{data}/{side}/*.parquet'" for side in ("left", "right"))
    with duckdb.connect() as db:
        rows = db.execute(f"""
            select epoch_us(l.ts) // 1000000 * 1000000 as s, count(*), sum(r.v)::bigint from {left} l join {right} r
            on l.k = r.k and epoch_us(r.ts) - epoch_us(l.ts) between -{us} and {us} group by 1""").fetchall()
    return {start: [count, total] for start, count, total in rows}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=list(SETTINGS), help=", ".join(SETTINGS))
    parser.add_argument("--rows", type=int, default=WORKLOAD.rows, help="of a side in a batch (%(default)s)")
    parser.add_argument("--keys", type=int, default=WORKLOAD.keys, help="fewer keys make more pairs (%(default)s)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
