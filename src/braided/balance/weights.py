"""Weights of one grid for everything, by the loads that its workers showed: rows go where they cost least.

What a row or a result costs may differ from worker to worker: a machine is slower, or does other work too. A worker's
load over what it gets is that cost, and says what other weights would do:

```
 load of a worker = cost * (what is copied to it + what the weights give it)
```

Nobody measures what a copied row costs beside a pair that is tested: in a join with a selective predicate almost all of
a load follows the weights, in one that finds its partners by key less of it. So weights change as if all of it did.
That never goes too far, and the next change does the rest. To count copies as rows went too far where pairs were what
cost: weights swung from one worker to another for ever.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.balance.shapes import Rates, expected_loads, weighted
from braided.routing.grid import Grid

# The busiest worker must lose a tenth of its load; else what makes it hot does not follow the weights.
_GAIN = 0.9
# A worker without load still has a cost, in parts of the mean load; and no worker is left out, in parts of the mean.
_LEAST_LOAD = 0.01
_LEAST_SHARE = 0.05

Loads = npt.NDArray[np.float64]


def weigh_by_load(grid: Grid, rates: Rates, loads: Loads) -> Grid | None:
    """Return a grid whose weights level the loads of its workers as far as they can; None if they gain too little.

    rates : what a batch brings, in rows and results; loads : per worker, whatever the unit.

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
    given = work - fixed
    level = float(given.sum()) / float((given / load).sum())
    room = np.zeros(len(loads))
    room[members] = np.maximum(given * level / load, _LEAST_SHARE * given.mean())
    weighed = weighted(grid, room)
    gained = (cost * expected_loads(weighed, rates, len(loads))[members]).max() < _GAIN * load.max()
    return weighed if gained else None


def _copied(grid: Grid, rates: Rates) -> Loads:
    """Return the rows that each worker gets whatever the weights: those of a stream that is copied to all."""
    right = rates.right if len(grid.columns) == 1 else 0.0
    return np.array([right + (rates.left if len(column) == 1 else 0.0) for column in grid.columns for _ in column])
