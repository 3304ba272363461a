"""Fraud alerts on calls: which calls were made by a number within ten seconds of an alert about it, in another cell.

python examples/fraud_alerts.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from local import results, run, show, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLS = pa.table(
    {
        "phone": ["555", "777", "555", "888", "777", "555"],
        "ts": times([0, 4, 6, 9, 11, 60]),
        "cell": ["A1", "B2", "A2", "A1", "B2", "A1"],
    }
)
ALERTS = pa.table(
    {
        "phone": ["555", "777", "999"],
        "ts": times([3, 8, 9]),
        "cell": ["A1", "C3", "A1"],
        "reason": ["cloned card", "stolen", "cloned card"],
    }
)


def main(spark: SparkSession, folder: Path) -> None:
    """Join the two streams and print the calls to look at."""
    calls = stream(spark, folder / "calls", CALLS, batches=2)
    alerts = stream(spark, folder / "alerts", ALERTS)
    hits = braided.join(
        calls, alerts, on="phone", time="ts", within="10 seconds", where="l.cell <> r.cell", lateness="1 minute"
    )
    rows, _ = results(hits.select("phone", "ts", "cell", "reason"), folder / "hits")
    show(rows, "ts")


if __name__ == "__main__":
    run(main)
