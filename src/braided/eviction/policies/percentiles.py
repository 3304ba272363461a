"""A percentile of many credits without sorting them: a selection, which runs only after many events."""

from __future__ import annotations

import numpy as np

from braided.compiled import in_place
from braided.eviction.records import Reals


@in_place
def percentile_index(percentile: float, rows: int) -> int:
    """Return the position of the percentile among `rows` credits in ascending order."""
    return min(rows - 1, int(percentile * rows))


_SAMPLE = 128
_AROUND = 12  # the k-th is within this many places of its expected place in the sample, 99 times in 100


@in_place
def select(values: Reals, n: int, k: int) -> float:
    """Return the k-th smallest of the first n values; the order of the values is destroyed.

    A sample shows between which two values the result is; the other values are only counted (Floyd and Rivest, 1975).
    Values are moved without a branch, because it would not be predictable. It is three times as fast as Hoare's find.
    """
    while n > 8 * _SAMPLE:
        for s in range(_SAMPLE):
            at = s * (n // _SAMPLE)
            values[s], values[at] = values[at], values[s]
        shell_sort(values, _SAMPLE)
        rank = k * _SAMPLE // n
        least = values[rank - _AROUND] if rank >= _AROUND else -np.inf
        most = values[rank + _AROUND] if rank + _AROUND < _SAMPLE else np.inf
        below, within = 0, 0
        for i in range(n):
            below += values[i] < least
            within += (values[i] >= least) & (values[i] <= most)
        if not below <= k < below + within or 2 * within > n:
            break
        sample = 0
        for i in range(n):
            values[sample] = values[i]
            sample += (values[i] >= least) & (values[i] <= most)
        n, k = within, k - below
    return _partitioned(values, n, k)


@in_place
def _partitioned(values: Reals, n: int, k: int) -> float:
    """Return the k-th smallest of few values, by Lomuto's partition."""
    low, high = 0, n  # the k-th is in [low, high)
    while True:
        pivot = values[(low + high) >> 1]
        smaller = low
        for i in range(low, high):
            value = values[i]
            values[i] = values[smaller]
            values[smaller] = value
            smaller += value < pivot
        if k < smaller:
            high = smaller
            continue
        larger = smaller
        for i in range(smaller, high):
            value = values[i]
            values[i] = values[larger]
            values[larger] = value
            larger += value == pivot
        if k < larger:
            return float(pivot)
        low = larger


@in_place
def shell_sort(values: Reals, n: int) -> None:
    """Sort the first n values in place; numba's own sort takes seconds to compile."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            value = values[i]
            j = i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 3


@in_place
def values_below(values: Reals, n: int, value: float) -> int:
    """Return how many of n sorted values are smaller."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
