"""Sequences on Spark, without a broker: how records are numbered, and that repeats are dropped across batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.streams import UTC, file_stream, read_rows, run_to_end, write_batch

import braided
from braided.spark import kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DDL = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
CASES = [
    # (batch of the reader, sequence, value, is kept)
    (0, "q/7/0/0", "a", True),
    (0, "q/7/0/1", "b", True),
    (0, "q/7/0/0", "a", False),
    (0, None, "plain", True),
    (1, "q/7/0/1", "b", False),
    (1, "q/7/1/1", "c", True),
    (1, "q/7/0/2", "d", True),
    (1, None, "plain", True),
    (1, "q/7/0", "odd", True),
    (1, "q/7/0/x", "odd", True),
    (2, "q/8/0/0", "e", True),
    (2, "q/7/0/2", "d", False),
    (2, "p/7/0/2", "f", True),
]


def record(offset: int, label: str | None, value: str) -> dict[str, Any]:
    headers = [{"key": "other", "value": b"x"}, {"key": braided.kafka.HEADER, "value": (label or "").encode()}]
    return {
        "key": b"k",
        "value": value.encode(),
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "timestamp": 1_700_000_000_000_001 + offset,
        "timestampType": 0,
        "headers": None if label is None else headers,
    }


def test_repeats_are_dropped_and_records_numbered_alike(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", UTC),
            ("timestampType", pa.int32()),
            ("headers", HEADERS),
        ]
    )
    for batch in range(3):
        came = [record(at, label, value) for at, (when, label, value, _) in enumerate(CASES) if when == batch]
        write_batch(tmp_path / "in", batch, pa.Table.from_pylist(came, schema))
    kept = braided.kafka.once(file_stream(spark, tmp_path / "in", DDL))
    run_to_end(kept.selectExpr("offset", "unix_micros(timestamp)"), tmp_path / "checkpoint", tmp_path / "out")
    assert read_rows(spark, tmp_path / "out") == sorted(
        ((at, 1_700_000_000_000_001 + at) for at, (*_, keep) in enumerate(CASES) if keep), key=repr
    )
    rows = [(None, f"v{number % 7}".encode()) for number in range(20)]
    labelled = []
    for order in (rows, rows[::-1]):
        frame = kafka.numbered(spark.createDataFrame(order, "key binary, value binary").coalesce(1), "q", 12)
        labelled.append(sorted((row.headers[0].value, row.value, row.key) for row in frame.collect()))
    assert labelled[0] == labelled[1], "the numbers depend on the order of rows"
    assert {label for label, *_ in labelled[0]} == {f"q/12/0/{number}".encode() for number in range(20)}
    assert all(label == key for label, _, key in labelled[0])
    spread = []
    for parts in (1, 3):
        records = spark.createDataFrame(rows, "key binary, value binary").repartition(parts)
        labels = kafka.WriteRecords(records, {}).sequenced(records, 12).collect()
        spread.append(sorted((row.headers[0].value, row.value) for row in labels))
    assert spread[0] == spread[1], "the numbers depend on the tasks that read"


def test_a_batch_that_runs_again_with_other_partitions_has_the_same_sequence(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = pa.table({"value": [f"v{number}".encode() for number in range(40)]})
    write_batch(tmp_path / "in", 0, values)
    runs: list[list[tuple[bytes, bytes]]] = []
    for partitions in (2, 5):
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        records = file_stream(spark, tmp_path / "in", "value binary").selectExpr("cast(null as binary) key", "value")
        sink = kafka.WriteRecords(records, {})

        def fail(frame: DataFrame, batch: int, sink: kafka.WriteRecords = sink) -> None:
            rows = sink.sequenced(frame, batch).collect()
            runs.append(sorted((bytes(row.headers[0].value), bytes(row.value)) for row in rows))
            raise RuntimeError("injected")

        writer = records.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "check"))
        with pytest.raises(Exception, match="injected"):
            writer.trigger(availableNow=True).start().awaitTermination()
    assert runs[0] == runs[1]
    assert len({label.split(b"/")[2] for label, _ in runs[0]}) == 2


def test_what_cannot_be_is_refused_with_what_to_do(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kafka, "_CONNECTOR", {"org.apache.spark.sql.No": "org.apache.spark:connector:{spark}"})
    monkeypatch.setattr(kafka, "_AVRO", {"org.apache.spark.sql.NoAvro": "org.apache.spark:avro:{spark}"})
    with pytest.raises(
        braided.OptionError, match=r"lacks org.apache.spark:connector:4\S+, org.apache.spark:avro:4\S+; start it"
    ):
        braided.kafka.read(spark, "t", servers="s", schema="k long", format="avro")
    with pytest.raises(braided.OptionError, match=r"spark.jars.packages=org.apache.spark:connector:4\S+, or"):
        braided.kafka.read(spark, "t", servers="s", schema="k long")
    for wrong, said in (
        ({"topics": []}, "give the name of a topic"),
        ({"start": "now"}, "write 'earliest' or 'latest'"),
        ({"format": "xml"}, "write 'json' or 'avro'"),
    ):
        with pytest.raises(braided.OptionError, match=said):
            braided.kafka.read(spark, **{"topics": "t", "servers": "s", "schema": "k long", **wrong})  # type: ignore[arg-type]
    table = spark.range(3)
    with pytest.raises(braided.OptionError, match="not a stream"):
        braided.kafka.write(table, "t", servers="s", checkpoint=tmp_path)
    stream = file_stream(spark, tmp_path / "in", "k long")
    with pytest.raises(braided.OptionError, match="key='x': no such column; there are k"):
        braided.kafka.write(stream, "t", servers="s", checkpoint=tmp_path, key="x")
    with pytest.raises(braided.OptionError, match="no column key, value"):
        braided.kafka.once(stream)
