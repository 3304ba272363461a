"""Kafka topics as inputs and outputs: `braided.kafka.read`, `write` and `once`. docs/how-to/kafka.md has the how-to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from braided.durations import Duration
from braided.sequence import HEADER

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["HEADER", "once", "read", "write"]

Format = Literal["json", "avro"]


def read(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    servers: str,
    schema: StructType | str,
    format: Format = "json",
    start: Literal["earliest", "latest"] = "earliest",
    once: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return Kafka topics as a streaming DataFrame of the columns in their records' values.

    A value that cannot be read (no JSON, another schema) becomes a row of nulls. Operators of Braided count rows
    without a time and drop them, so `braided.report` says how many there were and one bad record stops nothing.

    Parameters
    ----------
    topics : one topic, or several of one schema.
    servers : where brokers are, as ``"host:9092,other:9092"``.
    schema : the columns of a value; with ``format="avro"`` the Avro schema, as JSON, that values are written with.
    format : how values are written.
    start : where a query without a checkpoint begins.
    once : drop records that a query of `braided.kafka.write` wrote twice; see `once`.
    options : further options of Spark's source, such as ``{"maxOffsetsPerTrigger": "100000"}``.

    Needs Spark's Kafka connector, of the version of Spark (the error names it where it is missing).
    """
    from braided.spark.kafka import read_topics

    return read_topics(
        spark, topics, servers=servers, schema=schema, format=format, start=start, once=once, options=options or {}
    )


def write(
    df: DataFrame,
    topic: str,
    *,
    servers: str,
    checkpoint: str | PathLike[str],
    key: str | None = None,
    format: Format = "json",
    trigger: Duration | Literal["available now"] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that writes the rows of a streaming DataFrame to a Kafka topic, each with its sequence.

    Spark's Kafka sink is at least once: a batch that runs again after a failure writes its records again. Here every
    record has a header, `braided.kafka.HEADER`, whose text is ``query/batch/task/number``: the id of the query, and
    which record of which task of which batch it is. A record that is written again has the same. Readers drop repeats
    by it: ``braided.kafka.read(..., once=True)``, or consumers of any other kind.

    Parameters
    ----------
    key : the column by which records are laid over the topic's partitions, as text; by default their sequence.
    format : how rows are written into values. Times in JSON have microseconds and a zone.
    checkpoint, trigger, name : as of `braided.write_files`.
    options : further options of Spark's sink, such as ``{"kafka.compression.type": "zstd"}``.

    The rows of each task are sorted, so that a batch that runs again numbers them alike. Its plan must give the same
    rows again: no `rand()`, no `current_timestamp()`.
    """
    from braided.spark.kafka import write_topic

    return write_topic(
        df,
        topic,
        servers=servers,
        checkpoint=checkpoint,
        key=key,
        format=format,
        trigger=trigger,
        name=name,
        options=options or {},
    )


def once(records: DataFrame) -> DataFrame:
    """Return a stream of Kafka records without those that a query of `braided.kafka.write` wrote twice.

    `records` comes from ``spark.readStream.format("kafka").option("includeHeaders", "true")``, with all its columns.
    The result has them too, but for the headers. Records without a sequence are all kept.

    Cost: one shuffle by partition of the topic, and a pass through Python. State: eight bytes for every record of the
    newest batch of every task that writes. If partitions are added to the topic between a failure of the writer and its
    restart, repeats whose keys moved to another partition are not found.
    """
    from braided.spark.kafka import drop_repeats

    return drop_repeats(records)
