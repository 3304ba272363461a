"""Compiled loops of a join with the last rows of each key: which rows each new row meets, and which are kept.

```
 rows of a key, in order of (time, stream, content)     l1  r1  l2  r2  r3  l3        the last 2 rows:
                                                         ^-------^---|                r2 meets l1, l2
                                                         ^-------^-------|            r3 meets l1, l2
                                                                 ^-- r2, r3 <-|       l3 meets r2, r3
```
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.operators.join.pair_kernels import saturated

Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@compiled
def find_last_rows(
    bounds: Index,
    times: Times,
    is_left: Mask,
    is_new: Mask,
    left_times: Times,
    right_times: Times,
    last_left: int,
    last_right: int,
    any_time: bool,
    lo: int,
    hi: int,
    starts: Index,
    counts: Index,
) -> None:
    """Write, for each new row, where the rows of the other stream that it meets begin, and how many there are.

    Rows are in order of (key, time, stream), keys begin at `bounds`; `left_times` and `right_times` are those of each
    stream's rows in this order, among which `starts` are places. Of the last rows of the other stream before it a row
    meets those with ``lo <= r.t - l.t <= hi``, which all have with `any_time`.
    """
    lefts = rights = 0
    for key in range(len(bounds) - 1):
        first_left, first_right = lefts, rights
        low_left, past_left = lefts, lefts
        low_right, past_right = rights, rights
        for row in range(bounds[key], bounds[key + 1]):
            time = times[row]
            if is_left[row]:
                if is_new[row]:
                    start, stop = max(first_right, rights - last_right), rights
                    if not any_time:
                        earliest, latest = saturated(time, lo), saturated(time, hi)
                        while low_right < rights and right_times[low_right] < earliest:
                            low_right += 1
                        while past_right < rights and right_times[past_right] <= latest:
                            past_right += 1
                        start, stop = max(start, low_right), past_right
                    starts[row], counts[row] = start, max(0, stop - start)
                lefts += 1
            else:
                if is_new[row]:
                    start, stop = max(first_left, lefts - last_left), lefts
                    if not any_time:
                        earliest, latest = saturated(time, -hi), saturated(time, -lo)
                        while low_left < lefts and left_times[low_left] < earliest:
                            low_left += 1
                        while past_left < lefts and left_times[past_left] <= latest:
                            past_left += 1
                        start, stop = max(start, low_left), past_left
                    starts[row], counts[row] = start, max(0, stop - start)
                rights += 1


@compiled
def keep_last_rows(
    bounds: Index,
    is_last: Mask,
    times: Times,
    is_left: Mask,
    last_left: int,
    last_right: int,
    earliest_left: int,
    earliest_right: int,
    forgotten: int,
    keep_end: bool,
    stays: Mask,
) -> None:
    """Mark the rows that a later row may meet: the last of each stream, from the earliest time on.

    Parts of keys begin at `bounds`; only those that are the last of their key, and whose last row is not before
    `forgotten`, keep any. With `keep_end` these keep their last row too, which decides when they are forgotten.
    """
    for part in range(len(bounds) - 1):
        end = bounds[part + 1] - 1
        if not is_last[part] or times[end] < forgotten:
            continue
        lefts = rights = 0
        for row in range(end, bounds[part] - 1, -1):
            if is_left[row]:
                if lefts < last_left and times[row] >= earliest_left:
                    stays[row] = True
                lefts += 1
            else:
                if rights < last_right and times[row] >= earliest_right:
                    stays[row] = True
                rights += 1
            if keep_end and stays[row]:
                stays[end] = True
