"""Write rows as Parquet files of a table: split by the table's partitions, in files of about one size.

A table's log names every file with the values of its partition. Files of failed attempts are not part of the table.
The table's next clean-up of unused files (VACUUM) deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.storage.writing import DataFile, FileTarget, FileWriter, Writer

# How many bytes wait for row groups in all partitions of a task together, and how many files a task has open.
_WAITING_BYTES = 64 << 20
_OPEN_FILES = 64
TIMES = ("year", "month", "day", "hour")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Partition:
    """A value that all rows of a file have in common: that of a column, or the year, month, day or hour of a time.

    Times are counted from 1970, as Iceberg does. With `as_text` the value has the text form of Delta's log, where an
    empty string is null, and it is in the path too, because some readers of Delta look for it there.
    """

    column: str
    transform: str = "identity"
    as_text: bool = False

    def values(self, column: pa.Array[Any]) -> pa.Array[Any]:
        """Return the value of each row: strings, integers, booleans or nulls."""
        if self.as_text:
            text = column.cast(pa.string())
            return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
        if self.transform == "identity":
            return column.cast(pa.int32()) if pa.types.is_date(column.type) else column
        if self.transform in ("year", "month"):
            if pa.types.is_timestamp(column.type) and column.type.tz is not None:
                column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            years = pc.subtract(pc.year(column), 1970)
            if self.transform == "year":
                return years.cast(pa.int32())
            return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1)).cast(pa.int32())
        if pa.types.is_date(column.type):
            return column.cast(pa.int32())
        # Times before 1970 round down too, as numpy's division does.
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        units = micros.fill_null(0).to_numpy() // (_HOUR_US if self.transform == "hour" else 24 * _HOUR_US)
        return pa.array(units, pa.int32(), mask=micros.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class TableTarget:
    """Where the tasks of a query write a table's files.

    schema : the columns of files, in their order; rows have the same columns, maybe in narrower types.
    file_bytes : the approximate size of a file.
    """

    data: str
    schema: pa.Schema
    partitions: tuple[Partition, ...]
    compression: str
    file_bytes: int

    def writer(self, folder: str, task: int, schema: pa.Schema) -> Writer:
        """See `Target`. The name of a file has the batch, the task and a random number."""
        return TableWriter(self, f"{folder}-", task)


@dataclass
class TableWriter:
    """Writes the rows of one attempt of one task, each partition into separate files."""

    target: TableTarget
    prefix: str
    task: int
    _writers: dict[tuple[str | int | None, ...], FileWriter] = field(default_factory=dict)

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows. Rows that wait for a row group are in memory, with one bound for all partitions together."""
        fitted = pa.RecordBatch.from_arrays(
            [rows.column(column.name).cast(column.type) for column in self.target.schema], schema=self.target.schema
        )
        if not self.target.partitions:
            self._of(()).write(fitted)
            return
        columns = [part.values(rows.column(part.column)) for part in self.target.partitions]
        for values, indices in split(columns):
            # `take` copies; a slice would keep all rows of the batch in memory while it waits.
            self._of(values).write(fitted.take(pa.array(indices)))
            self._make_room()

    def _of(self, values: tuple[str | int | None, ...]) -> FileWriter:
        # Reinserted, so that the writer used last is at the end of the dict.
        writer = self._writers.pop(values, None)
        if writer is None:
            target = FileTarget(self.target.data, self.target.compression, self.target.file_bytes)
            writer = FileWriter(target, self._folder(values) + self.prefix, self.task, self.target.schema, values)
        self._writers[values] = writer
        return writer

    def _folder(self, values: tuple[str | int | None, ...]) -> str:
        return "".join(
            f"{_folder_name(part.column)}={_NULL if value is None else quote(str(value), safe='')}/"
            for part, value in zip(self.target.partitions, values, strict=True)
            if part.as_text
        )

    def _make_room(self) -> None:
        waiting = sum(writer.waiting_bytes for writer in self._writers.values())
        if waiting > _WAITING_BYTES:
            largest = sorted(self._writers.values(), key=lambda writer: -writer.waiting_bytes)
            for writer in largest:
                waiting -= writer.waiting_bytes
                writer.flush()
                if waiting <= _WAITING_BYTES // 2:
                    break
        opened = [writer for writer in self._writers.values() if writer.is_open]
        for writer in opened[: max(0, len(opened) - _OPEN_FILES)]:
            writer.close()

    def close(self) -> list[DataFile]:
        """Write the waiting rows and return the files."""
        return [file for writer in self._writers.values() for file in writer.close()]

    def discard(self) -> None:
        """Delete the files of a failed attempt."""
        for writer in self._writers.values():
            writer.discard()


def _folder_name(column: str) -> str:
    """Return a column in the name of a folder: a colon in the first one would be the end of a URL's scheme to Spark.

    >>> _folder_name("a/b: ü")
    'a%2Fb%3A ü'
    """
    return column.replace("/", "%2F").replace(":", "%3A")


def split(columns: list[pa.Array[Any]]) -> list[tuple[tuple[Any, ...], npt.NDArray[np.int64]]]:
    """Return each combination of values in the rows, with the indices of its rows in order.

    >>> [(values, rows.tolist()) for values, rows in split([pa.array(["a", None, "a"]), pa.array([1, 1, 1])])]
    [(('a', 1), [0, 2]), ((None, 1), [1])]
    """
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        # Renumber after each column, so that the product stays below the square of the number of rows.
        _, codes = np.unique(codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    groups = np.split(order, starts[1:]) if len(order) else []
    return [(tuple(column[int(rows[0])].as_py() for column in columns), rows) for rows in groups]
