"""Choosing the shape of a grid, and the weights in it, from rates, row sizes and windows.

The master of a single stream partition (SSP) is the stream that is split; the other is copied to all k workers.
The overhead is (k - 1) times the rate of the *copied* stream (SSP, section 3), so the stream that costs more must be
the master. The paper's sentence says the opposite. Its formula is right, and is used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braided.routing.grid import Grid, even_grid

# A byte kept in the window costs a tenth of a byte received: it is written once or twice more as runs merge.
_STORED = 0.1
_WEIGHTS = 1000  # the mean weight; enough steps for 0.1%


@dataclass(frozen=True)
class Rates:
    """What one batch brings to a key group: rows of either side, what a copy of each side's rows costs, results."""

    left: float
    right: float
    left_cost: float
    right_cost: float
    results: float

    @classmethod
    def of(
        cls,
        rows: tuple[float, float],
        row_bytes: tuple[float, float],
        windows: tuple[float, float],
        results: float,
    ) -> Rates:
        """Cost a copy in bytes received and bytes kept; `windows` is each side's retention in batches."""
        costs = [
            count * size * (1.0 + _STORED * window)
            for count, size, window in zip(rows, row_bytes, windows, strict=True)
        ]
        return cls(rows[0], rows[1], costs[0], costs[1], results)

    def cost(self, grid: Grid) -> float:
        """Return what the copies of a batch cost under a grid."""
        left, right = grid.copies
        return left * self.left_cost + right * self.right_cost

    def busiest(self, workers: int, columns: int) -> float:
        """Return the rows and results of the busiest worker of an even grid."""
        height = workers // columns
        return self.left / height + self.right / columns + self.results / (height * columns)


def cheapest_grid(workers: Sequence[int], rates: Rates) -> Grid:
    """Lay all workers out so that copies cost least; results are the same for every shape.

    >>> cheapest_grid(range(6), Rates(1, 1, 4.0, 1.0, 0)).shape
    '6 x 1'
    """
    grids = [even_grid(workers, columns) for columns in range(1, len(workers) + 1)]
    return min(grids, key=lambda grid: (rates.cost(grid), len(grid.columns)))


def ssp_time(grid: Grid, rates: Rates, slots: int) -> float:
    """Return how long a batch takes, in bytes: all work shared by the slots, but at least the busiest worker.

    Copies grow with k and the busiest worker shrinks, so the best k is near the number of slots.
    """
    workers, columns = len(grid.workers), len(grid.columns)
    size = (rates.left_cost + rates.right_cost) / max(1.0, rates.left + rates.right)
    total = rates.cost(grid) + rates.results * size
    busiest = rates.left_cost * columns / workers + rates.right_cost / columns + rates.results * size / workers
    return max(total / slots, busiest)


def ssp_grid(workers: Sequence[int], rates: Rates, slots: int) -> Grid:
    """Split the master and copy the slave: choose the master and k by `ssp_time`, then by the cost of copies.

    >>> ssp_grid(range(8), Rates(4000, 1000, 4e5, 1e5, 100), 8).shape
    '8 x 1'
    """
    grids = [even_grid(workers[:k], columns) for k in range(1, len(workers) + 1) for columns in {1, k}]
    return min(grids, key=lambda g: (ssp_time(g, rates, slots), rates.cost(g), len(g.workers), len(g.columns)))


def key_grid(workers: Sequence[int], rates: Rates, share: float, most_columns: int | None = None) -> Grid:
    """Lay one hot key over workers, the least loaded first: the cheapest shape that leaves each at most a share.

    If no shape does, the one with the least busy workers. A join of many streams has grids of one column only.
    """
    options = []
    for size in range(2, len(workers) + 1):
        for columns in range(1, min(size, most_columns or size) + 1):
            if size % columns == 0:
                grid = even_grid(workers[:size], columns)
                busiest = rates.busiest(size, columns)
                options.append((busiest > share, rates.cost(grid) if busiest <= share else busiest, size, grid))
    return min(options, key=lambda option: option[:3])[3] if options else even_grid(workers[:1], 1)


def home_grid(workers: Sequence[int], rates: Rates, share: float, home: int) -> Grid | None:
    """Lay one hot key over workers so that rows of one side alone are split, and have one home each.

    Rows of the other side are copied to all workers. So there are at most as many workers as get no more copies than
    rows and results of their own; None where two are too many: then the key is hot by what cannot be split.

    >>> home_grid(range(4), Rates(90, 10, 9e3, 1e3, 0), 30.0, 0).shape
    '4 x 1'
    >>> home_grid(range(4), Rates(10, 90, 1e3, 9e3, 0), 30.0, 0)
    """
    own, copied = (rates.left, rates.right) if home == 0 else (rates.right, rates.left)
    options = []
    for size in range(2, len(workers) + 1):
        if size * copied <= own + rates.results:
            grid = even_grid(workers[:size], 1 if home == 0 else size)
            busiest = rates.busiest(size, len(grid.columns))
            options.append((busiest > share, rates.cost(grid) if busiest <= share else busiest, size, grid))
    return min(options, key=lambda option: option[:3])[3] if options else None


def expected_loads(grid: Grid, rates: Rates, workers: int) -> npt.NDArray[np.float64]:
    """Return the rows and results that a grid's weights give each worker."""
    loads = np.zeros(workers)
    all_columns = sum(grid.column_weights)
    for column, weights, weight in zip(grid.columns, grid.row_weights, grid.column_weights, strict=True):
        of_right = weight / all_columns
        of_left = np.array(weights) / sum(weights)
        loads[list(column)] = rates.left * of_left + rates.right * of_right + rates.results * of_left * of_right
    return loads


def level_weights(grid: Grid, other: npt.NDArray[np.float64], load: float) -> Grid:
    """Weigh a grid's workers so that its load, on top of what each does besides, ends level: least loaded first.

    >>> level_weights(Grid(((0, 1),)), np.array([30.0, 10.0]), 40.0).row_weights
    ((500, 1500),)
    """
    members = np.array(grid.workers)
    level = (other[members].sum() + load) / len(members)
    room = np.maximum(level - other[members], 0.05 * load / len(members))
    if not room.sum() > 0:
        return grid
    rooms = np.zeros(len(other))
    rooms[members] = room
    return weighted(grid, rooms)


def weighted(grid: Grid, room: npt.NDArray[np.float64]) -> Grid:
    """Return a grid with weights in proportion to the room of each worker; some worker has room."""
    members = np.array(grid.workers)
    scaled = room * len(members) / room[members].sum()
    rows = tuple(tuple(max(1, round(_WEIGHTS * float(scaled[w]))) for w in column) for column in grid.columns)
    columns = tuple(max(1, round(_WEIGHTS * float(sum(scaled[w] for w in column)))) for column in grid.columns)
    return Grid(grid.columns, rows, columns)
