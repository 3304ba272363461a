"""A driver that runs a stream from topic to topic by `format("braided")`, to be killed; see `spark/test_source_spark.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import braided


def main(root: Path) -> None:
    """Run what there is to read, a file a batch."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config(map=braided.SPARK_CONF)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    writer = spark.readStream.format("braided").option("max_files", 1).load(str(root / "in")).writeStream
    writer = writer.format("braided").option("checkpointLocation", str(root / "c")).trigger(availableNow=True)
    writer.start(str(root / "out")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
