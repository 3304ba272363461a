"""Join keys as 64-bit hashes: equal keys have equal hashes in every process, on every machine.

A single key column of at most 64 bits is hashed by a bijection, so equal hashes are equal keys and need no
check. Other keys may collide; then `KeyHasher.equal` compares the values.

Precondition: rows with a null in a key column were dropped, because null keys never match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import OptionError
from braided.routing.hash_kernels import hash_bytes, hash_words

Hashes = npt.NDArray[np.uint64]

_DECIMAL_DIGITS = 38
# The digits of Spark's decimals for integers, by bits.
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
# Decimals of up to 18 digits fit in the low word, so its hash is exact.
_EXACT_DECIMAL_DIGITS = 18


def common_key_type(left: pa.DataType, right: pa.DataType, names: tuple[str, str]) -> pa.DataType:
    """Return the type in which both sides of a key are compared, by Spark's rules for widening.

    >>> common_key_type(pa.int32(), pa.int64(), ("a", "b"))
    DataType(int64)
    >>> common_key_type(pa.uint64(), pa.int8(), ("a", "b"))  # int64 would make -1 equal to 2 ** 64 - 1
    Decimal128Type(decimal128(20, 0))
    """
    for side, name, kind in (("left", names[0], left), ("right", names[1], right)):
        if not _hashable(kind):
            raise OptionError(
                f"on={name!r}: a {side} key of type {kind} is not supported; join on its fields or cast it"
            )
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
            return max(left, right, key=lambda kind: kind.bit_width)
        if pa.uint64() not in (left, right):
            return pa.int64()
    if pa.types.is_floating(left) and pa.types.is_floating(right):
        return pa.float64()
    if _is_number(left) and _is_number(right):
        shapes = [_digits(left), _digits(right)]
        scale = max(scale for _, scale in shapes)
        digits = max(whole for whole, _ in shapes) + scale
        if digits <= _DECIMAL_DIGITS:
            return pa.decimal128(digits, scale)
    elif _is_text(left) and _is_text(right):
        return pa.large_string()
    elif _is_bytes(left) and _is_bytes(right):
        return pa.large_binary()
    elif _is_zoned(left) and _is_zoned(right) and left.unit == right.unit:
        return pa.timestamp(left.unit, "UTC")
    elif left == right:
        return left
    raise OptionError(
        f"on={names!r}: key types do not match, {left} on the left and {right} on the right; cast one side"
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the digits before and after the point."""
    if pa.types.is_integer(kind):
        return _INTEGER_DIGITS[kind.bit_width], 0
    return kind.precision - kind.scale, kind.scale


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _hashable(kind: pa.DataType) -> bool:
    return (
        bool(pa.types.is_integer(kind))
        or kind in (pa.float32(), pa.float64(), pa.bool_(), pa.date32())
        or _is_text(kind)
        or _is_bytes(kind)
        or bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind))
        or bool(pa.types.is_decimal128(kind))
    )


@dataclass(frozen=True)
class KeyHasher:
    """Hashes the key columns of a batch, and compares the values if hashes may collide.

    >>> hasher = KeyHasher((pa.int64(),))
    >>> hasher.exact
    True
    >>> bool((hasher.hash([pa.array([7], pa.int32())], 1) == hasher.hash([pa.array([7])], 1)).all())
    True
    """

    types: tuple[pa.DataType, ...]

    @property
    def exact(self) -> bool:
        """Whether equal hashes imply equal keys."""
        if not self.types:
            return True
        kind = self.types[0]
        if len(self.types) > 1 or _is_text(kind) or _is_bytes(kind):
            return False
        return not pa.types.is_decimal(kind) or kind.precision <= _EXACT_DECIMAL_DIGITS

    def hash(self, columns: Sequence[pa.Array], rows: int) -> Hashes:
        """Return one 64-bit hash per row; without key columns they are all zero."""
        hashes = np.zeros(rows, np.uint64)
        for column, kind in zip(columns, self.types, strict=True):
            if _is_text(kind) or _is_bytes(kind):
                offsets, data = var_width(column)
                hash_bytes(offsets, data, hashes)
            else:
                for words in _words(column, kind):
                    hash_words(words, hashes)
        return hashes

    def hash_with_nulls(self, columns: Sequence[pa.Array], rows: int) -> Hashes:
        """Return one hash per row; 0 for all keys with a null."""
        if not any(column.null_count for column in columns):
            return self.hash(columns, rows)
        hashes = np.zeros(rows, np.uint64)
        valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        mask = pa.array(valid)
        hashes[valid] = self.hash([column.filter(mask) for column in columns], int(valid.sum()))
        return hashes

    def equal(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return the rows in which two equally long lists of key columns have equal keys."""
        same = np.ones(len(left[0]), np.bool_)
        for a, b, kind in zip(left, right, self.types, strict=True):
            if _is_text(kind) or _is_bytes(kind):
                same &= pc.equal(a, b if a.type == b.type else b.cast(a.type)).to_numpy(zero_copy_only=False)
            else:
                for x, y in zip(_words(a, kind), _words(b, kind), strict=True):
                    same &= x == y
        return same


def var_width(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets and bytes of a string or binary array without nulls."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    width: type[np.int64] | type[np.int32] = np.int64 if large else np.int32
    if offsets is None or len(column) == 0:
        return np.zeros(len(column) + 1, np.int64), np.zeros(0, np.uint8)
    span = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return span.astype(np.int64, copy=False), bytes_


def fixed_words(column: pa.Array) -> Hashes:
    """Return the bits of a fixed-width column, with zeros for nulls, as one 64-bit word per row."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    width = column.type.bit_width // 8
    raw = np.frombuffer(column.buffers()[1], np.uint8)[width * column.offset : width * (column.offset + len(column))]
    if column.null_count:
        raw = np.where(np.repeat(column.is_null().to_numpy(zero_copy_only=False), width), np.uint8(0), raw)
    if width == 16:
        words = raw.view(np.uint64)
        return words[0::2] ^ (words[1::2] * np.uint64(0x9E3779B97F4A7C15))
    return raw.view(f"u{width}").astype(np.uint64, copy=False)


def _words(column: pa.Array, kind: pa.DataType) -> list[Hashes]:
    """Return a fixed-width key column as one or two 64-bit words per row; equal values have equal words."""
    if column.type != kind:
        column = column.cast(kind)
    if pa.types.is_floating(kind):
        # Spark: NaN equals NaN and -0.0 equals 0.0. Adding 0.0 turns -0.0 into 0.0.
        values = column.cast(pa.float64()).to_numpy() + 0.0
        values[np.isnan(values)] = np.nan
        return [values.view(np.uint64)]
    if pa.types.is_decimal(kind):
        raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        low, high = raw[0::2], raw[1::2]
        return [low.copy()] if kind.precision <= _EXACT_DECIMAL_DIGITS else [low.copy(), high.copy()]
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif not pa.types.is_integer(kind):
        column = column.view(pa.int64())
    values64: npt.NDArray[Any] = column.to_numpy().astype(np.int64, copy=False)
    return [values64.view(np.uint64)]
