"""A Kafka broker for tests, from the example's modules, and plain clients beside Spark's."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "kafka"))

from broker import Broker
from jars import AVRO, CONNECTOR, JarsMissing, Package, fetch

__all__ = ["AVRO", "CONNECTOR", "Broker", "JarsMissing", "Package", "fetch"]

Record = tuple[str | None, bytes | str | None]  # key and value


class Topics:
    """Makes topics, and writes and reads them with a client that knows nothing of Spark."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._settings = {"bootstrap.servers": servers, "log_level": 0}  # brokers that are away are no news here
        self._admin = AdminClient(self._settings)

    def make(self, name: str, partitions: int) -> None:
        """Make a topic and wait until it is there."""
        from confluent_kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        self._await(name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, so that it has so many."""
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)
        self._await(name, partitions)

    def _await(self, name: str, partitions: int) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            known = self._admin.list_topics(name, timeout=30).topics[name].partitions
            if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} never had {partitions} partitions")

    def send(self, topic: str, records: Iterable[Record], partitions: int | None = None) -> None:
        """Write records in their order: one to each of so many partitions in turn, or to that of their key."""
        from confluent_kafka import Producer

        producer = Producer(self._settings)  # a new one knows of new partitions
        for number, (key, value) in enumerate(records):
            given = {} if partitions is None else {"partition": number % partitions}
            producer.produce(topic, value, key, **given)
            producer.poll(0)
        left = producer.flush(60)
        assert left == 0, f"{left} records were not delivered"

    def count(self, topic: str) -> int:
        """Return how many messages a topic has got by now."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._settings, "group.id": "tests"})
        try:
            known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in known]
            return sum(ends)
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Any]:
        """Return all that a topic has by now: messages of the client."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {**self._settings, "group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer(settings)
        try:
            known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in known])
            ended: set[int] = set()
            messages = []
            while len(ended) < len(known):
                message = consumer.poll(30)
                assert message is not None, "the broker does not answer"
                if message.error() is None:
                    messages.append(message)
                else:
                    ended.add(message.partition())
            return messages
        finally:
            consumer.close()


class Numbers(threading.Thread):
    """Sends 0, 1, 2, ... to the topic "numbers", fifty at a time, twice a second, until it is ended."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(daemon=True)
        self._topics, self._ended = topics, threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._ended.wait(0.5):
            numbers = range(self.count, self.count + 50)
            self._topics.send("numbers", [(None, str(number)) for number in numbers], 3)
            self.count += 50

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self.join()
