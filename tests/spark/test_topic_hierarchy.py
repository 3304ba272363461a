"""A hierarchy of detectors cut over two queries by a topic, on Spark: the rows of one query, after every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from pyspark.sql import functions as F
from support.hierarchy_steps import DDL, above, below, whole, write_readings
from support.streams import file_stream

import braided
from braided.storage.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _run(frame: DataFrame, root: Path, name: str) -> None:
    query = braided.write_files(frame, root / name, checkpoint=root / "checkpoints" / name, trigger="available now")
    query.awaitTermination()


def _rows(root: Path, name: str) -> list[tuple[object, ...]]:
    files = Topic(str(root / name)).files()
    return sorted(duckdb.sql(f"SELECT * FROM read_parquet({files!r})").fetchall()) if files else []


def test_two_jobs_and_a_topic_give_the_rows_of_one_query(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every run is a restart of all three; the upper job reads several manifests at once.

    In the first workers write what the lower detector publishes; in the second Spark does, after a filter.
    """
    for first, stop in ((0, 2), (2, 4)):
        for number in range(first, stop):
            write_readings(tmp_path / "readings", number)
        readings = file_stream(spark, tmp_path / "readings", DDL)
        _run(whole(readings), tmp_path, "whole")
        rises = below(readings)
        _run(rises if not first else rises.where("v % 1 = 0").withColumn("v", F.expr("v + 0")), tmp_path, "rises")
        cut = above(braided.files(spark, tmp_path / "rises"))
        braided.explain(cut)
        assert "its files are read by the routers" in capsys.readouterr().out
        _run(cut, tmp_path, "cut")
        assert _rows(tmp_path, "cut") == _rows(tmp_path, "whole")
    assert len(_rows(tmp_path, "whole")) > 20
    promised = [entry.progress["ts"] for entry in Topic(str(tmp_path / "rises")).manifests() if entry.kind == "batch"]
    assert len(promised) == 4
    assert [one.until for one in promised] == sorted(one.until for one in promised)
    assert len({one.lateness for one in promised}) > 1, "K has not risen at all"
    assert {one.delay for one in promised} == {6_000_000}
