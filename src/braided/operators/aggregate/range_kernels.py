"""Compiled kernels of totals over ranges of a sorted run: cut at panes, sums, least and largest, rows before a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled

Index = npt.NDArray[np.int64]
Times = npt.NDArray[np.int64]
Valid = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]


@compiled
def cut_at_panes(
    first: Index, past: Index, times: Times, low: int, high: int, width: int, offset: int
) -> tuple[Index, Index, Index]:
    """Cut ranges of positions where a new pane begins; return each piece's range of origin, its first and its past.

    Ranges lie within [low, high), each within one key, so that its times rise.
    """
    numbers = np.empty(high - low, np.int32)
    borders = np.empty(high - low + 1, np.int64)
    pieces = 0
    start, end = 0, -1  # the pane of the time before
    for at in range(low, high):
        time = times[at]
        if at == low or time < start or time > end:
            start = (time - offset) // width * width + offset
            end = start + (width - 1)
            borders[pieces] = at
            pieces += 1
        numbers[at - low] = pieces - 1
    borders[pieces] = high
    total = 0
    for i in range(len(first)):
        total += numbers[past[i] - 1 - low] - numbers[first[i] - low] + 1
    owners, starts, ends = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for i in range(len(first)):
        number = numbers[first[i] - low]
        position = first[i]
        while position < past[i]:
            number += 1
            owners[at] = i
            starts[at] = position
            position = min(borders[number], past[i])
            ends[at] = position
            at += 1
    return owners, starts, ends


@compiled
def sum_ranges(values: Doubles, valid: Valid, starts: Index, ends: Index, low: int) -> Doubles:
    """Return the sum of each range of doubles, in order; null values count nothing. Positions begin at `low`."""
    sums = np.zeros(len(starts), np.float64)
    everything = len(valid) == 0
    for i in range(len(starts)):
        total = 0.0
        for at in range(starts[i] - low, ends[i] - low):
            if everything or valid[at]:
                total += values[at]
        sums[i] = total
    return sums


@compiled
def best_of_ranges(values: Index, valid: Valid, starts: Index, ends: Index, low: int, sign: int) -> Index:
    """Return where the least value (sign 1) or the largest (-1) of each range is; -1 where all are null."""
    positions = np.full(len(starts), -1, np.int64)
    everything = len(valid) == 0
    for i in range(len(starts)):
        best = -1
        for at in range(starts[i] - low, ends[i] - low):
            if (everything or valid[at]) and (
                best < 0 or (values[at] < values[best] if sign > 0 else values[at] > values[best])
            ):
                best = at
        positions[i] = best if best < 0 else best + low
    return positions


@compiled
def count_before(times: Times, starts: Index, ends: Index, moment: int) -> int:
    """Return how many positions in ranges of rising times are before a moment."""
    total = 0
    for i in range(len(starts)):
        at = starts[i]
        while at < ends[i] and times[at] < moment:
            at += 1
        total += at - starts[i]
    return total


def whole_sums(values: Index, starts: Index, past: Index) -> Index:
    """Return the sum of whole numbers over each range, as a difference of running sums."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    sums: Index = running[past] - running[starts]
    return sums
