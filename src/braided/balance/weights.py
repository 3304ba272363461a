"""The weights of a join's single grid, from the measured loads of its workers: rows go where they cost least.

The cost of a row or a result may differ between workers: a machine may be slower, or do other work too. This cost is a
worker's load divided by its rows and results, and predicts the effect of other weights:
```
 load of a worker = cost * (rows copied to it + rows and results by its weight)
```
How much of the load comes from copied rows and how much from tested pairs is not measured. In a join with a selective
predicate almost all load follows the weights; in a join by key it is less. So weights change as if all load followed
them. This never changes weights too much, and the next change corrects the rest. Counting copies like other rows
changed weights too much if pairs were expensive: the load moved between workers forever.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.balance.shapes import Rates, expected_loads, weighted
from braided.routing.grid import Grid

# The busiest worker must lose a tenth of its load; otherwise its load does not follow the weights.
_GAIN = 0.9
# The least load of a worker, as a part of the mean load, and its least weight, as a part of the mean weight.
_LEAST_LOAD = 0.01
_LEAST_SHARE = 0.05

Loads = npt.NDArray[np.float64]


def weigh_by_load(grid: Grid, rates: Rates, loads: Loads) -> Grid | None:
    """Return a grid whose weights balance the loads of its workers as far as possible; None if the gain is too small.

    rates : the rows and results of a batch; loads : the load of each worker, in any unit.

    >>> weigh_by_load(Grid(((0, 1),)), Rates(100, 0, 1.0, 1.0, 0), np.array([0.9, 0.3])).row_weights
    ((500, 1500),)
    """
    members = np.array(grid.workers)
    load = np.maximum(loads[members], _LEAST_LOAD * loads[members].mean())
    work = expected_loads(grid, rates, len(loads))[members]
    if not (load > 0).all() or not (work > 0).all():
        return None
    cost = load / work
    fixed = _copied(grid, rates)
    weighted_work = work - fixed
    level = float(weighted_work.sum()) / float((weighted_work / load).sum())
    room = np.zeros(len(loads))
    room[members] = np.maximum(weighted_work * level / load, _LEAST_SHARE * weighted_work.mean())
    weighed = weighted(grid, room)
    gained = (cost * expected_loads(weighed, rates, len(loads))[members]).max() < _GAIN * load.max()
    return weighed if gained else None


def _copied(grid: Grid, rates: Rates) -> Loads:
    """Return the rows that each worker gets with any weights: those of a stream that is copied to all workers."""
    right = rates.right if len(grid.columns) == 1 else 0.0
    return np.array([right + (rates.left if len(column) == 1 else 0.0) for column in grid.columns for _ in column])
