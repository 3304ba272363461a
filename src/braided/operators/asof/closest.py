"""Which right row answers each left row, which left rows wait on, and which right rows are still needed.

```
 right rows of a key    r1 ....... r2 .................... r3          all before the horizon are there
 left row                               l                    |horizon
                               before <-|-> after

 backward   r2, at once                  forward   r3, or none once the horizon has passed l + tolerance
 nearest    r2, once the horizon has reached l + (l - r2), if r3 is not there by then
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braided.operators.asof.closest_kernels import find_neighbours
from braided.time.clocks import MAX_TIME, clamp
from braided.typing import Direction

Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Distances = npt.NDArray[np.uint64]


class Merged(NamedTuple):
    """Rows of both streams in order of (key, time, right rows first); keys begin at `bounds`.

    Precondition: no two right rows have one key and time.
    """

    bounds: Index
    times: Times
    is_right: Mask


class Answers(NamedTuple):
    """Of the rows of `Merged`: the answer of each, -1 for none, which left rows wait for theirs, and until when.

    The answer of a left row that waits is known when the horizon is after `due`, or earlier.
    """

    right: Index
    waits: Mask
    due: Times


@dataclass(frozen=True)
class Search:
    """How an answer is searched for. Without a tolerance any distance is allowed.

    >>> rows = Merged(np.array([0, 3]), np.array([10, 12, 15]), np.array([True, False, True]))
    >>> Search("backward", None, True).answer(rows, 20).right.tolist()
    [-1, 0, -1]
    >>> Search("forward", 3, True).answer(rows, 20).right.tolist()
    [-1, 2, -1]
    """

    direction: Direction
    tolerance: int | None
    exact: bool

    @property
    def reach(self) -> int:
        """How far behind a left row the horizon may have to be before its answer is known."""
        return 0 if self.direction == "backward" else self.tolerance or 0

    @property
    def stay(self) -> int | None:
        """How far before all left rows to come a right row may be and still be needed; None for any distance."""
        return 0 if self.direction == "forward" else self.tolerance

    def answer(self, rows: Merged, horizon: int, *, final: bool = False) -> Answers:
        """Return the answers of left rows before a horizon before which all right rows are there."""
        times = rows.times
        before, after = np.full((2, len(times)), -1, np.int64)
        find_neighbours(rows.bounds, times, rows.is_right, self.exact, before, after)
        before[~self._near(times, before)] = -1
        if self.direction == "backward":
            return Answers(before, np.zeros(len(times), np.bool_), times)
        after[~self._near(times, after)] = -1
        answer, due = after, _later(times, self.tolerance)
        if self.direction == "nearest":
            back = _distances(times, before)
            answer = np.where((before >= 0) & ((after < 0) | (back <= _distances(times, after))), before, after)
            # A later row must be closer, not as close. (A row of the same time is `after` too, and no row waits.)
            due = np.where(before >= 0, times + np.minimum((back - 1).view(np.int64), _room(times)), due)
        waits = ~rows.is_right & (after < 0) & (due >= horizon) & (not final)
        return Answers(answer, waits, due)

    def needed(self, rows: Merged, answers: Answers, earliest: int) -> Mask:
        """Return which right rows may answer a left row to come, at `earliest` or later, or one that waits."""
        needed: Mask = rows.is_right & (rows.times >= earliest)
        if self.direction == "forward" or not len(needed):
            return needed
        older = np.where(rows.is_right & ~needed, np.arange(len(needed)), -1)
        last = np.maximum.reduceat(older, rows.bounds[:-1])  # of each key
        last = last[last >= 0]
        if self.stay is not None:
            last = last[rows.times[last] >= clamp(earliest - self.stay)]
        needed[last] = True
        waiting = answers.right[answers.waits]
        needed[waiting[waiting >= 0]] = True
        return needed

    def expiry(self, times: Times, horizon: int, earliest: int) -> Times:
        """Return when right rows that are kept are looked at again, by the horizon of their stream.

        That is some time after they are no longer needed, so that few blocks are read for it: half a tolerance, or half
        of how far left rows are behind.
        """
        if not len(times):
            return times
        later = clamp(horizon + (horizon - max(earliest, int(times.min()))) // 2)
        if self.stay is None:  # the last row of a key stays for ever
            return np.where(times >= earliest, later, MAX_TIME)
        return np.maximum(_later(times, self.stay + (self.tolerance or 0) // 2), later)

    def _near(self, times: Times, other: Index) -> Mask:
        """Return whether there is another row, and within the tolerance."""
        near: Mask = other >= 0
        return near if self.tolerance is None else near & (_distances(times, other) <= np.uint64(self.tolerance))


def _distances(times: Times, other: Index) -> Distances:
    """Return the distances to other rows, any number if there is none. No difference overflows."""
    there = times[other]
    return np.maximum(times, there).view(np.uint64) - np.minimum(times, there).view(np.uint64)


def _later(times: Times, by: int | None) -> Times:
    """Return times that are later by `by`, at most the largest time; None is for ever."""
    if by is None:
        return np.full(len(times), MAX_TIME, np.int64)
    return times + np.minimum(np.int64(min(by, MAX_TIME)), _room(times))


def _room(times: Times) -> Times:
    """Return how much can be added to times."""
    return MAX_TIME - np.maximum(times, 0)
