"""Joins two Kafka topics into a third on a broker of its own: `python examples/kafka/run.py`. Takes a minute.

Calls and alerts are written to topics as JSON, out of order and over three partitions each, with a record that is no
JSON among them. The join reads both, writes to a topic of hits, and is started twice. What a reader of that topic
gets is compared with what a loop in plain Python finds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker import Broker
from jars import CONNECTOR, JarsMissing, fetch

import braided

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
CALLS = "phone string, ts timestamp, cell string"
ALERTS = "phone string, ts timestamp, reason string"
HITS = "phone string, ts timestamp, cell string, ts_right timestamp, reason string"
Row = dict[str, Any]


def make(count: int, column: str, values: str, seed: int) -> list[Row]:
    """Return a hundred seconds of a stream in the order in which it is sent: up to four seconds out of order."""
    rng = random.Random(seed)
    return [
        {
            "phone": f"555-{rng.randrange(40):02}",
            "ts": START + timedelta(seconds=100 * number / count - rng.uniform(0, 4)),
            column: rng.choice(values),
        }
        for number in range(count)
    ]


def encode(rows: list[Row]) -> list[tuple[str, str]]:
    """Return rows as records: a key, and a value in JSON."""
    return [(row["phone"], json.dumps({**row, "ts": row["ts"].isoformat()})) for row in rows]


def send(spark: Any, servers: str, topic: str, records: list[tuple[str, str]]) -> None:
    """Write records to a topic."""
    frame = spark.createDataFrame(records, "key string, value string").coalesce(1)  # in their order
    frame.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def expected(calls: list[Row], alerts: list[Row]) -> list[tuple[Any, ...]]:
    """Return what a loop finds: the same phone, at most ten seconds apart."""
    near = timedelta(seconds=10)
    return sorted(
        (call["phone"], call["ts"], call["cell"], alert["ts"], alert["reason"])
        for call in calls
        for alert in alerts
        if call["phone"] == alert["phone"] and abs(call["ts"] - alert["ts"]) <= near
    )


def join(spark: Any, servers: str, checkpoint: Path) -> Any:
    """Join all that is in both topics by now into the topic of hits; return the query when it has ended."""
    calls = braided.kafka.read(spark, "calls", servers=servers, schema=CALLS)
    alerts = braided.kafka.read(spark, "alerts", servers=servers, schema=ALERTS)
    joined = braided.join(calls, alerts, on="phone", time="ts", within="10 seconds", lateness="5 seconds")
    query = braided.kafka.write(
        joined, "hits", servers=servers, checkpoint=checkpoint, key="phone", trigger="available now"
    )
    query.awaitTermination()
    return query


def read_hits(spark: Any, servers: str, folder: Path) -> list[tuple[Any, ...]]:
    """Return what a reader that drops repeats gets of the hits, as a table."""
    hits = braided.kafka.read(spark, "hits", servers=servers, schema=HITS, once=True)
    query = hits.writeStream.format("parquet").option("path", str(folder / "hits"))
    query.option("checkpointLocation", str(folder / "reader")).trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(str(folder / "hits")).collect()
    return sorted(
        tuple(value.astimezone(UTC) if isinstance(value, datetime) else value for value in row) for row in rows
    )


def session(folder: Path) -> Any:
    """Return a local session with the connector. Users give spark.jars.packages, see docs/how-to/kafka.md."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = ",".join(map(str, fetch(CONNECTOR, folder / "connector")))
    settings = {"spark.jars": jars, "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    settings |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]").config(map={**braided.SPARK_CONF, **braided.FAST_START})
    made = builder.config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def run(folder: Path, count: int) -> bool:
    """Send both streams in two halves, the query being started for each; return whether the hits are right."""
    calls, alerts = make(count, "cell", "ABC", seed=1), make(count // 4, "reason", "XY", seed=2)
    with Broker(folder) as broker:
        spark = session(folder)
        send(spark, broker.servers, "calls", [*encode(calls[: count // 2]), ("x", "no JSON")])
        send(spark, broker.servers, "alerts", encode(alerts[: count // 8]))
        join(spark, broker.servers, folder / "checkpoint")
        send(spark, broker.servers, "calls", encode(calls[count // 2 :]))
        send(spark, broker.servers, "alerts", encode(alerts[count // 8 :]))
        print(braided.report(join(spark, broker.servers, folder / "checkpoint")))
        found, right = read_hits(spark, broker.servers, folder), expected(calls, alerts)
        spark.stop()
    print(f"{len(found):,} hits, {'as a loop finds them' if found == right else f'but a loop finds {len(right):,}'}")
    return found == right


def main(count: int) -> int:
    """Run the example; return 0 if the hits are right, 2 if it cannot start."""
    folder = Path(tempfile.mkdtemp(prefix="braided-kafka-"))
    try:
        return 0 if run(folder, count) else 1
    except JarsMissing as error:
        print(f"kafka example: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=2000, help="how many calls (%(default)s)")
    sys.exit(main(parser.parse_args().rows))
