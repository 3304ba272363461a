"""The rows that a bounded join keeps or lets wait, in blocks of a worker's store.

A side's blocks hold its rows in the order in which they entered, so the rows that are still kept are known by a bit
each, and no row needs a number::

    blocks   [o x o o o] [o o] [o x x o o o]     o kept, x gone
    bits      1 0 1 1 1   1 1   1 0 0 1 1 1

A block is written again, together with its neighbours that are, once a quarter of it has gone or it has become small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operator.contract import Block
from braided.operator.store import Store
from braided.routing.routes import TAG

ARRIVED, PROBE = "__braided_arrived", "__braided_probe"
BLOCK_BYTES = 16 << 20
_LIVE = 0.75
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]


@dataclass
class Rows:
    """Rows of one side with their marks: their grid, the batch they arrived in, and whether they only probe."""

    rows: pa.RecordBatch
    tags: npt.NDArray[np.int32]
    arrived: npt.NDArray[np.int64]
    probes: npt.NDArray[np.int8]

    @classmethod
    def plain(cls, rows: pa.RecordBatch, arrived: int = -1) -> Rows:
        """Return rows that lie under their worker alone."""
        n = rows.num_rows
        return cls(rows, np.zeros(n, np.int32), np.full(n, arrived, np.int64), np.zeros(n, np.int8))

    @classmethod
    def of_block(cls, block: Block, arrived: int) -> Rows:
        """Return what a router sent in a batch."""
        out = cls.plain(block.rows, arrived)
        if block.tags is not None:
            out.tags = block.tags
        if not block.stored:
            out.probes[:] = 1
        return out

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def pick(self, which: Mask | Index) -> Rows:
        """Return the rows of a mask or at some positions."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            rows = self.rows.filter(pa.array(which))
        else:
            rows = self.rows.take(pa.array(which))
        return Rows(rows, self.tags[which], self.arrived[which], self.probes[which])

    def slice(self, start: int, stop: int) -> Rows:
        """Return a part."""
        part = slice(start, stop)
        return Rows(self.rows.slice(start, stop - start), self.tags[part], self.arrived[part], self.probes[part])


def together(parts: Sequence[Rows], schema: pa.Schema) -> Rows:
    """Return rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Rows.plain(pa.RecordBatch.from_pylist([], schema=schema))
    marks = [np.concatenate([getattr(p, name) for p in parts]) for name in ("tags", "arrived", "probes")]
    return Rows(pa.concat_batches([p.rows for p in parts]), *marks)


class Entry(NamedTuple):
    """A block as the bookkeeping has it."""

    number: int
    bytes: int
    rows: int
    marked: bool


class Blocks:
    """Reads and writes the blocks of a worker's store; `marked` says whether marks must be written in any case."""

    def __init__(self, store: Store, next_: int, *, marked: bool) -> None:
        self._store, self.next, self._marked = store, next_, marked
        self.get, self.delete = store.get, store.delete

    def put(self, content: bytes) -> int:
        """Store bytes under a new number."""
        self._store.put(self.next, content)
        self.next += 1
        return self.next - 1

    def replace(self, old: int | None, content: bytes) -> int:
        """Store bytes in place of an older block."""
        if old is not None:
            self._store.delete(old)
        return self.put(content)

    def write(self, rows: Rows) -> list[Entry]:
        """Store rows in blocks of at most about BLOCK_BYTES."""
        pieces = min(len(rows), -(-rows.rows.nbytes // BLOCK_BYTES))
        bounds = np.linspace(0, len(rows), max(1, pieces) + 1).astype(np.int64).tolist()
        return [self._write(rows.slice(a, b)) for a, b in pairwise(bounds) if a < b]

    def _write(self, rows: Rows) -> Entry:
        """Store rows, with their marks if they have any."""
        batch = rows.rows
        marked = self._marked or bool(rows.tags.any() or rows.probes.any())
        if marked:
            batch = batch.append_column(TAG, pa.array(rows.tags)).append_column(ARRIVED, pa.array(rows.arrived))
            batch = batch.append_column(PROBE, pa.array(rows.probes))
        content = batch.serialize().to_pybytes()
        return Entry(self.put(content), len(content), len(rows), marked)

    def read(self, entry: Sequence[Any], schema: pa.Schema) -> Rows:
        """Return stored rows."""
        number, _, _, marked = entry
        if not marked:
            return Rows.plain(pa.ipc.read_record_batch(pa.py_buffer(self.get(number)), schema))
        names = [(TAG, pa.int32()), (ARRIVED, pa.int64()), (PROBE, pa.int8())]
        full = pa.schema([*schema, *(pa.field(name, kind) for name, kind in names)])
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.get(number)), full)
        marks = [batch.column(name).to_numpy() for name, _ in names]
        return Rows(batch.select(schema.names), *marks)


class Kept:
    """The kept rows of one side, in the order in which they entered."""

    def __init__(self, blocks: Blocks, entries: Sequence[Sequence[Any]], bits: Mask, schema: pa.Schema) -> None:
        self._blocks = blocks
        self.entries = [Entry(*entry) for entry in entries]
        ends = np.cumsum([entry.rows for entry in self.entries], dtype=np.int64)
        self.masks = np.split(bits, ends[:-1]) if self.entries else []
        parts = [blocks.read(entry, schema).pick(mask) for entry, mask in zip(self.entries, self.masks, strict=True)]
        self.rows = together(parts, schema)

    def update(self, rows: Rows, alive: Mask) -> None:
        """Keep, of the rows kept so far and new ones after them, those that are `alive`."""
        entries, masks = self.entries, self.masks
        self.entries, self.masks = [], []
        total = int(np.count_nonzero(alive))
        loose = at = 0
        for entry, mask in zip(entries, masks, strict=True):
            stop = at + int(np.count_nonzero(mask))
            live = int(np.count_nonzero(alive[at:stop]))
            if live >= _LIVE * entry.rows and entry.rows * len(entries) >= total // 4:
                self._write(rows, alive, loose, at)
                mask = mask.copy()  # noqa: PLW2901
                mask[mask] = alive[at:stop]
                self.entries.append(entry)
                self.masks.append(mask)
                loose = stop
            else:
                self._blocks.delete(entry.number)
            at = stop
        self._write(rows, alive, loose, len(rows))

    def _write(self, rows: Rows, alive: Mask, start: int, stop: int) -> None:
        for entry in self._blocks.write(rows.slice(start, stop).pick(alive[start:stop])):
            self.entries.append(entry)
            self.masks.append(np.ones(entry.rows, np.bool_))
