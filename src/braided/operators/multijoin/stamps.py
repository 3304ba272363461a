"""Stamps: the batch in which a stored row arrived, and whether it is stored under the newest assignment of that batch.

A stamp is the number of the batch, as its worker counts them from 1, negative for a copy under an older assignment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.runtime.contract import Block
from braided.time.clocks import Span
from braided.time.lateness import Lateness

if TYPE_CHECKING:
    from braided.operators.multijoin.multijoin import MultiJoin

_STAMP = "__braided_stamp"
Stamps = npt.NDArray[np.int32]


@dataclass(frozen=True)
class StampedStreams:
    """A join's streams in their stored form: every row has its stamp in a last column."""

    join: MultiJoin

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return tuple(map(stamped_schema, self.join.inputs))

    @property
    def window(self) -> Span:
        return self.join.window

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        return self.join.lateness

    @property
    def preserved(self) -> tuple[int, ...]:
        return ()

    @property
    def idle(self) -> int | None:
        return self.join.idle

    def times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return self.join.times_of(side, rows)

    def hashes(
        self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.uint64]:
        return self.join.hashes(side, rows, tags)


def stamped_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows with their stamps."""
    return schema.append(pa.field(_STAMP, pa.int32()))


def add_stamps(block: Block, batch: int) -> Block:
    """Return a block of new rows with their stamps."""
    stamp = np.full(block.rows.num_rows, batch if block.stored else -batch, np.int32)
    return replace(block, rows=with_stamps(block.rows, stamp))


def with_stamps(rows: pa.RecordBatch, stamps: npt.NDArray[np.integer[Any]]) -> pa.RecordBatch:
    return rows.append_column(_STAMP, pa.array(stamps.astype(np.int32)))


def stamps_of(rows: pa.RecordBatch) -> Stamps:
    stamps: Stamps = rows.column(rows.num_columns - 1).to_numpy()
    return stamps


def counted_here(stamps: list[Stamps]) -> npt.NDArray[np.bool_]:
    """Return which combinations, given as the stamps of each stream's rows, are counted under this assignment.

    >>> counted_here([np.array([1, 1, 3]), np.array([-2, 1, -2])]).tolist()
    [True, True, False]
    """
    table = np.stack(stamps)
    first = np.abs(table).argmin(axis=0)
    counted: npt.NDArray[np.bool_] = table[first, np.arange(table.shape[1])] > 0
    return counted
