"""A topic as a streaming source of Spark: offsets are the numbers of manifests.

Its rows are read by Spark's tasks, or, for a braided operator, only the names of its files are handed out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from braided.spark.inputs import arrow_of
from braided.storage.file_reader import FileReader, Part
from braided.storage.progress import to_text
from braided.storage.topic import Topic

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 a source could not be limited
    SupportsTriggerAvailableNow = object

NAME = "braided_topic"
NAMES_DDL = "path string, start long, stop long"
# Among names of files: the path is no path but says how far the topic has come, as text.
PROGRESS = -1
_NAMES = pa.schema([("path", pa.string()), ("start", pa.int64()), ("stop", pa.int64())])


@dataclass(frozen=True)
class _Planned:
    """What a task reads: files by name, and one task how far the topic has come."""

    names: Sequence[str]
    progress: str | None = None


class TopicSource(DataSource):  # type: ignore[misc]
    """Options: path, names (hand out names of files), max_files, parallel (tasks a batch), reader."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return NAME

    def schema(self) -> StructType | str:
        """See `DataSource`."""
        return NAMES_DDL if self._names else StructType.fromJson(json.loads(Topic(self.options["path"]).schema))

    @property
    def _names(self) -> bool:
        return str(self.options.get("names", "false")) == "true"

    def streamReader(self, schema: StructType) -> TopicReader:
        """See `DataSource`."""
        options = self.options
        most = options.get("max_files")
        return TopicReader(
            options["path"],
            None if self._names else arrow_of(schema, "path"),
            None if most is None else int(most),
            int(options.get("parallel", "2")),
            options.get("reader"),
        )


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of whole manifests, and reads files or names them."""

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
        """See `DataSourceStreamReader`: whole entries, of at most so many files together, but one at least."""
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
        """See `DataSourceStreamReader`: the largest file is dealt out first; a task reads its own in order."""
        entries = list(self._topic.manifests(start["slot"], end["slot"]))
        files = [file for entry in entries for file in entry.files]
        tasks: list[list[str]] = [[] for _ in range(min(self._parallel, len(files)))]
        loads = [0] * len(tasks)
        for file in sorted(files, key=lambda file: (-file.bytes, file.name)):
            lightest = loads.index(min(loads))
            tasks[lightest].append(file.name)
            loads[lightest] += file.bytes
        written = {file.name: at for at, file in enumerate(files)}
        planned = [sorted(names, key=written.__getitem__) for names in tasks]
        progress = [entry.progress for entry in entries if entry.kind != "claim"][-1:]
        if self._schema is not None or not progress or not progress[0]:
            return [InputPartition(_Planned(names)) for names in planned]
        first, *others = planned or [[]]
        return [InputPartition(_Planned(first, to_text(progress[0]))), *(InputPartition(_Planned(n)) for n in others)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        planned: _Planned = partition.value
        paths = [f"{self._topic.data}/{name}" for name in planned.names]
        if self._schema is None:
            starts = [0] * len(paths)
            if planned.progress is not None:
                paths, starts = [*paths, planned.progress], [*starts, PROGRESS]
            columns = [pa.array(paths), pa.array(starts, pa.int64()), pa.nulls(len(paths), pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=_NAMES)
            return
        reader = FileReader(self._schema, tuple(self._schema.names), case_sensitive=True, committed=True)
        for path in paths:
            yield from reader.read(Part(path))

    def commit(self, end: dict[str, int]) -> None:
        """See `DataSourceStreamReader`: what lies before may be deleted, as far as this reader is concerned."""
        if self._reader is not None:
            self._topic.register(self._reader, end["slot"])
