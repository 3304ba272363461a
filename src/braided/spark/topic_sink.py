"""`format("braided")` as a sink: tasks write files, and a process of the driver commits a batch by one manifest.

Spark commits each batch in a process that knows nothing of the one before. A batch is committed once by its number in
the log of its query (`Topic.resume`), and by the digest of its input if the checkpoint can be read. Nothing is deleted
when a commit fails, since it may have succeeded: the batch runs again, and deletes files that are not in the log.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braided.errors import BraidedError, OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.place import NAME
from braided.spark.topic_schema import create_topic_of
from braided.storage.files import files_at
from braided.storage.topic import UNKNOWN, Topic, plan_digest
from braided.storage.writing import CODECS, DataFile, FileTarget, Target, batch_folder

if TYPE_CHECKING:
    import pyarrow as pa

# Since Spark 4.1. In earlier versions, a streaming sink receives rows one by one.
_Streamed = getattr(datasource, "DataSourceStreamArrowWriter", None)


class _RowByRow:
    """Raises when it is used: this version of Spark has only row-by-row streaming sinks in Python."""

    def __new__(cls, *_: object) -> _RowByRow:
        raise OptionError(f'format("{NAME}"): Spark 4.0 has only sinks of single rows; use braided.write_files')


ArrowWriter: Any = _RowByRow if _Streamed is None else _Streamed
"""The base class of a streaming sink in this version of Spark."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The files that a task wrote, and the query."""

    query: str | None
    files: tuple[DataFile, ...]


def check_codec(options: Mapping[str, str]) -> str:
    """Return the compression of files."""
    codec = str(options.get("compression", "snappy")).lower()
    if codec not in CODECS:
        raise OptionError(f"compression={codec!r}: write one of {', '.join(CODECS)}")
    return codec


def write_task(
    target: Target, schema: pa.Schema, batches: Iterator[pa.RecordBatch], folder: str | None = None
) -> Written:
    """Write the rows of one attempt of a task, by default to the folder of its stream's batch."""
    from braided.runtime.router import conform
    from braided.spark.tasks import batch_number, freeze_loaded

    context = TaskContext.get()
    assert context is not None
    folder = batch_folder(batch_number()) if folder is None else folder
    writer = target.writer(folder, context.partitionId(), schema)
    try:
        for batch in batches:
            writer.write(conform(batch.rename_columns(schema.names), schema))
        files = writer.close()
    except BaseException:
        writer.discard()
        raise
    freeze_loaded()
    return Written(context.getLocalProperty("sql.streaming.queryId"), tuple(files))


class _TopicWriter:
    """The topic that is written to; it is created if it does not exist."""

    def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = arrow_of(schema, "df")
        codec = check_codec(options)
        self._topic = create_topic_of(schema, path)
        self._target = FileTarget(self._topic.data, codec)
        self._checkpoint = options.get("checkpointLocation")


class TopicAppender(_TopicWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Adds the rows of a batch job by one manifest."""

    def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(path, schema, options)
        self._folder = f"w{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `DataSourceArrowWriter`."""
        return write_task(self._target, self._schema, iterator, self._folder)

    def commit(self, messages: Sequence[Written | None]) -> None:
        """See `DataSourceWriter`."""
        self._topic.append(files_in(messages))

    def abort(self, messages: Sequence[Written | None]) -> None:
        """See `DataSourceWriter`."""
        self._topic.discard_files(files_in(messages))


class TopicSink(_TopicWriter, ArrowWriter):  # type: ignore[misc]
    """Adds the batches of a stream, each once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `DataSourceStreamArrowWriter`."""
        return write_task(self._target, self._schema, iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:
        """See `DataSourceStreamWriter`."""
        commit_batch(self._topic, self._checkpoint, messages, batchId)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:
        """See `DataSourceStreamWriter`: the next attempt of the batch cleans up."""


def commit_batch(topic: Topic, checkpoint: str | None, messages: Sequence[Written | None], batch: int) -> None:
    """Add the files of a batch to a topic, unless they are already there."""
    owner, plan = batch_of(checkpoint, messages, batch)
    if owner is None:
        return
    # If the earlier batches are not known, a batch of any number may be the first with rows.
    writer = topic.resume(owner, batch if plan is not None else 0)
    writer.commit(batch, UNKNOWN if plan is None else plan, files_in(messages))


def batch_of(checkpoint: str | None, messages: Sequence[Written | None], batch: int) -> tuple[str | None, str | None]:
    """Return the query of a batch and the digest of its input; None for what cannot be read from the checkpoint."""
    plan = _read(checkpoint, f"offsets/{batch}")
    owner = next((message.query for message in messages if message is not None and message.query), None)
    if owner is None:  # a batch without tasks
        metadata = _read(checkpoint, "metadata")
        owner = None if metadata is None else str(json.loads(metadata)["id"])
    return owner, None if plan is None else plan_digest(plan)


def files_in(messages: Sequence[Written | None]) -> list[DataFile]:
    """Return the files that tasks wrote, in order of their names."""
    files = [file for message in messages if message is not None for file in message.files]
    return sorted(files, key=lambda file: file.name)


def _read(checkpoint: str | None, name: str) -> str | None:
    """Return a file of the checkpoint; None if this process cannot read it."""
    if checkpoint is None:
        return None
    try:
        content = files_at(checkpoint, "checkpoint").read(name)
    except (BraidedError, OSError):  # a file system that fsspec does not support
        return None
    return None if content is None else content.decode()
