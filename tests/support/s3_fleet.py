"""A job of a fleet whose checkpoint is in an object store: it runs at one host, moves to another, and comes back.

Run as a process of its own by `slow/test_s3.py`: `python s3_fleet.py ROOT CHECKPOINT SETTINGS`. Of two inputs below
ROOT a file each is there at first; the others come while the job is elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))  # a process of its own finds the package of this file

import braided
from braided.fleet.checkpoints import Checkpoints
from braided.fleet.definition import component_of
from braided.fleet.hosting.spark_host import SparkHost
from braided.storage.topic import Topic
from support.control_roots import hide
from support.crashes import expected

JOB = """
name = "pairs"
checkpoint = "{checkpoint}"
[sources.left]
path = "{root}/left"
schema = "k LONG, ts TIMESTAMP, id LONG"
max_files = 1
[sources.right]
path = "{root}/right"
schema = "k LONG, ts TIMESTAMP, id LONG"
max_files = 1
[[steps]]
name = "pairs"
sql = '''SELECT l.id, r.id AS id_right FROM left l JOIN right r ON l.k = r.k
AND l.ts BETWEEN r.ts - INTERVAL 10 SECONDS AND r.ts + INTERVAL 10 SECONDS'''
options = {{ lateness = "5 seconds" }}
[sink]
format = "topic"
path = "{root}/out"
"""


async def main(root: Path, checkpoint: str, settings: dict[str, str]) -> None:
    """Move the job from host to host, with a rehearsal before, and write down the pairs and the epochs."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=braided.SPARK_CONF | braided.FAST_START | settings)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    job = component_of(JOB.format(checkpoint=checkpoint, root=root), "pairs.toml")
    north, south = (SparkHost(spark, cores=2) for _ in range(2))
    hide(root, first=2)
    position = None
    for epoch, host in enumerate((north, south, north)):
        if epoch:
            await host.rehearse(job)
        await host.start(job, epoch, position)
        for path in sorted((root / "hidden").glob("*/*"), key=lambda path: path.name)[: 4 if epoch else 0]:
            path.rename(root / path.parent.name / path.name)
        await _until_done(root)
        position = await host.stop("pairs")
    read = [pd.read_parquet(name, columns=["id", "id_right"]) for name in braided.topic(str(root / "out")).files()]
    pairs = [pair for frame in read for pair in zip(frame["id"].tolist(), frame["id_right"].tolist(), strict=True)]
    said = {"pairs": pairs, "epochs": Checkpoints(checkpoint).epochs()}
    (root / "committed.json").write_text(json.dumps(said))
    north.close()
    south.close()


async def _until_done(root: Path) -> None:
    """Wait for the results of all files that are there."""
    topic, wanted = Topic(str(root / "out")), sum(expected(root).values())
    async with asyncio.timeout(200):
        while sum(entry.rows for entry in topic.manifests()) < wanted:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
