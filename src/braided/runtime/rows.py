"""Rows of one input with the marks of their routing, in memory and in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.routing.content import row_hashes
from braided.routing.routes import TAG
from braided.routing.sorting import time_order
from braided.runtime.blocks import BLOCK_BYTES, parts_of
from braided.runtime.contract import Block

ARRIVED, PROBE = "__braided_arrived", "__braided_probe"
_FIELDS = [pa.field(TAG, pa.int32()), pa.field(ARRIVED, pa.int64()), pa.field(PROBE, pa.int8())]

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]
Times = npt.NDArray[np.int64]


class Marks(NamedTuple):
    """The marks of each row from its routing: its grid, the batch of its arrival, and whether it only probes."""

    tags: npt.NDArray[np.int32]
    arrived: npt.NDArray[np.int64]
    probes: npt.NDArray[np.int8]

    def at(self, which: Mask | Index | slice) -> Marks:
        return Marks(self.tags[which], self.arrived[which], self.probes[which])


@dataclass
class Rows:
    """Rows of one input. Rows without marks are in no grid, and the batch of their arrival is not needed."""

    rows: pa.RecordBatch
    marks: Marks | None = None

    @classmethod
    def of_block(cls, block: Block, arrived: int, *, marked: bool) -> Rows:
        """Return the rows of a router's block; with `marked` they always have marks."""
        if not marked and block.tags is None and block.stored:
            return cls(block.rows)
        count = block.rows.num_rows
        tags = np.zeros(count, np.int32) if block.tags is None else block.tags
        marks = Marks(tags, np.full(count, arrived, np.int64), np.full(count, not block.stored, np.int8))
        return cls(block.rows, marks)

    @classmethod
    def none(cls, schema: pa.Schema) -> Rows:
        return cls(pa.RecordBatch.from_pylist([], schema=schema))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def tags(self) -> npt.NDArray[np.int32]:
        """The grid of each row, 0 for none."""
        return np.zeros(len(self), np.int32) if self.marks is None else self.marks.tags

    @property
    def arrived(self) -> npt.NDArray[np.int64]:
        """The batch in which each row arrived; -1 if this is not known."""
        return np.full(len(self), -1, np.int64) if self.marks is None else self.marks.arrived

    @property
    def probes(self) -> npt.NDArray[np.int8]:
        """Which rows only probe."""
        return np.zeros(len(self), np.int8) if self.marks is None else self.marks.probes

    def pick(self, which: Mask | Index) -> Rows:
        if which.dtype == np.bool_:
            if which.all():
                return self
            rows = self.rows.filter(pa.array(which))
        else:
            rows = self.rows.take(pa.array(which))
        return Rows(rows, None if self.marks is None else self.marks.at(which))

    def slice(self, start: int, stop: int | None = None) -> Rows:
        stop = len(self) if stop is None else stop
        marks = None if self.marks is None else self.marks.at(slice(start, stop))
        return Rows(self.rows.slice(start, stop - start), marks)

    def times(self, column: str) -> Times:
        times: Times = self.rows.column(column).view(pa.int64()).to_numpy()
        return times

    def pieces(self) -> Iterator[tuple[Rows, bytes]]:
        """Yield the rows in parts of at most about BLOCK_BYTES, each with its bytes to store."""
        for start, stop in parts_of(self.rows, BLOCK_BYTES):
            part = self if stop - start == len(self) else self.slice(start, stop)
            yield part, part._encoded()

    def _encoded(self) -> bytes:
        batch = self.rows
        if self.marks is not None:
            columns = [*batch.columns, *map(pa.array, self.marks)]
            batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *_FIELDS]))
        content: bytes = batch.serialize().to_pybytes()
        return content

    @classmethod
    def decoded(cls, content: pa.Buffer, schema: pa.Schema, *, marked: bool) -> Rows:
        """Read the bytes that `pieces` returned."""
        if not marked:
            return cls(pa.ipc.read_record_batch(content, schema))
        batch = pa.ipc.read_record_batch(content, pa.schema([*schema, *_FIELDS]))
        marks: list[npt.NDArray[Any]] = [column.to_numpy() for column in batch.columns[len(schema) :]]
        return cls(pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema), Marks(*marks))


def together(parts: Sequence[Rows], schema: pa.Schema) -> Rows:
    """Concatenate rows."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Rows.none(schema)
    marks = None
    if any(part.marks is not None for part in parts):
        marks = Marks(*(np.concatenate([getattr(part, name) for part in parts]) for name in Marks._fields))
    return Rows(pa.concat_batches([part.rows for part in parts]), marks)


def in_order(rows: Rows, times: Times) -> tuple[Rows, Times]:
    """Return rows in order of (time, content), and their times. Content is hashed only for equal times.

    Nested columns are not part of the content; rows that differ only there keep their order.
    """
    order = time_order(times) if (times[1:] < times[:-1]).any() else None
    ordered = times if order is None else times[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.zeros(len(times), np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        at = np.flatnonzero(tied)
        order = np.arange(len(times)) if order is None else order
        among = rows.rows.take(pa.array(order[at]))
        order[at] = order[at][np.lexsort((row_hashes(among), ordered[at]))]
    return (rows if order is None else rows.pick(order)), ordered
