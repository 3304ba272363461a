"""Control directories of one root: queries of one DataFrame, operators that look alike, copies of a checkpoint."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.control_roots import hide, joined, root, run_and_hear
from support.crashes import committed, expected, write_streams
from support.streams import read_rows, run_to_end

import braided
from braided.routing.root import ControlRoot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["root"]


def test_one_dataframe_is_started_as_two_queries(spark: SparkSession, tmp_path: Path, root: Path) -> None:
    write_streams(tmp_path, files=5, rows=200, seed=41)
    result = joined(spark, tmp_path)
    queries = [run_to_end(result, tmp_path / f"check{n}", tmp_path / f"out{n}") for n in range(2)]
    places = [braided.report(query).routing["control"] for query in queries]  # type: ignore[index]
    assert len(set(places)) == 2
    for number in range(2):
        rows = read_rows(spark, tmp_path / f"out{number}")
        assert Counter((row[2], row[4]) for row in rows) == expected(tmp_path)


def test_operators_that_cannot_be_told_apart_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for part in ("one", "two"):
        write_streams(tmp_path / part, files=5, rows=200, seed=len(part))
    both = joined(spark, tmp_path / "one").unionAll(joined(spark, tmp_path / "two"))
    with caplog.at_level(logging.WARNING, "braided"):
        query = run_and_hear(spark, both, tmp_path / "check", tmp_path / "out")
    [control] = (root / str(query.id)).glob("join-*")
    assert [path.stem for path in (control / "tables").iterdir()] == [f"{1:012d}"]
    assert "another operator of this query has the same options and columns" in caplog.text
    assert committed(spark, tmp_path) == expected(tmp_path / "one") + expected(tmp_path / "two")

    named = [joined(spark, tmp_path / part, name=part) for part in ("one", "two")]
    query = run_and_hear(spark, named[0].unionAll(named[1]), tmp_path / "check2", tmp_path / "out2")
    tables = [list((folder / "tables").iterdir()) for folder in (root / str(query.id)).iterdir() if folder.is_dir()]
    assert len(tables) == 2
    assert all(len(each) > 1 for each in tables)


def test_a_moved_checkpoint_finds_its_directory(spark: SparkSession, tmp_path: Path, root: Path) -> None:
    write_streams(tmp_path, files=6, rows=200, seed=44)
    hide(tmp_path, first=3)
    result = joined(spark, tmp_path)
    query = run_and_hear(spark, result, tmp_path / "check", tmp_path / "out")
    hide(tmp_path, first=0)
    (tmp_path / "check").rename(tmp_path / "moved")
    (tmp_path / "check").symlink_to(tmp_path / "moved")  # Spark remembers the path of the state's schema
    run_to_end(result, tmp_path / "moved", tmp_path / "out")
    [folder] = (root / str(query.id)).glob("join-*")
    assert len(list((folder / "pins").iterdir())) == 6
    assert committed(spark, tmp_path) == expected(tmp_path)


def test_a_copy_of_a_checkpoint_does_not_share_the_routing(spark: SparkSession, tmp_path: Path, root: Path) -> None:
    write_streams(tmp_path, files=6, rows=200, seed=42)
    hide(tmp_path, first=3)
    result = joined(spark, tmp_path)
    query = run_and_hear(spark, result, tmp_path / "check", tmp_path / "out")
    shutil.copytree(tmp_path / "check", tmp_path / "copy")
    [folder] = (root / str(query.id)).glob("join-*")
    shutil.copytree(folder, tmp_path / "control")
    hide(tmp_path, first=0)
    with pytest.raises(Exception, match="is a copy of"):
        run_to_end(result, tmp_path / "copy", tmp_path / "unused")
    shutil.copytree(tmp_path / "out", tmp_path / "out2")
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    own = joined(spark, tmp_path, control=str(tmp_path / "control"))
    run_to_end(own, tmp_path / "copy", tmp_path / "out2")
    assert committed(spark, tmp_path) == expected(tmp_path)
    assert ControlRoot(str(root)).queries() == [str(query.id)]


def test_a_directory_goes_with_a_temporary_checkpoint(spark: SparkSession, tmp_path: Path, root: Path) -> None:
    write_streams(tmp_path, files=2, rows=100, seed=43)
    query = joined(spark, tmp_path).writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    shared = ControlRoot(str(root))
    assert shared.queries() == [str(query.id)]
    assert braided.forget_control(root=root) == [str(query.id)]
    assert shared.queries() == []
