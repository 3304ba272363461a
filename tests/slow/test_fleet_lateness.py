"""Figure 5b's question: what a detector's K is before and after a migration. It is identical, batch for batch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from support.fleet_processes import JOIN
from support.streams import SECOND, UTC, write_batch

import braided
from braided.fleet.definition import component_of
from braided.fleet.hosting.spark_host import SparkHost
from braided.storage.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 8
MOVED_AFTER = (2, 4, 5)


def _write(root: Path, number: int) -> None:
    """Write a file a side, within a few milliseconds, so that one batch has both; odd ones are up to twenty seconds late."""
    for side, name in enumerate(("calls", "alerts")):
        random = np.random.default_rng(10 * number + side)
        late = random.integers(0, (20 if number % 2 else 2) * SECOND, 300)
        times = 1_700_000_000 * SECOND + number * 10 * SECOND + random.integers(0, 10 * SECOND, 300) - late
        table = pa.table(
            {"phone": random.integers(0, 50, 300), "ts": pa.array(times, UTC), "id": np.arange(300) + number * 300}
        )
        write_batch(root / name, number, table)


async def _play(spark: SparkSession, root: Path, moved_after: tuple[int, ...]) -> list[Any]:
    """Run a join a file at a time; return K, late rows, clock and all rows of each stream after every batch."""
    job = component_of(JOIN.format(root).replace("500 milliseconds", "1 second"), "hits.toml")
    hosts = [SparkHost(spark, cores=2), SparkHost(spark, cores=2)]
    seen: list[Any] = []
    _write(root, 0)
    await hosts[0].start(job, 0, None)
    for batch in range(BATCHES):
        if batch:
            _write(root, batch)
        query = hosts[0]._running["hits"]._query
        assert query is not None
        async with asyncio.timeout(120):
            while not _reported(query, batch):
                await asyncio.sleep(0.05)
        streams = braided.report(query).streams
        seen.append([(one["lateness"], one["late"], one["clock"], one["rows"]) for one in streams])
        if batch in moved_after:
            position = await hosts[0].stop("hits")  # first: one application does not run a query twice
            await hosts[1].rehearse(job)
            hosts.reverse()
            await hosts[0].start(job, batch + 1, position)
    await hosts[0].stop("hits")
    for host in hosts:
        host.close()
    return seen


def _reported(query: Any, batch: int) -> bool:
    try:
        return sum(one["rows"] for one in braided.report(query).streams) == 600 * (batch + 1)
    except braided.OptionError:
        return False


def test_k_is_the_same_with_and_without_moves_and_no_row_is_late_for_one(spark: SparkSession, tmp_path: Path) -> None:
    stayed = asyncio.run(_play(spark, tmp_path / "stayed", ()))
    moved = asyncio.run(_play(spark, tmp_path / "moved", MOVED_AFTER))
    assert moved == stayed
    assert len({str(batch[0][0]) for batch in stayed}) > 2, "K has not changed at all"
    found = [
        sorted(duckdb.sql(f"SELECT * FROM read_parquet({Topic(str(tmp_path / run / 'hits')).files()!r})").fetchall())
        for run in ("stayed", "moved")
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 1000
