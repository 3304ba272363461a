"""A job of a fleet between Kafka topics: moved, and its peer stopped and killed, its reader sees every record once."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.fleet_processes import SparkPeers, two_peers, until
from support.kafka_topics import CONNECTOR, Broker, Numbers, Topics, fetch

import braided
from braided.fleet.leases import Leases
from braided.storage.files import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

JOB = """
name = "doubled"
operator = "map.numbers"
checkpoint = "{0}/checkpoints/doubled"
trigger = "500 milliseconds"
[sources.numbers]
format = "kafka"
[sources.numbers.options]
subscribe = "numbers"
startingOffsets = "earliest"
"kafka.bootstrap.servers" = "${{BROKER}}"
[[steps]]
name = "doubled"
sql = '''SELECT CAST(value AS STRING) AS key,
concat('{{"number": ', CAST(value AS STRING), ', "twice": ', CAST(2 * CAST(CAST(value AS STRING) AS BIGINT) AS STRING), '}}') AS value
FROM numbers'''
[sink]
format = "kafka"
[sink.options]
topic = "doubled"
"kafka.bootstrap.servers" = "${{BROKER}}"
"""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as running:
        monkeypatch.setenv("BROKER", running.servers)
        yield running


@pytest.fixture
def peers(broker: Broker, tmp_path: Path) -> Iterator[SparkPeers]:
    jars = ",".join(map(str, fetch(CONNECTOR, tmp_path / "connector")))
    command = ("-m", "braided", "peer", "--conf", f"spark.jars={jars}")
    with two_peers(SparkPeers(tmp_path, command=command)) as made:
        yield made


def _seen(spark: SparkSession, broker: Broker, folder: Path) -> Counter[tuple[int, int]]:
    """What a reader of ours gets that drops repeats."""
    read = braided.kafka.read(
        spark, "doubled", servers=broker.servers, schema="number long, twice long", once=True
    ).writeStream.format("parquet")
    read = read.option("checkpointLocation", str(folder / "reader")).trigger(availableNow=True)
    read.start(str(folder / "seen")).awaitTermination()
    return Counter((row["number"], row["twice"]) for row in spark.read.parquet(str(folder / "seen")).collect())


def test_a_job_between_kafka_topics_loses_and_doubles_nothing(
    spark: SparkSession, broker: Broker, peers: SparkPeers, tmp_path: Path
) -> None:
    for jar in (tmp_path / "connector").glob("*.jar"):
        spark.sql(f"ADD JAR '{jar}'")
    topics = Topics(broker.servers)
    for name in ("numbers", "doubled"):
        topics.make(name, 3)
    (tmp_path / "doubled.toml").write_text(JOB.format(tmp_path))
    leases = Leases(LocalFiles(tmp_path / "storage"))
    numbers = Numbers(topics)
    numbers.start()
    with peers.fleet() as fleet:
        fleet.submit(tmp_path / "doubled.toml")

    def holder() -> tuple[str, int]:
        lease = leases.newest("doubled")
        assert lease is not None
        return lease.holder.name, lease.epoch

    def wait_for_more() -> None:
        before = topics.count("doubled")
        until(lambda: topics.count("doubled") > before, 120, "more records")

    others = {"north": "south", "south": "north"}
    wait_for_more()
    for fault in (None, "stop", None, "kill", None):
        name, epoch = holder()
        with peers.fleet() as fleet:
            fleet.move("doubled", others[name])
        wait_for_more()
        name, epoch = holder()
        if fault is None:
            continue
        stopped = peers.targets(name, "both")
        for process in stopped:
            process.send_signal(signal.SIGSTOP if fault == "stop" else signal.SIGKILL)
        until(lambda: holder()[1] > epoch, 120, f"another owner after {fault}")  # noqa: B023
        wait_for_more()
        if fault == "stop":
            for process in stopped:
                process.send_signal(signal.SIGCONT)
        else:
            peers.processes[name].wait(60)
            peers.start(name)
    numbers.end()
    wanted = Counter({(number, 2 * number): 1 for number in range(numbers.count)})
    until(lambda: topics.count("doubled") >= len(wanted), 120, "all records")
    until(lambda: _labels(topics)[1] >= len(wanted), 120, "all records, with repeats among them")
    messages, labels = _labels(topics)
    assert labels == len(wanted)
    assert _seen(spark, broker, tmp_path) == wanted
    assert messages >= labels


def _labels(topics: Topics) -> tuple[int, int]:
    """How many messages there are, and how many sequences: what is written again has the sequence that it had."""
    messages = topics.read("doubled")
    by_label: dict[Any, set[bytes]] = {}
    for message in messages:
        by_label.setdefault(dict(message.headers())[braided.kafka.HEADER], set()).add(message.value())
    several = list(itertools.islice((label for label, values in by_label.items() if len(values) > 1), 3))
    assert not several, f"one sequence, several records: {several}"
    return len(messages), len(by_label)
