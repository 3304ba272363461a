"""A Delta table as a streaming source of Spark: offsets are versions of the table.

Its rows are read by Spark's tasks. For a braided operator, only the names of its files are passed on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from braided.errors import OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.file_tasks import cut, deal
from braided.spark.sessions import slots_of
from braided.spark.topic_place import SupportsTriggerAvailableNow
from braided.storage.delta_log import DeltaLog, Position, partition_scalar
from braided.storage.file_reader import FileReader, Part
from braided.storage.tables import split_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "braided_delta"
# The mark of `braided.files`, by which a leaf is found again below an operator.
MARK = "braided.files"
# Prefix of the names of storage options: Spark redacts options whose names look secret.
STORAGE = "storage."
# The columns of `NAMES_DDL`, which cannot be parsed without a session.
_NAMES = [StructField("path", StringType()), StructField("start", LongType()), StructField("stop", LongType())]


def read_table(
    session: SparkSession,
    table: str,
    *,
    max_files: int | None,
    add_columns: bool,
    options: Mapping[str, str] | None,
) -> DataFrame:
    """See `braided.table`."""
    kind, location = split_name(table)
    if kind != "delta":
        raise OptionError(
            f"table={table!r}: only Delta tables can be read as streams; for Iceberg use its own Spark source"
        )
    if max_files is not None and (type(max_files) is not int or max_files < 1):
        raise OptionError(f"max_files={max_files!r}: write a number of 1 or more")
    log = DeltaLog(location, options)  # reports errors before a query starts
    session.dataSource.register(DeltaSource)
    given = {"location": log.location, "parallel": str(slots_of(session)), MARK: "table"}
    # A column that is added before a query of this frame starts is not included.
    given["columns"] = json.dumps([field["name"] for field in json.loads(log.schema)["fields"]])
    if max_files is not None:
        given["max_files"] = str(max_files)
    if add_columns:
        given["add_columns"] = "true"
    given |= {f"{STORAGE}{name}": value for name, value in (options or {}).items()}
    return session.readStream.format(NAME).options(**given).load()


def partition_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partition columns of a table; their values come beside the names of files."""
    return tuple(_log(options).partitions)


def _log(options: Mapping[str, str]) -> DeltaLog:
    storage = {name[len(STORAGE) :]: value for name, value in options.items() if name.startswith(STORAGE)}
    columns = json.loads(options["columns"]) if "columns" in options else None
    return DeltaLog(options["location"], storage, add_columns=options.get("add_columns") == "true", columns=columns)


class DeltaSource(DataSource):  # type: ignore[misc]
    """Options: location, names (return names of files), columns, max_files, parallel (tasks per batch), add_columns."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return NAME

    def schema(self) -> StructType:
        """See `DataSource`."""
        log = _log(self.options)
        whole = StructType.fromJson(json.loads(log.schema))
        if not self._names:
            return StructType([StructField(field.name, field.dataType, True) for field in whole.fields])
        values = [StructField(f"p{at}", whole[name].dataType) for at, name in enumerate(log.partitions)]
        return StructType([*_NAMES, *values])

    @property
    def _names(self) -> bool:
        return str(self.options.get("names", "false")) == "true"

    def streamReader(self, schema: StructType) -> DeltaReader:
        """See `DataSource`."""
        most = self.options.get("max_files")
        made_with = {} if self._names else {"columns": json.dumps(schema.names)}
        return DeltaReader(
            {**self.options, **made_with},
            arrow_of(schema, "table"),
            self._names,
            None if most is None else int(most),
            int(self.options.get("parallel", "2")),
        )


class DeltaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of the files that versions of the table add, and returns their rows or their names."""

    def __init__(
        self, options: dict[str, str], schema: pa.Schema, names: bool, most: int | None, parallel: int
    ) -> None:
        self._options = options
        self._schema = schema
        self._names = names
        self._most = most
        self._parallel = parallel
        self._opened: DeltaLog | None = None
        self._end: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read files and need no log.
        return {**self.__dict__, "_opened": None}

    @property
    def _log(self) -> DeltaLog:
        if self._opened is None:
            self._opened = _log(self._options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """See `DataSourceStreamReader`: the current version of the table."""
        return asdict(self._log.begin())

    def prepareForTriggerAvailableNow(self) -> None:
        """See `SupportsTriggerAvailableNow`."""
        self._end = self._log.latest()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """See `DataSourceStreamReader`: all versions, or at most `max_files` files."""
        newest = self._log.latest() if self._end is None else self._end
        return asdict(self._log.end(None if start is None else Position(**start), newest, self._most))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `DataSourceStreamReader`: the largest parts are assigned first; a task reads its parts in order."""
        files = self._log.between(Position(**start), Position(**end))
        cuts = [(file, *part) for file in files for part in cut(file.bytes)]
        parts = [(file.path, start, stop, file.values) for file, start, stop, _ in cuts]
        tasks = deal([size for _, _, _, size in cuts], self._parallel)
        return [InputPartition((self._log.partitions, [parts[at] for at in task])) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        columns, parts = partition.value
        if self._names:
            kinds = [self._schema.field(3 + at).type for at in range(len(columns))]
            rows = [
                [path, start, stop, *map(partition_scalar, values, kinds, columns)]
                for path, start, stop, values in parts
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([row[at].as_py() if at > 2 else row[at] for row in rows], field.type)
                    for at, field in enumerate(self._schema)
                ],
                schema=self._schema,
            )
            return
        reader = FileReader(self._schema, tuple(self._schema.names), committed="table")
        kinds = [self._schema.field(column).type for column in columns]
        for path, start, stop, values in parts:
            scalars = map(partition_scalar, values, kinds, columns)
            yield from reader.read(Part(path, start, stop, dict(zip(columns, scalars, strict=True))))
