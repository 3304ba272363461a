"""The checkpoint is all there is: state and routing of a query are files in it, and a copy of it is a whole query."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from support.control_roots import DDL, hide, joined, run_and_hear
from support.crashes import committed, expected, write_streams
from support.routing_cases import RandomController
from support.streams import file_stream, run_to_end

import braided
from braided.errors import StateError
from braided.spark import checkpoint_folder, session_operators
from braided.spark.checkpoint_folder import LEAST
from braided.spark.control import CONTROL
from braided.spark.session_operators import registry_of
from braided.storage.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session in which the routing changes all the time, by tables in checkpoints."""
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", 2)
    spark.conf.set(LEAST, 1)
    spark.conf.unset(CONTROL)
    yield spark
    spark.conf.unset(LEAST)
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    spark.conf.set(CONTROL, "false")


def state_files(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "braided" / "state").glob("*/*/*"))


def test_a_checkpoint_and_its_copy_go_on_by_themselves(session: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=8, rows=300, seed=31)
    hide(tmp_path, first=5)
    result = joined(session, tmp_path, name="hits")
    query = run_and_hear(session, result, tmp_path / "check", tmp_path / "out")
    [control] = (tmp_path / "check" / "braided" / "control").iterdir()
    routing = braided.report(query).routing
    assert routing is not None
    assert routing["control"] == str(control)
    assert control.name.startswith("hits-")
    assert routing["version"] > 1, "the routing never changed"
    files = state_files(tmp_path / "check")
    assert {path.parent.name for path in files} == {"0", "1", "2", "3"}
    births = {int(path.name.partition("-")[0]) for path in files}
    assert max(births) == 4
    # A copy has all it needs, and neither writes to the other's.
    shutil.copytree(tmp_path / "check", tmp_path / "copy" / "check")
    before = committed(session, tmp_path)
    hide(tmp_path, first=0)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == expected(tmp_path)
    # Of the first one Spark needs the schemas of states, to which it writes whole paths; of ours nothing.
    shutil.rmtree(tmp_path / "check" / "braided")
    run_to_end(joined(session, tmp_path, name="hits"), tmp_path / "copy" / "check", tmp_path / "copy" / "out")
    with duckdb.connect() as db:  # Spark's own reader asks the sink's log for what the copied query wrote before
        rest = Counter(db.execute(f"select id, id_right from '{tmp_path}/copy/out/*.parquet'").fetchall())
    assert before + rest == expected(tmp_path)


