"""A percentile of many credits without keeping them sorted: selection, once every so many events."""

from __future__ import annotations

from braided.buffers.records import Reals
from braided.compiled import in_place


@in_place
def percentile_index(percentile: float, rows: int) -> int:
    """Return the position, among `rows` credits in rising order, of the percentile."""
    return min(rows - 1, int(percentile * rows))


@in_place
def select(values: Reals, n: int, k: int) -> float:
    """Return the k-th smallest of the first n values, which it reorders (Hoare's find)."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return float(values[k])


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
