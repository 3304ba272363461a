"""What `control=` costs where there is nothing to steer: queries with and without it take turns (`turns.py`).

python benchmarks/control_cost.py --rounds 3        one JSON line; progress goes to stderr
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
from typing import TYPE_CHECKING

from engines import _braided, _session
from turns import ratios, take_turns
from workloads import WORKLOADS, generate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORKLOAD = WORKLOADS["uniform8"]


def build(engine: str, left: DataFrame, right: DataFrame, home: Path) -> DataFrame:
    """Return the join of one engine."""
    return _braided(left, right, WORKLOAD, engine, home)


def main() -> int:
    """Run all turns and print the median ratio of a pair of batches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="new queries over the same files")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")
    builds = {"off": partial(build, "braided_hash"), "on": partial(build, "braided_adaptive")}
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        generate(WORKLOAD, root / "data")
        spark = _session("braided_adaptive", WORKLOAD, root)
        for number in range(options.rounds):
            done = take_turns(
                spark, "k long, ts timestamp, v long", root / "data", root / str(number), builds, WORKLOAD.rows
            )
            rounds.append(ratios(done["off"][0], done["on"][0], WORKLOAD.measured))
        spark.stop()
    summary = {
        "benchmark": "control_cost",
        "on_over_off": round(statistics.median([ratio for pairs in rounds for ratio in pairs]), 3),
        "by_round": [round(statistics.median(pairs), 3) for pairs in rounds],
        "bar": 0.95,
    }
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
