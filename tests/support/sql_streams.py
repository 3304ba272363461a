"""Streams of files for queries in SQL, their oracle, and runs of several queries at once."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

import braided
from braided.spark import sql

Rows = list[tuple[Any, ...]]
GAP = 200_000_000
"""Between the first two files of a stream and the last two, in microseconds: what is before is certain in the end."""
CERTAIN = 100


def write_sql_streams(root: Path, names: Sequence[str], rows: int, seed: int) -> dict[str, pa.Table]:
    """Write streams with the columns k, g, ts, n and x, some of them null, as four files each; return them whole."""
    numbers = np.random.default_rng(seed)
    found: dict[str, Any] = {}
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


def run_all(frames: Mapping[str, DataFrame], folder: Path, together: int = 3) -> dict[str, Rows]:
    """Run queries to the end of their streams, some at a time: most of a small batch is waiting."""
    found: dict[str, Any] = {}
    for first in range(0, len(frames), together):
        names = list(frames)[first : first + together]
        running: dict[str, Any] = {}
        for name in names:
            place = folder / str(len(found) + len(running))
            frame = frames[name]
            query = braided.write_files(frame, place / "out", checkpoint=place / "check", trigger="available now")
            running[name] = place / "out", query
        for name, (out, query) in running.items():
            query.awaitTermination()
            found[name] = certain(_read(out))
    return found


@contextmanager
def tables_as_streams() -> Iterator[None]:
    """Let `braided.sql` take batch DataFrames for streams: it plans as for streams, and Spark's batch joins run it.

    A query takes a second then, and gives all of its rows.
    """

    def sources(nodes: Any, inputs: Any) -> Any:
        return {
            alias: source
            if isinstance(source.node, exp.Table) and source.node.name == "t"
            else replace(source, streaming=True)
            for alias, source in real(nodes, inputs).items()
        }

    real = sql._sources
    with (
        patch.object(sql, "_sources", sources),
        patch.object(sql._Query, "_streams", lambda query: set(query.frames)),
    ):
        yield


def oracle(text: str, tables: Mapping[str, pa.Table]) -> Rows:
    """Return DuckDB's rows over the finished streams."""
    text = text.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return in_order(database.sql(text).fetchall())


def certain(rows: Rows) -> Rows:
    """Return the rows whose first column, a time, is long before the end."""
    return [row for row in rows if row[0] is None or row[0].timestamp() < CERTAIN]


def in_order(rows: Sequence[tuple[Any, ...]]) -> Rows:
    """Return rows in one order, with numbers and times that can be compared."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    if isinstance(value, float):
        return round(value, 6)
    return int(value) if isinstance(value, decimal.Decimal) else value


def _read(out: Path) -> Rows:
    files = braided.topic(out).files()
    if not files:
        return []
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        return in_order(database.execute("from read_parquet(?)", [files]).fetchall())
