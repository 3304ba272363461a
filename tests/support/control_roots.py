"""Joins whose control directories are all below one root, under ever new routings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import braided
from braided.spark.control import CONTROL
from braided.spark.session_operators import registry_of
from support.routing_cases import RandomController
from support.streams import file_stream, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DDL = "k long, ts timestamp, id long"


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root for the joins of a test, with four workers."""
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    spark.conf.set(CONTROL, str(tmp_path / "root"))
    yield tmp_path / "root"
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set(CONTROL, "false")


def joined(spark: SparkSession, root: Path, **options: Any) -> DataFrame:
    """Join the streams of `crashes.write_streams`."""
    left, right = (file_stream(spark, root / side, DDL) for side in ("left", "right"))
    return braided.join(left, right, on="k", time="ts", within="10 seconds", lateness="5 seconds", **options)


def hide(root: Path, first: int) -> None:
    """Take the later files of both streams away; with `first=0` they come back."""
    for side in ("left", "right"):
        (root / "hidden" / side).mkdir(parents=True, exist_ok=True)
        source, target = (root / side, root / "hidden" / side) if first else (root / "hidden" / side, root / side)
        for path in sorted(source.iterdir())[first:]:
            path.rename(target / path.name)


def run_and_hear(spark: SparkSession, result: DataFrame, checkpoint: Path, output: Path) -> StreamingQuery:
    """Process everything available, and let the driver hear of it: its listeners come after the query."""
    query = run_to_end(result, checkpoint, output)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return query
