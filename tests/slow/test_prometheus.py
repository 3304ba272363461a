"""A real Prometheus scrapes a session: figures of a join, and alerts that real faults fire and that clear again.

Needs Debian's package `prometheus`.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.kafka_topics import CONNECTOR, Broker, JarsMissing, Topics, fetch
from support.prometheus import PROGRAM, Prometheus
from support.streams import SECOND, UTC, file_stream, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no prometheus on the path")


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Prometheus, Any]]:
    endpoint = braided.metrics(spark, port=0)
    with endpoint, Prometheus(tmp_path, endpoint.url) as server:
        yield server, endpoint


def rows(times: list[int]) -> pa.Table:
    return pa.table({"k": list(range(len(times))), "ts": pa.array([at * SECOND for at in times], UTC)})


def test_faults_fire_alerts_that_clear_again(
    spark: SparkSession, tmp_path: Path, watched: tuple[Prometheus, Any]
) -> None:
    server, endpoint = watched
    for side in ("a", "b"):
        for batch in range(4):
            write_batch(tmp_path / side, batch, rows([100 * batch + at for at in range(50)]))
    frames = [file_stream(spark, tmp_path / side, "k long, ts timestamp") for side in ("a", "b")]
    joined = braided.join(*frames, on="k", time="ts", within="10 seconds", lateness="10 seconds", name="pairs")

    hangs = threading.Event()

    def start(fails: bool) -> Any:
        def sink(batch: Any, number: int) -> None:
            batch.collect()
            if fails and number > 3:
                raise RuntimeError("a fault")
            while hangs.is_set():
                time.sleep(0.2)

        return (
            joined.writeStream.queryName("watched").foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="500 milliseconds").start()
        )  # fmt: skip

    query = start(fails=True)
    server.until(lambda: server.value("sum(braided_rows_total)") == 400, "rows")
    results = server.value("braided_results_total")
    assert results == 200
    assert server.value('braided_query_state{state="running"}') == 1

    write_batch(tmp_path / "a", 4, rows([400]))
    server.until(lambda: "BraidedQueryFailed" in server.firing(), "a failed query")
    query = start(fails=False)
    server.until(lambda: "BraidedQueryFailed" not in server.firing(), "the query runs again")
    assert server.value("braided_query_failures_total") == 1

    for batch in range(5, 25):  # late by more than the lateness
        write_batch(tmp_path / "a", batch, rows([5] * 50))
        query.processAllAvailable()
        if "BraidedRowsLost" in server.firing():
            break
        time.sleep(1)
    server.until(lambda: "BraidedRowsLost" in server.firing(), "late rows")
    server.until(lambda: "BraidedRowsLost" not in server.firing(), "no more late rows")

    assert "BraidedQueryStalled" not in server.firing()  # a query without rows is not stalled
    hangs.set()
    write_batch(tmp_path / "a", 30, rows([500]))
    server.until(lambda: "BraidedQueryStalled" in server.firing(), "a query that hangs")
    hangs.clear()
    server.until(lambda: "BraidedQueryStalled" not in server.firing(), "a new batch")
    query.stop()

    endpoint.close()
    server.until(lambda: "BraidedEndpointDown" in server.firing(), "an endpoint that is down")
    with braided.metrics(spark, port=urllib.parse.urlsplit(endpoint.url).port):
        server.until(lambda: "BraidedEndpointDown" not in server.firing(), "an endpoint that is back")


LIMITS = {"> 60": "> 10", "> 1e11": "> 1e7"}
"""Seconds of a slow batch, and bytes of a worker within a day."""


class Queries:
    """Streams of rows with a key and a time, and queries of them, whose next batch can be made slow."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root, self._files = spark, root, 0
        self.slow = threading.Event()

    def write(self, name: str, keys: list[int], times: list[float]) -> None:
        self._files += 1
        table = pa.table({"k": keys, "ts": pa.array([int(at * SECOND) for at in times], UTC)})
        write_batch(self._root / name, self._files, table)

    def stream(self, name: str) -> Any:
        return file_stream(self._spark, self._root / name, "k long, ts timestamp")

    def start(self, frame: Any, name: str) -> Any:
        written = frame.writeStream.queryName(name).foreachBatch(self._sink).trigger(processingTime="200 milliseconds")
        return written.option("checkpointLocation", str(self._root / f"{name}-checkpoint")).start()

    def _sink(self, batch: Any, number: int) -> None:
        batch.collect()
        if self.slow.is_set():
            self.slow.clear()
            time.sleep(12)


