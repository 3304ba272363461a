"""Rows that wait until the clock is set, when `measure="next"` measures their delays; they are kept as sums.

With the offsets from the first of these rows, the delays of all rows at any later clock are known:

```
 delay of a row = (clock - first) + (first - time)
```
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.time.learning.delay_buckets import gap

FIELDS = [
    ("rows", np.int64),  # measured
    ("slice_rows", np.int64),
    ("beyond", np.int64),  # later than the ceiling
    ("moment0", np.float64),  # sums of the measured delays' powers
    ("moment1", np.float64),
    ("moment2", np.float64),
    ("pending", np.int64),  # rows seen since the clock was set
    ("pending_first", np.int64),  # the time of the first of them, and the smallest time
    ("pending_smallest", np.int64),
    ("pending1", np.float64),  # sums of the powers of first - time
    ("pending2", np.float64),
]
"""The fields that a state needs for the functions below."""

State = npt.NDArray[Any]


@compiled
def add_pending(state: State, rows: int, first: int, smallest: int, sum1: float, sum2: float) -> None:
    """Add rows, given by the sums of the powers of first - time."""
    now = state[0]
    if rows == 0:
        return
    if now.pending == 0:
        now.pending_first, now.pending_smallest = first, smallest
        now.pending1 = now.pending2 = 0.0
    shift = float(now.pending_first) - float(first)
    now.pending += rows
    now.pending_smallest = min(now.pending_smallest, smallest)
    now.pending1 += rows * shift + sum1
    now.pending2 += rows * shift * shift + 2.0 * shift * sum1 + sum2


@compiled
def measure_pending(state: State, ceiling: int, clock: int) -> int:
    """Learn from the waiting rows when the clock is set, and return their largest delay.

    If the clock jumps by more than the ceiling, as after an outage, it does not show their delays: they are discarded.
    """
    now = state[0]
    rows, now.pending = now.pending, 0
    if rows == 0:
        return 0
    largest = gap(clock, now.pending_smallest)
    if largest > ceiling or gap(now.pending_first, clock) > ceiling:
        now.beyond += rows
        return 0
    delay = float(clock) - float(now.pending_first)
    now.rows += rows
    now.slice_rows += rows
    now.moment0 += rows
    now.moment1 += rows * delay + now.pending1
    now.moment2 += rows * delay * delay + 2.0 * delay * now.pending1 + now.pending2
    return largest
