"""Frames on a stream: four bytes of length, then the message; a message that is too long ends the stream."""

from __future__ import annotations

import asyncio
import struct

from braided.errors import PeerError
from braided.fleet.messages import LIMIT

_HEADER = struct.Struct(">I")


def frame(content: bytes) -> bytes:
    """Return a message in the form that is written to a stream.

    >>> frame(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    if not 0 < len(content) <= LIMIT:
        raise PeerError(f"a message of {len(content)} bytes: write 1 to {LIMIT}")
    return _HEADER.pack(len(content)) + content


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next message of a stream; `PeerError` if the stream is not valid.

    `asyncio.IncompleteReadError` if the stream has ended.
    """
    (length,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if not 0 < length <= LIMIT:
        raise PeerError(f"a frame of {length} bytes: not 1 to {LIMIT}")
    return await reader.readexactly(length)
