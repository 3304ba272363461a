"""Write two topics of calls and alerts for the pipeline: python examples/pipeline/streams.py FOLDER."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

CALLS = [("555", 0, "A1"), ("777", 4, "B2"), ("555", 6, "A2"), ("888", 9, "A1"), ("777", 11, "B2"), ("555", 60, "A1")]
ALERTS = [("555", 3, "cloned card"), ("777", 8, "stolen"), ("999", 9, "cloned card")]


def main(folder: str) -> None:
    """Write both topics, as a batch job does."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    start = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for name, rows, last in (("calls", CALLS, "cell"), ("alerts", ALERTS, "reason")):
        timed = [(phone, start + timedelta(seconds=second), text) for phone, second, text in rows]
        frame = spark.createDataFrame(timed, f"phone string, ts timestamp, {last} string")
        frame.coalesce(1).write.format("braided").mode("append").save(f"{folder}/{name}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
