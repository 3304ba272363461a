"""A three-way join: orders with their payment and their shipment, all within an hour.

python examples/three_streams.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from local import results, run, show, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60
ORDERS = pa.table({"order_id": [1, 2, 3, 4], "ts": times([0, 60, 120, 180]), "total": [10.0, 25.5, 7.0, 99.0]})
PAYMENTS = pa.table({"order_id": [2, 1, 4], "ts": times([300, 400, 100 * MINUTE]), "paid": [25.5, 10.0, 99.0]})
SHIPMENTS = pa.table(
    {"order_id": [1, 2, 2, 3], "ts": times([30 * MINUTE, 31 * MINUTE, 45 * MINUTE, 50 * MINUTE]),
     "carrier": ["bike", "van", "van", "post"]}
)  # fmt: skip


def main(spark: SparkSession, folder: Path) -> None:
    """Join all three; an order that is shipped twice comes out twice, one that is paid too late not at all."""
    tables = {"orders": ORDERS, "payments": PAYMENTS, "shipments": SHIPMENTS}
    streams = [stream(spark, folder / name, rows) for name, rows in tables.items()]
    joined = braided.multijoin(streams, on="order_id", time="ts", within="1 hour", lateness="2 hours")
    rows, _ = results(joined.select("order_id", "total", "paid", "carrier"), folder / "out")
    show(rows, "order_id")


if __name__ == "__main__":
    run(main)
