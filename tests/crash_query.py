"""A driver to be killed: joins two folders into a Parquet sink until everything is processed.

Run as a process of its own; `test_restart.py` and `scripts/crash_run.py` kill it at random moments.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import braided

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DDL = "k long, ts timestamp, id long"


def main(root: Path) -> None:
    """Process what is there, one file a side and batch; with a folder `control`, under ever new routings."""
    from pyspark.sql import SparkSession

    control = None
    if (root / "control").exists():
        control = str(root / "control")

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2" if control is None else "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    if control is not None:
        from routing_cases import RandomController

        from braided.spark.registry import registry_of

        registry_of(spark).make_controller = RandomController  # type: ignore[assignment]
    sides = [
        spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(root / side))
        for side in ("left", "right")
    ]
    joined = braided.join(*sides, on="k", time="ts", within="10 seconds", lateness="5 seconds", control=control)
    query = (
        joined.writeStream.format("parquet")
        .option("checkpointLocation", str(root / "check"))
        .trigger(availableNow=True)
        .start(str(root / "out"))
    )
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
