"""Left rows and their answers as results, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.arrivals import OutputColumn
from braided.operators.join.sizes import row_bytes

# The limits of a piece.
_PIECE_ROWS = 1 << 16
_PIECE_BYTES = 8 << 20

Index = npt.NDArray[np.int64]


def pieces(
    columns: Sequence[OutputColumn], output: pa.Schema, left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index
) -> Iterator[pa.RecordBatch]:
    """Yield the left rows at `i`, each with the right row at `j`, or with nulls where that is -1."""
    for start, stop in _cuts(left, right, i, j):
        taken = [
            pa.array(i[start:stop]),
            pa.array(j[start:stop], mask=j[start:stop] < 0),
        ]
        sides = (left, right)
        arrays = [sides[column.side].column(column.source).take(taken[column.side]) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=output)


def _cuts(left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index) -> Iterator[tuple[int, int]]:
    """Cut results where they would be too many or too large, however large single rows are."""
    if not len(i):
        return
    sizes = [row_bytes(rows) if rows.num_rows else np.zeros(1, np.int64) for rows in (left, right)]
    if min(len(i), _PIECE_ROWS) * sum(int(size.max()) for size in sizes) <= _PIECE_BYTES:
        yield from ((start, min(start + _PIECE_ROWS, len(i))) for start in range(0, len(i), _PIECE_ROWS))
        return
    # A single size stands for all rows.
    of_left, of_right = (
        size[np.maximum(at, 0)] if len(size) > 1 else size[0] for size, at in zip(sizes, (i, j), strict=True)
    )
    total = np.cumsum(of_left + np.where(j < 0, 0, of_right))
    start = 0
    while start < len(i):
        before = int(total[start - 1]) if start else 0
        stop = min(int(np.searchsorted(total, before + _PIECE_BYTES, side="right")), start + _PIECE_ROWS)
        yield start, max(start + 1, stop)
        start = max(start + 1, stop)
