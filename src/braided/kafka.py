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

    A value that cannot be read (not JSON, or another schema) becomes a row of nulls. Operators of Braided count rows
    without a time and drop them, so `braided.report` has their number, and one bad record does not stop the query.

    Parameters
    ----------
    topics : one topic, or several of one schema.
    servers : the addresses of the brokers, such as ``"host:9092,other:9092"``.
    schema : the columns of a value; with ``format="avro"`` the Avro schema of the values, as JSON.
    format : the format of the values.
    start : where a query without a checkpoint starts to read.
    once : drop records that a query of `braided.kafka.write` wrote twice; see `once`.
    options : further options of Spark's source, such as ``{"maxOffsetsPerTrigger": "100000"}``.

    It needs Spark's Kafka connector, in the same version as Spark. If it is missing, the error names it.
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

    Spark's Kafka sink is at-least-once: a batch that runs again after a failure writes its records again. Here every
    record has a header, `braided.kafka.HEADER`, with the text ``query/batch/task/number``: the id of the query, and
    the numbers of the batch, of the task and of the record in its task. A record that is written again has the same
    header. Readers use it to drop repeats: ``braided.kafka.read(..., once=True)``, or any other consumer.

    Parameters
    ----------
    key : the column whose text is the key of the records, which decides on the partition; by default the sequence.
    format : the format of the values. Times in JSON have microseconds and a zone.
    checkpoint, trigger, name : as in `braided.write_files`.
    options : further options of Spark's sink, such as ``{"kafka.compression.type": "zstd"}``.

    The rows of each task are sorted, so that they get the same numbers when a batch runs again. The query must return
    the same rows again, so it must not contain `rand()` or `current_timestamp()`.
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
    The result has the same columns without the headers. Records without a sequence are all kept.

    Cost: one shuffle by partition of the topic, and one pass through Python. State: eight bytes for every record of the
    newest batch of every writing task. If partitions are added to the topic between a failure of the writer and its
    restart, repeats whose keys moved to another partition are not found.
    """
    from braided.spark.kafka import drop_repeats

    return drop_repeats(records)
