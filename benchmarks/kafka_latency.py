"""How long a result takes from Kafka to Kafka: `python benchmarks/kafka_latency.py --rate 10000`.

Calls come at a steady rate, and an alert for every 500 of them; a call meets the alerts of its phone within a minute to
either side. Broker, generator (a process of its own), Spark and its Python workers share the machine, as all of it
would on one small host. The latency of a result is the time at which the broker had it, less that at which the later
of its two records was handed to the generator's client: queues of client, broker, batch and sink are all in it.

The first minutes (`--warm`) are left out: until then the window fills and the JVM compiles. Prints a line of JSON. With
`--check`, all results are compared with DuckDB's over the records of both topics (for short runs).

`--engine spark` runs Spark's own join between Spark's own Kafka source and sink, `--engine flink` Flink's interval join
(`kafka_latency_flink.py`), on the same load. All three write at least once. `--rates 1000 10000 50000` runs one after
the other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyspark

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "kafka"))

from broker import Broker
from flink import FLINK, environment
from jars import CONNECTOR, fetch

import braided

SCHEMA = "phone long, ts long, sent long, id long"  # times in microseconds
PHONES = 100_000
CALLS_PER_ALERT = 500
TICK = 0.02
LATE_US = 2_000_000


def generate(servers: str, rate: int, seconds: float, partitions: int, said: Any) -> None:
    """Send calls and alerts at a steady rate; says when it began, and by how many seconds at most it fell behind."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    rng = np.random.default_rng(1)
    said[0] = time.time()
    began = time.monotonic()
    sent = alerts = 0
    while (now := time.monotonic() - began) < seconds:
        due = int(rate * now) - sent
        micros = time.time_ns() // 1000
        phones = rng.integers(0, PHONES, due).tolist()
        lates = rng.integers(0, LATE_US, due).tolist()
        for at in range(due):
            text = f'{{"phone":{phones[at]},"ts":{micros - lates[at]},"sent":{micros},"id":{sent + at}}}'
            producer.produce("calls", text, partition=(sent + at) % partitions)
            if (sent + at) % CALLS_PER_ALERT == 0:
                text = f'{{"phone":{phones[at]},"ts":{micros},"sent":{micros},"id":{alerts}}}'
                producer.produce("alerts", text, partition=alerts % partitions)
                alerts += 1
        producer.poll(0)
        sent += due
        late = time.monotonic() - began - now - TICK
        said[1] = max(said[1], late)
        time.sleep(max(0.0, -late))
    producer.flush(60)


def start(spark: Any, servers: str, checkpoint: Path, trigger: str | None) -> Any:
    """Start the query that is measured."""
    sides = [
        braided.kafka.read(spark, topic, servers=servers, schema=SCHEMA).selectExpr(
            "phone", "timestamp_micros(ts) AS ts", "sent", "id"
        )
        for topic in ("calls", "alerts")
    ]
    hits = braided.join(*sides, on="phone", time="ts", within="1 minute", lateness="5 seconds", name="hits")
    return braided.kafka.write(
        hits.select("phone", "sent", "id", "sent_right", "id_right"),
        "hits",
        servers=servers,
        checkpoint=checkpoint,
        key="phone",
        trigger=trigger,
    )


def start_native(spark: Any, servers: str, checkpoint: Path, trigger: str | None) -> Any:
    """Start the same query with Spark's own source, join and sink."""
    # The last one as in `braided.kafka.read`; with Spark's default, batches wait for the alerts.
    usual = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", "kafka.fetch.max.wait.ms": "10"}
    calls, alerts = (
        spark.readStream.format("kafka")
        .options(**usual, subscribe=topic)
        .load()
        .selectExpr(f"from_json(cast(value AS string), '{SCHEMA}') AS v")
        .selectExpr("v.phone", "timestamp_micros(v.ts) AS ts", "v.sent", "v.id")
        .withWatermark("ts", "5 seconds")
        .alias(topic)
        for topic in ("calls", "alerts")
    )
    near = "alerts.ts BETWEEN calls.ts - INTERVAL 1 MINUTE AND calls.ts + INTERVAL 1 MINUTE"
    hits = calls.join(alerts, spark_expr(f"calls.phone = alerts.phone AND {near}"))
    names = ("calls.phone", "calls.sent", "calls.id", "alerts.sent AS sent_right", "alerts.id AS id_right")
    values = hits.selectExpr(*names).selectExpr("cast(phone AS string) AS key", "to_json(struct(*)) AS value")
    options = {"kafka.bootstrap.servers": servers, "topic": "hits", "checkpointLocation": str(checkpoint)}
    writer = values.writeStream.format("kafka").options(**options)
    return (writer if trigger is None else writer.trigger(processingTime=trigger)).start()


def spark_expr(text: str) -> Any:
    """Return a condition as a column."""
    from pyspark.sql import functions

    return functions.expr(text)


