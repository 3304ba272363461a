"""Streams of files for queries in SQL, their oracle, and runs of several queries at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import braided

Rows = list[tuple[Any, ...]]
GAP = 200_000_000
"""Between the first two files of a stream and the last two, in microseconds: what is before is certain in the end."""
CERTAIN = 100


def write_sql_streams(root: Path, names: Sequence[str], rows: int, seed: int) -> dict[str, pa.Table]:
    """Write streams with the columns k, g, ts, n and x, some of them null, as four files each; return them whole."""
    numbers = np.random.default_rng(seed)
    found = {}
    for name in names:
        (root / name).mkdir()
        parts = []
        for number in range(4):
            start = number * 6_000_000 + (GAP if number >= 2 else 0)
            times = start + numbers.integers(0, 32, rows) * 250_000
            part = pa.table({
                "k": pa.array([None if n == 0 else int(n) for n in numbers.integers(0, 12, rows)], pa.int32()),
                "g": pa.array([None if n == 3 else f"g{n}" for n in numbers.integers(0, 5, rows)]),
                "ts": pa.array([None if n == 0 else int(t) for n, t in zip(numbers.integers(0, 40, rows), times, strict=True)], pa.timestamp("us", "UTC")),
                "n": numbers.integers(-20, 20, rows),
                "x": numbers.integers(0, 16, rows) / 4,
            })  # fmt: skip
            path = root / name / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
            parts.append(part)
        found[name] = pa.concat_tables(parts)
    return found


def sql_streams(spark: SparkSession, root: Path, names: Sequence[str], files: int = 1) -> dict[str, DataFrame]:
    """Return the streams, read so many files at a time."""
    return {name: braided.files(spark, str(root / name), max_files=files) for name in names}


def run_all(frames: Mapping[str, DataFrame], folder: Path) -> dict[str, Rows]:
    """Run queries to the end of their streams, all at once: most of a small batch is waiting."""
    running = {}
    for number, (what, frame) in enumerate(frames.items()):
        out, check = folder / f"{number}-out", folder / f"{number}-check"
        running[what] = out, braided.write_files(frame, out, checkpoint=check, trigger="available now")
    found = {}
    for what, (out, query) in running.items():
        query.awaitTermination()
        found[what] = certain(_read(out))
    return found


def oracle(text: str, tables: Mapping[str, pa.Table]) -> Rows:
    """Return DuckDB's rows over the finished streams, those that are certain."""
    text = text.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return certain(database.sql(text).fetchall())


def certain(rows: Rows) -> Rows:
    """Return the rows whose first column, a time, is long before the end, in one order."""
    kept = [row for row in rows if row[0] is None or row[0].timestamp() < CERTAIN]
    plain = [
        tuple(round(v, 6) if isinstance(v, float) else int(v) if type(v).__name__ == "Decimal" else v for v in row)
        for row in kept
    ]
    return sorted(plain, key=repr)


def _read(out: Path) -> Rows:
    files = braided.topic(out).files()
    if not files:
        return []
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        rows: Rows = database.execute("from read_parquet(?)", [files]).fetchall()
        return rows
