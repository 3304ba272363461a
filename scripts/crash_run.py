"""Kill a query's driver with SIGKILL many times and compare the committed output with DuckDB's answer.

    python scripts/crash_run.py --kills 25

Takes about ten seconds a kill. The tests run a shorter version of this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from crashes import committed, expected, run_with_kills, write_streams


def main() -> int:
    """Run once; exit 1 if a row is missing, doubled or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_streams(root, files=max(40, 3 * options.kills), rows=400, seed=options.seed)
        hits = run_with_kills(root, options.kills, options.seed)
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        found, wanted = committed(spark, root), expected(root)
        spark.stop()
    verdict = "equal to" if found == wanted else "DIFFERENT FROM"
    print(f"{hits} kills, {found.total():,} committed rows, {verdict} DuckDB's")
    return 0 if found == wanted and hits >= options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