class FlinkJob:
    """Flink's job in a process of its own."""

    def __init__(self, folder: Path, servers: str, arguments: argparse.Namespace) -> None:
        script = Path(__file__).with_name("kafka_latency_flink.py")
        self._log = folder / "flink.log"
        python, jars = environment(arguments.flink / "venv"), arguments.flink / "jars"
        command = [python, script, servers, jars, folder / "checkpoints"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                env=os.environ | {"JVM_ARGS": "-Xmx2g", "TZ": "UTC"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "started":
            raise RuntimeError(self._log.read_text()[-4000:])

    def stop(self) -> None:
        """Stop the process and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def make_topics(servers: str, partitions: int) -> None:
    """Make the topics; the broker says when a hit came, not the client."""
    from confluent_kafka.admin import AdminClient, NewTopic

    stamped = {"message.timestamp.type": "LogAppendTime"}
    topics = [NewTopic(name, partitions, 1) for name in ("calls", "alerts")]
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([*topics, NewTopic("hits", partitions, 1, config=stamped)])
    for future in made.values():
        future.result(30)


def read_topic(servers: str, topic: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the time in milliseconds and the value of each record of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency", "enable.partition.eof": True})
    parts = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in parts])
    found, ended = [], 0
    while ended < len(parts):
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                found.append((message.timestamp()[1], json.loads(message.value())))
            else:
                ended += 1
    consumer.close()
    return found


def check(servers: str, hits: list[tuple[int, dict[str, Any]]]) -> bool:
    """Whether the hits are those that DuckDB finds among all records of both topics."""
    import duckdb
    import pyarrow as pa

    calls, alerts = (
        pa.Table.from_pylist([row for _, row in read_topic(servers, topic)]) for topic in ("calls", "alerts")
    )
    rows = duckdb.sql(
        "SELECT c.id, a.id FROM calls c JOIN alerts a ON c.phone = a.phone AND abs(c.ts - a.ts) <= 60000000"
    ).fetchall()
    assert min(calls.num_rows, alerts.num_rows) > 0
    return sorted(rows) == sorted((row["id"], row["id_right"]) for _, row in hits)


def session(folder: Path, cores: int) -> Any:
    """Return a local session with the connector."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars": ",".join(map(str, fetch(CONNECTOR, folder / "connector"))),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "scratch"),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").config(map={**braided.SPARK_CONF, **braided.FAST_START})
    made = builder.config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def measure(folder: Path, rate: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run once and return what was measured."""
    with Broker(folder, partitions=arguments.partitions) as broker:
        make_topics(broker.servers, arguments.partitions)
        spark = query = None
        if arguments.engine == "flink":
            job = FlinkJob(folder, broker.servers, arguments)
        else:
            spark = session(folder, arguments.cores)
            starter = start if arguments.engine == "braided" else start_native
            query = starter(spark, broker.servers, folder / "checkpoint", arguments.trigger)
            query.processAllAvailable()
        spawn = multiprocessing.get_context("spawn")
        said = spawn.Array("d", 2)
        total = arguments.warm + arguments.seconds
        generator = spawn.Process(target=generate, args=(broker.servers, rate, total, arguments.partitions, said))
        generator.start()
        generator.join()
        if query is None:
            time.sleep(arguments.rest)
            progress = []
            job.stop()
        else:
            query.processAllAvailable()
            progress = query.recentProgress
            query.stop()
        hits = read_topic(broker.servers, "hits")
        right = check(broker.servers, hits) if arguments.check else None
        if spark is not None:
            spark.stop()
    began = said[0] + arguments.warm
    latest = [(at / 1e3, max(row["sent"], row["sent_right"]) / 1e6) for at, row in hits]
    latencies = np.array([at - sent for at, sent in latest if sent >= began])
    if not len(latencies):
        raise SystemExit(f"{len(hits)} results, and none of them was measured: give a higher --rate or more --seconds")
    batches = [one.durationMs["triggerExecution"] for one in progress if one.numInputRows]
    return {
        "benchmark": "kafka_latency",
        "engine": arguments.engine,
        "rate": rate,
        "seconds": arguments.seconds,
        "warm": arguments.warm,
        "partitions": arguments.partitions,
        "trigger": arguments.trigger,
        "results": len(hits),
        "measured": len(latencies),
        "p50_s": round(float(np.percentile(latencies, 50)), 3),
        "p99_s": round(float(np.percentile(latencies, 99)), 3),
        "max_s": round(float(latencies.max()), 3),
        "batch_ms_median": int(np.median(batches[len(batches) // 2 :])) if batches else None,
        "generator_behind_s": round(said[1], 3),
        "equal_to_duckdb": right,
        "versions": {
            "spark": pyspark.__version__,
            "flink": FLINK,
            "python": platform.python_version(),
            "braided": braided.__version__,
        },
        "cores": os.cpu_count(),
    }


def main() -> None:
    """Measure at each rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("braided", "spark", "flink"), default="braided")
    parser.add_argument("--rate", "--rates", type=int, nargs="+", default=[10_000], help="calls a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long is measured (%(default)s)")
    parser.add_argument("--warm", type=float, default=100, help="how long is left out before (%(default)s)")
    parser.add_argument("--rest", type=float, default=10, help="how long Flink may finish after it (%(default)s)")
    parser.add_argument("--partitions", type=int, default=2, help="of each topic (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="tasks of Spark at a time (%(default)s)")
    parser.add_argument("--trigger", help="a duration between batches; by default one follows the other")
    parser.add_argument("--check", action="store_true", help="compare the results with DuckDB's")
    cache = Path(tempfile.gettempdir()) / "braided-flink"
    parser.add_argument("--flink", type=Path, default=cache, help="Flink's environment and jars, made if not there")
    arguments = parser.parse_args()
    if len(arguments.rate) > 1:  # each in a process of its own: a JVM keeps the jars of its first session
        for rate in arguments.rate:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--rate", str(rate)], check=True)
        return
    folder = Path(tempfile.mkdtemp(prefix="braided-latency-"))
    try:
        print(json.dumps(measure(folder, arguments.rate[0], arguments)), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
