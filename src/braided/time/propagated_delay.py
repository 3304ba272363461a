"""Propagation of a learned lateness: the last column of results has the lateness that the next operator must expect.

The paper sends a pseudo event when K grows. Here every row of a batch has the delay that follows from the K of the
previous batch, and the next operator removes this column. So it waits long enough before the first late result comes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braided.time.clocks import AsofSpan, Span, Window

COLUMN = "__braided_delay"
FIELD = pa.field(COLUMN, pa.int64())


@dataclass(frozen=True)
class PropagatedDelay:
    """The delay of a join's results, from its window.

    >>> PropagatedDelay(Window(-1, 1, (0, 0))).delay([5, 60])
    62
    """

    window: Window | Span | AsofSpan

    def delay(self, lateness: Sequence[int]) -> int:
        """Return how far a result may be behind the largest result time seen, given each input's lateness."""
        window = replace(self.window, lateness=tuple(lateness))
        return max(window.result_delay(side) for side in range(len(lateness)))


def append_delay(
    pieces: Generator[pa.RecordBatch, None, Any], delay: int | None
) -> Generator[pa.RecordBatch, None, Any]:
    """Yield the pieces with the column, which has one value; return the generator's result."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return end.value
        rows = piece.num_rows
        column = pa.nulls(rows, pa.int64()) if delay is None else pa.array(np.full(rows, delay, np.int64))
        yield piece.append_column(FIELD, column)


@dataclass
class DelayColumn:
    """Removes the column from a task's rows and keeps the largest delay in it."""

    delay: int | None = None

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the column; batches that do not have it are not changed."""
        for batch in batches:
            if batch.schema.names[-1:] != [COLUMN]:
                yield batch
                continue
            delay = pc.max(batch.column(batch.num_columns - 1)).as_py()
            if delay is not None:
                self.delay = max(delay, self.delay or 0)
            yield batch.select(batch.schema.names[:-1])
