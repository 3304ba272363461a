"""The blocks of a worker's state: written under a number, and read through the store, which verifies them.

A number is never used again. A failed attempt may have left other bytes under it, or a store may be damaged. Therefore
the bookkeeping has the name of each block, which contains a digest of its bytes, and only these bytes are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from braided.errors import StateError
from braided.runtime.store import BlockStore, Derive, UnusableBlockError

BLOCK_BYTES = 16 << 20
"""The approximate maximum size of a block: a state store has each of them in memory."""
RESTORE = "restore the checkpoint from a copy, or start with a new one"


class Stored(NamedTuple):
    """The number and the size of a written block, which an operator keeps in its state."""

    number: int
    bytes: int


class Blocks:
    """Reads and writes the blocks of one worker in one batch.

    known : a part of the worker's bookkeeping that is changed here: the next number, and the name of each block.
    reads, cached : how many blocks were read, and how many of these were in the cache.
    """

    def __init__(self, store: BlockStore, worker: int, known: dict[str, int | str]) -> None:
        self._store, self._worker, self._known = store, worker, known
        self.reads = 0
        self.cached = 0

    def write(
        self, content: bytes | pa.Buffer, beside: Sequence[pa.Buffer] = (), kind: str = "", file: Path | None = None
    ) -> Stored:
        """Store a block. `beside` has indexes that were derived from its content; `kind` is their kind.

        file : a file that has the content already; the store may adopt it.
        """
        number = int(self._known.get("next", 0))
        buffer = content if isinstance(content, pa.Buffer) else pa.py_buffer(content)
        self._known |= {"next": number + 1, str(number): self._store.put(number, [buffer, *beside], kind, file)}
        return Stored(number, buffer.size)

    def read(self, number: int, derive: Derive = lambda _: ()) -> list[pa.Buffer]:
        """Return a block's content and its indexes: from the cache, or read, verified and derived again."""
        try:
            buffers, at_hand = self._store.get(number, str(self._known[str(number)]), derive)
        except UnusableBlockError as error:
            raise StateError(f"the state of worker {self._worker}: {error}; {RESTORE}") from error
        self.reads += 1
        self.cached += at_hand
        return buffers

    def delete(self, number: int) -> None:
        """Remove a block."""
        self._store.delete(number, str(self._known.pop(str(number))))


def parts_of(rows: pa.RecordBatch, most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of about `most` bytes, and not much more even if rows have different sizes.

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
