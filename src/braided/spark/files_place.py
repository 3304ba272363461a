"""Directories of Parquet files as places of `format("braided")`: batches, and streams of the files that come.

Offsets of a stream are numbers in a log of the directory's files (`braided.storage.file_index`), since Spark keeps
nothing else for a source in Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import DecimalType, IntegerType, LongType, ShortType, StringType, StructField, StructType

from braided.errors import BraidedError, OptionError
from braided.spark.arrow_types import arrow_of, from_arrow
from braided.spark.file_tasks import cut, deal
from braided.spark.place import Place
from braided.spark.topic_place import SupportsTriggerAvailableNow
from braided.storage.delta_log import partition_scalar
from braided.storage.directory import FoundFile, check_no_table, file_bytes, is_directory, list_files, path_values
from braided.storage.file_index import FileIndex, FilePosition
from braided.storage.file_reader import FileReader, Part
from braided.storage.files import open_input
from braided.storage.fit import int96_paths
from braided.storage.tables import plain_location

_PARALLEL = 8
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
# As Spark reads numbers without a sign.
_WIDER = {pa.uint8(): ShortType(), pa.uint16(): IntegerType(), pa.uint32(): LongType(), pa.uint64(): DecimalType(20, 0)}
_PartOfFile = tuple[str, int, int | None, int]
"""Name, first byte, end, size of the file."""


class FilesPlace(Place):
    """Options: max_files, parallel (tasks of a batch), index, ignoreMissingFiles, ignoreCorruptFiles."""

    what: ClassVar[str] = "a directory of Parquet files"

    @classmethod
    def is_at(cls, path: str) -> bool:
        """See `Place`."""
        return is_directory(path)

    def schema(self) -> StructType:
        """See `Place`: the columns of the oldest file, and those that its folders give, as strings."""
        self._check()
        files = list_files(self.path)
        if not files:
            raise OptionError(
                f"path={self.path!r}: has no file to take a schema from; write .schema(...), as in 'k long'"
            )
        return schema_of_file(f"{plain_location(self.path)}/{files[0].name}", path_values(files[0].name))

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `Place`."""
        self._check()
        return FilesReader(self.path, self._tasks(schema))

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """See `Place`."""
        self._check()
        return FilesStreamReader(
            self.path, self._tasks(schema), self.number("max_files"), self.options.get("index") or None
        )

    def _check(self) -> None:
        check_no_table(self.path)
        if self.names:
            raise self._refused("read by name")

    def _tasks(self, schema: StructType) -> FileTasks:
        rows = arrow_of(schema, "path")
        reader = FileReader(
            rows, tuple(rows.names), ignore_missing=self._is_set("ignoreMissingFiles"),
            ignore_damaged=self._is_set("ignoreCorruptFiles"),
        )  # fmt: skip
        return FileTasks(plain_location(self.path), reader, self.number("parallel") or _PARALLEL)

    def _is_set(self, name: str) -> bool:
        return str(self.options.get(name, "false")).lower() == "true"


def schema_of_file(path: str, values: Mapping[str, str | None]) -> StructType:
    """Return the columns of a file as Spark reads them, and those of its path that it lacks, as strings."""
    try:
        with pq.ParquetFile(open_input(path), coerce_int96_timestamp_unit="us") as file:
            written = (file.metadata.metadata or {}).get(_SPARK_SCHEMA)
            schema, int96 = file.schema_arrow, int96_paths(file.metadata.schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise OptionError(
            f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}); write .schema(...)"
        ) from error
    fields = (
        StructType.fromJson(json.loads(written)).fields
        if written
        else [StructField(field.name, _spark_type(path, field, int96)) for field in schema]
    )
    known = {field.name.lower() for field in fields}
    fields = [StructField(field.name, field.dataType) for field in fields]
    return StructType([*fields, *(StructField(name, StringType()) for name in values if name.lower() not in known)])


def _spark_type(path: str, field: pa.Field[Any], int96: frozenset[str]) -> Any:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if field.name in int96:
        kind = pa.timestamp("us", "UTC")
    try:
        return _WIDER[kind] if kind in _WIDER else from_arrow(kind)
    except TypeError as error:
        raise OptionError(f"{path}: column {field.name!r}: {error}; write .schema(...) without it") from error


class FileTasks:
    """Plans the tasks of a batch of files, and reads what one of them has to read."""

    def __init__(self, directory: str, reader: FileReader, parallel: int) -> None:
        self._directory = directory
        self._reader = reader
        self._parallel = parallel

    def plan(self, files: Sequence[FoundFile]) -> list[InputPartition]:
        """Return the tasks; each reads its files in their order."""
        parts = [(file, *part) for file in files for part in cut(file.bytes)]
        tasks = deal([size for *_, size in parts], self._parallel)
        return [
            InputPartition(
                [(file.name, start, stop, file.bytes) for file, start, stop, _ in (parts[at] for at in task)]
            )
            for task in tasks
        ]

    def read(self, parts: Sequence[_PartOfFile]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files, none of which may have changed since it was found."""
        columns = {name.lower(): name for name in self._reader.schema.names}
        for name, start, stop, size in parts:
            path = f"{self._directory}/{name}"
            self._check_unchanged(path, size)
            values = {
                columns[key.lower()]: partition_scalar(value, self._reader.schema.field(columns[key.lower()]).type, key)
                for key, value in path_values(name).items()
                if key.lower() in columns
            }
            yield from self._reader.read(Part(path, start, stop, values))

    def _check_unchanged(self, path: str, size: int) -> None:
        try:
            now = file_bytes(path)
        except FileNotFoundError:
            return  # the reader says so, or passes over it
        if now != size:
            raise BraidedError(
                f"{path}: has {now} bytes, and had {size} when it was found; files must appear whole (write them "
                "elsewhere, then rename them) and stay as they are: put the file back as it was"
            )


class FilesReader(DataSourceReader):  # type: ignore[misc]
    """Reads the files that there are when it is planned."""

    def __init__(self, path: str, tasks: FileTasks) -> None:
        self._path = path
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """See `DataSourceReader`. One task with nothing to do, since Spark wants one at least."""
        return self._tasks.plan(list_files(self._path)) or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader`."""
        yield from self._tasks.read(partition.value)


class FilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of files in the order in which they were found."""

    def __init__(self, path: str, tasks: FileTasks, most: int | None, place: str | None) -> None:
        self._path = path
        self._tasks = tasks
        self._most = most
        self._place = place
        self._opened: FileIndex | None = None
        self._end: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read files and need no index.
        return {**self.__dict__, "_opened": None}

    @property
    def _index(self) -> FileIndex:
        if self._opened is None:
            self._opened = FileIndex(self._path, self._place)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """See `DataSourceStreamReader`: all files that there are."""
        return asdict(self._index.begin())

    def prepareForTriggerAvailableNow(self) -> None:
        """See `SupportsTriggerAvailableNow`."""
        self._end = self._index.update()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """See `DataSourceStreamReader`: all files, or so many."""
        count = self._index.update() if self._end is None else self._end
        begin = self._index.begin() if start is None else FilePosition(**start)
        return asdict(self._index.end(begin, count, None if start is None else self._most))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `DataSourceStreamReader`."""
        return self._tasks.plan(self._index.between(FilePosition(**start), FilePosition(**end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        yield from self._tasks.read(partition.value)
