"""The number of workers: that of the checkpoint, of the session, or in local mode one for each core."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.crashes import committed, expected, write_streams
from support.routing_cases import RandomController
from support.streams import file_stream, run_to_end

import braided
from braided.spark.control import CONTROL
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "k long, ts timestamp, id long"
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def _random_routing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    spark.conf.set(CONTROL, str(tmp_path / "root"))


def joined(spark: SparkSession, root: Path, partitions: int, **options: Any) -> DataFrame:
    spark.conf.set(PARTITIONS, partitions)
    left, right = (file_stream(spark, root / side, DDL) for side in ("left", "right"))
    return braided.join(left, right, on="k", time="ts", within="10 seconds", lateness="5 seconds", **options)


def hide_files(root: Path, first: int) -> None:
    """Take the files from a number on away, for `show_files`."""
    hidden = root / "hidden"
    for side in ("left", "right"):
        (hidden / side).mkdir(parents=True)
        for path in sorted((root / side).iterdir())[first:]:
            path.rename(hidden / side / path.name)


def show_files(root: Path, count: int) -> None:
    for side in ("left", "right"):
        for path in sorted((root / "hidden" / side).iterdir())[:count]:
            path.rename(root / side / path.name)


@pytest.mark.parametrize(
    "control",
    [
        pytest.param(True, id="root"),
        pytest.param(False, id="fixed", marks=pytest.mark.slow),
        pytest.param("control", id="directory", marks=pytest.mark.slow),
    ],
)
def test_a_restart_with_more_or_fewer_partitions_goes_on_with_those_of_the_checkpoint(
    spark: SparkSession, tmp_path: Path, control: bool | str
) -> None:
    write_streams(tmp_path, files=6, rows=200, seed=21)
    hide_files(tmp_path, 2)
    place = str(tmp_path / control) if isinstance(control, str) else control
    for partitions in (3, 5, 2):
        result = joined(spark, tmp_path, partitions, control=place, name="kept")
        query = run_to_end(result, tmp_path / "check", tmp_path / "out")
        report = braided.report(query).to_dict()
        assert len(report["workers"]) == 3
        assert report["routing"]["workers"] == 3
        show_files(tmp_path, 2)
    assert committed(spark, tmp_path) == expected(tmp_path)
    if control:
        assert report["routing"]["version"] > 1, "the routing never changed"


def test_a_batch_that_was_planned_and_not_committed_runs_again_with_the_partitions_of_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=22)
    by_batch: dict[int, Counter[Any]] = {}

    def run(partitions: int, fails_at: int | None = None) -> None:
        def sink(frame: DataFrame, batch: int) -> None:
            by_batch[batch] = Counter((row["id"], row["id_right"]) for row in frame.collect())
            if batch == fails_at:
                raise RuntimeError("injected")

        result = joined(spark, tmp_path, partitions, control=str(tmp_path / "control"))
        writer = result.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "check"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="injected"):
        run(2, fails_at=0)
    first = by_batch[0]
    with pytest.raises(Exception, match="injected"):
        run(4, fails_at=2)
    assert by_batch[0] == first
    run(1)
    assert len(by_batch) == 4
    assert sum(by_batch.values(), Counter()) == expected(tmp_path)


def test_the_number_counts_when_a_query_starts_not_when_it_is_built(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=2, rows=200, seed=23)
    result = joined(spark, tmp_path, 2)
    spark.conf.set(PARTITIONS, 3)
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert len(braided.report(query).to_dict()["workers"]) == 3
    assert committed(spark, tmp_path) == expected(tmp_path)


def test_a_directory_that_was_only_explained_serves_any_number_of_workers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_streams(tmp_path, files=2, rows=100, seed=24)
    braided.explain(joined(spark, tmp_path, 2, control=tmp_path / "control"))
    assert "2 of 2 workers in use" in capsys.readouterr().out
    run_to_end(joined(spark, tmp_path, 3, control=tmp_path / "control"), tmp_path / "check", tmp_path / "out")
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.parametrize("setting", [None, "200"])
def test_in_local_mode_there_is_a_worker_for_each_core_unless_a_number_is_set(
    spark: SparkSession, tmp_path: Path, setting: str | None
) -> None:
    spark.conf.unset(PARTITIONS)
    if setting is not None:
        spark.conf.set(PARTITIONS, setting)
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))
    braided.join(left, right, on="k", time="ts", within="10 seconds")
    assert spark.conf.get(PARTITIONS) == (setting or str(spark.sparkContext.defaultParallelism))
