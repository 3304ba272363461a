"""Convert the columns of a Parquet file to the types that a query expects, by the rules of Spark's own reader.

A column is found by its name, as the session compares names (`spark.sql.caseSensitive`); a missing column is null. A
type may be narrower than expected if Spark widens it too. Everything else is an error with the file's name: Spark's
reader may have a conversion that is not here, and a guess could give wrong rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from braided.errors import BraidedError

_WHOLE = {
    pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8,
    # Spark reads an unsigned type as the next wider signed type.
    pa.uint8(): 2, pa.uint16(): 4, pa.uint32(): 8,
}  # fmt: skip
_TEXT = {pa.string(), pa.large_string(), pa.string_view()}
_BYTES = {pa.binary(), pa.large_binary(), pa.binary_view()}


class Misfit(BraidedError):
    """A column of a file does not have the expected type."""


def find_column(names: Sequence[str], wanted: str, case_sensitive: bool) -> int | None:
    """Return the position of a column in a file; None if the file has no column of that name."""
    matches = [
        at for at, name in enumerate(names) if name == wanted or (not case_sensitive and name.lower() == wanted.lower())
    ]
    if len(matches) > 1:
        raise Misfit(f"columns {', '.join(names[at] for at in matches)} are all {wanted!r} if case is ignored")
    return matches[0] if matches else None


def check_type(
    actual: pa.DataType, wanted: pa.DataType, path: str, int96: frozenset[str], case_sensitive: bool
) -> None:
    """Raise if a column cannot be converted to the expected type; `int96` has the paths of INT96 timestamps."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(actual):
        names = [actual.field(at).name for at in range(actual.num_fields)]
        for at in range(wanted.num_fields):
            field = wanted.field(at)
            inner = find_column(names, field.name, case_sensitive)
            if inner is not None:
                check_type(actual.field(inner).type, field.type, f"{path}.{names[inner]}", int96, case_sensitive)
        return
    if pa.types.is_list(wanted) and (pa.types.is_list(actual) or pa.types.is_large_list(actual)):
        check_type(actual.value_type, wanted.value_type, f"{path}.list.element", int96, case_sensitive)
        return
    if pa.types.is_map(wanted) and pa.types.is_map(actual):
        check_type(actual.key_type, wanted.key_type, f"{path}.key_value.key", int96, case_sensitive)
        check_type(actual.item_type, wanted.item_type, f"{path}.key_value.value", int96, case_sensitive)
        return
    if not _becomes(actual, wanted, path in int96):
        raise Misfit(f"column {path!r} is {actual}, but {wanted} was expected")


def _becomes(actual: pa.DataType, wanted: pa.DataType, int96: bool) -> bool:
    if pa.types.is_dictionary(actual):
        return _becomes(actual.value_type, wanted, int96)
    if actual == wanted or pa.types.is_null(actual):
        return True
    if wanted in _TEXT:
        return actual in _TEXT
    if wanted in _BYTES:
        return actual in _BYTES or pa.types.is_fixed_size_binary(actual)
    if wanted in _WHOLE:
        return actual in _WHOLE and _WHOLE[actual] <= _WHOLE[wanted]
    if pa.types.is_timestamp(wanted):
        return pa.types.is_timestamp(actual) and (int96 or (actual.tz is None) == (wanted.tz is None))
    if pa.types.is_decimal(wanted):
        if actual == pa.uint64():
            return bool(wanted.scale == 0 and wanted.precision >= 20)
        return pa.types.is_decimal(actual) and actual.scale <= wanted.scale and _digits(actual) <= _digits(wanted)
    return bool(wanted == pa.float64() and actual == pa.float32())


def _digits(kind: pa.DataType) -> int:
    return int(kind.precision - kind.scale)


def convert(column: pa.Array[Any], wanted: pa.DataType, case_sensitive: bool) -> pa.Array[Any]:
    """Return a column in the expected type, after `check_type`."""
    actual = column.type
    if actual == wanted:
        return column
    if pa.types.is_struct(wanted) and pa.types.is_struct(actual):
        names = [actual.field(at).name for at in range(actual.num_fields)]
        parts, fields = [], []
        for at in range(wanted.num_fields):
            field = wanted.field(at)
            inner = find_column(names, field.name, case_sensitive)
            parts.append(
                pa.nulls(len(column), field.type)
                if inner is None
                else convert(column.field(inner), field.type, case_sensitive)
            )
            fields.append(field)
        return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
    if pa.types.is_list(wanted):
        # Values of a null list are kept, so that the offsets stay valid.
        values = convert(column.values, wanted.value_type, case_sensitive)
        offsets = column.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=_mask(column))
    if pa.types.is_map(wanted):
        keys = convert(column.keys, wanted.key_type, case_sensitive)
        items = convert(column.items, wanted.item_type, case_sensitive)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=wanted, mask=_mask(column))
    if pa.types.is_timestamp(actual) and actual.tz is None and wanted.tz is not None:
        column = column.cast(pa.timestamp(actual.unit, "UTC"))  # INT96 is an instant, but Arrow reads it without a zone
    return column.cast(wanted)


def _mask(column: pa.Array[Any]) -> pa.Array[Any] | None:
    # Arrow accepts no mask if the offsets do not begin at 0.
    return column.is_null() if column.null_count else None


def int96_paths(schema: Any) -> frozenset[str]:
    """Return the columns of a Parquet schema with timestamps in the old INT96 format."""
    leaves = (schema.column(at) for at in range(len(schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def nanosecond_paths(schema: Any) -> frozenset[str]:
    """Return the columns of a Parquet schema with nanoseconds, which Spark refuses."""
    leaves = (schema.column(at) for at in range(len(schema)))
    return frozenset(leaf.path for leaf in leaves if "nanoseconds" in str(leaf.logical_type).lower())


def legacy_calendar(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Whether the metadata of a file mark its dates before 1582 as Spark 2's calendar."""
    keys = metadata or {}
    return b"org.apache.spark.legacyDateTime" in keys or b"org.apache.spark.legacyINT96" in keys
