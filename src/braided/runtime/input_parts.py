"""The parts of a task's input, such as files: rows are in order of arrival only within a part.

Readers assign files to tasks by size, and the pieces of a large file in any order. So the last column of the rows has
a different value for each part, and delays are measured only within a part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

COLUMN = "__braided_part"
FIELD = pa.field(COLUMN, pa.int64())


class Parts:
    """Removes the column from a task's rows, and keeps the positions at which parts begin.

    >>> parts = Parts()
    >>> rows = pa.record_batch({"t": [1, 2, 3, 4], COLUMN: [7, 7, 8, 8]})
    >>> [batch.num_columns for batch in parts.take([rows])], parts.starts(3), parts.starts(1)
    ([1], array([0, 2]), array([], dtype=int64))
    """

    def __init__(self) -> None:
        self._rows = self._asked = 0
        self._starts: deque[int] = deque()
        self._part: int | None = None

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the column; batches that do not have it are not changed."""
        for batch in batches:
            first, self._rows = self._rows, self._rows + batch.num_rows
            if batch.schema.names[-1:] != [COLUMN]:
                yield batch
                continue
            if batch.num_rows:
                self._note(first, batch.column(batch.num_columns - 1).to_numpy())
            yield batch.select(batch.schema.names[:-1])

    def _note(self, first: int, part: npt.NDArray[np.int64]) -> None:
        if self._part != part[0]:
            self._starts.append(first)
        self._starts += (first + 1 + np.flatnonzero(part[1:] != part[:-1])).tolist()
        self._part = int(part[-1])

    def starts(self, rows: int) -> npt.NDArray[np.int64]:
        """Return at which of the next `rows` rows, counted from 0, a part begins."""
        first, self._asked = self._asked, self._asked + rows
        out = []
        while self._starts and self._starts[0] < self._asked:
            out.append(self._starts.popleft() - first)
        return np.array(out, np.int64)
