"""StreamCloud's three strategies (IV.C) on the query of its Figure 8: CPU seconds a million rows, and bytes shuffled.

    python benchmarks/strategies.py
    python benchmarks/strategies.py --quick      tries everything in a few minutes; its figures mean nothing

The query is `chain` of streamcloud.py, written with `braided.stream`, laid out by `braided.deploy`: everything in one
Spark query, a query for each operator, a query for each subquery, with the same number of partitions in all. The first
files warm each up; the others are measured, in a second run from the checkpoints. CPU is that of the JVM and its Python
processes, the restart included; bytes are those of Spark's event log. `topics` is what the stages wrote for each other.
Closed windows are compared with DuckDB's. Two cores show no throughput of a cluster: figures are ratios to "query".
One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregates import open_session, run_apart
from streamcloud import LATENESS, Shape, generate, oracle, shape_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braided.spark.query import Query

STRATEGIES = ("query", "operator", "subquery")
PROCESSORS = 8
WARM = 4
"""Files of each stream that warm up."""


def main() -> int:
    options = _options()
    shape = shape_of("chain", options.quick)
    if not options.quick:
        shape = replace(shape, rows=50_000, batches=16)
    if options.one:
        print(json.dumps(_run(options.one, shape, options.data, options.scratch, options.processors)))
        return 0
    root = Path(tempfile.mkdtemp(prefix="braided-strategies-"))
    try:
        generate(shape, root / "data")
        truth = oracle(shape, root / "data")
        found = {strategy: _measure(strategy, options, root, truth) for strategy in options.strategies}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    one = found.get("query")
    ratios = {
        strategy: {name: round(outcome[name] / one[name], 2) for name in ("cpu_s", "shuffled_mb")}
        for strategy, outcome in found.items()
        if one is not None and outcome is not one
    }
    print(json.dumps({"benchmark": "strategies", "quick": options.quick, **found, "over_query": ratios}))
    return 0 if all(outcome["equal"] for outcome in found.values()) else 1


def _measure(strategy: str, options: argparse.Namespace, root: Path, truth: dict[Any, Any]) -> dict[str, Any]:
    scratch = Path(tempfile.mkdtemp(prefix=f"{strategy}-", dir=root))
    words = [
        "--one",
        strategy,
        "--processors",
        str(options.processors),
        "--data",
        str(root / "data"),
        "--scratch",
        str(scratch),
    ]
    outcome = run_apart(__file__, words + ["--quick"] * options.quick)
    rows = outcome.pop("rows")
    outcome["closed"] = len(rows)
    wanted = [truth.get((start, group), (0, 0.0)) for start, group, _, _ in rows]
    outcome["equal"] = bool(rows) and all(
        count == n and abs(mean - m) < 1e-5 for (_, _, n, m), (count, mean) in zip(rows, wanted, strict=True)
    )
    print(f"{strategy}: {outcome}", file=sys.stderr)
    return outcome


def _run(strategy: Any, shape: Shape, data: Path, scratch: Path, processors: int) -> dict[str, Any]:
    import braided

    log = scratch / "events"
    log.mkdir()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.eventLog.enabled=true --conf spark.eventLog.dir={log} --conf spark.eventLog.compress=false "
        "--conf spark.eventLog.rolling.enabled=false --conf spark.scheduler.mode=FAIR pyspark-shell"
    )
    spark = open_session("merged", scratch)
    for stream in shape.streams:
        (scratch / stream).mkdir()
    query = _query(spark, shape, scratch)
    deployed = braided.deploy(query, topics=scratch / "app", strategy=strategy, processors=processors, max_files=1)
    _give(shape, data, scratch, 0, WARM)
    deployed.run()
    before, shuffled = _cpu_seconds(), _shuffled(log)
    _give(shape, data, scratch, WARM, shape.batches)
    deployed.run()
    cpu = _cpu_seconds() - before
    files = braided.topic(deployed.topic).files()
    rows = spark.read.parquet(*files).selectExpr("unix_micros(s)", "g", "n", "m").collect()
    between = sum(
        sum(file.bytes for manifest in braided.topic(scratch / "app" / stage).manifests() for file in manifest.files)
        for stage in deployed.stages[:-1]
    )
    partitions = deployed.partitions
    spark.stop()
    millions = (shape.batches - WARM) * shape.rows * len(shape.streams) / 1e6
    return {
        "stages": len(partitions),
        "cpu_s": round(cpu / millions, 1),
        "shuffled_mb": round((_shuffled(log) - shuffled) / millions / 1e6, 2),
        "topics_mb": round(between / 1e6, 2),
        "rows": [list(row) for row in rows],
    }


def _query(spark: SparkSession, shape: Shape, folder: Path) -> Query:
    """Return two joins with filters and maps between them, and a windowed count and mean."""
    import braided

    first, second, third = (
        braided.stream(
            spark.readStream.schema("ts timestamp, k long, v long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / name)),
            time="ts",
            lateness=LATENESS,
        )
        for name in shape.streams
    )
    pairs = first.where("v % 2 = 0").join(second, on="k", within="5 seconds")
    moved = pairs.select("k", "ts_right AS ts", time="ts")
    # The first join's rows are as late as it says, and no later.
    joined = moved.join(third.where("v < 900"), on="k", within="5 seconds", lateness=("0 seconds", LATENESS))
    windows = joined.aggregate(
        by="k", window=f"{shape.size_s} seconds", every=f"{shape.slide_s} seconds", n="count(*)", m="avg(v)"
    )
    return windows.select("window.start AS s", "k AS g", "n", "m")


def _give(shape: Shape, data: Path, folder: Path, start: int, stop: int) -> None:
    """Let the streams have some more files."""
    for stream in shape.streams:
        for batch in range(start, stop):
            os.link(data / stream / f"{batch:05}.parquet", folder / stream / f"{batch:05}.parquet")


def _cpu_seconds() -> float:
    """Return the CPU time of the processes that this one has started, and of those that they have waited for."""
    parents, times = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)] = int(fields[1])
        times[int(path.parent.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while len(ours) < len(ours := ours | {pid for pid, parent in parents.items() if parent in ours}):
        pass
    return sum(times[pid] for pid in ours if pid != os.getpid()) / os.sysconf("SC_CLK_TCK")


def _shuffled(log: Path) -> int:
    """Return the bytes that tasks have written for shuffles, by Spark's event log."""
    total = 0
    for path in log.iterdir():
        for line in path.read_text().splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument(
        "--processors", type=int, default=PROCESSORS, help="for all operators of a strategy (%(default)s)"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
