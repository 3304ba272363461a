"""What a dashboard hears of a query on Spark: every batch, the tables, the decisions, the picture and the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from support.dashboards import HOT, join_calls, write_calls

import braided
from braided.errors import OptionError
from braided.fleet.client import Status
from braided.fleet.messages import Contact
from braided.fleet.requests import PeerRow
from braided.spark.session_operators import registry_of
from braided.ui.history_events import check_event, report_of
from braided.ui.history_files import HistoryReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def test_a_query_becomes_a_history(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PySpark's own way asks the JVM for each field of a progress, which takes 0.2 s a batch.
    monkeypatch.setattr(StreamingQueryProgress, "fromJObject", None)
    write_calls(tmp_path, batches=range(4), rows=400, hot_from=0)
    history, late = tmp_path / "history", tmp_path / "late"
    before = list(registry_of(spark).followers)
    with braided.dashboard(spark, history=history) as page, braided.dashboard(spark, history=late, redact=True):
        joined = join_calls(spark, tmp_path, name="hits")
        writer = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.queryName("watched").trigger(availableNow=True).start()
        query.awaitTermination()
        # A dashboard that comes while a query runs reads what Spark remembers of it; this one has ended.
        deadline = time.monotonic() + 20
        while "graph" not in (history / "history.jsonl").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        page.save(tmp_path / "page.html")
    assert registry_of(spark).followers == before
    events = list(HistoryReader(history).read())
    [started], [ended], [graph] = (of_kind(events, kind) for kind in ("started", "ended", "graph"))
    assert (started["name"], started["query"], ended["error"]) == ("watched", str(query.runId), None)
    batches = [event for event in of_kind(events, "batch") if event["operators"]]
    assert [event["batch"] for event in batches] == [0, 1, 2, 3]
    [operator] = batches[-1]["operators"]
    known = braided.report(query)
    assert str(report_of(operator, 3)) == str(type(known)({**known.query}, known.streams, known.workers))
    assert [stream["last_rows"] for stream in operator["streams"]] == [400, 40]
    assert operator["keys"][0]["label"] == str(HOT)
    [promoted] = [event for event in of_kind(events, "decision") if event["action"] == "promote"]
    assert promoted["value"] == str(HOT)
    tables = of_kind(events, "table")
    assert [grid["label"] for grid in tables[-1]["grids"]] == [str(HOT)]
    assert tables[0]["grids"] == []
    assert [box["kind"] for box in graph["boxes"]] == ["source", "source", "braided", "spark"]
    assert graph["boxes"][2]["operator"] == operator["operator"]
    assert str(HOT) in (tmp_path / "page.html").read_text()
    redacted = list(HistoryReader(late).read())
    assert len(of_kind(redacted, "batch")) == len(of_kind(events, "batch"))
    assert str(HOT) not in (late / "history.jsonl").read_text()
    for event in events + redacted:
        check_event(event, "written")


class OnePeer:
    """A fleet of which everything is known beforehand."""

    def status(self) -> Status:
        return Status((PeerRow(Contact("ab" * 20, "127.0.0.1:7401", "north"), 0.5, 2.0),), ())

    def events(self, *, newest: int) -> list[Any]:
        return []


def test_a_page_shows_a_fleet_beside_the_queries(spark: SparkSession, tmp_path: Path) -> None:
    with braided.dashboard(spark, history=tmp_path, fleet=OnePeer()):  # type: ignore[arg-type]
        deadline = time.monotonic() + 20
        while not (tmp_path / "history.jsonl").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
    [event] = HistoryReader(tmp_path).read()
    assert [peer["name"] for peer in event["peers"]] == ["north"]


def test_what_is_no_session_is_told(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match="spark=str: give a SparkSession"):
        braided.dashboard("spark")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"fleet='127.0.0.1:7401': give a braided.Fleet"):
        braided.dashboard(spark, fleet="127.0.0.1:7401")  # type: ignore[arg-type]
