"""Kafka on Spark: turns records into rows and rows into records, with a sequence to detect repeats (`sequence.py`).

```
 write:  rows -> foreachBatch: sort within tasks, number, header query/batch/task/number -> Spark's Kafka sink
 read:   Spark's Kafka source -> headers to columns -> groupBy(topic, partition).transformWithState -> values to rows
```
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from braided.durations import Duration
from braided.errors import OptionError
from braided.sequence import HEADER
from braided.spark.catalyst import PlanNode, has_class, plan_of
from braided.spark.inputs import check_frames
from braided.spark.names import quoted
from braided.spark.routing import state_partitions
from braided.spark.sink import check_trigger, start_query

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A class of each required jar, and the package that has it; Maven loads the other jars with the first.
_CONNECTOR = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
    "org.apache.spark.kafka010.KafkaConfigUpdater": "org.apache.spark:spark-token-provider-kafka-0-10_2.13:{spark}",
    "org.apache.kafka.clients.producer.KafkaProducer": "org.apache.kafka:kafka-clients",
    "org.apache.commons.pool2.PooledObjectFactory": "org.apache.commons:commons-pool2",
}
_AVRO = {"org.apache.spark.sql.avro.AvroDataToCatalyst": "org.apache.spark:spark-avro_2.13:{spark}"}
_RECORDS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_SEQUENCE = ("query", "batch", "task", "number")
# Tasks read only records that exist. After them, Spark asks the broker for the ends of the partition, and the broker
# answers only once the fetch before has ended, which waits for further records: by default up to half a second.
SHORT_FETCHES = {"kafka.fetch.max.wait.ms": "10"}
"""Options of a source without which every batch waits for topics with few records."""
# With microseconds, which Spark's default leaves out; any reader of ISO 8601 accepts it.
_JSON_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_SHUFFLED = ("TransformWithState", "FlatMapGroups", "Aggregate", "Deduplicate", "Distinct")
# Spark numbers the rows of a task in the lower 33 bits.
_NUMBER = (1 << 33) - 1


def read_topics(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    servers: str,
    schema: StructType | str,
    format: str,
    start: str,
    once: bool,
    options: Mapping[str, str],
) -> DataFrame:
    """See `braided.kafka.read`."""
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError(f"topics={topics!r}: give the name of a topic, or a list of names")
    if start not in ("earliest", "latest"):
        raise OptionError(f"start={start!r}: write 'earliest' or 'latest'")
    _check_format(format)
    check_jars(spark, format)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).options(**SHORT_FETCHES)
    reader = reader.option("subscribe", ",".join(names)).option("startingOffsets", start).options(**options)
    records = reader.option("includeHeaders", str(once).lower()).load()
    if once:
        records = drop_repeats(records)
    return records.select(_decoded(schema, format).alias("row")).select("row.*")


def write_topic(
    frame: DataFrame,
    topic: str,
    *,
    servers: str,
    checkpoint: str | os.PathLike[str],
    key: str | None,
    format: str,
    trigger: Duration | None,
    name: str | None,
    options: Mapping[str, str],
) -> StreamingQuery:
    """See `braided.kafka.write`."""
    session = check_frames({"df": frame})
    if not frame.isStreaming:
        raise OptionError("df: not a stream; write a table with df.write.format('kafka')")
    if key is not None and key not in frame.columns:
        raise OptionError(f"key={key!r}: no such column; there are {', '.join(frame.columns)}")
    _check_format(format)
    check_trigger(trigger)
    check_jars(session, format)
    row = F.struct(*(F.col(quoted(column)) for column in frame.columns))
    value = to_avro(row) if format == "avro" else F.to_json(row, _JSON_TIMES).cast("binary")
    by = F.lit(None).cast("binary") if key is None else F.col(quoted(key)).cast("string").cast("binary")
    records = frame.select(by.alias("key"), value.alias("value"))
    sink = WriteRecords(records, {**options, "kafka.bootstrap.servers": servers, "topic": topic})
    return start_query(records.writeStream.foreachBatch(sink), os.fspath(checkpoint), trigger, name)


def sequenced(frame: DataFrame) -> DataFrame | None:
    """Return a stream of records that can be given their sequence; None if it has more than a key and a value."""
    names = {name.lower() for name in frame.columns}
    if "value" not in names or not names <= {"key", "value"}:
        return None
    check_jars(frame.sparkSession, "json")
    key = F.col("key") if "key" in names else F.lit(None)
    return frame.select(key.cast("binary").alias("key"), F.col("value").cast("binary").alias("value"))


def _is_shuffled(plan: PlanNode) -> bool:
    """Whether all rows of a stream have passed the shuffle of a stateful operator, into the checkpoint's partitions."""
    return plan.kind.startswith(_SHUFFLED) or (bool(plan.children) and all(map(_is_shuffled, plan.children)))


