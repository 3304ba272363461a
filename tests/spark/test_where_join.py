"""`where=` on Spark: kernels and Spark's own evaluation give the same join."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.streams import batches_of, file_stream, read_rows, run_to_end, write_batch
from test_join_spark import DDL, SCHEMA, make_rows

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "where",
    [
        "l.id <> r.id and l.id + 3 > r.id",  # compiled
        "abs(l.id - r.id) % 3 = 1 and r.k is not null",  # left to Spark, and names a right key
    ],
)
def test_streams_and_batches_agree(spark: SparkSession, tmp_path: Path, where: str) -> None:
    rows = {"left": make_rows(21, 80, 4, 5), "right": make_rows(22, 80, 4, 5)}
    for side, part in rows.items():
        for number, table in enumerate(batches_of(part, 40, SCHEMA)):
            write_batch(tmp_path / side, number, table)
    options = {"on": "k", "time": "ts", "within": "6 seconds", "where": where, "lateness": "5 seconds"}
    streams = [file_stream(spark, tmp_path / side, DDL) for side in rows]
    result = braided.join(*streams, **options)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    found = Counter(read_rows(spark, tmp_path / "out"))
    frames = [spark.read.schema(DDL).parquet(str(tmp_path / side)) for side in rows]
    batch = braided.join(*frames, **options)
    assert not batch.isStreaming
    assert batch.columns == result.columns
    assert found == Counter(tuple(row) for row in batch.collect())
    assert found
