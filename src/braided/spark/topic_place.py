"""Topics as a source and a sink of Spark: offsets are the numbers of manifests.

Its rows are read by Spark's tasks. For a braided operator, only the names of its files are passed on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from braided.errors import OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.file_tasks import deal
from braided.spark.place import NAMES, PROGRESS, Place
from braided.storage.file_reader import FileReader, Part
from braided.storage.topic import Topic, check_reader, is_topic
from braided.storage.topic_progress import to_text

__all__ = ["SupportsTriggerAvailableNow", "TopicPlace", "TopicReader"]

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _Limited
except ImportError:  # before Spark 4.2 a source could not be limited
    _Limited = object
SupportsTriggerAvailableNow: Any = _Limited
"""The base of a source that ends a run with trigger `availableNow` at the offset that it had at the start."""

# The default number of tasks that read a batch; each file is read by one of them.
_PARALLEL = 8


class TopicPlace(Place):
    """Options: max_files, reader, parallel (tasks of a batch); compression of files that are written."""

    what: ClassVar[str] = "a topic"

    @classmethod
    def is_at(cls, path: str) -> bool:
        """See `Place`."""
        return is_topic(path)

    def schema(self) -> StructType:
        """See `Place`: the columns have the marks of their times."""
        topic = Topic(self.path)
        schema, marks = StructType.fromJson(json.loads(topic.schema)), topic.marks
        return StructType([
            StructField(field.name, field.dataType, True, marks.get(field.name) or field.metadata) for field in schema
        ])  # fmt: skip

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `Place`."""
        return TopicFiles(self.path, self._columns(schema), self._parallel())

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """See `Place`."""
        reader = self.options.get("reader")
        if reader is not None:
            check_reader(reader)
        columns = None if self.names else self._columns(schema)
        return TopicReader(self.path, columns, self.number("max_files"), self._parallel(), reader)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `Place`."""
        from braided.spark.topic_sink import TopicAppender

        self._check_append(overwrite, 'mode("append")')
        return TopicAppender(self.path, schema, self.options)

    def stream_writer(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `Place`."""
        from braided.spark.topic_sink import TopicSink

        self._check_append(overwrite, 'outputMode("append")')
        return TopicSink(self.path, schema, self.options)

    def _check_append(self, overwrite: bool, advice: str) -> None:
        if overwrite:
            raise OptionError(f"path={self.path!r}: a topic is a log and cannot be overwritten; write {advice}")

    def _parallel(self) -> int:
        return self.number("parallel") or _PARALLEL

    def _columns(self, schema: StructType) -> pa.Schema:
        known = {field.name: field.dataType for field in self.schema()}
        for field in schema:
            if known.get(field.name) != field.dataType:
                what = known[field.name].simpleString() if field.name in known else "no such column"
                raise OptionError(
                    f"schema: {field.name} {field.dataType.simpleString()}: the topic has {what}; leave schema out"
                )
        return arrow_of(schema, "path")


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of whole manifests, and returns rows of files or names of files."""

    def __init__(
        self, path: str, schema: pa.Schema | None, most: int | None, parallel: int, reader: str | None
    ) -> None:
        self._topic = Topic(path)
        self._schema = schema
        self._most = most
        self._parallel = parallel
        self._reader = reader
        self._latest = -1
        self._end: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """See `DataSourceStreamReader`: the oldest entry that is kept."""
        first = self._topic.first() or 0
        if self._reader is not None:
            self._topic.register(self._reader, first)
        return {"slot": first}

    def prepareForTriggerAvailableNow(self) -> None:
        """See `SupportsTriggerAvailableNow`."""
        self._end = self._topic.latest() + 1

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """See `DataSourceStreamReader`: whole entries of together at most `max_files` files, but at least one entry."""
        self._latest = self._topic.latest(self._latest)
        end = self._latest + 1 if self._end is None else self._end
        if start is None or self._most is None:
            return {"slot": max(end, start["slot"] if start else 0)}
        files, slot = 0, start["slot"]
        for entry in self._topic.manifests(slot, end):
            files += len(entry.files)
            if files > self._most and slot > start["slot"]:
                break
            slot = entry.next
        return {"slot": slot}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """See `DataSourceStreamReader`. If names are returned, the first task also returns the topic's progress."""
        tasks = _deal(self._topic, start["slot"], end["slot"], self._parallel)
        progress = self._topic.progress(start["slot"], end["slot"]) if self._schema is None else {}
        if not progress:
            return tasks
        first, *others = tasks or [InputPartition([])]
        return [InputPartition([*first.value, to_text(progress)]), *others]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        if self._schema is None:
            # No file's name starts with a brace, but the text of a progress does.
            starts = [PROGRESS if name.startswith("{") else 0 for name in partition.value]
            named = zip(starts, partition.value, strict=True)
            paths = [name if start == PROGRESS else f"{self._topic.data}/{name}" for start, name in named]
            columns = [pa.array(paths), pa.array(starts, pa.int64()), pa.nulls(len(paths), pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=NAMES)
            return
        yield from _rows([f"{self._topic.data}/{name}" for name in partition.value], self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """See `DataSourceStreamReader`: this reader no longer needs earlier entries, so they may be deleted."""
        if self._reader is not None:
            self._topic.register(self._reader, end["slot"])


class TopicFiles(DataSourceReader):  # type: ignore[misc]
    """Reads the entries of a topic that exist when the read is planned."""

    def __init__(self, path: str, schema: pa.Schema, parallel: int) -> None:
        self._topic = Topic(path)
        self._schema = schema
        self._parallel = parallel

    def partitions(self) -> Sequence[InputPartition]:
        """See `DataSourceReader`. At least one task, even without files, because Spark requires one."""
        return _deal(self._topic, None, None, self._parallel) or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader`."""
        yield from _rows([f"{self._topic.data}/{name}" for name in partition.value], self._schema)


def _deal(topic: Topic, start: int | None, stop: int | None, parallel: int) -> list[InputPartition]:
    """Return the files of each task: the largest files are assigned first; a task reads its files in order."""
    files = [file for entry in topic.manifests(start, stop) for file in entry.files]
    tasks = deal([file.bytes for file in files], parallel)
    return [InputPartition([files[at].name for at in task]) for task in tasks]


def _rows(paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = FileReader(schema, tuple(schema.names), case_sensitive=True, committed="topic")
    for path in paths:
        yield from reader.read(Part(path))
