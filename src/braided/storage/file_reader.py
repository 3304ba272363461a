"""Parquet files as record batches of bounded size, with the columns and rows that a query needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from braided.errors import BraidedError, TableError, TopicError
from braided.storage.files import open_input
from braided.storage.fit import (
    Misfit,
    check_type,
    convert,
    find_column,
    int96_paths,
    legacy_calendar,
    nanosecond_paths,
)

_log = logging.getLogger("braided")
_MOST_ROWS = 1 << 17
_MOST_BYTES = 8 << 20
# Columns of a small row group are read at once; those of a larger one through a buffer of this size.
_BUFFER = 1 << 20
_WHOLE_GROUP = 64 << 20


class Filter(Protocol):
    """A predicate over rows of a file."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it reads."""

    def mask(self, columns: Mapping[str, pa.Array[Any]]) -> npt.NDArray[np.bool_]:
        """Return the rows that satisfy it."""


@dataclass(frozen=True)
class Bound:
    """The range of an integer, date or time column; no row outside of it can satisfy the filters."""

    column: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Part:
    """A file, or its row groups whose middle is between two byte offsets; and the column values of its partition."""

    path: str
    start: int = 0
    stop: int | None = None
    values: Mapping[str, pa.Scalar[Any]] | None = None


@dataclass(frozen=True)
class FileReader:
    """Reads the columns that a query needs from files.

    schema : the columns to read, with the types that the query expects.
    outputs : which of these columns are returned, and in which order; the others are only for the filters.
    ignore_missing, ignore_damaged : like Spark's options `ignoreMissingFiles` and `ignoreCorruptFiles`.
    committed : "topic" or "table" if the files belong to one; such files are never ignored.
    """

    schema: pa.Schema
    outputs: tuple[str, ...]
    filters: tuple[Filter, ...] = ()
    bounds: tuple[Bound, ...] = ()
    case_sensitive: bool = False
    ignore_missing: bool = False
    ignore_damaged: bool = False
    committed: str | None = None

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, or of some of its row groups."""
        try:
            yield from self._read(part)
        except FileNotFoundError as error:
            if self.committed:
                raise self._lost(
                    f"{part.path}: a file of the {self.committed} is missing; restore it from a copy"
                ) from error
            if not self.ignore_missing:
                raise BraidedError(
                    f"{part.path}: the file is missing; restore it, or set the option ignoreMissingFiles to continue "
                    "without its rows"
                ) from error
            _log.warning("%s: the file is missing and is ignored", part.path)
        except Misfit as error:
            raise Misfit(
                f"{part.path}: {error}; Spark's own reader may convert it: use spark.readStream instead of "
                "braided.files"
            ) from error
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            if self.committed:
                cause = str(error).splitlines()[0]
                raise self._lost(
                    f"{part.path}: a file of the {self.committed} is damaged ({cause}); restore it"
                ) from error
            if not self.ignore_damaged:
                raise BraidedError(
                    f"{part.path}: the file is not valid Parquet ({str(error).splitlines()[0]}); replace it, or set "
                    "the option ignoreCorruptFiles to continue without its rows"
                ) from error
            _log.warning("%s: the rest of a damaged file is ignored: %s", part.path, error)

    def _lost(self, message: str) -> BraidedError:
        return TableError(message) if self.committed == "table" else TopicError(message)

    def _read(self, part: Part) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(open_input(part.path), coerce_int96_timestamp_unit="us") as file:
            columns = self._columns_of(file, part)
            groups = [
                group for group in range(file.num_row_groups) if self._is_read(file.metadata, group, part, columns)
            ]
            if not groups:
                return
            sizes = [file.metadata.row_group(group) for group in groups]
            width = max(1, sum(size.total_byte_size for size in sizes) // max(1, sum(size.num_rows for size in sizes)))
            rows = int(min(_MOST_ROWS, max(1024, _MOST_BYTES // width)))
            if any(size.total_byte_size > _WHOLE_GROUP for size in sizes):
                with pq.ParquetFile(
                    open_input(part.path), coerce_int96_timestamp_unit="us", buffer_size=_BUFFER
                ) as buffered:
                    yield from self._batches(buffered, rows, groups, columns, part)
            else:
                yield from self._batches(file, rows, groups, columns, part)

    def _batches(
        self, file: pq.ParquetFile, rows: int, groups: list[int], columns: Mapping[str, str | None], part: Part
    ) -> Iterator[pa.RecordBatch]:
        names = [name for name in columns.values() if name is not None]
        for batch in file.iter_batches(rows, groups, names):
            yield from self._batch(batch, columns, part.values or {})

    def _columns_of(self, file: pq.ParquetFile, part: Part) -> dict[str, str | None]:
        """Return the name of each column in a file, or None if it is missing; raise if a type does not fit."""
        schema, parquet = file.schema_arrow, file.metadata.schema
        int96, nanoseconds = int96_paths(parquet), nanosecond_paths(parquet)
        if legacy_calendar(file.metadata.metadata):
            raise Misfit("it was written by Spark 2, whose dates before 1582 are in another calendar")
        columns: dict[str, str | None] = {}
        for field in self.schema:
            if field.name in (part.values or {}):
                continue
            at = find_column(schema.names, field.name, self.case_sensitive)
            columns[field.name] = None if at is None else schema.names[at]
            if at is None:
                continue
            if any(f"{path}.".startswith(f"{schema.names[at]}.") for path in nanoseconds):
                raise Misfit(f"column {field.name!r} has nanoseconds, for which Spark has no type")
            check_type(schema.field(at).type, field.type, schema.names[at], int96, self.case_sensitive)
        return columns

    def _is_read(self, metadata: Any, group: int, part: Part, columns: Mapping[str, str | None]) -> bool:
        """Whether a row group belongs to the part, and by its statistics may have a row that passes the filters."""
        chosen = metadata.row_group(group)
        if part.start or part.stop is not None:
            first = chosen.column(0)
            start = first.dictionary_page_offset or first.data_page_offset
            size = sum(chosen.column(at).total_compressed_size for at in range(chosen.num_columns))
            middle = start + size // 2
            if middle < part.start or (part.stop is not None and middle >= part.stop):
                return False
        return all(_may_hold(chosen, columns.get(bound.column), bound) for bound in self.bounds)

    def _batch(
        self, batch: pa.RecordBatch, file_names: Mapping[str, str | None], values: Mapping[str, pa.Scalar[Any]]
    ) -> Iterator[pa.RecordBatch]:
        columns: dict[str, pa.Array[Any]] = {}
        for field in self.schema:
            if field.name in values:
                columns[field.name] = pa.repeat(values[field.name].cast(field.type), batch.num_rows)
                continue
            name = file_names[field.name]
            columns[field.name] = (
                pa.nulls(batch.num_rows, field.type)
                if name is None
                else convert(batch.column(name), field.type, self.case_sensitive)
            )
        rows = pa.RecordBatch.from_arrays(
            [columns[name] for name in self.outputs],
            schema=pa.schema([self.schema.field(name) for name in self.outputs]),
        )
        for predicate in self.filters:
            if not rows.num_rows:
                return
            passes = predicate.mask({name: columns[name] for name in predicate.columns})
            if not passes.all():
                mask = pa.array(passes)
                rows = rows.filter(mask)
                columns = {name: column.filter(mask) for name, column in columns.items()}
        if rows.num_rows:
            yield rows


def read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, while another thread reads the next batch.

    Parquet cannot be read from the middle of a row group, so only one task can read a file of one row group. Reading
    the next batch while the last one is routed uses an idle core. If no core is idle, it costs only the memory of one
    batch.
    """
    with ThreadPoolExecutor(1, "braided-reader") as thread:
        reading = thread.submit(next, batches, None)
        while (batch := reading.result()) is not None:
            reading = thread.submit(next, batches, None)
            yield batch


def _may_hold(group: Any, name: str | None, bound: Bound) -> bool:
    # A column `a.b` and a field `b` of a column `a` have one path.
    named = [column for column in map(group.column, range(group.num_columns)) if column.path_in_schema == name]
    if len(named) != 1:
        return True
    [column] = named
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max or column.physical_type not in ("INT32", "INT64"):
        return True
    logical = str(statistics.logical_type)
    if "unsigned" in logical or "isSigned=false" in logical or "Decimal" in logical:
        return True
    scale = 1000 if "milliseconds" in logical else 1
    low, high = statistics.min_raw * scale, statistics.max_raw * scale
    return (bound.low is None or high >= bound.low) and (bound.high is None or low <= bound.high)
