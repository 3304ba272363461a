"""The exact bytes of each row, so that a budget means the same however rows are cut into batches."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import OptionError

__all__ = ["ASSUMED", "fixed_row_bytes", "least_row_bytes", "row_bytes", "sizes_of_rows"]

Sizes = npt.NDArray[np.int64]
ASSUMED = 32
"""The assumed bytes of a value of varying size, to choose the number of rows that a budget has room for."""


def sizes_of_rows(rows: pa.RecordBatch) -> Sizes:
    """Return the bytes of each row: values, offsets and one byte of validity per value; a null has no content.

    >>> sizes_of_rows(pa.record_batch({"a": [1, 2], "s": ["x", "four"]})).tolist()
    [15, 18]
    """
    sizes = row_bytes(rows)
    return sizes if len(sizes) == rows.num_rows else np.repeat(sizes, rows.num_rows)


def row_bytes(rows: pa.RecordBatch) -> Sizes:
    """Return the same, or an array of one if all rows have one size: then no row is read.

    >>> row_bytes(pa.record_batch({"a": [1, 2]})).tolist()
    [9]
    """
    fixed = 0
    varying: Sizes | None = None
    for column in rows.columns:
        width = _width(column.type)
        if width is not None:
            fixed += width
        else:
            sizes = _sizes(column)
            varying = sizes if varying is None else varying + sizes
    return np.array([fixed], np.int64) if varying is None else varying + fixed


def fixed_row_bytes(schema: pa.Schema) -> Sizes | None:
    """Return the size that all rows of a schema have; None if rows differ."""
    widths = [_width(field.type) for field in schema]
    return None if None in widths else np.array([sum(width or 0 for width in widths)], np.int64)


def least_row_bytes(schema: pa.Schema) -> tuple[int, int]:
    """Return the bytes of a row without its columns of varying size, and the number of these columns.

    >>> least_row_bytes(pa.schema([("a", pa.int64()), ("s", pa.string())]))
    (14, 1)
    """
    for kind in {field.type for field in schema}:
        if not _is_known(kind):
            raise OptionError(
                f"memory=: the size of values of type {kind} is not known; write a number of rows instead"
            )
    empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], names=schema.names)
    varying = sum(_width(field.type) is None for field in schema)
    return int(sizes_of_rows(empty)[0]), varying


@lru_cache(maxsize=64)
def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value with its validity; None if values differ in size."""
    if pa.types.is_null(kind):
        return 1
    try:
        return int(kind.bit_width) // 8 + 1
    except ValueError:
        return None


def _sizes(array: pa.Array) -> Sizes:
    kind = array.type
    width = _width(kind)
    if width is not None:
        return np.full(len(array), width, np.int64)
    if pa.types.is_struct(kind):
        total = np.ones(len(array), np.int64)
        for at in range(kind.num_fields):
            total += _sizes(array.field(at))
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), total, 1)
    if pa.types.is_fixed_size_list(kind):
        step = kind.list_size
        inner = _sizes(array.values.slice(array.offset * step, len(array) * step))
        of_lists: Sizes = 1 + inner.reshape(len(array), step).sum(axis=1)
        return of_lists
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 5 + _content(array, _offsets(array, np.int32), None)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return 9 + _content(array, _offsets(array, np.int64), None)
    if pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_large_list(kind):
        wide = pa.types.is_large_list(kind)
        parts = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
        inner = np.sum([_sizes(part) for part in parts], axis=0)
        return (9 if wide else 5) + _content(array, _offsets(array, np.int64 if wide else np.int32), inner)
    return np.full(len(array), -(-array.nbytes // max(1, len(array))), np.int64)


def _is_known(kind: pa.DataType) -> bool:
    """Whether `_sizes` knows the bytes of single values of a type, not just their mean."""
    if pa.types.is_map(kind):
        return _is_known(kind.key_type) and _is_known(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_known(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_known(field.type) for field in kind)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return _width(kind) is not None or any(test(kind) for test in texts)


def _offsets(array: pa.Array, width: type[np.int32] | type[np.int64]) -> Sizes:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _content(array: pa.Array, offsets: Sizes, inner: Sizes | None) -> Sizes:
    """Return the bytes between offsets: of single bytes, or of values with sizes `inner`."""
    at = offsets if inner is None else np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])[offsets]
    sizes = np.diff(at)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return sizes