def test_alerts_of_operators_are_fired_by_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "8")  # of fewer workers none can have three times its share
    queries = Queries(spark, tmp_path)
    write, stream = queries.write, queries.stream
    for name in ("o", "a", "b", "left", "right"):
        write(name, list(range(100)), [at / 10 for at in range(100)])
    ordered = queries.start(braided.order(stream("o"), time="ts", key="k", lateness="10 seconds"), "ordered")
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "10 seconds", "lateness": "10 seconds"}
    whole = queries.start(braided.join(stream("a"), stream("b"), **options, partition="hash"), "whole")
    bounded = queries.start(
        braided.join(stream("left"), stream("right"), **options, memory=20, evict="fifo"), "bounded"
    )
    with braided.metrics(spark, port=0) as endpoint, Prometheus(tmp_path, endpoint.url, LIMITS) as server:

        def until_it_fires(alert: str, go_on: Callable[[int], None], query: Any) -> None:
            """Write until an alert fires."""
            for turn in range(40):
                if alert in server.firing():
                    break
                go_on(turn)
                query.processAllAvailable()
                time.sleep(1)
            server.fires(alert)

        server.until(lambda: server.value("count(braided_query_state == 1)") == 3, "three queries")
        for name in ("o", "a", "b", "left", "right"):  # the first batches were slow
            write(name, list(range(100)), [10.0] * 100)
        for query in (ordered, whole, bounded):
            query.processAllAvailable()
        server.until(lambda: not server.firing(), "a calm begin")

        write("o", list(range(100)), [300.0] * 100)
        until_it_fires("BraidedLateRows", lambda turn: write("o", list(range(50)), [5.0] * 50), ordered)
        server.clears("BraidedLateRows")

        # A row of next year, which no other row confirms while its stream goes on.
        write("a", [1], [3.2e7])
        clock = 10.0

        def ahead(turn: int) -> None:
            nonlocal clock
            for name in ("a", "b"):
                write(name, list(range(100)), [clock + at / 10 for at in range(100)])
            clock += 10.0

        until_it_fires("BraidedRowsDiscarded", ahead, whole)
        server.clears("BraidedRowsDiscarded")

        until_it_fires("BraidedWorkerHot", lambda turn: write("a", [7] * 100, [clock] * 100), whole)
        write("a", list(range(1000)), [clock] * 1000)
        server.clears("BraidedWorkerHot")

        queries.slow.set()
        write("a", list(range(100)), [clock] * 100)
        server.fires("BraidedBatchesSlow")
        write("a", list(range(1000)), [clock] * 1000)
        server.clears("BraidedBatchesSlow")

        until_it_fires("BraidedStateGrows", lambda turn: write("a", list(range(5000)), [clock] * 5000), whole)
        server.clears("BraidedStateGrows")

        # First all lefts, then all rights: the budget keeps a few of those that will be met.
        def apart(turn: int) -> None:
            for name in ("left", "right"):
                write(name, list(range(2000)), [20.0 + turn] * 2000)

        until_it_fires("BraidedRecallLow", apart, bounded)
        for query in (ordered, whole, bounded):
            assert query.isActive
            query.stop()
        server.clears("BraidedRecallLow")


def test_a_kafka_source_that_falls_behind_fires_an_alert(spark: SparkSession, tmp_path: Path) -> None:
    try:
        jars = fetch(CONNECTOR, tmp_path / "connector")
        broker = Broker(tmp_path / "broker")
    except JarsMissing as error:
        pytest.skip(str(error))
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    with broker, braided.metrics(spark, port=0) as endpoint:
        topics = Topics(broker.servers)
        topics.make("numbers", 1)
        topics.send("numbers", [(None, str(number)) for number in range(1000)])

        def start(most: int) -> Any:
            read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
            read = read.option("subscribe", "numbers").option("startingOffsets", "earliest")
            written = read.option("maxOffsetsPerTrigger", most).load().writeStream.format("noop").queryName("numbers")
            written = written.option("checkpointLocation", str(tmp_path / "checkpoint"))
            return written.trigger(processingTime="1 second").start()

        with Prometheus(tmp_path, endpoint.url, {"> 1000000": "> 100"}) as server:
            behind = 'braided_source_offsets_behind{of="max"}'
            query = start(10)
            server.fires("BraidedSourceBehind")
            assert (server.value(behind) or 0) > 100
            query.stop()
            query = start(1000)
            server.until(lambda: server.value(behind) == 0, "all is read")
            server.clears("BraidedSourceBehind")
            query.stop()
