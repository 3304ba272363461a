"""A client of Spark Connect that comes to its end without `spark.stop()`; see `slow/test_connect.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import braided

DDL = "k long, ts timestamp, id long"


def main(root: Path, what: str) -> None:
    """Build a join; run it to its end ("ended"), or leave its query running ("running")."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {**braided.SPARK_CONF, "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.remote("local[2]").config(map=conf).getOrCreate()
    left, right = (
        spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(root / side))
        for side in ("left", "right")
    )
    joined = braided.join(left, right, on="k", time="ts", within="10 seconds", lateness="5 seconds")
    if what != "built":
        writer = joined.writeStream.format("parquet").option("checkpointLocation", str(root / "check"))
        if what == "ended":
            writer.trigger(availableNow=True).start(str(root / "out")).awaitTermination()
        else:
            writer.start(str(root / "out")).processAllAvailable()
    print("last line", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
