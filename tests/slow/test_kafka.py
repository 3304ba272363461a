"""Joins between Kafka topics, on a real broker: equal to a nested loop, whatever happens to topics and broker."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.kafka_topics import AVRO, CONNECTOR, Broker, Record, Topics, fetch
from support.oracle import nested_loop
from support.streams import SECOND

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DDL = "k long, ts timestamp, id long"
PAIRS = "k long, ts timestamp, id long, ts_right timestamp, id_right long"
AVRO_PAIRS = json.dumps(
    {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": name, "type": [{"type": "long", "logicalType": kind} if kind else "long", "null"]}
            for name, kind in (
                ("k", ""),
                ("ts", "timestamp-micros"),
                ("id", ""),
                ("ts_right", "timestamp-micros"),
                ("id_right", ""),
            )
        ],
    }
)
WITHIN = 10 * SECOND
START = 1_700_000_000 * SECOND
# A running query may see what was sent to one partition long before what was sent to another at the same moment.
RUNNING: dict[str, Any] = {"trigger": "200 milliseconds", "lateness": "1 minute"}
_numbers = itertools.count()
Row = dict[str, Any]
Bag = Counter[tuple[int, int]]


def rows(seed: int, ids: range, *, gap: int = 0) -> list[Row]:
    """Return rows of a stream, 20 a second and up to five seconds out of order; `gap` seconds later than ids say."""
    rng = np.random.default_rng(seed)
    times = START + gap * SECOND + np.array(ids) * SECOND // 20 - rng.integers(0, 5 * SECOND, len(ids))
    keys = rng.integers(0, 30, len(ids))
    return [{"k": int(k), "ts": int(ts), "id": id_} for k, ts, id_ in zip(keys, times, ids, strict=True)]


def records(given: list[Row]) -> list[Record]:
    return [(None, json.dumps({**row, "ts": f"{np.datetime64(row['ts'], 'us')}Z"})) for row in given]


def expected(left: list[Row], right: list[Row]) -> Bag:
    sides = [[{**row, "t": row["ts"]} for row in side] for side in (left, right)]
    return nested_loop(sides, ["k"], -WITHIN, WITHIN)


@dataclass
class Case:
    """Topics of one test (deleting some takes a broker its time), and queries between them."""

    spark: SparkSession
    broker: Broker
    topics: Topics
    folder: Path
    prefix: str

    def name(self, topic: str) -> str:
        return f"{self.prefix}-{topic}"

    def send(self, topic: str, given: list[Row], partitions: int = 3) -> None:
        """Spread rows over partitions in turn: a key is in all of them."""
        self.topics.send(self.name(topic), records(given), partitions)

    def read(self, topic: str, **options: Any) -> DataFrame:
        return braided.kafka.read(self.spark, self.name(topic), servers=self.broker.servers, **options)

    def start(
        self, *, trigger: str = "available now", format: Any = "json", most: int = 600, lateness: str = "6 seconds"
    ) -> StreamingQuery:
        sides = [
            self.read(topic, schema=DDL, options={"maxOffsetsPerTrigger": str(most)}) for topic in ("left", "right")
        ]
        joined = braided.join(*sides, on="k", time="ts", within="10 seconds", lateness=lateness, name="pairs")
        return braided.kafka.write(
            joined,
            self.name("pairs"),
            servers=self.broker.servers,
            checkpoint=self.folder / "checkpoint",
            key="k",
            trigger=trigger,
            format=format,
        )

    def run(self, **options: Any) -> StreamingQuery:
        query = self.start(**options)
        query.awaitTermination()
        return query

    def messages(self) -> list[Any]:
        return self.topics.read(self.name("pairs"))

    def found(self, schema: str = PAIRS, format: Any = "json", folder: str = "reader") -> Bag:
        """What our reader gets, repeats dropped."""
        out = self.folder / f"{folder}-out"
        writer = self.read("pairs", schema=schema, format=format, once=True).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / folder)).trigger(availableNow=True)
        writer.start(str(out)).awaitTermination()
        return Counter((row["id"], row["id_right"]) for row in self.spark.read.parquet(str(out)).collect())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def connected(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    for jar in fetch((*CONNECTOR, *AVRO), tmp_path_factory.mktemp("connector")):
        spark_session.sql(f"ADD JAR '{jar}'")


@pytest.fixture
def case(spark: SparkSession, broker: Broker, connected: None, tmp_path: Path) -> Iterator[Case]:
    made = Case(spark, broker, Topics(broker.servers), tmp_path, f"t{next(_numbers)}")
    for topic in ("left", "right", "pairs"):
        made.topics.make(made.name(topic), 3)
    yield made
    for query in spark.streams.active:
        query.stop()


def test_json_out_of_order_over_partitions_with_poison_among_it(case: Case) -> None:
    left, right = rows(1, range(1000)), rows(2, range(900))
    poison: list[Any] = [b"no JSON", b"", None, b'{"k": "seven", "ts": [], "id": 1}', b"\xff\x00", b"[1, 2]"]
    case.send("left", left[:500])
    case.topics.send(case.name("left"), [(None, value) for value in poison])
    case.send("left", left[500:])
    case.send("right", right)
    query = case.run(most=300)
    assert case.found() == expected(left, right)
    assert len(query.recentProgress) >= 3, "it was one batch"
    streams = braided.report(query).to_dict()["streams"]
    assert [stream["null_times"] for stream in streams] == [len(poison), 0]
    assert [stream["rows"] for stream in streams] == [1000 + len(poison), 900]
    keys = {message.key() for message in case.messages()}
    assert keys <= {str(key).encode() for key in range(30)}


def test_fetches_do_not_wait_for_further_records(case: Case) -> None:
    def wait(**options: str) -> str:
        frame = case.read("left", schema=DDL, options=options)
        relation = frame._jdf.queryExecution().analyzed().collectLeaves().apply(0)
        return str(relation.extraOptions().get("kafka.fetch.max.wait.ms"))

    assert wait() == "10"
    assert wait(**{"kafka.fetch.max.wait.ms": "200"}) == "200"


def test_avro_out_and_in_with_poison_among_it(case: Case) -> None:
    left, right = rows(3, range(400)), rows(4, range(400))
    case.send("left", left)
    case.send("right", right)
    case.run(format="avro")
    before = case.found(AVRO_PAIRS, "avro")
    assert before == expected(left, right)
    case.topics.send(case.name("pairs"), [("x", b"\x01\x02poison")])
    assert case.found(AVRO_PAIRS, "avro") == before + Counter([(None, None)])


def test_batches_that_run_again_write_again_and_readers_drop_it(case: Case) -> None:
    left, right = rows(5, range(800)), rows(6, range(800))
    for part in (slice(0, 400), slice(400, 800)):
        case.send("left", left[part])
        case.send("right", right[part])
        case.run()
        if part.start == 0:
            half = case.found()
        commits = sorted((case.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()  # as if the driver had died just before it
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        case.run()
    assert case.found() == expected(left, right), "a reader that was there in between"
    assert case.found(folder="later") == expected(left, right), "a reader that came later"
    assert half < expected(left, right)
    messages = case.messages()
    labels = Counter(dict(message.headers())[braided.kafka.HEADER] for message in messages)
    assert len(labels) == expected(left, right).total()
    assert len(messages) > len(labels), "nothing was written twice"
    by_label: dict[bytes, set[bytes]] = {}
    for message in messages:
        by_label.setdefault(dict(message.headers())[braided.kafka.HEADER], set()).add(message.value())
    assert all(len(values) == 1 for values in by_label.values()), "a record has another sequence than before"


def test_a_topic_goes_idle_and_returns(case: Case) -> None:
    left, right = rows(7, range(400)), rows(8, range(400))
    case.send("left", left)
    case.send("right", right)
    case.run()
    for start in (400, 800):  # the right topic is silent
        more = rows(start, range(start, start + 400))
        case.send("left", more)
        left += more
        case.run()
    later = [rows(9, range(1200, 1500), gap=3600), rows(10, range(400, 1500))]
    case.send("left", later[0])
    case.send("right", later[1])
    case.run()
    assert case.found() == expected(left + later[0], right + later[1])


def test_a_partition_is_added_while_the_query_runs(case: Case) -> None:
    left, right = rows(11, range(900)), rows(12, range(900))
    query = case.start(**RUNNING)
    case.send("left", left[:400])
    case.send("right", right[:400])
    query.processAllAvailable()
    case.topics.grow(case.name("left"), 5)
    case.send("left", left[400:], partitions=5)
    case.send("right", right[400:])
    query.processAllAvailable()
    query.stop()
    assert case.found() == expected(left, right)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_broker_restarts_while_the_query_runs(case: Case, how: str) -> None:
    left, right = rows(13, range(900)), rows(14, range(900))
    query = case.start(**RUNNING)
    for start in (0, 300, 600):
        case.send("left", left[start : start + 300])
        case.send("right", right[start : start + 300])
        if start == 300:
            getattr(case.broker, how)()
            case.broker.start()
        else:
            query.processAllAvailable()
    query.processAllAvailable()
    query.stop()
    assert case.found() == expected(left, right)
