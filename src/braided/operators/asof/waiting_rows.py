"""Rows of both streams as one table, so that one store keeps what an as-of join needs of each key together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.match.open_rows import Hashes, StoredRows

RIGHT, LEFT, LATE = 0, 1, 2
"""What a stored row is: of the right stream, or a left row that waits for its answer, in time or late."""

Index = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Keyed:
    """Rows of one stream with the hashes of their keys, and which of them came late."""

    rows: pa.RecordBatch
    hashes: Hashes
    late: npt.NDArray[np.bool_]

    def pick(self, which: Index) -> Keyed:
        """Return the rows at some places."""
        return Keyed(self.rows.take(pa.array(which)), self.hashes[which], self.late[which])


def together(parts: Sequence[Keyed]) -> Keyed:
    """Return rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_batches([part.rows for part in parts])
    return Keyed(rows, np.concatenate([part.hashes for part in parts]), np.concatenate([part.late for part in parts]))


@dataclass(frozen=True)
class RowFormat:
    """How rows of both streams are stored: the columns of the right stream, then the left one's if its rows wait."""

    left: pa.Schema
    right: pa.Schema
    waits: bool

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        fields = [pa.field(f"r{at}", field.type) for at, field in enumerate(self.right)]
        return pa.schema(fields + [pa.field(f"l{at}", field.type) for at, field in enumerate(self.left) if self.waits])

    def encode(self, rows: pa.RecordBatch, of_left: pa.RecordBatch, right: Index, left: Index) -> pa.RecordBatch:
        """Return right and left rows by their places, -1 where a row is of the other stream."""
        columns = [column.take(_places(right)) for column in rows.columns]
        columns += [column.take(_places(left)) for column in of_left.columns if self.waits]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def decode(self, parts: Sequence[StoredRows]) -> tuple[list[Keyed], list[Keyed]]:
        """Return the stored left rows and the stored right rows."""
        sides: tuple[list[Keyed], list[Keyed]] = ([], [])
        width = len(self.right)
        for part in parts:
            for side, schema in enumerate((self.left, self.right)):
                which = part.done == RIGHT if side else part.done != RIGHT
                if not which.any():
                    continue
                columns = part.rows.columns[:width] if side else part.rows.columns[width:]
                rows = pa.RecordBatch.from_arrays(columns, schema=schema)
                if not which.all():
                    rows = rows.filter(pa.array(which))
                sides[side].append(Keyed(rows, part.hashes[which], part.done[which] == LATE))
        return sides


def _places(at: Index) -> pa.Array:
    return pa.array(at, mask=at < 0)
