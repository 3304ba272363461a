"""Positions within a distance: which taxi was within 50 metres of which customer in the same five seconds.

    python examples/near_each_other.py

There is no key: every position meets every other in the window, on a grid of workers (a theta join).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from local import results, run, show, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAXIS = pa.table(
    {
        "taxi": ["T1", "T2", "T1", "T2", "T3"],
        "ts": times([0, 1, 5, 6, 20]),
        "x": [0.0, 400.0, 60.0, 300.0, 100.0],
        "y": [0.0, 0.0, 10.0, 0.0, 100.0],
    }
)
CUSTOMERS = pa.table(
    {
        "customer": ["ann", "bob", "cat"],
        "ts": times([4, 7, 12]),
        "x": [90.0, 330.0, 110.0],
        "y": [20.0, 30.0, 100.0],
    }
)


def main(spark: SparkSession, folder: Path) -> None:
    """Join by distance and print who is near whom."""
    near = braided.join(
        stream(spark, folder / "taxis", TAXIS, batches=2),
        stream(spark, folder / "customers", CUSTOMERS),
        on=None,
        time="ts",
        within="5 seconds",
        where="(l.x - r.x) * (l.x - r.x) + (l.y - r.y) * (l.y - r.y) <= 2500",
        lateness="1 minute",
    )
    rows, _ = results(near.select("customer", "taxi", "ts"), folder / "near")
    show(rows, "customer", "taxi")


if __name__ == "__main__":
    run(main)
