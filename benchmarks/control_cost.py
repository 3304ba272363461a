"""What `control=` costs where there is nothing to steer: two queries in one JVM take turns, batch by batch.

    python benchmarks/control_cost.py               one JSON line; progress goes to stderr

Both read the same files of uniform keys. A turn is one batch of each, in another order every time, so that what the
machine does meanwhile, and how far the JVM has compiled, is the same for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines import _braided, _session
from workloads import WORKLOADS, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("braided_hash", "braided_adaptive")
WORKLOAD = WORKLOADS["uniform8"]
SIDES = ("left", "right")


def start(spark: SparkSession, engine: str, root: Path) -> Any:
    """Start a query over folders that are still empty."""
    for side in SIDES:
        (root / side).mkdir(parents=True)
    left, right = (spark.readStream.schema("k long, ts timestamp, v long").parquet(str(root / side)) for side in SIDES)
    joined = _braided(left, right, WORKLOAD, engine, root)
    return joined.writeStream.format("noop").option("checkpointLocation", str(root / "checkpoint")).start()


def main() -> int:
    """Run all turns and print the median ratio of a pair of batches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="new queries over the same files")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        generate(WORKLOAD, root / "data")
        spark = _session("braided_adaptive", WORKLOAD, root)
        rounds = [take_turns(spark, root, number) for number in range(options.rounds)]
        spark.stop()
    pairs = [ratio for ratios in rounds for ratio in ratios]
    print(
        json.dumps(
            {
                "benchmark": "control_cost",
                "pairs": len(pairs),
                "on_over_off": round(statistics.median(pairs), 3),
                "by_round": [round(statistics.median(ratios), 3) for ratios in rounds],
                "bar": 0.95,
            }
        )
    )
    return 0


def take_turns(spark: SparkSession, root: Path, number: int) -> list[float]:
    """Return the ratio of throughputs, with control over without, of each measured pair of batches."""
    homes = {engine: root / f"{engine}-{number}" for engine in ENGINES}
    queries = {engine: start(spark, engine, home) for engine, home in homes.items()}
    names = sorted(path.name for path in (root / "data" / "left").glob("*.parquet"))
    for turn, name in enumerate(names):
        for engine in ENGINES if turn % 2 else reversed(ENGINES):
            for side in SIDES:
                os.link(root / "data" / side / name, homes[engine] / side / name)
            queries[engine].processAllAvailable()
        print(f"round {number + 1}: batch {turn + 1} of {len(names)}", file=sys.stderr)
    seconds = {}
    for engine, query in queries.items():
        # A batch that saw one of the two new files alone is half a batch, and its pair is left out below.
        rows = 2 * WORKLOAD.rows
        seconds[engine] = [p.durationMs["triggerExecution"] if p.numInputRows == rows else None for p in full(query)]
        query.stop()
    both = list(zip(seconds[ENGINES[0]], seconds[ENGINES[1]], strict=True))[-WORKLOAD.measured :]
    return [off / on for off, on in both if off is not None and on is not None]


def full(query: Any) -> list[Any]:
    """Return one progress per turn: the last one, by rows read until then."""
    done, seen = [], 0
    for progress in query.recentProgress:
        seen += progress.numInputRows
        if progress.numInputRows and seen % (2 * WORKLOAD.rows) == 0:
            done.append(progress)
    return done


if __name__ == "__main__":
    sys.exit(main())
