"""A grid of workers: the layout of one assignment, in which every left row meets every right row exactly once.

```
            column 0   column 1   column 2       a right row picks one column and is stored in all of it
 left row     [w0]       [w2]       [w4]         a left row picks one worker of every column
 picks        [w1]       [w3]       [w5]
                                    [w6]         columns may have different heights, so seven workers share evenly
```

A left row and a right row meet in the one worker that the left row picked in the right row's column. With
columns of equal height this is the usual r x c grid: 1 x 1 is hash partitioning, k x 1 splits the left stream and
copies the right one (SSP with the left as master), 1 x k the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError

Words = npt.NDArray[np.uint64]
Index = npt.NDArray[np.int64]
MAX_WEIGHT = 1 << 20


@dataclass(frozen=True)
class Grid:
    """Columns of workers, with weights that decide how often each is picked; any weights are correct.

    >>> Grid(((0, 1), (2, 3))).shape
    '2 x 2'
    >>> Grid(((0, 1, 2), (3, 4, 5, 6))).shape
    '3+4'
    """

    columns: tuple[tuple[int, ...], ...]
    row_weights: tuple[tuple[int, ...], ...] = field(default=())
    column_weights: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.row_weights:
            object.__setattr__(self, "row_weights", tuple((1,) * len(column) for column in self.columns))
        if not self.column_weights:
            object.__setattr__(self, "column_weights", tuple(len(column) for column in self.columns))

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, column by column."""
        return tuple(worker for column in self.columns for worker in column)

    @property
    def shape(self) -> str:
        """The shape as text: rows x columns, or the heights of the columns."""
        heights = [len(column) for column in self.columns]
        return f"{heights[0]} x {len(heights)}" if len(set(heights)) == 1 else "+".join(map(str, heights))

    @property
    def copies(self) -> tuple[float, float]:
        """How often a left and a right row is stored, on average."""
        weights = np.array(self.column_weights, np.float64)
        heights = np.array([len(column) for column in self.columns], np.float64)
        return float(len(self.columns)), float((weights * heights).sum() / weights.sum())

    def spread(self, side: int, content: Words) -> Iterator[tuple[Index | None, npt.NDArray[np.int32]]]:
        """Yield (positions, worker of each) for every copy of rows with these content hashes; first copies come first.

        None means all positions. How copies are grouped is not guaranteed.
        """
        if side == 0:
            for column, bounds in zip(self.columns, self._row_bounds, strict=True):
                yield None, np.array(column, np.int32)[_pick(content, bounds)]
            return
        picked = _pick(content, self._column_bounds)
        members = [np.flatnonzero(picked == number) for number in range(len(self.columns))]
        for height in range(max(len(column) for column in self.columns)):
            for rows, column in zip(members, self.columns, strict=True):
                if height < len(column) and len(rows):
                    yield rows, np.full(len(rows), column[height], np.int32)

    @cached_property
    def _row_bounds(self) -> list[Words]:
        return [_bounds(weights) for weights in self.row_weights]

    @cached_property
    def _column_bounds(self) -> Words:
        return _bounds(self.column_weights)

    def to_json(self) -> dict[str, Any]:
        """Return the grid as plain lists."""
        return {
            "columns": [list(column) for column in self.columns],
            "row_weights": [list(weights) for weights in self.row_weights],
            "column_weights": list(self.column_weights),
        }

    @classmethod
    def from_json(cls, value: Any, workers: int) -> Grid:
        """Read and check the result of `to_json`: it may come from a damaged or forged file."""
        try:
            columns, rows, weights = (value[name] for name in ("columns", "row_weights", "column_weights"))
            shape_fits = [len(column) for column in columns] == [len(row) for row in rows]
            members = [worker for column in columns for worker in column]
            fits = (
                shape_fits
                and len(weights) == len(columns) > 0
                and all(len(column) for column in columns)
                and all(type(worker) is int and 0 <= worker < workers for worker in members)
                and len(set(members)) == len(members)
                and all(_weights_fit(row) for row in (*rows, weights))
            )
        except (KeyError, TypeError):
            fits = False
        if not fits:
            raise BraidedError(f"not a grid of distinct workers below {workers} with weights: {str(value)[:200]}")
        return cls(tuple(map(tuple, columns)), tuple(map(tuple, rows)), tuple(weights))


def _weights_fit(weights: Sequence[Any]) -> bool:
    return all(type(weight) is int and 0 <= weight <= MAX_WEIGHT for weight in weights) and sum(weights) > 0


def _bounds(weights: Sequence[int]) -> Words:
    """Return where each choice except the last ends in the range of 2**32."""
    total = sum(weights)
    ends = np.cumsum(np.array(weights, np.uint64))[:-1]
    return ends * np.uint64(1 << 32) // np.uint64(total)


def _pick(content: Words, bounds: Words) -> Index:
    if not len(bounds):
        return np.zeros(len(content), np.int64)
    return np.searchsorted(bounds, content >> np.uint64(32), side="right").astype(np.int64)


def even_grid(workers: Sequence[int], columns: int) -> Grid:
    """Arrange all workers in columns whose heights are equal or differ by one.

    >>> even_grid(range(7), 2).columns
    ((0, 1, 2), (3, 4, 5, 6))
    """
    bounds = [len(workers) * number // columns for number in range(columns + 1)]
    return Grid(tuple(tuple(workers[a:b]) for a, b in pairwise(bounds)))


def cheapest_columns(workers: int, left: float, right: float) -> int:
    """Return the cheapest number of columns; `left` and `right` are the cost of one copy of all rows of a side.

    A left row has one copy per column, a right row one copy per worker of its column, so the cost is
    ``columns * left + (workers / columns) * right``. The optimum is near sqrt(workers * right / left).

    >>> cheapest_columns(9, 1.0, 1.0), cheapest_columns(8, 100.0, 1.0), cheapest_columns(8, 1.0, 100.0)
    (3, 1, 8)
    """
    costs = [(columns * left + workers / columns * right, columns) for columns in range(1, workers + 1)]
    return min(costs)[1]
