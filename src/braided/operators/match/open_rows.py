"""The rows of open matches, in blocks: each leaf has a range of the key hashes.

```
 hash   0 ........ | 3f.. ........ | 80.. ............. | c1.. ........
 leaf   rows of 0  |   rows of 1   |   untouched: its   |  ...            by (hash, time)
                                       block stays
```

A batch reads and writes only the leaves that have a key with new rows, or a match whose time has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.runtime.blocks import BLOCK_BYTES, Blocks, parts_of
from braided.runtime.contract import Json

_FIELDS = [pa.field("__braided_hash", pa.uint64()), pa.field("__braided_done", pa.uint8())]
_NUMBER = pa.field("__braided_number", pa.int64())
# A leaf with more rows is split; neighbours with together fewer than a quarter of this are merged.
LEAF_ROWS = 1 << 15
_CHUNK_ROWS = 1 << 19

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]


class StoredRows(NamedTuple):
    """Rows with the hashes of their keys, by (hash, time), and which of them are decided as a start."""

    rows: pa.RecordBatch
    hashes: Hashes
    done: Bytes
    numbers: Index | None = None
    """If matches are numbered, the number of matches of its key, on the last row that has it."""

    def pick(self, which: Index) -> StoredRows:
        numbers = None if self.numbers is None else self.numbers[which]
        return StoredRows(self.rows.take(pa.array(which)), self.hashes[which], self.done[which], numbers)

    def slice(self, start: int, stop: int) -> StoredRows:
        numbers = None if self.numbers is None else self.numbers[start:stop]
        rows = self.rows.slice(start, stop - start)
        return StoredRows(rows, self.hashes[start:stop], self.done[start:stop], numbers)


@dataclass
class Leaf:
    """The rows of all hashes from `low` up to the next leaf: blocks, number of rows, time of the first open start."""

    low: int = 0
    blocks: list[list[int]] = field(default_factory=list)
    rows: int = 0
    oldest: int | None = None
    open: int = 0


class OpenRows:
    """The leaves of one worker between load and save of one batch."""

    def __init__(
        self, blocks: Blocks, schema: pa.Schema, state: Sequence[Json] | None, *, numbered: bool = False
    ) -> None:
        self._blocks, self._schema, self._numbered = blocks, schema, numbered
        self._stored = pa.schema([*schema, *_FIELDS, *([_NUMBER] if numbered else [])])
        self.leaves = [Leaf(**leaf) for leaf in state] if state else [Leaf()]

    def to_json(self) -> list[Json]:
        """Return the bookkeeping. Leaves without rows are removed; their hashes then belong to the leaf before them."""
        self.leaves = [leaf for at, leaf in enumerate(self.leaves) if leaf.rows or at == 0]
        return [asdict(leaf) for leaf in self.leaves]

    def levels(self) -> dict[str, int]:
        blocks = [block for leaf in self.leaves for block in leaf.blocks]
        return {
            "open_matches": sum(leaf.open for leaf in self.leaves),
            "stored_rows": sum(leaf.rows for leaf in self.leaves),
            "stored_bytes": sum(size for _, size in blocks),
            "runs": len(blocks),
        }

    def touched(self, hashes: Hashes, expired: int) -> Iterator[tuple[list[Leaf], Index | None]]:
        """Yield leaves that have a key with new rows or a start before a time, and which of the new rows are theirs.

        As many leaves come together as fit in memory. None stands for all new rows.
        """
        lows = np.array([leaf.low for leaf in self.leaves], np.uint64)
        home = np.searchsorted(lows, hashes, side="right") - 1 if len(lows) > 1 else np.zeros(len(hashes), np.int64)
        counts = np.bincount(home, minlength=len(lows))
        chosen = [
            at
            for at, leaf in enumerate(self.leaves)
            if counts[at] or (leaf.oldest is not None and leaf.oldest < expired)
        ]
        leaves, sizes = list(self.leaves), [leaf.rows + int(counts[at]) for at, leaf in enumerate(self.leaves)]
        start = 0
        while start < len(chosen):
            stop, size = start + 1, sizes[chosen[start]]
            while stop < len(chosen) and size + sizes[chosen[stop]] <= _CHUNK_ROWS:
                size += sizes[chosen[stop]]
                stop += 1
            part = chosen[start:stop]
            own = None if len(part) == len(chosen) else np.flatnonzero(np.isin(home, part))
            yield [leaves[at] for at in part], own
            start = stop

    def bounds(self, leaf: Leaf, hashes: Hashes) -> tuple[int, int]:
        """Return which of sorted hashes belong to a leaf."""
        at = self._place(leaf)
        start = int(np.searchsorted(hashes, np.uint64(leaf.low)))
        if at + 1 == len(self.leaves):
            return start, len(hashes)
        return start, int(np.searchsorted(hashes, np.uint64(self.leaves[at + 1].low)))

    def read(self, leaf: Leaf) -> list[StoredRows]:
        return [
            decoded_rows(self._blocks.read(number)[0], self._schema, numbered=self._numbered)
            for number, _ in leaf.blocks
        ]

    def replace(
        self,
        leaves: Sequence[Leaf],
        stored: StoredRows,
        opens: npt.NDArray[np.bool_],
        times: Times,
        due: Times | None = None,
    ) -> None:
        """Replace the rows of leaves by the rows to keep; `opens` marks the rows that are open starts.

        `due`: the times at which rows beside open starts expire; the largest time if they never do.
        """
        for together in self._neighbours(leaves, stored.hashes):
            low = together[0].low
            start, stop = self.bounds(together[0], stored.hashes)[0], self.bounds(together[-1], stored.hashes)[1]
            for leaf in together:
                for number, _ in leaf.blocks:
                    self._blocks.delete(number)
            new = []
            for first, (begin, end) in _split(low, stored.hashes, start, stop):
                new.append(
                    self._written(
                        first,
                        stored.slice(begin, end),
                        times[begin:end][opens[begin:end]],
                        None if due is None else due[begin:end],
                    )
                )
            at = self._place(together[0])
            self.leaves[at : at + len(together)] = new

    def _place(self, leaf: Leaf) -> int:
        return next(number for number, other in enumerate(self.leaves) if other is leaf)

    def _neighbours(self, leaves: Sequence[Leaf], hashes: Hashes) -> list[list[Leaf]]:
        """Return leaves in groups: small leaves beside each other are one group."""
        out: list[list[Leaf]] = []
        size = 0
        for leaf in leaves:
            start, stop = self.bounds(leaf, hashes)
            beside = out and self._place(out[-1][-1]) + 1 == self._place(leaf)
            if beside and size + stop - start <= LEAF_ROWS // 4:
                out[-1].append(leaf)
                size += stop - start
            else:
                out.append([leaf])
                size = stop - start
        return out

    def _written(self, low: int, stored: StoredRows, opens: Times, due: Times | None) -> Leaf:
        if not len(stored.hashes):
            return Leaf(low)
        columns = [*stored.rows.columns, pa.array(stored.hashes), pa.array(stored.done)]
        if stored.numbers is not None:
            columns.append(pa.array(stored.numbers))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._stored)
        blocks = [
            list(self._blocks.write(batch.slice(start, stop - start).serialize().to_pybytes()))
            for start, stop in parts_of(batch, BLOCK_BYTES)
        ]
        runs_out = opens if due is None else np.append(opens, due.min())
        return Leaf(low, blocks, len(stored.hashes), int(runs_out.min()) if len(runs_out) else None, len(opens))


def decoded_rows(content: pa.Buffer, schema: pa.Schema, *, numbered: bool = False) -> StoredRows:
    """Read a block of rows with this schema."""
    fields = [*_FIELDS, *([_NUMBER] if numbered else [])]
    batch = pa.ipc.read_record_batch(content, pa.schema([*schema, *fields]))
    rows = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)
    return StoredRows(rows, *(batch.column(len(schema) + at).to_numpy() for at in range(len(fields))))


def _split(low: int, all_hashes: Hashes, start: int, stop: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the lowest hash and the rows of each new leaf; rows of one hash stay together."""
    if stop - start <= LEAF_ROWS:
        yield low, (start, stop)
        return
    hashes = all_hashes[start:stop]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    wanted = np.arange(0, stop - start, LEAF_ROWS // 2)
    cuts = np.unique(first[np.minimum(np.searchsorted(first, wanted), len(first) - 1)])
    for at, cut in enumerate(cuts.tolist()):
        end = stop if at + 1 == len(cuts) else start + int(cuts[at + 1])
        yield low if at == 0 else int(hashes[cut]), (start + cut, end)
