"""Rows before and after others in their key: PREV and NEXT, as columns.

NEXT sees a row that comes at most `within` after the row that it counts from. So its value for a row is certain once
enough rows have followed, or the horizon has passed the row's time plus `within`. It does not depend on batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braided.time.clocks import MAX_TIME

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Neighbours(NamedTuple):
    """Rows by key and time: where keys begin, times, and how much later a row after another may be."""

    bounds: Int64s
    times: Int64s
    within: int

    def places(self, offset: int) -> tuple[Int64s, Bools]:
        """Return for each row the one `offset` rows after it (before it if negative), and where its key has none."""
        places = np.arange(len(self.times)) + offset
        sizes = np.diff(self.bounds)
        if offset <= 0:
            missing = places < np.repeat(self.bounds[:-1], sizes)
        else:
            missing = places >= np.repeat(self.bounds[1:], sizes)
            places[missing] = 0
            # As unsigned numbers, so that no difference of times overflows.
            apart = self.times[places].view(np.uint64) - self.times.view(np.uint64)
            missing |= apart > np.uint64(self.within)
        places[missing] = 0
        return places, missing

    def unknown(self, reach: int, horizon: int) -> Bools:
        """Return the rows for which NEXT by `reach` rows is not certain yet."""
        if horizon >= MAX_TIME:
            return np.zeros(len(self.times), np.bool_)
        beyond = np.arange(len(self.times)) + reach >= np.repeat(self.bounds[1:], np.diff(self.bounds))
        return beyond & (self.times >= horizon - self.within)


def without_forgotten(bounds: Int64s, times: Int64s, forget: int | None) -> Int64s:
    """Return where keys begin, and where they restart after so long without a row that earlier rows are forgotten."""
    if forget is None or not len(times):
        return bounds
    ticks = times.view(np.uint64)
    gaps = ticks[1:] - ticks[:-1] > np.uint64(forget)
    return np.union1d(bounds, np.flatnonzero(gaps) + 1)
