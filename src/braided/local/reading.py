"""Read the inputs of the local functions: any Arrow data as plain tables, in order of arrival, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import OptionError
from braided.runtime.contract import stream_labels
from braided.runtime.router import conform

__all__ = ["cut_into_batches", "in_microseconds", "in_zones_of", "moments_of_arrival", "order_of_arrival", "read"]


def read(data: Any, side: str) -> pa.Table:
    """Read any object with the Arrow C stream interface, with plain types."""
    table = _without_runs(_table(data, side).replace_schema_metadata(None))
    repeated = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
    if repeated is not None:
        raise OptionError(f"{side}: more than one column is named {repeated!r}; rename one")
    # Arrow can cast views inside a dictionary, and dictionaries of plain values, but not both at once.
    for unwrap in (_without_views, _without_dictionaries):
        plain = pa.schema([pa.field(field.name, unwrap(field.type)) for field in table.schema])
        if not table.schema.equals(plain, check_metadata=True):
            table = table.cast(plain)
    return table


def _table(data: Any, side: str) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:  # its schema cannot be read
        raise OptionError(
            f"{side}: a column of this {type(data).__name__} has a type that pyarrow does not support ({error}); "
            "cast it, for example polars' Int128 to Int64 or Decimal"
        ) from error
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{side}: {type(data).__name__} does not have the Arrow C stream interface; "
            "pass a pyarrow, pandas, polars or DuckDB table"
        ) from error
    return reader.read_all()


def _without_runs(table: pa.Table) -> pa.Table:
    """Decode columns that are encoded by runs: Arrow has hardly any kernels for them."""
    for at, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            plain = pa.chunked_array(
                [pc.run_end_decode(chunk) for chunk in table.column(at).chunks], field.type.value_type
            )
            table = table.set_column(at, field.name, plain)
    return table


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return the type without views (polars uses them), for which Arrow has no kernels."""
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type), kind.ordered)
    return _inside(kind, _without_views)


def _without_dictionaries(kind: pa.DataType) -> pa.DataType:
    """Return the type without dictionaries, which only encode the same values in another way."""
    return kind.value_type if pa.types.is_dictionary(kind) else _inside(kind, _without_dictionaries)


def _inside(kind: pa.DataType, change: Any) -> pa.DataType:
    """Return a nested type with changed parts."""

    def part(field: pa.Field) -> pa.Field:
        return field.with_type(change(field.type)).remove_metadata()

    if pa.types.is_list(kind):
        return pa.list_(part(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(part(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(part(kind.value_field), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([part(field) for field in kind])
    return kind


def in_microseconds(table: pa.Table, column: str) -> pa.Table:
    """Cast a time column of another unit to microseconds, as on Spark; raise if digits would be lost."""
    if column not in table.column_names:
        raise OptionError(f"time={column!r}: no such column; the columns are {', '.join(table.column_names)}")
    field = table.schema.field(column)
    if not pa.types.is_timestamp(field.type) or field.type.unit == "us":
        return table
    kind = pa.timestamp("us", field.type.tz)
    at = table.schema.get_field_index(column)
    try:
        return table.set_column(at, pa.field(column, kind), table.column(column).cast(kind))
    except pa.ArrowInvalid as error:
        raise OptionError(f"time={column!r}: some times have digits below a microsecond; round them first") from error


def in_zones_of(table: pa.Table, first: pa.Schema) -> pa.Table:
    """Convert zoned columns to the time zones of the first input of a merge."""
    if table.schema.names != first.names:
        return table
    fields = [own.with_type(_same_zone(own.type, wanted.type)) for own, wanted in zip(table.schema, first, strict=True)]
    return table.cast(pa.schema(fields))


def _same_zone(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    return pa.timestamp(own.unit, wanted.tz) if _is_zoned(own) and _is_zoned(wanted) else own


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def order_of_arrival(
    tables: Sequence[pa.Table], arrival: str | Sequence[str] | None, times: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Return the order of arrival of all tables' rows, which are numbered from the first table on."""
    columns = times if arrival is None else (arrival,) * len(tables) if isinstance(arrival, str) else arrival
    if not isinstance(columns, tuple | list) or len(columns) != len(tables):
        raise OptionError(f"arrival={arrival!r}: write the name of a column, or one for each input")
    labels = stream_labels(len(tables))
    for side, table, column in zip(labels, tables, columns, strict=True):
        if column not in table.column_names:
            raise OptionError(
                f"arrival={column!r}: the {side} input has no such column; it has {', '.join(table.column_names)}"
            )
    arrivals = [table.column(column) for table, column in zip(tables, columns, strict=True)]
    # The order of moments does not depend on the zone.
    arrivals = [column.cast(_same_zone(column.type, arrivals[0].type)) for column in arrivals]
    for side, column in zip(labels, arrivals, strict=True):
        if column.type != arrivals[0].type:
            raise OptionError(
                f"arrival={columns!r}: {arrivals[0].type} on the {labels[0]}, but {column.type} on the {side}; cast one"
            )
    together = pa.chunked_array([chunk for column in arrivals for chunk in column.chunks], arrivals[0].type)
    order: npt.NDArray[np.int64] = pc.sort_indices(together).to_numpy().astype(np.int64)
    return order


def moments_of_arrival(tables: Sequence[pa.Table], arrival: str | Sequence[str] | None) -> npt.NDArray[np.int64] | None:
    """Return when rows arrived, in microseconds; None if the column is not a timestamp."""
    if arrival is None:
        return None
    names = (arrival,) * len(tables) if isinstance(arrival, str) else arrival
    columns = [table.column(name) for table, name in zip(tables, names, strict=True)]
    if not all(pa.types.is_timestamp(column.type) for column in columns):
        return None
    parts = [column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy() for column in columns]
    return np.concatenate(parts)


def cut_into_batches(
    tables: Sequence[pa.Table], order: npt.NDArray[np.int64], batch_rows: int
) -> Iterator[list[tuple[int, list[pa.RecordBatch]]]]:
    """Yield batches of `batch_rows` rows in order of arrival, with one task per side."""
    bounds = np.cumsum([0, *(table.num_rows for table in tables)]).tolist()
    for start in range(0, len(order), batch_rows):
        part = order[start : start + batch_rows]
        picks = [part[(part >= low) & (part < high)] - low for low, high in pairwise(bounds)]
        yield [
            (side, [conform(batch, table.schema) for batch in table.take(pa.array(pick)).to_batches()])
            for side, (table, pick) in enumerate(zip(tables, picks, strict=True))
            if len(pick)
        ]
