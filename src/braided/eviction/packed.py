"""Integers in few bytes.

`pack` subtracts the smallest number, and stores the rest in as many bytes as the largest needs. `pack_each` stores each
number in as many bytes as it needs, 7 bits per byte (LEB128). `pack_rising` does this for the gaps of ascending
numbers. `pack_sparse` stores a zero in one bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError

__all__ = [
    "pack", "pack_each", "pack_reals", "pack_rising", "pack_sparse",
    "unpack", "unpack_each", "unpack_reals", "unpack_rising", "unpack_sparse",
]  # fmt: skip

_WIDTHS = (0, 1, 2, 4, 8)
_EARLY = "buffer: the saved bytes are incomplete"
UInt64s = npt.NDArray[np.uint64]


def pack(values: npt.NDArray[Any]) -> tuple[list[int], bytes]:
    """Return (count, smallest, bytes per number), for a JSON header, and the bytes.

    >>> pack(np.array([1000, 1003, 1001]))
    ([3, 1000, 1], b'\\x00\\x03\\x01')
    """
    if not len(values):
        return [0, 0, 0], b""
    least = values.min()
    above = (values - least).view(np.uint64) if values.dtype.itemsize == 8 else (values - least).astype(np.uint64)
    most = int(above.max())
    width = next(w for w in _WIDTHS if most < 1 << 8 * w)
    return [len(values), int(least), width], above.astype(f"<u{width}").tobytes() if width else b""


def unpack(facts: list[int], data: bytes, at: int, kind: Any) -> tuple[npt.NDArray[Any], int]:
    """Return the numbers that start at `at`, and where they end."""
    count, least, width = facts
    end = at + count * width
    if width not in _WIDTHS or count < 0 or end > len(data):
        raise BraidedError(_EARLY)
    above = np.frombuffer(data, f"<u{width}", count, at) if width else np.zeros(count, np.uint8)
    values = above.astype(np.uint64) + np.uint64(least % (1 << 64))
    return values if np.dtype(kind) == np.uint64 else values.view(np.int64).astype(kind), end


def pack_each(values: UInt64s) -> tuple[list[int], bytes]:
    """Return (count, total bytes), for a JSON header, and the bytes.

    >>> pack_each(np.array([3, 300], np.uint64))
    ([2, 3], b'\\x03\\xac\\x02')
    """
    if not len(values):
        return [0, 0], b""
    length = np.ones(len(values), np.int64)
    for bits in range(7, int(values.max()).bit_length(), 7):
        length += values >= np.uint64(1 << bits)
    ends = np.cumsum(length)
    out = np.zeros(int(ends[-1]), np.uint8)
    for k in range(int(length.max())):
        more = length > k
        part = ((values[more] >> np.uint64(7 * k)) & np.uint64(127)).astype(np.uint8)
        out[(ends - length)[more] + k] = np.where(length[more] > k + 1, part | 128, part)
    return [len(values), len(out)], out.tobytes()


def unpack_each(facts: list[int], data: bytes, at: int) -> tuple[UInt64s, int]:
    count, size = facts
    if not 0 <= count <= size or at + size > len(data):
        raise BraidedError(_EARLY)
    parts = np.frombuffer(data, np.uint8, size, at)
    ends = np.flatnonzero(parts < 128)
    if len(ends) != count or (size and (not count or ends[-1] != size - 1)):
        raise BraidedError(_EARLY)
    if not count:
        return np.zeros(0, np.uint64), at
    starts = np.append(0, ends[:-1] + 1)
    place = np.arange(size) - np.repeat(starts, ends - starts + 1)
    bits = (parts & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(bits, starts), at + size


def pack_rising(values: npt.NDArray[Any]) -> tuple[list[int], bytes]:
    """Return (first, count, total bytes) and the bytes of 64-bit numbers in ascending order.

    >>> pack_rising(np.array([1000, 1003, 1003]))
    ([1000, 3, 3], b'\\x00\\x03\\x00')
    """
    facts, data = pack_each(np.diff(values, prepend=values[:1]).view(np.uint64))
    return [int(values[0]) if len(values) else 0, *facts], data


def unpack_rising(facts: list[int], data: bytes, at: int, kind: Any) -> tuple[npt.NDArray[Any], int]:
    first, *rest = facts
    gaps, end = unpack_each(rest, data, at)
    return (np.cumsum(gaps, dtype=np.uint64) + np.uint64(first % (1 << 64))).view(kind), end


def pack_sparse(values: npt.NDArray[np.int64]) -> tuple[list[int], bytes]:
    """Return (count, count of nonzero numbers, their bytes) and the bytes of numbers of 0 or more, many of them 0.

    >>> pack_sparse(np.array([0, 5, 0, 0]))
    ([4, 1, 1], b'@\\x05')
    """
    some = values != 0
    facts, data = pack_each(values[some].view(np.uint64))
    return [len(values), *facts], np.packbits(some).tobytes() + data


def unpack_sparse(facts: list[int], data: bytes, at: int) -> tuple[npt.NDArray[np.int64], int]:
    count, *rest = facts
    start = at + -(-count // 8)
    if count < 0 or start > len(data):
        raise BraidedError(_EARLY)
    some = np.unpackbits(np.frombuffer(data, np.uint8, start - at, at), count=count).view(np.bool_)
    values, end = unpack_each(rest, data, start)
    out = np.zeros(count, np.int64)
    out[some] = values.view(np.int64)
    return out, end


def pack_reals(values: npt.NDArray[np.float64]) -> tuple[list[int], bytes]:
    """Return (smallest, count, total bytes) and the bytes of integers; for other floats (count,) and 8 bytes each."""
    if bool((np.abs(values) <= 2.0**53).all() and (values == np.floor(values)).all()):
        whole = values.astype(np.int64)
        least = int(whole.min()) if len(whole) else 0
        facts, data = pack_each((whole - least).view(np.uint64))
        return [least, *facts], data
    return [len(values)], values.astype("<f8").tobytes()


def unpack_reals(facts: list[int], data: bytes, at: int) -> tuple[npt.NDArray[np.float64], int]:
    first, *rest = facts
    if rest:
        above, end = unpack_each(rest, data, at)
        return (above.view(np.int64) + first).astype(np.float64), end
    end = at + 8 * first
    if first < 0 or end > len(data):
        raise BraidedError(_EARLY)
    return np.frombuffer(data, "<f8", first, at), end
