"""Trades and quotes in disorder, as files, for joins of two streams on Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from support.streams import UTC, file_stream, read_rows, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
TRADES, QUOTES = "symbol string, ts timestamp, n long", "symbol string, ts timestamp, bid double, venue string"
LATENESS = "3 seconds"


def write_disordered(folder: Path, files: int = 4, rows: int = 300) -> tuple[pa.Table, pa.Table]:
    """Write trades and quotes up to 3 s late, a file per batch, and rows far later that decide all others."""
    tables = []
    for name, seed in (("trades", 1), ("quotes", 2)):
        rng = np.random.default_rng(seed)
        count = files * rows
        times = START + np.sort(rng.integers(0, count * SECOND // 50, count))
        times = times[np.argsort(times + rng.integers(0, 3 * SECOND, count), kind="stable")]
        times = np.append(times, times.max() + 60 * SECOND + np.arange(100))
        symbols = pa.array([None if n % 97 == 5 else f"s{n % 7}" for n in rng.integers(0, 1000, count)] + ["end"] * 100)
        own = (
            {"n": np.arange(count + 100)}
            if name == "trades"
            else {"bid": rng.random(count + 100).round(3), "venue": pa.array(rng.choice(["x", "y"], count + 100))}
        )
        moments = pa.array(times, UTC, mask=np.arange(count + 100) % 89 == 3)
        table = pa.table({"symbol": symbols, "ts": moments, **own})
        tables.append(table)
        for number in range(files):
            part = table.slice(number * rows, rows if number < files - 1 else rows + 100)
            write_batch(folder / name, number, part)
    return tables[0], tables[1]


def streams(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    return file_stream(spark, folder / "trades", TRADES), file_stream(spark, folder / "quotes", QUOTES)


def found(spark: SparkSession, output: Path) -> Counter[Any]:
    """Return what was written, but for the last rows, which wait for later ones."""
    return Counter(row for row in read_rows(spark, output) if row[0] != "end")


def comparable(rows: Counter[Any]) -> Counter[Any]:
    """Return rows with times as Spark's and ours agree on them."""
    return Counter(
        {
            tuple(value.timestamp() if hasattr(value, "timestamp") else value for value in row): count
            for row, count in rows.items()
        }
    )
