"""The rows that a bounded join keeps, in blocks of a worker's store.

A side's blocks hold its rows in the order in which they entered, so the rows that are still kept are known by a bit
each, and no row needs a number::

    blocks   [o x o o o] [o o] [o x x o o o]     o kept, x removed
    bits      1 0 1 1 1   1 1   1 0 0 1 1 1

A block is rewritten once a quarter of its rows are removed or it has become small. Neighbouring blocks that are
rewritten become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braided.runtime.blocks import Blocks
from braided.runtime.rows import Mask, Rows, together

_LIVE = 0.75


class Entry(NamedTuple):
    """A block in the bookkeeping."""

    number: int
    bytes: int
    rows: int
    marked: bool


class KeptRows:
    """The kept rows of one side, in the order in which they entered."""

    def __init__(self, blocks: Blocks, entries: Sequence[Sequence[Any]], bits: Mask, schema: pa.Schema) -> None:
        self._blocks = blocks
        self.entries = [Entry(*entry) for entry in entries]
        ends = np.cumsum([entry.rows for entry in self.entries], dtype=np.int64)
        self.masks = np.split(bits, ends[:-1]) if self.entries else []
        parts = [
            Rows.decoded(blocks.read(entry.number)[0], schema, marked=entry.marked).pick(mask)
            for entry, mask in zip(self.entries, self.masks, strict=True)
        ]
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
        for part, content in rows.slice(start, stop).pick(alive[start:stop]).pieces():
            self.entries.append(Entry(*self._blocks.write(content), len(part), part.marks is not None))
            self.masks.append(np.ones(len(part), np.bool_))
