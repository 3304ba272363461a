"""A step in Python for jobs of a fleet: Spark's own windows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def count_calls(calls: DataFrame) -> DataFrame:
    """Calls in windows of five seconds."""
    counted = calls.groupBy(F.window("ts", "5 seconds")).count()
    return counted.select(F.col("window.start").alias("start"), "count")


def fail(numbers: DataFrame) -> DataFrame:
    """A step that raises at the number 3."""

    def check(n: int) -> int:
        if n == 3:
            raise ZeroDivisionError("the number 3")
        return n

    return numbers.select(F.udf(check, "long")("n").alias("n"))
