"""What the examples share: a Spark session on this machine, streams as files, and a query that runs to its end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECOND = 1_000_000
START = 1_714_564_800 * SECOND  # 2024-05-01 12:00:00 UTC


def times(seconds: Sequence[float]) -> pa.Array:
    """Return moments, in seconds after noon."""
    return pa.array([START + round(second * SECOND) for second in seconds], pa.timestamp("us", tz="UTC"))


def stream(spark: SparkSession, folder: Path, rows: pa.Table, batches: int = 1) -> DataFrame:
    """Write rows as files in order, one a batch, and return them as a stream."""
    folder.mkdir(parents=True)
    size = -(-rows.num_rows // batches)
    for number in range(batches):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(rows.slice(number * size, size), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads them in this order
    return braided.files(spark, folder, max_files=1)


def results(frame: DataFrame, folder: Path) -> tuple[pa.Table, StreamingQuery]:
    """Run a query over all that is there; return its rows and the query, which has the report."""
    query = braided.write_files(frame, folder, checkpoint=f"{folder}-checkpoint", trigger="available now")
    query.awaitTermination()
    return pq.ParquetDataset(braided.topic(folder).files()).read(), query


def show(rows: pa.Table, *by: str) -> None:
    """Print rows in order."""
    print(rows.sort_by([(name, "ascending") for name in by]).to_pandas().to_string(index=False))


def run(main: Callable[[SparkSession, Path], None]) -> None:
    """Run an example on a local Spark, with all its files in a folder that is deleted after."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="braided-example-") as folder:
        settings = {
            **braided.SPARK_CONF,
            **braided.FAST_START,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        try:
            main(spark, Path(folder))
        finally:
            spark.stop()
