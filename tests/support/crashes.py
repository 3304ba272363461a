"""Killing a driver with SIGKILL at random moments and checking what was committed."""

from __future__ import annotations

import contextlib
import json
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

from support.jvm import JAVA_OPTIONS
from support.streams import SECOND, UTC, write_batch

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


def run_with_kills(root: Path, kills: int, seed: int) -> Counter[Any]:
    """Run the query, killed so many times at random moments of random batches, then to its end; return its results."""
    rng = random.Random(seed)
    files = len(list((root / "left").iterdir()))
    # Each run is killed in a batch of its own part of the input, so that every one is at work when it is.
    last = [files * (kill + 1) // (kills + 1) - 1 for kill in range(kills)]
    quick = {"SPARK_SUBMIT_OPTS": JAVA_OPTIONS}
    environment = {**os.environ, **quick, "BRAIDED_CACHE_DIR": str(root / "cache")}
    (root / "cache").mkdir(exist_ok=True)
    for kill in range(kills + 1):
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
            if kill == kills:
                assert any(line.startswith("finished") for line in lines), "the query failed"
                break
            first = last[kill - 1] + 1 if kill else 0
            batch = rng.randint(first, last[kill])
            # The run before may have done it between its last line and its end.
            assert any(_batch(line) >= batch for line in lines), f"the query never did batch {batch}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=rng.uniform(0, 0.7))
                raise AssertionError("the query ended before it was killed")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return Counter((left, right) for left, right in json.loads((root / "committed.json").read_text()))


def run_to_a_table(root: Path, table: str, options: dict[str, str], kills: int, seed: int) -> None:
    """Run the query into a table, killed so many times: with files and no commit, with a commit, or at any moment.

    Three batches for each kill and eight more are enough.
    """
    rng = random.Random(seed)
    files = len(list((root / "left").iterdir()))
    (root / "cache").mkdir(exist_ok=True)
    (root / "direct").mkdir(exist_ok=True)
    (root / "options.json").write_text(json.dumps({"table": table, "table_options": options}))
    for kill in range(kills + 1):
        # In one of its first batches, so that every run does some.
        done = max((int(path.name) for path in (root / "check" / "commits").glob("[0-9]*")), default=-1)
        batch = done + rng.randint(1, 3)
        assert kill == kills or batch < files - 2, "there is nothing left to do for a run that is to be killed"
        moment = rng.choice(("files", "table", "any"))
        die = {"DIE": f"{moment} {batch}"} if moment != "any" and kill < kills else {}
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "crash_query.py"), str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_SUBMIT_OPTS": JAVA_OPTIONS, "BRAIDED_CACHE_DIR": str(root / "cache"), **die},
        )
        try:
            assert child.stdout is not None
            lines = iter(child.stdout.readline, "")
            if kill == kills:
                assert any(line.startswith("finished") for line in lines), "the query failed"
            elif moment == "any":
                assert any(_batch(line) >= batch for line in lines), f"the query never did batch {batch}"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=rng.uniform(0, 0.7))
                    raise AssertionError("the query ended before it was killed")
            else:
                assert not any(_batch(line) >= batch for line in lines), f"batch {batch} was reported as done"
                assert child.wait(60) == -signal.SIGKILL, "the query ended before it was killed"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _batch(line: str) -> int:
    word, _, number = line.partition(" ")
    return int(number) if word == "batch" else -1


def committed(spark: SparkSession, root: Path) -> Counter[Any]:
    """Return what the sink committed, read through Spark."""
    rows = spark.read.parquet(str(root / "out")).select("id", "id_right").collect()
    return Counter((row[0], row[1]) for row in rows)


def expected(root: Path, how: str = "inner") -> Counter[Any]:
    """Return DuckDB's answer over the same files."""
    with duckdb.connect() as db:
        return Counter(
            db.execute(
                f"""select l.id, r.id from '{root}/left/*.parquet' l {how} join '{root}/right/*.parquet' r on l.k = r.k
                and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 10000000"""
            ).fetchall()
        )
