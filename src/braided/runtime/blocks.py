"""The blocks of a worker's state: written under a number with a digest, read back through the host's cache, verified.

A number is never used again. A failed attempt may have left other bytes under it, and a store may be damaged: the book
has one digest of each block, and nothing else is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from braided.errors import StateError
from braided.runtime.store import RESTORE, Store

BLOCK_BYTES = 16 << 20
"""Blocks are at most about this large: a state store holds each of them in memory."""

Derive = Callable[[pa.Buffer], Sequence[pa.Buffer]]


class Stored(NamedTuple):
    """A block as it was written; what an operator's state remembers of it."""

    number: int
    bytes: int


class Blocks:
    """Reads and writes the blocks of one worker in one batch.

    known : part of the worker's book, changed here: the next number, and the name of each block in the cache, which is
        the digest of its content, and after a dash how something was derived from it.
    reads, cached : how many blocks were read, and how many of them were in the host's cache.
    """

    def __init__(self, store: Store, worker: int, known: dict[str, int | str]) -> None:
        self._store, self._worker, self._known = store, worker, known
        self.reads = 0
        self.cached = 0

    def write(self, content: bytes, beside: Sequence[pa.Buffer] = (), kind: str = "") -> Stored:
        """Store a block. `beside` is derived from it and kept in the cache alone; `kind` says how it was derived."""
        number = int(self._known.get("next", 0))
        name = digest_of(content) + (f"-{kind}" if kind else "")
        self._known |= {"next": number + 1, str(number): name}
        self._store.put(number, content)
        self._store.cache.put(name, [pa.py_buffer(content), *beside])
        return Stored(number, len(content))

    def read(self, number: int, derive: Derive = lambda _: ()) -> list[pa.Buffer]:
        """Return a block's content and what is beside it: as the cache has it, or read, verified and derived again."""
        name = str(self._known[str(number)])
        known = self._store.cache.get(name)
        self.reads += 1
        if known is not None:
            self.cached += 1
            return known
        content = self._store.get(number)
        if digest_of(content) != name.partition("-")[0]:
            raise StateError(f"block {number} in the state of worker {self._worker} is damaged; {RESTORE}")
        buffer = pa.py_buffer(content)
        buffers = [buffer, *derive(buffer)]
        self._store.cache.put(name, buffers)
        return buffers

    def delete(self, number: int) -> None:
        """Remove a block, and what the cache has of it."""
        self._store.delete(number)
        self._store.cache.drop(str(self._known.pop(str(number))))


def digest_of(content: bytes) -> str:
    """Return the digest that names a content; sha256 is 2.7 times as fast here as blake2b (1.7 GB/s)."""
    return hashlib.sha256(content).hexdigest()[:32]


def parts_of(rows: pa.RecordBatch, most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of about `most` bytes and not much more, however rows differ in size.

    >>> list(parts_of(pa.record_batch({"a": [1, 2, 3, 4]}), 16))
    [(0, 2), (2, 4)]
    """
    yield from _parts(rows, 0, rows.num_rows, most)


def _parts(rows: pa.RecordBatch, start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    count = stop - start
    pieces = min(count, max(1, -(-rows.slice(start, count).nbytes // most)))
    for piece in range(pieces):
        first, end = start + count * piece // pieces, start + count * (piece + 1) // pieces
        if pieces > 1 and end - first > 1 and rows.slice(first, end - first).nbytes > most * 5 // 4:
            yield from _parts(rows, first, end, most)
        else:
            yield first, end
