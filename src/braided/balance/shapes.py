"""Choose the shape of a grid, and its weights, from rates, row sizes and windows.

The master of a single stream partition (SSP) is the stream that is split; the other one is copied to all k workers. The
overhead is (k - 1) times the rate of the *copied* stream (SSP, section 3), so the stream with the higher cost must be
the master. The paper's sentence states the opposite; its formula is right, and is used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braided.routing.grid import Grid, even_grid

# A stored byte costs a tenth of a received byte: it is written once or twice more when runs are merged.
_STORED = 0.1
_WEIGHTS = 1000  # the mean weight; enough steps for 0.1%


@dataclass(frozen=True)
class Rates:
    """The work of one batch for a key group: the rows of each side, the cost of one copy of them, and the results."""

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
        """Compute the cost of a copy from received and stored bytes; `windows` is each side's retention in batches."""
        costs = [
            count * size * (1.0 + _STORED * window)
            for count, size, window in zip(rows, row_bytes, windows, strict=True)
        ]
        return cls(rows[0], rows[1], costs[0], costs[1], results)

    def cost(self, grid: Grid) -> float:
        """Return the cost of a batch's copies with a grid."""
        left, right = grid.copies
        return left * self.left_cost + right * self.right_cost

    def busiest(self, workers: int, columns: int) -> float:
        """Return the rows and results of the busiest worker of an even grid."""
        height = workers // columns
        return self.left / height + self.right / columns + self.results / (height * columns)


def cheapest_grid(workers: Sequence[int], rates: Rates) -> Grid:
    """Arrange all workers so that copies cost least; the number of results is the same for every shape.

    >>> cheapest_grid(range(6), Rates(1, 1, 4.0, 1.0, 0)).shape
    '6 x 1'
    """
    grids = [even_grid(workers, columns) for columns in range(1, len(workers) + 1)]
    return min(grids, key=lambda grid: (rates.cost(grid), len(grid.columns)))


def ssp_time(grid: Grid, rates: Rates, slots: int) -> float:
    """Return how long a batch takes, in bytes: all work divided by the slots, but at least that of the busiest worker.

    With a larger k there are more copies, but less work for the busiest worker, so the best k is near the number of
    slots.
    """
    workers, columns = len(grid.workers), len(grid.columns)
    size = (rates.left_cost + rates.right_cost) / max(1.0, rates.left + rates.right)
    total = rates.cost(grid) + rates.results * size
    busiest = rates.left_cost * columns / workers + rates.right_cost / columns + rates.results * size / workers
    return max(total / slots, busiest)


def ssp_grid(workers: Sequence[int], rates: Rates, slots: int) -> Grid:
    """Choose which stream is the master, and the number of workers k, by `ssp_time`, then by the cost of copies.

    >>> ssp_grid(range(8), Rates(4000, 1000, 4e5, 1e5, 100), 8).shape
    '8 x 1'
    """
    grids = [even_grid(workers[:k], columns) for k in range(1, len(workers) + 1) for columns in {1, k}]
    return min(grids, key=lambda g: (ssp_time(g, rates, slots), rates.cost(g), len(g.workers), len(g.columns)))


def key_grid(workers: Sequence[int], rates: Rates, share: float, most_columns: int | None = None) -> Grid:
    """Return the cheapest grid for a hot key that gives each worker at most `share`; least loaded workers come first.

    If there is none, return the grid whose busiest worker has the least work. A join of many streams has grids of one
    column only.
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
    """Return a grid for a hot key in which only the rows of one side are split, and each of them has one home.

    Rows of the other side are copied to all workers. So each worker must get at least as many own rows and results as
    copies, which limits the number of workers. None if even two workers are too many: then the key is hot because of
    rows that cannot be split.

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
    """Return the rows and results of each worker by the weights of a grid."""
    loads = np.zeros(workers)
    all_columns = sum(grid.column_weights)
    for column, weights, weight in zip(grid.columns, grid.row_weights, grid.column_weights, strict=True):
        of_right = weight / all_columns
        of_left = np.array(weights) / sum(weights)
        loads[list(column)] = rates.left * of_left + rates.right * of_right + rates.results * of_left * of_right
    return loads


def level_weights(grid: Grid, other: npt.NDArray[np.float64], load: float) -> Grid:
    """Set a grid's weights so that its load, added to the other load of each worker, is balanced.

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
    """Return a grid with weights in proportion to each worker's room; at least one must have room."""
    members = np.array(grid.workers)
    scaled = room * len(members) / room[members].sum()
    rows = tuple(tuple(max(1, round(_WEIGHTS * float(scaled[w]))) for w in column) for column in grid.columns)
    columns = tuple(max(1, round(_WEIGHTS * float(sum(scaled[w] for w in column)))) for column in grid.columns)
    return Grid(grid.columns, rows, columns)
