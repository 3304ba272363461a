"""A small join that a peer runs before its first job, so that Spark and its Python processes have run once.

The first query of a Spark application takes many seconds more than a second one: classes are loaded, code is generated,
Python processes start. A job that moves here, or starts here, need not wait for this.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from braided.fleet.hosting.job_environment import JobEnvironment
from braided.jobs.job_reader import parse_job
from braided.spark.jobs import start_job

_ROWS = 8
_BATCHES = 2
_SECOND = 1_000_000
_LONGEST = 120  # seconds

_JOB = """
name = "warm-up"
checkpoint = {checkpoint}
[sources.a]
path = {a}
max_files = 1
[sources.b]
path = {b}
max_files = 1
[[steps]]
name = "pairs"
sql = '''SELECT a.k, a.v, b.v AS other FROM a JOIN b ON a.k = b.k
AND b.t BETWEEN a.t - INTERVAL 2 SECONDS AND a.t + INTERVAL 2 SECONDS'''
[sink]
format = "topic"
path = {pairs}
"""


def warm_up(setting: JobEnvironment, shared: str | None = None) -> None:
    """Join a few rows from files into a topic, in a separate session, and delete all files.

    shared : a directory that executors on other machines reach too; None if tasks run in this process tree.
    """
    with tempfile.TemporaryDirectory(prefix="braided-warm-up-", dir=shared, ignore_cleanup_errors=True) as folder:
        paths = {name: Path(folder, name) for name in ("a", "b", "pairs", "checkpoint")}
        for side in ("a", "b"):
            _write(paths[side])
        text = _JOB.format_map({name: json.dumps(str(path)) for name, path in paths.items()})
        job = parse_job(text, "warm-up", {})
        query = start_job(setting.session(job), job, once=True)
        try:
            query.awaitTermination(_LONGEST)
        finally:
            query.stop()


def _write(folder: Path) -> None:
    folder.mkdir()
    for batch in range(_BATCHES):
        times = pa.array([(batch * _ROWS + row) * _SECOND for row in range(_ROWS)], pa.timestamp("us", "UTC"))
        rows = pa.table({"k": pa.array(range(_ROWS)), "t": times, "v": pa.array(map(str, range(_ROWS)))})
        pq.write_table(rows, folder / f"{batch}.parquet")
