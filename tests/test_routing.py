"""Routing: every worker on its own partition, even shares, and a changed number of partitions always noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from braided.routing.keys import KeyHasher
from braided.routing.routes import route
from braided.routing.table import RoutingTable, worker_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 200])
def test_shares_are_even(workers: int) -> None:
    hashes = KeyHasher((pa.int64(),)).hash([pa.array(np.arange(200_000))], 200_000)
    counts = np.bincount(
        route(RoutingTable.hashed(workers), 0, hashes, lambda at: hashes[at]).workers, minlength=workers
    )
    assert counts.max() <= 1.25 * counts.mean()


def test_another_number_of_partitions_is_always_noticed() -> None:
    """Either some worker lands on a partition that is not its own, or one finds the state of the old number."""
    from braided.routing.table import _murmur3_int

    limit = 96
    ids = {workers: worker_ids(workers) for workers in range(1, limit)}
    for now in range(1, limit):
        for before in range(1, limit):
            if now == before:
                continue
            at_home = all(_murmur3_int(group) % before == worker for worker, group in enumerate(ids[now]))
            assert not at_home or set(ids[now]) & set(ids[before])


@pytest.mark.spark
@pytest.mark.parametrize("workers", [2, 5, 16])
def test_spark_puts_each_worker_on_its_own_partition(spark: SparkSession, workers: int) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(group,) for group in worker_ids(workers)], "worker int")
    placed = frame.repartition(workers, "worker").select("worker", F.spark_partition_id().alias("at")).collect()
    assert {row["worker"]: row["at"] for row in placed} == {g: w for w, g in enumerate(worker_ids(workers))}
