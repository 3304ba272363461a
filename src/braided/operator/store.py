"""Where a worker keeps its state: a small bookkeeping value and numbered blocks of bytes."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Cache(Protocol):
    """Decoded blocks by digest of their content; only ever a cache, so any entry may be gone."""

    def get(self, digest: str) -> list[pa.Buffer] | None:
        """Return the buffers kept under a digest, or None."""

    def put(self, digest: str, buffers: list[pa.Buffer]) -> None:
        """Keep buffers under a digest, if there is room."""

    def drop(self, digest: str) -> None:
        """Forget a digest that no state names any more."""


class Store(Protocol):
    """The state of one worker."""

    cache: Cache

    def load(self) -> bytes | None:
        """Return the bookkeeping, None before the first batch."""

    def save(self, book: bytes) -> None:
        """Replace the bookkeeping."""

    def get(self, block: int) -> bytes:
        """Return a stored block."""

    def put(self, block: int, content: bytes) -> None:
        """Store a block under a new number."""

    def delete(self, block: int) -> None:
        """Remove a block."""


class MemoryCache:
    """A cache in this process, for the local runtime; its state is in memory anyway."""

    def __init__(self) -> None:
        self._entries: dict[str, list[pa.Buffer]] = {}

    def get(self, digest: str) -> list[pa.Buffer] | None:
        """See `Cache`."""
        return self._entries.get(digest)

    def put(self, digest: str, buffers: list[pa.Buffer]) -> None:
        """See `Cache`."""
        self._entries[digest] = buffers

    def drop(self, digest: str) -> None:
        """See `Cache`."""
        self._entries.pop(digest, None)


class MemoryStore:
    """The state of one worker in this process. Pickling and restoring it is a restart."""

    def __init__(self) -> None:
        self.cache: Cache = MemoryCache()
        self.book: bytes | None = None
        self.blocks: dict[int, bytes] = {}

    def __getstate__(self) -> tuple[bytes | None, dict[int, bytes]]:
        return self.book, dict(self.blocks)

    def __setstate__(self, state: tuple[bytes | None, dict[int, bytes]]) -> None:
        self.cache = MemoryCache()
        self.book, self.blocks = state

    def load(self) -> bytes | None:
        """See `Store`."""
        return self.book

    def save(self, book: bytes) -> None:
        """See `Store`."""
        self.book = book

    def get(self, block: int) -> bytes:
        """See `Store`."""
        return self.blocks[block]

    def put(self, block: int, content: bytes) -> None:
        """See `Store`."""
        self.blocks[block] = content

    def delete(self, block: int) -> None:
        """See `Store`."""
        del self.blocks[block]
