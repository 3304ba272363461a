"""A join on Spark with one core and with two: rows a second, and CPU seconds per million rows.

    python benchmarks/cores.py               about three minutes; nothing else may run
    python benchmarks/cores.py --quick       tries everything; its figures mean nothing

The same files for all; a JVM of its own each, bound to so many cores with all its Python processes. Two small runs with
2 and with 8 partitions show what a batch and a task cost whatever they join. Medians of batches. The counts of results
must be equal. One JSON line goes to stdout; `braided.sim.operator_costs.CORES` quotes it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from aggregates import SETTINGS, run_apart
from engines import SAME_FOR_ALL

BATCHES, WARM = 14, 6


def main() -> int:
    options = _options()
    if options.one:
        print(json.dumps(_run(options.cores, options.partitions, options.data)))
        return 0
    root = Path(tempfile.mkdtemp(prefix="braided-cores-"))
    rows = 5_000 if options.quick else 400_000
    runs = {"1_core": (1, 2, rows), "2_cores": (2, 2, rows), "2_partitions": (2, 2, 50), "8_partitions": (2, 8, 50)}
    found: dict[str, Any] = {}
    try:
        for name in options.runs or runs:
            cores, partitions, size = runs[name]
            data = root / str(size)
            if not data.exists():
                _generate(data, size)
            words = ["--one", "--cores", str(cores), "--partitions", str(partitions), "--data", str(data)]
            found[name] = run_apart(__file__, words)
            print(f"{name}: {found[name]}", file=sys.stderr)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    counts = {name: outcome.pop("results") for name, outcome in found.items()}
    equal = len({counts[name] for name in ("1_core", "2_cores") if name in counts}) <= 1
    print(json.dumps({"benchmark": "cores", "quick": options.quick, "equal": equal, **found}))
    return 0 if equal else 1


def _generate(root: Path, rows: int) -> None:
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
        for number in range(BATCHES):
            random = np.random.default_rng([number, len(side), rows])
            at = 1_700_000_000_000_000 + number * 1_000_000 + np.arange(rows) * 1_000_000 // rows
            table = pa.table(
                {
                    "k": random.integers(0, 10 * rows, rows), "ts": pa.array(at, pa.timestamp("us", "UTC")),
                    "v": random.integers(0, 1000, rows),
                }
            )  # fmt: skip
            path = root / side / f"{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def _run(cores: int, partitions: int, data: Path) -> dict[str, Any]:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    from pyspark.sql import SparkSession

    import braided

    scratch = tempfile.mkdtemp(dir=data.parent)
    own = {"spark.sql.shuffle.partitions": partitions, "spark.local.dir": scratch}
    settings = SAME_FOR_ALL | SETTINGS["direct"] | own
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sides = [braided.files(spark, str(data / side), max_files=1) for side in ("left", "right")]
    joined = braided.join(*sides, on="k", time="ts", within="2 seconds", lateness="1 second")
    query = (
        joined.writeStream.format("parquet").option("checkpointLocation", f"{scratch}/c").trigger(availableNow=True)
        .start(f"{scratch}/out")
    )  # fmt: skip
    marks = []
    while query.isActive and query.lastProgress is None:
        query.awaitTermination(0.2)
    while not query.awaitTermination(0.2):
        done = len(query.recentProgress)
        if not marks and done >= WARM:
            marks.append((done, _cpu_seconds()))
    marks.append((len(query.recentProgress), _cpu_seconds()))
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress][WARM:BATCHES]
    rows = 2 * pq.read_metadata(next((data / "left").glob("*.parquet"))).num_rows
    millions = (marks[-1][0] - marks[0][0]) * rows / 1e6
    used = {kind: marks[-1][1][kind] - marks[0][1][kind] for kind in ("jvm", "python")}
    results = spark.read.parquet(f"{scratch}/out").count()
    spark.stop()
    median = statistics.median(seconds)
    return {
        "batch_s": round(median, 3), "rows_a_second": round(rows / median), "results": results,
        "cpu_s_per_million": {kind: round(value / millions, 2) for kind, value in used.items()},
    }  # fmt: skip


def _cpu_seconds() -> dict[str, float]:
    """Return the CPU time of the JVM that this process has started, and of the Python processes below it."""
    parents, times, names = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            name = (path.parent / "comm").read_text().strip()
        except OSError:
            continue  # it has just ended
        pid = int(path.parent.name)
        parents[pid], times[pid], names[pid] = int(fields[1]), sum(map(int, fields[11:15])), name
    ours = {os.getpid()}
    while len(ours) < len(ours := ours | {pid for pid, parent in parents.items() if parent in ours}):
        pass
    ours.discard(os.getpid())
    tick = os.sysconf("SC_CLK_TCK")
    jvm = sum(times[pid] for pid in ours if names[pid].startswith("java")) / tick
    return {"jvm": jvm, "python": sum(times[pid] for pid in ours) / tick - jvm}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", nargs="+", choices=("1_core", "2_cores", "2_partitions", "8_partitions"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--partitions", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
