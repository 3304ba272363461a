"""A hierarchy of detectors over two peers: the rows of the same hierarchy in one query, whichever part moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from support.hierarchy_steps import DDL, whole, write_readings
from support.streams import SECOND, file_stream

import braided
from braided.fleet.definition import component_of
from braided.fleet.hosting.spark_host import SparkHost
from braided.storage.topic import Topic
from braided.time.clocks import MIN_TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 6
JOB = """
name = "{1}"
operator = "detect.{1}"
checkpoint = "{0}/checkpoints/{1}"
trigger = "200 milliseconds"
[sources.events]
path = "{0}/{2}"
{3}
[[steps]]
name = "{1}"
python = "support.hierarchy_steps:{1}"
inputs = ["events"]
[sink]
format = "topic"
path = "{0}/{1}"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""


async def _play(spark: SparkSession, root: Path) -> None:
    """Run both jobs; the lower moves to the other peer after every second file, the upper after every third."""
    jobs = {
        "below": component_of(JOB.format(root, "below", "readings", f'schema = "{DDL}"\nmax_files = 1'), "below.toml"),
        "above": component_of(JOB.format(root, "above", "below", 'format = "topic"'), "above.toml"),
    }
    hosts = [SparkHost(spark, cores=2, modules=("support",)) for _ in range(2)]
    at, epoch = {"below": 0, "above": 1}, {"below": 0, "above": 0}
    for number in range(FILES):
        write_readings(root / "readings", number)
        if not number:
            for name, job in jobs.items():
                await hosts[at[name]].start(job, 0, None)
        async with asyncio.timeout(120):
            while not _has_read(root, number):
                await asyncio.sleep(0.1)
        for name, every in (("below", 2), ("above", 3)):
            if number % every == every - 1:
                position = await hosts[at[name]].stop(name)
                at[name], epoch[name] = 1 - at[name], epoch[name] + 1
                await hosts[at[name]].rehearse(jobs[name])
                await hosts[at[name]].start(jobs[name], epoch[name], position)
    async with asyncio.timeout(120):
        # A pattern's delay is its `within`: ten seconds.
        while _until(root, "above") < _until(root, "below") - 10 * SECOND:
            await asyncio.sleep(0.1)
    for name in jobs:
        await hosts[at[name]].stop(name)
    for host in hosts:
        host.close()


def _has_read(root: Path, number: int) -> bool:
    topic = Topic(str(root / "below"))
    return sum(entry.kind == "batch" for entry in topic.manifests()) > number


def _until(root: Path, name: str) -> int:
    """Return what the last batch of a topic promises."""
    batches = [entry for entry in Topic(str(root / name)).manifests() if entry.kind == "batch"]
    return batches[-1].progress["ts"].until if batches else MIN_TIME


def test_a_hierarchy_over_two_peers_gives_the_rows_of_one_query_across_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    asyncio.run(_play(spark, tmp_path))
    readings = file_stream(spark, tmp_path / "readings", DDL)
    query = braided.write_files(
        whole(readings), tmp_path / "whole", checkpoint=tmp_path / "checkpoints/whole", trigger="available now"
    )
    query.awaitTermination()
    found = [
        sorted(duckdb.sql(f"SELECT * FROM read_parquet({Topic(str(tmp_path / run)).files()!r})").fetchall())
        for run in ("above", "whole")
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 20