def test_blocks_cross_the_shuffle_by_name_until_their_batch_is_done(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streams(tmp_path, files=3, rows=200, seed=35)
    blocks = tmp_path / "check" / "braided" / "blocks"
    with monkeypatch.context() as patch:
        patch.setattr("braided.spark.session_operators.close_run", lambda *_: None)
        query = run_and_hear(session, joined(session, tmp_path), tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == expected(tmp_path)
    left = list(blocks.glob(f"{query.runId}/join-*/*/*"))
    assert {path.name.partition("-")[0] for path in left} == {"2"}, "blocks of the last batch, and no others"
    run_and_hear(session, joined(session, tmp_path), tmp_path / "check", tmp_path / "out")
    assert not list(blocks.glob("*/*/*/*"))
    for least in ("many", "-1"):
        session.conf.set(LEAST, least)
        with pytest.raises(braided.OptionError, match=rf"{LEAST}='{least}': write a number of bytes"):
            joined(session, tmp_path)


def test_the_checkpoint_of_a_query_without_our_operators_stays_as_it_is(session: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=1, rows=50, seed=36)
    joined(session, tmp_path)
    run_to_end(file_stream(session, tmp_path / "left", DDL), tmp_path / "check", tmp_path / "out")
    assert (tmp_path / "check" / "commits").exists()
    assert not (tmp_path / "check" / "braided").exists()


def test_a_missing_file_stops_the_query_with_its_name(session: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=3, rows=200, seed=32)
    hide(tmp_path, first=2)
    result = joined(session, tmp_path)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    before = committed(session, tmp_path)
    newest = [path for path in state_files(tmp_path / "check") if path.name.startswith("1-")]
    for path in newest:
        path.rename(tmp_path / path.name)
    hide(tmp_path, first=0)
    with pytest.raises(
        Exception, match=rf"the file {tmp_path}/check/braided/state/join-[0-9a-f]{{8}}/\d/1-.* is missing"
    ):
        run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == before, "rows left without the state that they need"


def test_state_that_began_in_spark_s_store_stays_there(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a checkpoint that an older version wrote, or one that Python could not reach."""
    write_streams(tmp_path, files=4, rows=200, seed=33)
    hide(tmp_path, first=2)
    result = joined(session, tmp_path, control=tmp_path / "control")
    with monkeypatch.context() as patch:
        patch.setattr("braided.spark.session_operators.open_for_run", lambda *_: None)
        run_to_end(result, tmp_path / "check", tmp_path / "out")
    hide(tmp_path, first=0)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == expected(tmp_path)
    assert not state_files(tmp_path / "check")


def test_on_a_store_that_python_reaches_state_and_routing_are_objects(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is fsspec's for this machine: Spark's own part of the checkpoint, and ours by a URL."""
    write_streams(tmp_path, files=5, rows=1200, seed=37)
    hide(tmp_path, first=3)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_folder, "is_on_a_path", lambda _: False)
        patch.setattr(checkpoint_folder, "python_url", lambda checkpoint: f"local://{local_path(checkpoint)}")
        run_and_hear(session, joined(session, tmp_path), tmp_path / "check", tmp_path / "out")
        hide(tmp_path, first=0)
        query = run_and_hear(session, joined(session, tmp_path), tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == expected(tmp_path)
    routing = braided.report(query).routing
    assert routing is not None
    assert routing["control"].startswith(f"local://{tmp_path}/check/braided/control/join-")
    assert routing["version"] > 1, "the routing never changed"
    objects = Counter((path.parent, path.name.partition("-")[0]) for path in state_files(tmp_path / "check"))
    assert {folder.name for folder, _ in objects} == {"0", "1", "2", "3"}
    assert set(objects.values()) == {1}, "one object for each worker and batch"
    assert not (tmp_path / "check" / "braided" / "blocks").exists()
    write_streams(tmp_path / "more", files=1, rows=10, seed=38)
    for side in ("left", "right"):
        [more] = (tmp_path / "more" / side).iterdir()
        more.rename(tmp_path / side / "more.parquet")
    with pytest.raises(Exception, match="the state is in objects of the checkpoint, which this query cannot reach"):
        run_to_end(joined(session, tmp_path), tmp_path / "check", tmp_path / "out")


def test_a_task_that_sees_another_storage_than_the_driver_stops(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    note: dict[str, Any] = {"folder": str(tmp_path), "run": "run-1", "nonce": "aa", "retained": 3, "least": 1}
    with pytest.raises(StateError, match="does not see the checkpoint of the driver"):
        checkpoint_folder._folder(json.dumps(note))
    (tmp_path / "runs" / "run-1").write_text("bb")
    with pytest.raises(StateError, match="storage that the driver and all executors share"):
        checkpoint_folder._folder(json.dumps(note))
    found = checkpoint_folder._folder(json.dumps({**note, "nonce": "bb"}))
    assert found is not None
    assert found.location == str(tmp_path)


def test_two_operators_with_the_same_options_have_folders_of_their_own(session: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=3, rows=100, seed=34)
    once = joined(session, tmp_path)
    both = once.union(joined(session, tmp_path)).union(once)
    run_to_end(both, tmp_path / "check", tmp_path / "out")
    assert committed(session, tmp_path) == Counter({row: 3 * count for row, count in expected(tmp_path).items()})
    assert len({path.parent.parent.name for path in state_files(tmp_path / "check")}) == 2


def test_operators_of_later_processes_have_folders_of_their_own(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second join has no rows in the first run, so it gets its folder in the second, whose numbers begin anew."""
    write_streams(tmp_path / "a", files=4, rows=60, seed=5)
    hide(tmp_path / "a", first=2)
    for side in ("left", "right"):
        (tmp_path / "b" / side).mkdir(parents=True)

    def run(first_number: int) -> None:
        monkeypatch.setattr(session_operators, "_numbers", itertools.count(first_number))
        both = joined(session, tmp_path / "a").union(joined(session, tmp_path / "b"))
        run_to_end(both, tmp_path / "check", tmp_path / "out")

    run(2)  # a notebook has built another join before
    hide(tmp_path / "a", first=0)
    write_streams(tmp_path / "b", files=2, rows=60, seed=6)
    run(1)
    assert len(list((tmp_path / "check" / "braided" / "state").iterdir())) == 2


def test_a_query_without_a_checkpoint_of_its_own_is_reported_after_its_end(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark deletes its temporary checkpoint, and the routing tables in it, when the query ends."""
    write_streams(tmp_path, files=1, rows=50, seed=37)
    query = joined(session, tmp_path).writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    report = braided.report(query)
    assert report.query["results"] == sum(expected(tmp_path).values())
    assert report.routing is None
