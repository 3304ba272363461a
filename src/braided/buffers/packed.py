"""Whole numbers in few bytes: the smallest is taken off, and the rest has as many bytes as the largest needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError

__all__ = ["pack", "pack_reals", "unpack", "unpack_reals"]

_WIDTHS = (0, 1, 2, 4, 8)


def pack(values: npt.NDArray[Any]) -> tuple[list[int], bytes]:
    """Return (count, smallest, bytes each), for a JSON header, and the bytes.

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
        raise BraidedError("buffer: the saved bytes end too early")
    above = np.frombuffer(data, f"<u{width}", count, at) if width else np.zeros(count, np.uint8)
    values = above.astype(np.uint64) + np.uint64(least % (1 << 64))
    return values if np.dtype(kind) == np.uint64 else values.view(np.int64).astype(kind), end


def pack_reals(values: npt.NDArray[np.float64]) -> tuple[list[int], bytes]:
    """Return what `pack` does; numbers that are not whole, or beyond 2**53, are written as they are, as width 9."""
    if bool((np.abs(values) <= 2.0**53).all() and (values == np.floor(values)).all()):
        return pack(values.astype(np.int64))
    return [len(values), 0, 9], values.astype("<f8").tobytes()


def unpack_reals(facts: list[int], data: bytes, at: int) -> tuple[npt.NDArray[np.float64], int]:
    """Return the numbers that start at `at`, and where they end."""
    if facts[2] != 9:
        values, end = unpack(facts, data, at, np.int64)
        return values.astype(np.float64), end
    end = at + 8 * facts[0]
    if facts[0] < 0 or end > len(data):
        raise BraidedError("buffer: the saved bytes end too early")
    return np.frombuffer(data, "<f8", facts[0], at), end
