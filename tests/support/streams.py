"""Small file streams for tests on Spark: each list of rows is one batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

UTC = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000


def write_batch(folder: Path, number: int, rows: pa.Table) -> None:
    """Write one file; Spark reads files in order of modification time, which is made to follow the number."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    temporary = folder / f".{number:05d}.tmp"
    pq.write_table(rows, temporary)
    os.utime(temporary, (1_700_000_000 + number, 1_700_000_000 + number))
    temporary.rename(path)


def write_closing(
    root: Path, *, seed: int, files: int, rows: int, make: Callable[[np.random.Generator, pa.Array], pa.Table]
) -> dict[str, pa.Table]:
    """Write calls and alerts, each up to two seconds out of order, and two files far later, which close all windows.

    `make` makes a table of times. Returns all rows of each stream.
    """
    random = np.random.default_rng(seed)
    found = {}
    for name in ("calls", "alerts"):
        parts = []
        for number in range(files + 2):
            start = number * 10_000_000 + (120_000_000 if number >= files else 0)
            times = start + random.integers(0, 12_000_000, rows if number < files else 40)
            parts.append(make(random, pa.array(times, UTC)))
            write_batch(root / name, number, parts[-1])
        found[name] = pa.concat_tables(parts)
    return found


def write_first_screen(folder: Path) -> None:
    """The rows of the README's first screen."""

    def at(second: int) -> int:
        return 1_714_564_800 * SECOND + second * SECOND  # 2024-05-01 12:00:00

    calls = pa.table({"phone": ["555", "777"], "ts": pa.array([at(0), at(30)], UTC), "cell": ["A1", "B2"]})
    alerts = pa.table({"phone": ["555"], "ts": pa.array([at(4)], UTC), "reason": ["fraud"]})
    write_batch(folder / "calls", 0, calls)
    write_batch(folder / "alerts", 0, alerts)


def file_stream(spark: SparkSession, folder: Path, schema: str | StructType, files: int = 1) -> DataFrame:
    """Read a folder as a stream, `files` files a batch."""
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))


def run_to_end(result: DataFrame, checkpoint: Path, output: Path, *, mode: str = "append") -> StreamingQuery:
    """Process everything available into a Parquet sink."""
    query = (
        result.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start(str(output))
    )
    query.awaitTermination()
    return query


def read_rows(spark: SparkSession, output: Path) -> list[tuple[Any, ...]]:
    """Return the committed output of a Parquet sink, sorted."""
    return sorted((tuple(row) for row in spark.read.parquet(str(output)).collect()), key=repr)


def batches_of(rows: Sequence[dict[str, Any]], size: int, schema: pa.Schema) -> list[pa.Table]:
    """Cut rows into tables of a given size."""
    return [pa.Table.from_pylist(list(rows[i : i + size]), schema) for i in range(0, len(rows), size)]
