"""Frames on a stream: four bytes of length, then the message; anything longer than a message may be ends the stream."""

from __future__ import annotations

import struct

from braided.errors import PeerError
from braided.fleet.messages import LIMIT

_HEADER = struct.Struct(">I")


def frame(content: bytes) -> bytes:
    """Return a message as it is written to a stream.

    >>> frame(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    if not 0 < len(content) <= LIMIT:
        raise PeerError(f"a message of {len(content)} bytes: write 1 to {LIMIT}")
    return _HEADER.pack(len(content)) + content


class Frames:
    """Cuts a stream into messages, however its bytes arrive. Keeps at most one message that is not whole yet.

    >>> frames = Frames()
    >>> frames.feed(b"\\x00\\x00\\x00"), frames.feed(b"\\x02ab\\x00"), frames.feed(b"\\x00\\x00\\x01c")
    ([], [b'ab'], [b'c'])
    """

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the messages that are whole now. `PeerError` if there can be none any more."""
        self._pending += data
        found = []
        at = 0
        while len(self._pending) - at >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._pending, at)
            if not 0 < length <= LIMIT:
                raise PeerError(f"a frame of {length} bytes: not 1 to {LIMIT}")
            end = at + _HEADER.size + length
            if len(self._pending) < end:
                break
            found.append(bytes(self._pending[at + _HEADER.size : end]))
            at = end
        del self._pending[:at]
        return found
