"""The bytes of each row, to the byte, so that a budget means the same however rows are cut into batches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError

__all__ = ["ASSUMED", "least_row_bytes", "sizes_of_rows"]

Sizes = npt.NDArray[np.int64]
ASSUMED = 32
"""Bytes that a value of varying size is taken to have where the number of rows to make room for is chosen."""


def sizes_of_rows(rows: pa.RecordBatch) -> Sizes:
    """Return the bytes of each row: values, offsets and a byte of validity each; what is null has no content.

    >>> sizes_of_rows(pa.record_batch({"a": [1, 2], "s": ["x", "four"]})).tolist()
    [15, 18]
    """
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        total += _sizes(column)
    return total


def least_row_bytes(schema: pa.Schema) -> tuple[int, int]:
    """Return the bytes of a row without what varies, and how many of its columns vary.

    >>> least_row_bytes(pa.schema([("a", pa.int64()), ("s", pa.string())]))
    (14, 1)
    """
    empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], names=schema.names)
    varying = sum(not _is_fixed(field.type) for field in schema)
    return int(sizes_of_rows(empty)[0]), varying


def _is_fixed(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width >= 0)
    except ValueError:
        return bool(pa.types.is_null(kind))


def _sizes(array: pa.Array) -> Sizes:
    kind = array.type
    if pa.types.is_null(kind):
        return np.ones(len(array), np.int64)
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
    if _is_fixed(kind):
        return np.full(len(array), kind.bit_width // 8 + 1, np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 5 + _content(array, _offsets(array, np.int32), None)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return 9 + _content(array, _offsets(array, np.int64), None)
    if pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_large_list(kind):
        wide = pa.types.is_large_list(kind)
        parts = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
        inner = np.sum([_sizes(part) for part in parts], axis=0)
        return (9 if wide else 5) + _content(array, _offsets(array, np.int64 if wide else np.int32), inner)
    raise BraidedError(
        f"memory=: how many bytes a row of type {kind} takes is not known; write a number of rows instead"
    )


def _offsets(array: pa.Array, width: type[np.int32] | type[np.int64]) -> Sizes:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _content(array: pa.Array, offsets: Sizes, inner: Sizes | None) -> Sizes:
    """Return the bytes between offsets: of single bytes, or of values that have sizes of their own."""
    at = offsets if inner is None else np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])[offsets]
    sizes = np.diff(at)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return sizes
