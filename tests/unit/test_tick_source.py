"""The source that makes batches without rows: when it is due, and that it rests otherwise, by a clock of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from braided.spark import ticks
from braided.spark.ticks import TickReader, TickRequests

IDLE = 10


class Clock:
    now = 1_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ticks, "_now", lambda: made.now)
    return made


def report(moment: int | None, releasable: int) -> dict[str, Any]:
    return (
        {"last": {"releasable": releasable}}
        if moment is None
        else {"moment": moment, "last": {"releasable": releasable}}
    )


def test_a_tick_is_due_once_for_every_batch_that_left_rows_waiting(clock: Clock, tmp_path: Path) -> None:
    path = str(tmp_path / "due.json")
    requests, reader = TickRequests(path, IDLE), TickReader(path, IDLE)
    offset = reader.initialOffset()
    assert reader.latestOffset(offset) == offset
    assert reader.partitions(offset, offset) == []

    def step(now: int) -> bool:
        nonlocal offset
        clock.now = now
        after = reader.latestOffset(offset)
        moved, offset = after != offset, after
        assert not moved or len(reader.partitions({"tick": after["tick"] - 1}, after)) == 1
        return moved

    # The one after the start, for what a query has left that was stopped.
    assert [step(now) for now in (1_009, 1_010, 1_011, 1_500)] == [False, True, False, False]
    requests.take("run", [report(1_600, 0), report(None, 1)])
    assert [step(now) for now in (1_609, 1_610, 1_611, 9_000)] == [False, True, False, False]
    requests.take("run", [report(1_610, 0)])
    assert not step(10_000)
    # Nothing was released, as if the driver's clock had been set back: not more often than every `idle`.
    requests.take("run", [report(10_000, 1)])
    assert [step(10_010), step(10_011)] == [True, False]
    requests.take("run", [report(10_011, 1)])
    assert [step(10_020), step(10_021), step(10_022)] == [False, True, False]
    # Rows have come before the time was over.
    requests.take("run", [report(10_100, 1)])
    requests.take("run", [report(10_105, 1)])
    assert [step(10_110), step(10_115)] == [False, True]
    requests.take("run", [report(10_200, 1)])
    requests.forget("run")
    assert not step(10_300)
    assert json.loads(Path(path).read_text()) == {}


def test_two_queries_over_one_dataframe_do_not_forget_each_others_rows(clock: Clock, tmp_path: Path) -> None:
    path = str(tmp_path / "due.json")
    requests, reader = TickRequests(path, IDLE), TickReader(path, IDLE)
    clock.now = 1_100
    assert reader.latestOffset({"tick": 7}) == {"tick": 8}
    requests.take("a", [report(1_200, 1)])
    requests.take("b", [report(1_201, 0)])
    clock.now = 1_210
    assert reader.latestOffset({"tick": 8}) == {"tick": 9}


def test_a_run_that_ends_has_no_ticks(clock: Clock, tmp_path: Path) -> None:
    reader = TickReader(str(tmp_path / "due.json"), IDLE)
    reader.prepareForTriggerAvailableNow()
    clock.now = 2_000
    assert reader.latestOffset({"tick": 7}) == {"tick": 7}


def test_where_spark_does_not_say_where_a_query_was_a_start_makes_a_batch(clock: Clock, tmp_path: Path) -> None:
    """Before Spark 4.2."""
    reader = TickReader(str(tmp_path / "due.json"), IDLE)
    first = reader.latestOffset()
    assert reader.latestOffset() == first
    clock.now = 1_010
    assert reader.latestOffset() == {"tick": first["tick"] + 1}
    new = TickReader(str(tmp_path / "due.json"), IDLE)
    assert new.initialOffset() == new.latestOffset()
