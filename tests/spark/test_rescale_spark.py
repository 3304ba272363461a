"""`braided rescale` on Spark: more workers, then fewer, and the results of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.control_roots import hide, joined, run_and_hear
from support.crashes import committed, expected, write_streams
from support.routing_cases import RandomController
from support.streams import run_to_end

import braided
from braided.spark.catalyst import can_divide_state
from braided.spark.control import CONTROL
from braided.spark.rescaling import rescale
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session in which the routing changes all the time, by tables in checkpoints."""
    if not can_divide_state(spark):
        pytest.skip("Spark before 4.2 cannot divide its state anew")
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.unset(CONTROL)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set(CONTROL, "false")


def test_a_query_goes_on_with_more_workers_and_with_fewer(session: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=6, rows=200, seed=51)
    place = tmp_path / "check"
    # Of the two batches in which Spark divides its state, the sink's log compacts one.
    session.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 3)
    hide(tmp_path, first=3)
    run_and_hear(session, joined(session, tmp_path), place, tmp_path / "out")
    with pytest.raises(braided.OptionError, match="--workers 2: the query already has 2; write another number"):
        rescale(session, str(place), 2)
    told = rescale(session, str(place), 5)
    assert "5 workers from the next start on" in told
    assert rescale(session, str(place), 5) == told, "again, as after an interruption"
    before = Counter(braided.state(place)[0].rows("left").column("id").to_pylist())
    with pytest.raises(braided.StateError, match="was changed to 5 workers and has not run since; start it once"):
        rescale(session, str(place), 3)
    for path in (
        sorted((tmp_path / "hidden" / "left").iterdir())[:1] + sorted((tmp_path / "hidden" / "right").iterdir())[:1]
    ):
        path.rename(tmp_path / path.parent.name / path.name)
    run_and_hear(session, joined(session, tmp_path), place, tmp_path / "out")
    state = braided.state(place)[0]
    assert len(state.workers) == 5
    assert {line["worker"] for line in state.summary().to_pylist()} == set(range(5))
    assert set(before) - set(state.rows("left").column("id").to_pylist()) < set(before)
    rescale(session, str(place), 3)
    hide(tmp_path, first=0)
    run_to_end(joined(session, tmp_path), place, tmp_path / "out")
    assert committed(session, tmp_path) == expected(tmp_path), "the log of the file sink has all batches"
    assert len(braided.state(place)[0].workers) == 3
