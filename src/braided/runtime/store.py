"""The store of a worker's state: a small bookkeeping value, and blocks of bytes that the bookkeeping names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from braided.typing import Json

Derive = Callable[[pa.Buffer], Sequence[pa.Buffer]]
"""Computes the indexes of a block from its content."""


class UnusableBlockError(Exception):
    """A block that the bookkeeping names is missing or damaged; the message says which."""


class BlockStore(Protocol):
    """The blocks of one worker. A number is used only once; the bookkeeping has the name of each block."""

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str, file: Path | None = None) -> str:
        """Store a block: its content, then its indexes of this `kind`. Return its name.

        `file` has the same content already, with its header: a store of files may adopt it instead of writing it again.
        """

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """Return the verified content and indexes of a block, and whether they were in the cache.

        Raises `UnusableBlockError`.
        """

    def delete(self, number: int, name: str) -> None:
        """Remove a block; the next bookkeeping does not name it."""

    def finish(self) -> None:
        """Store all remaining blocks of the batch; the bookkeeping is saved next."""


class Store(Protocol):
    """The state of one worker."""

    def load(self) -> bytes | None:
        """Return the bookkeeping; None before the first batch."""

    def save(self, bookkeeping: bytes) -> None:
        """Replace the bookkeeping."""

    def open(self, bookkeeping: Json) -> BlockStore:
        """Return the blocks for the loaded bookkeeping; the store may keep its own fields in the bookkeeping."""


class Cache(Protocol):
    """Decoded blocks by name; it is only a cache, so any entry may be lost.

    A name contains everything that its buffers depend on (a digest of the content, and the kind of its indexes), so
    operators of all queries on a host share one cache.
    """

    def get(self, name: str) -> list[pa.Buffer] | None:
        """Return the cached buffers of a name, or None."""

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        """Cache buffers under a name, if there is room."""

    def drop(self, name: str) -> None:
        """Remove a name that no state needs any more."""


class MemoryCache:
    """A cache in this process, for the local runtime, whose state is in memory anyway."""

    def __init__(self) -> None:
        self._entries: dict[str, list[pa.Buffer]] = {}

    def get(self, name: str) -> list[pa.Buffer] | None:
        return self._entries.get(name)

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        self._entries[name] = buffers

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)


class CachedBlocks:
    """Blocks whose content is stored by number, and whose indexes are only in a cache.

    The name of a block is the digest of its content, then a dash and its kind.
    """

    cache: Cache

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str, file: Path | None = None) -> str:
        """See `BlockStore`."""
        name = digest_of(buffers[0]) + (f"-{kind}" if kind else "")
        self.write_block(number, buffers[0].to_pybytes())
        self.cache.put(name, list(buffers))
        return name

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """See `BlockStore`."""
        known = self.cache.get(name)
        if known is not None:
            return known, True
        content = self.read_block(number)
        if content is None:
            raise UnusableBlockError(f"block {number} is missing")
        if digest_of(content) != name.partition("-")[0]:
            raise UnusableBlockError(f"block {number} is damaged")
        buffer = pa.py_buffer(content)
        buffers = [buffer, *derive(buffer)]
        self.cache.put(name, buffers)
        return buffers, False

    def delete(self, number: int, name: str) -> None:
        """See `BlockStore`."""
        self.remove_block(number)
        self.cache.drop(name)

    def finish(self) -> None:
        """See `BlockStore`."""

    def read_block(self, number: int) -> bytes | None:
        """Return the content under a number; None if there is none."""
        raise NotImplementedError

    def write_block(self, number: int, content: bytes) -> None:
        """Store content under a new number."""
        raise NotImplementedError

    def remove_block(self, number: int) -> None:
        """Remove the content under a number."""
        raise NotImplementedError


class MemoryStore(CachedBlocks):
    """The state of one worker in this process. Pickling and unpickling it is like a restart."""

    def __init__(self) -> None:
        self.cache: Cache = MemoryCache()
        self.bookkeeping: bytes | None = None
        self.blocks: dict[int, bytes] = {}

    def __getstate__(self) -> tuple[bytes | None, dict[int, bytes]]:
        return self.bookkeeping, dict(self.blocks)

    def __setstate__(self, state: tuple[bytes | None, dict[int, bytes]]) -> None:
        self.cache = MemoryCache()
        self.bookkeeping, self.blocks = state

    def load(self) -> bytes | None:
        return self.bookkeeping

    def save(self, bookkeeping: bytes) -> None:
        self.bookkeeping = bookkeeping

    def open(self, bookkeeping: Json) -> BlockStore:
        """See `Store`."""
        return self

    def read_block(self, number: int) -> bytes | None:
        """See `CachedBlocks`."""
        return self.blocks.get(number)

    def write_block(self, number: int, content: bytes) -> None:
        """See `CachedBlocks`."""
        self.blocks[number] = content

    def remove_block(self, number: int) -> None:
        """See `CachedBlocks`."""
        self.blocks.pop(number, None)


def digest_of(content: bytes | pa.Buffer) -> str:
    """Return the digest of a content for its name; sha256 is 2.7 times as fast here as blake2b (1.7 GB/s)."""
    return hashlib.sha256(content).hexdigest()[:32]
