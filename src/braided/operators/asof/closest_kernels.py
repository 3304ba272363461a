"""The compiled loop of an as-of join: for each left row the right rows of its key before and after it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled

Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@compiled
def find_neighbours(bounds: Index, times: Times, is_right: Mask, exact: bool, before: Index, after: Index) -> None:
    """Write where, for each left row, the last right row up to its time and the first from it on are; -1 for none.

    Rows are in order of (key, time, right rows first), keys begin at `bounds`, and no two right rows have one key and
    time. `exact`: a right row of the same time counts, as both.
    """
    for key in range(len(bounds) - 1):
        last, previous = -1, -1
        for row in range(bounds[key], bounds[key + 1]):
            if is_right[row]:
                last, previous = row, last
            else:
                same = last >= 0 and times[last] == times[row]
                before[row] = previous if same and not exact else last
        following = -1
        for row in range(bounds[key + 1] - 1, bounds[key] - 1, -1):
            if is_right[row]:
                following = row
            else:
                here = before[row]
                same = exact and here >= 0 and times[here] == times[row]
                after[row] = here if same else following
