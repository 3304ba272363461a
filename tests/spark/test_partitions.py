"""Spark puts every worker on its own partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braided.routing.table import worker_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("workers", [2, 5, 16])
def test_spark_puts_each_worker_on_its_own_partition(spark: SparkSession, workers: int) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(group,) for group in worker_ids(workers)], "worker int")
    placed = frame.repartition(workers, "worker").select("worker", F.spark_partition_id().alias("at")).collect()
    assert {row["worker"]: row["at"] for row in placed} == {g: w for w, g in enumerate(worker_ids(workers))}
