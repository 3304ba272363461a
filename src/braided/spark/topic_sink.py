"""`format("braided")` as a sink: tasks write files, and a process of the driver commits a batch by one manifest.

Spark commits each batch in a process that knows nothing of the one before. A batch is committed once by its number in
the log of its query (`Topic.resume`), and the digest of its input where the checkpoint can be read. Nothing is deleted
when a commit fails, since it may have come through: the batch runs again, and sweeps what is not in the log.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from braided.storage.writing import CODECS, DataFile, FileTarget, batch_folder

if TYPE_CHECKING:
    import pyarrow as pa

# Since Spark 4.1. Before it, rows reach a sink of a stream one by one.
_ArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", None)


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task wrote, and for which query."""

    query: str | None
    files: tuple[DataFile, ...]


class _Writer:
    """The topic that is written to, made if there is none, and how a task writes its files."""

    def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
        self.schema = arrow_of(schema, "df")
        self.topic = create_topic_of(schema, path)
        codec = str(options.get("compression", "snappy")).lower()
        if codec not in CODECS:
            raise OptionError(f"compression={codec!r}: write one of {', '.join(CODECS)}")
        self.target = FileTarget(self.topic.data, codec)
        self.checkpoint = options.get("checkpointLocation")

    def write_files(self, folder: str, batches: Iterator[pa.RecordBatch]) -> tuple[DataFile, ...]:
        """Write the rows of one attempt of a task."""
        from braided.runtime.router import conform
        from braided.spark.tasks import settle

        context = TaskContext.get()
        assert context is not None
        writer = self.target.writer(folder, context.partitionId(), self.schema)
        try:
            for batch in batches:
                writer.write(conform(batch.rename_columns(self.schema.names), self.schema))
            files = writer.close()
        except BaseException:
            writer.discard()
            raise
        settle()
        return tuple(files)


class TopicAppender(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """Adds the rows of a batch job by one manifest."""

    def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(path, schema, options)
        self._folder = f"w{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `DataSourceArrowWriter`."""
        return Written(None, self.write_files(self._folder, iterator))

    def commit(self, messages: Sequence[Written | None]) -> None:
        """See `DataSourceWriter`."""
        self.topic.append(_files(messages))

    def abort(self, messages: Sequence[Written | None]) -> None:
        """See `DataSourceWriter`."""
        self.topic.discard_files(_files(messages))


if _ArrowWriter is None:

    class TopicSink:
        """Refuses: row by row, a stream would be written too slowly."""

        def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
            raise OptionError(f'format("{NAME}"): Spark 4.0 gives streams to sinks row by row; use braided.write_files')

else:

    class TopicSink(_Writer, _ArrowWriter):  # type: ignore[misc,no-redef]
        """Adds the batches of a stream, each once."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            """See `DataSourceStreamArrowWriter`."""
            from braided.spark.tasks import batch_number

            context = TaskContext.get()
            assert context is not None
            return Written(
                context.getLocalProperty("sql.streaming.queryId"),
                self.write_files(batch_folder(batch_number()), iterator),
            )

        def commit(self, messages: Sequence[Written | None], batchId: int) -> None:
            """See `DataSourceStreamWriter`."""
            commit_batch(self.topic, self.checkpoint, messages, batchId)

        def abort(self, messages: Sequence[Written | None], batchId: int) -> None:
            """See `DataSourceStreamWriter`: the batch's next attempt sweeps."""


def commit_batch(topic: Topic, checkpoint: str | None, messages: Sequence[Written | None], batch: int) -> None:
    """Add the files of a batch to a topic, unless they are there."""
    plan = _read(checkpoint, f"offsets/{batch}")
    owner = next((message.query for message in messages if message is not None and message.query), None)
    if owner is None:  # a batch without tasks
        metadata = _read(checkpoint, "metadata")
        if metadata is None:
            return
        owner = str(json.loads(metadata)["id"])
    # Where nobody can say which batches came before, a batch of any number may be the first with rows.
    writer = topic.resume(owner, batch if plan is not None else 0)
    writer.commit(batch, UNKNOWN if plan is None else plan_digest(plan), _files(messages))


def _files(messages: Sequence[Written | None]) -> list[DataFile]:
    files = [file for message in messages if message is not None for file in message.files]
    return sorted(files, key=lambda file: file.name)


def _read(checkpoint: str | None, name: str) -> str | None:
    """Return a file of the checkpoint; None if this process cannot read it."""
    if checkpoint is None:
        return None
    try:
        content = files_at(checkpoint, "checkpoint").read(name)
    except (BraidedError, OSError):  # a file system that fsspec does not know
        return None
    return None if content is None else content.decode()
