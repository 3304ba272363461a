"""`braided.write_table`: results as files of a Delta or Iceberg table, written by WORK and committed once per batch.

```
 WORK -> files, and a row (name, rows, bytes, partition, footer) for each -> driver: one commit of the table
```
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from braided.errors import OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.sessions import refuse_connect
from braided.spark.sink import batch_plan, check_trigger, codec_of, query_id, run_files, start_writing
from braided.spark.topic_schema import topic_schema
from braided.storage.tables import Layout, TableSink, open_sink, parse_size, split_name
from braided.storage.upkeep import Rounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from braided.durations import Duration


def write_table(
    frame: DataFrame,
    table: str,
    *,
    checkpoint: str | os.PathLike[str],
    trigger: Duration | None,
    name: str | None,
    partition_by: str | Sequence[str] | None,
    file_size: str | int,
    add_columns: bool,
    optimize: bool,
    options: Mapping[str, str] | None,
) -> StreamingQuery:
    """See `braided.write_table`."""
    refuse_connect(frame, "braided.write_table")
    split_name(table)
    if not frame.isStreaming:
        raise OptionError("df: not a stream; write a batch DataFrame with the table's own library")
    check_trigger(trigger)
    topic_schema(frame.schema)  # columns of the same name, and those that Arrow has no type for
    session = frame.sparkSession
    layout = Layout(
        (partition_by,) if isinstance(partition_by, str) else None if partition_by is None else tuple(partition_by),
        codec_of(session),
        parse_size(file_size, "file_size"),
        add_columns,
    )
    sink = open_sink(table, options)
    if optimize:
        sink.check_optimize()
    target = sink.prepare(arrow_of(frame.schema, "df"), layout)
    checkpoint = os.fspath(checkpoint)
    commit = TableCommit(session, sink, checkpoint, Rounds(sink.name, sink.optimize if optimize else None))
    return start_writing(frame, target, commit, checkpoint=checkpoint, trigger=trigger, name=name)


class TableCommit:
    """Runs a batch on the driver, and commits the files that its tasks named."""

    def __init__(self, session: SparkSession, sink: TableSink, checkpoint: str, rounds: Rounds) -> None:
        self._session = session
        self._sink = sink
        self._checkpoint = checkpoint
        self._rounds = rounds
        self._query = ""

    def __call__(self, files: DataFrame, batch: int) -> None:
        self._query = self._query or query_id(self._session, self._checkpoint)
        plan = batch_plan(self._session, self._checkpoint, batch)
        self._sink.commit(self._query, batch, plan, run_files(files))
        self._rounds.after_batch()
