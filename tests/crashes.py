"""Killing a driver with SIGKILL at random moments and checking what was committed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from streams import SECOND, UTC, write_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("ts", UTC), ("id", pa.int64())])


def write_streams(root: Path, files: int, rows: int, seed: int) -> None:
    """Write both inputs: disorder of up to 5 seconds, a hundred keys."""
    rng = np.random.default_rng(seed)
    for side in ("left", "right"):
        for number in range(files):
            ids = np.arange(rows) + number * rows
            times = 1_700_000_000 * SECOND + ids * 4 * SECOND // rows - rng.integers(0, 5 * SECOND, rows)
            table = pa.table([rng.integers(0, 100, rows), pa.array(times, UTC), ids], schema=SCHEMA)
            write_batch(root / side, number, table)


def run_with_kills(root: Path, kills: int, seed: int) -> int:
    """Run the query, killed so many times at random moments, then to its end; return the kills that hit it at work."""
    rng = random.Random(seed)
    hits = 0
    environment = {**os.environ, "BRAIDED_CACHE_DIR": str(root / "cache")}
    (root / "cache").mkdir(exist_ok=True)
    while True:
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "crash_query.py"), str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=environment,
        )
        try:
            assert child.stdout is not None
            lines = iter(child.stdout.readline, "")
            if not any(line.startswith("started") for line in lines):
                raise AssertionError("the query did not start")
            if hits >= kills:
                assert any(line.startswith("finished") for line in lines), "the query failed"
                return hits
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=rng.uniform(0.3, 7))
                return hits
            hits += 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def committed(spark: SparkSession, root: Path) -> Counter[Any]:
    """Return what the sink committed, read through Spark."""
    rows = spark.read.parquet(str(root / "out")).select("id", "id_right").collect()
    return Counter((row[0], row[1]) for row in rows)


def expected(root: Path) -> Counter[Any]:
    """Return DuckDB's answer over the same files."""
    with duckdb.connect() as db:
        return Counter(
            db.execute(
                f"""select l.id, r.id from '{root}/left/*.parquet' l join '{root}/right/*.parquet' r on l.k = r.k
                and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 10000000"""
            ).fetchall()
        )
