"""The saved form of a buffer: a prefix, a JSON header, and sections of packed numbers (`braided.eviction.packed`).

```
 magic | crc32 of the rest | length of header | header | section | section | ...
```

The header has the number of bytes of each section. Sections are read in the order in which they were written.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.errors import StateError
from braided.eviction.packed import (
    pack,
    pack_reals,
    pack_rising,
    pack_sparse,
    unpack,
    unpack_reals,
    unpack_rising,
    unpack_sparse,
)
from braided.eviction.records import Bytes, Ints, Reals

__all__ = ["Reader", "Writer", "require", "seal", "unseal"]

_PREFIX = struct.Struct("<4sIQ")
Facts = dict[str, Any]


def seal(magic: bytes, header: Facts, parts: Iterable[bytes]) -> bytes:
    """Return a header and the sections after it as bytes.

    >>> unseal(b"TEST", seal(b"TEST", {"rows": 1}, [b"abc"]), "example")
    ({'rows': 1}, 27)
    """
    text = json.dumps(header, sort_keys=True).encode()
    body = text + b"".join(parts)
    return _PREFIX.pack(magic, zlib.crc32(body), len(text)) + body


def unseal(magic: bytes, data: bytes, what: str) -> tuple[Facts, int]:
    """Return the header and its end; raise if the bytes are not an undamaged `what`."""
    if len(data) < _PREFIX.size or data[:4] != magic:
        raise StateError(f"buffer: these bytes are not a saved {what}")
    _, crc, length = _PREFIX.unpack_from(data)
    if zlib.crc32(data[_PREFIX.size :]) != crc:
        raise StateError("buffer: the saved bytes are damaged (their checksum differs)")
    try:
        header: Facts = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    except ValueError as error:
        raise StateError("buffer: the saved header is damaged") from error
    return header, _PREFIX.size + length


def require(true: bool, what: str) -> None:
    """Raise if a condition on the saved bytes is not true."""
    if not true:
        raise StateError(f"buffer: the saved bytes are damaged: {what}")


def planes_of(streams: int) -> int:
    """Return how many bits the number of a stream needs."""
    return (streams - 1).bit_length()


class Writer:
    """Packs sections one after the other."""

    def __init__(self) -> None:
        self.facts: list[list[int]] = []
        self.parts: list[bytes] = []

    def _add(self, packed: tuple[list[int], bytes]) -> None:
        self.facts.append(packed[0])
        self.parts.append(packed[1])

    def ints(self, values: npt.NDArray[Any]) -> None:
        """Write integers that are close to each other."""
        self._add(pack(np.ascontiguousarray(values)))

    def rising(self, values: npt.NDArray[Any]) -> None:
        """Write 64-bit numbers in ascending order."""
        self._add(pack_rising(np.ascontiguousarray(values)))

    def sparse(self, values: Ints) -> None:
        """Write numbers of 0 or more, many of them 0."""
        self._add(pack_sparse(values))

    def reals(self, values: Reals) -> None:
        """Write floats, many of which are integers."""
        self._add(pack_reals(values))

    def streams(self, values: npt.NDArray[Any], streams: int) -> None:
        """Write the stream of each row; two streams need one bit per row."""
        for bit in range(planes_of(streams)):
            self.ints(np.packbits(values >> bit & 1))


class Reader:
    """Reads sections in the order in which they were written."""

    def __init__(self, facts: list[list[int]], data: bytes, at: int) -> None:
        self._facts, self._data, self._at = iter(facts), data, at

    def ints(self, kind: Any) -> Any:
        values, self._at = unpack(next(self._facts), self._data, self._at, kind)
        return values

    def rising(self, kind: Any) -> Any:
        values, self._at = unpack_rising(next(self._facts), self._data, self._at, kind)
        return values

    def sparse(self) -> Ints:
        values, self._at = unpack_sparse(next(self._facts), self._data, self._at)
        return values

    def reals(self) -> Reals:
        values, self._at = unpack_reals(next(self._facts), self._data, self._at)
        return values

    def streams(self, rows: int, streams: int) -> Bytes:
        """Read the streams that `Writer.streams` wrote for this number of rows."""
        planes = [np.unpackbits(self.ints(np.uint8), count=rows) << bit for bit in range(planes_of(streams))]
        out: Bytes = np.sum(planes, axis=0).astype(np.int8)
        return out

    def end(self) -> None:
        """Raise if there are bytes after the last section."""
        require(self._at == len(self._data), "bytes follow its end")