class WriteRecords:
    """Writes a batch of `stream`, on the driver: numbers the records of each task, and lets Spark's sink write them.

    Each record must be in the same task when a batch runs again, also after a restart. This holds after the shuffle of
    a stateful operator, but not for tasks that read sources: which task reads a partition of Kafka depends on whether
    Spark has asked a broker for offsets or read them from its log.
    """

    def __init__(self, stream: DataFrame, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._is_shuffled = _is_shuffled(plan_of(stream))

    def __call__(self, records: DataFrame, batch: int) -> None:
        self.sequenced(records, batch).write.format("kafka").options(**self._options).save()

    def sequenced(self, records: DataFrame, batch: int) -> DataFrame:
        """Return the records of a batch with their sequence."""
        session = records.sparkSession
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not self._is_shuffled:
            records = records.repartition(state_partitions(session), "key", "value")
        return numbered(records, str(query), batch)


def numbered(records: DataFrame, query: str, batch: int) -> DataFrame:
    """Return records with their sequence as a header, and as the key of those that have none.

    The numbers follow the order within a task. Sorted, it depends only on the records themselves. Query and batch are
    strings, which Spark does not compile into its code: with a number, Spark would compile every batch again.
    """
    number = F.monotonically_increasing_id().bitwiseAND(F.lit(_NUMBER))
    label = F.concat_ws("/", F.lit(query), F.lit(str(batch)), F.spark_partition_id(), number).cast("binary")
    ordered = records.sortWithinPartitions("key", "value").withColumn("label", label)
    header = F.struct(F.lit(HEADER).alias("key"), F.col("label").alias("value"))
    return ordered.select(F.coalesce("key", "label").alias("key"), "value", F.array(header).alias("headers"))


def drop_repeats(records: DataFrame) -> DataFrame:
    """See `braided.kafka.once`."""
    check_frames({"records": records})
    lacking = [name for name in (*_RECORDS, "headers") if name not in records.columns]
    if lacking:
        raise OptionError(
            f"records: no column {', '.join(lacking)}; read them with spark.readStream.format('kafka') and "
            "option('includeHeaders', 'true')"
        )
    if not records.isStreaming:
        raise OptionError("records: not a stream; to drop repeats of a table, use dropDuplicates on the header")
    of_ours = F.filter("headers", lambda header: header["key"] == HEADER)
    parts = F.split(F.get(of_ours, F.lit(0))["value"].cast("string"), "/")
    is_whole = F.size(parts) == len(_SEQUENCE)
    kinds = ("string", "bigint", "bigint", "bigint")
    labels = [F.when(is_whole, F.get(parts, F.lit(at)).try_cast(kind)) for at, kind in enumerate(kinds)]
    is_good = F.expr("query IS NOT NULL AND batch IS NOT NULL AND task IS NOT NULL AND number IS NOT NULL")
    flat = records.select(
        *(F.unix_micros(name).alias(name) if name == "timestamp" else F.col(name) for name in _RECORDS),
        *(label.alias(name) for label, name in zip(labels, _SEQUENCE, strict=True)),
    ).withColumn("query", F.when(is_good, F.col("query")))
    flat = flat.fillna(0, subset=["batch", "task", "number"])
    wire = StructType([StructField(name, flat.schema[name].dataType) for name in _RECORDS])
    fresh = flat.groupBy("topic", "partition").transformWithStateInPandas(DropRepeats(), wire, "Append", "None")
    return fresh.withColumn("timestamp", F.timestamp_micros("timestamp"))


class DropRepeats(StatefulProcessor):  # type: ignore[misc]
    """Keeps the records of one partition of a topic that did not come before."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable."""
        self._newest = handle.getValueState("newest", StructType([StructField("content", BinaryType())]))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Drop the repeats of one batch."""
        import numpy as np

        from braided.sequence import Repeats, pack, unpack

        repeats = Repeats(unpack(bytes(self._newest.get()[0])) if self._newest.exists() else {})
        for chunk in rows:
            keep = chunk["query"].isna().to_numpy(copy=True)
            labelled = chunk[~keep]
            columns = [labelled[name].to_numpy(np.int64) for name in _SEQUENCE[1:]]
            keep[~keep] = repeats.new(labelled["query"].to_numpy(object), *columns)
            yield chunk.loc[keep, list(_RECORDS)]
        self._newest.update((pack(repeats.newest()),))

    def close(self) -> None:
        """Do nothing: no resources are held between batches."""


def check_jars(spark: SparkSession, format: str) -> None:
    """Refuse a session that lacks a jar, with its name, before a batch fails for a missing class."""
    needed = {**_CONNECTOR, **(_AVRO if format == "avro" else {})}
    lacking = [package.format(spark=spark.version) for name, package in needed.items() if not has_class(spark, name)]
    if not lacking:
        return
    first = {**_CONNECTOR, **_AVRO}
    fetched = ",".join(
        first[name].format(spark=spark.version) for name in needed if name.startswith("org.apache.spark.sql.")
    )
    raise OptionError(
        f"format={format!r}: this session lacks {', '.join(lacking)}; start it with spark.jars.packages={fetched}, or "
        "without a network with the files of these jars in spark.jars"
    )


def _check_format(format: str) -> None:
    if format not in ("json", "avro"):
        raise OptionError(f"format={format!r}: write 'json' or 'avro'")


def _decoded(schema: StructType | str, format: str) -> Column:
    """Return a record's value as a struct; if it cannot be read, all fields are null."""
    value = F.col("value")
    try:
        if format == "avro":
            return from_avro(value, str(schema), {"mode": "PERMISSIVE"})
        kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise OptionError(f"schema={schema!r}: {str(error).strip().splitlines()[0]}") from error
    return F.from_json(value.cast("string"), kind)
