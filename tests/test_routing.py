"""Routing: every worker on its own partition, even shares, and a changed number of partitions always noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from braided.routing.control import ControlDir
from braided.routing.edit import TableEdit
from braided.routing.keys import KeyHasher
from braided.routing.routes import route
from braided.routing.start import first_table
from braided.routing.table import RoutingTable, worker_ids
from braided.runtime.spark import Routing

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


def test_every_task_of_a_batch_uses_its_pinned_table(tmp_path: Path) -> None:
    control = ControlDir(str(tmp_path))
    first = first_table("auto", 4, keyed=True, version=1)
    control.publish(first)
    routing = Routing(first, control)
    assert routing.table_of("0-17", "query", "join").version == 1
    edit = TableEdit(first)
    edit.assign(np.arange(10), 3)
    control.publish(edit.done())
    # A task that runs late, a retry, a replay after a restart: all read the pin. Only the next batch moves on.
    assert Routing(first, ControlDir(str(tmp_path))).table_of("0-17", "query", "join").version == 1
    assert routing.table_of("1-23", "query", "join").version == 2
