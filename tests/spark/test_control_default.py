"""Joins that adapt without being asked: every query finds its own control directory, wherever its checkpoint is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.control_roots import hide, joined, root, run_and_hear
from support.crashes import committed, expected, write_streams
from support.streams import run_to_end

import braided
from braided.routing.control_directory import ControlDir
from braided.spark.control import CONTROL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["root"]


def test_a_checkpoint_finds_its_directory_and_says_which_to_bring(
    spark: SparkSession, tmp_path: Path, root: Path
) -> None:
    write_streams(tmp_path, files=3, rows=200, seed=21)
    hide(tmp_path, first=1)
    result = joined(spark, tmp_path, name="hits")
    query = run_and_hear(spark, result, tmp_path / "check", tmp_path / "out")
    [folder] = (root / str(query.id)).glob("hits-*")
    routing = braided.report(query).routing
    assert routing is not None
    assert routing["control"] == str(folder)
    assert json.loads((root / str(query.id) / "query.json").read_bytes())["checkpoint"].endswith("/check")
    control = ControlDir(str(folder))
    newest = control.newest()
    control.publish(replace(newest, version=newest.version + 1))
    hide(tmp_path, first=0)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert committed(spark, tmp_path) == expected(tmp_path)
    write_streams(tmp_path / "more", files=1, rows=10, seed=22)
    for side in ("left", "right"):
        (tmp_path / "more" / side / "00000.parquet").rename(tmp_path / side / "00009.parquet")
    root.rename(tmp_path / "away")
    with pytest.raises(Exception, match=rf"went back from version \d+ to 1; .* control directory '{folder}'"):
        run_to_end(result, tmp_path / "check", tmp_path / "out")


def test_where_a_join_finds_its_directory(
    spark: SparkSession,
    tmp_path: Path,
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def explained(**options: object) -> str:
        braided.explain(joined(spark, tmp_path, **options))
        return capsys.readouterr().out.splitlines()[2].strip()

    assert explained(name="hits").startswith(f"adapts by {root}/<query id>/hits-")
    assert explained(control=tmp_path / "own") == f"adapts by {tmp_path}/own"
    assert not any((tmp_path / "own").iterdir()), "explain left something in the control directory"
    assert explained(control=False) == "fixed: control=False"
    assert explained(partition="hash") == "fixed: partition='hash'"
    assert explained(memory=100).startswith("fixed: with a budget the routing decides which rows are kept")
    assert explained(memory=100, control=True).startswith(f"adapts by {root}/<query id>/join-")
    spark.conf.set(CONTROL, "false")
    assert explained() == f"fixed: {CONTROL}=false"
    spark.conf.unset(CONTROL)
    assert explained(name="hits").startswith("adapts by <checkpoint>/braided/control/hits-")
    assert explained(memory=100, control=True).startswith("adapts by <checkpoint>/braided/control/join-")
    spark.conf.set(CONTROL, "")
    assert explained().startswith("adapts by <checkpoint>/braided/control/join-")
    for wrong in ("", 7, []):
        with pytest.raises(braided.OptionError, match="write a directory or an fsspec URL"):
            joined(spark, tmp_path, control=wrong)
