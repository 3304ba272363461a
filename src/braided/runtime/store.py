"""Where a worker keeps its state: a small bookkeeping value and numbered blocks of bytes."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from braided.errors import StateError

RESTORE = "restore the checkpoint from a copy, or start with a new one"


class Cache(Protocol):
    """Decoded blocks by name; only ever a cache, so any entry may be gone.

    A name says all that its buffers depend on (a digest of the content, and what was derived from it how): operators of
    all queries on a host share one cache.
    """

    def get(self, name: str) -> list[pa.Buffer] | None:
        """Return the buffers kept under a name, or None."""

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        """Keep buffers under a name, if there is room."""

    def drop(self, name: str) -> None:
        """Forget a name that no state needs any more."""


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


def missing(block: int) -> StateError:
    """Return what to say of a block that the bookkeeping names and the store does not have."""
    return StateError(f"block {block} is missing from the state; {RESTORE}")


class MemoryCache:
    """A cache in this process, for the local runtime; its state is in memory anyway."""

    def __init__(self) -> None:
        self._entries: dict[str, list[pa.Buffer]] = {}

    def get(self, name: str) -> list[pa.Buffer] | None:
        return self._entries.get(name)

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        self._entries[name] = buffers

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)


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
        return self.book

    def save(self, book: bytes) -> None:
        self.book = book

    def get(self, block: int) -> bytes:
        if block not in self.blocks:
            raise missing(block)
        return self.blocks[block]

    def put(self, block: int, content: bytes) -> None:
        self.blocks[block] = content

    def delete(self, block: int) -> None:
        self.blocks.pop(block, None)
