"""How Spark finds `format("braided")` by itself: it imports every module `pyspark_*` and takes its `DefaultSource`."""

from braided.spark.source import BraidedSource as DefaultSource

__all__ = ["DefaultSource"]
