"""Compiled kernels of the join: sort rows by (hash, time), find each probe row's matches, expand the pairs.

A run's *directory* cuts its sorted hashes by their top bits: the rows of hash h lie in
``[directory[h >> shift], directory[(h >> shift) + 1])``, a handful of rows unless a key is hot. One
look-up replaces a binary search over the whole run.

Its *filter* has one byte per directory entry and one bit per eighth of it, set where a hash falls. It is an
eighth of the directory's and the hashes' size, so that a probe that finds nothing, in a window of many runs
almost every one, costs no access to memory outside the caches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled

Words = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Directory = npt.NDArray[np.int32]
Filter = npt.NDArray[np.uint8]

_SMALL = 24  # below this, insertion sort and linear search win


def directory_shift(rows: int) -> int:
    """Return the shift that leaves at most one row per directory entry on average: half are empty, and say so."""
    bits = max(1, min(22, int(rows).bit_length()))
    return 64 - bits


@compiled
def build_directory(hashes: Words, shift: int) -> Directory:
    """Return the directory of hashes, sorted or not."""
    size = 1 << (64 - shift)
    directory = np.zeros(size + 1, np.int32)
    for h in hashes:
        directory[np.int64(h >> np.uint64(shift)) + 1] += 1
    for b in range(size):
        directory[b + 1] += directory[b]
    return directory


@compiled
def build_filter(hashes: Words, shift: int) -> Filter:
    """Return the filter of hashes."""
    filter_ = np.zeros(1 << (64 - shift), np.uint8)
    for h in hashes:
        bit = (h >> np.uint64(shift - 3)) & np.uint64(7)
        filter_[np.int64(h >> np.uint64(shift))] |= np.uint8(1 << bit)
    return filter_


@compiled
def _insertion_sort(order: Index, hashes: Words, times: Times, start: int, end: int) -> None:
    for i in range(start + 1, end):
        row = order[i]
        h, t = hashes[row], times[row]
        j = i
        while j > start:
            before = order[j - 1]
            if hashes[before] < h or (hashes[before] == h and times[before] <= t):
                break
            order[j] = before
            j -= 1
        order[j] = row


@compiled
def _merge_sort(order: Index, hashes: Words, times: Times, start: int, end: int) -> None:
    """Sort a long range, bottom up; runs that are in order already, as a hot key's often are, only get checked.

    Written out because numba's own argsort takes five seconds to compile.
    """
    spare = np.empty(end - start, np.int64)
    width = _SMALL
    for low in range(start, end, width):
        _insertion_sort(order, hashes, times, low, min(low + width, end))
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            if middle == high:
                continue
            a, b = order[middle - 1], order[middle]
            if hashes[a] < hashes[b] or (hashes[a] == hashes[b] and times[a] <= times[b]):
                continue
            i, j, k = low, middle, 0
            while i < middle and j < high:
                a, b = order[i], order[j]
                if hashes[a] < hashes[b] or (hashes[a] == hashes[b] and times[a] <= times[b]):
                    spare[k] = a
                    i += 1
                else:
                    spare[k] = b
                    j += 1
                k += 1
            while i < middle:
                spare[k] = order[i]
                i += 1
                k += 1
            # What is left of the right half is in place already.
            for m in range(k):
                order[low + m] = spare[m]
        width *= 2


@compiled
def sort_order(hashes: Words, times: Times, directory: Directory, shift: int) -> Index:
    """Return the stable order by (hash, time): a counting sort into directory entries, each then sorted."""
    n = len(hashes)
    order = np.empty(n, np.int64)
    at = directory[:-1].copy()
    for i in range(n):
        b = np.int64(hashes[i] >> np.uint64(shift))
        order[at[b]] = i
        at[b] += 1
    for entry in range(len(directory) - 1):
        start, end = directory[entry], directory[entry + 1]
        if end - start <= _SMALL:
            _insertion_sort(order, hashes, times, start, end)
        else:
            _merge_sort(order, hashes, times, start, end)
    return order


@compiled
def first_at_least(sorted_: Words | Times, start: int, end: int, value: int | np.uint64) -> int:
    """Return the first position in a sorted range that holds at least the value."""
    if end - start <= _SMALL:
        while start < end and sorted_[start] < value:
            start += 1
        return start
    while start < end:
        middle = (start + end) >> 1
        if sorted_[middle] < value:
            start = middle + 1
        else:
            end = middle
    return start


@compiled
def saturated(time: int, delta: int) -> int:
    """Add without leaving int64."""
    if delta > 0 and time > np.int64(0x7FFFFFFFFFFFFFFF) - delta:
        return 0x7FFFFFFFFFFFFFFF
    if delta < 0 and time < np.int64(-0x8000000000000000) - delta:
        return -0x8000000000000000
    return time + delta


@compiled
def match_ranges(
    probe_hashes: Words,
    probe_times: Times,
    hashes: Words,
    times: Times,
    directory: Directory,
    filter_: Filter,
    shift: int,
    low: int,
    high: int,
    rows: Index,
    starts: Index,
    ends: Index,
) -> int:
    """Write the probe rows with matches to `rows`, their first match to `starts`, the matches so far to `ends`.

    A match has the probe's hash and a time from t + low to t + high. Both sides are sorted by (hash, time),
    so probe rows of one key share the search for that key. Returns the number of probe rows with matches.
    """
    # Passes that only gather let the processor overlap its cache misses; in one loop each would wait for the
    # search before it (212 against 346 us a call, 10,000 rows probing large runs).
    candidates = 0
    for i in range(len(probe_hashes)):
        h = probe_hashes[i]
        byte = filter_[np.int64(h >> np.uint64(shift))]
        bit = (h >> np.uint64(shift - 3)) & np.uint64(7)
        rows[candidates] = i
        candidates += int((byte >> bit) & np.uint64(1))
    for c in range(candidates):
        b = np.int64(probe_hashes[rows[c]] >> np.uint64(shift))
        starts[c] = directory[b]
        ends[c] = directory[b + 1]
    firsts = np.empty(candidates, np.uint64)
    for c in range(candidates):
        firsts[c] = hashes[starts[c]]
    likely = 0
    for c in range(candidates):
        if firsts[c] <= probe_hashes[rows[c]]:
            rows[likely] = rows[c]
            starts[likely] = starts[c]
            ends[likely] = ends[c]
            likely += 1
    found = 0
    total = 0
    from_, to = 0, 0
    before = np.uint64(0)
    for c in range(likely):
        row = rows[c]
        h = probe_hashes[row]
        if c == 0 or h != before:
            end = ends[c]
            from_ = first_at_least(hashes, starts[c], end, h)
            to = from_
            if from_ < end and hashes[from_] == h:
                if h == np.uint64(0xFFFFFFFFFFFFFFFF):
                    to = end
                else:
                    to = first_at_least(hashes, from_ + 1, end, h + np.uint64(1))
            before = h
        if from_ < to:
            first = first_at_least(times, from_, to, saturated(probe_times[row], low))
            last = saturated(probe_times[row], high)
            past = to if last == np.int64(0x7FFFFFFFFFFFFFFF) else first_at_least(times, first, to, last + 1)
            if past > first:
                total += past - first
                rows[found] = row
                starts[found] = first
                ends[found] = total
                found += 1
    return found


@compiled
def expand_pairs(rows: Index, starts: Index, ends: Index, first: int, probe: Index, stored: Index) -> None:
    """Write the pairs numbered first, first + 1, ... as positions in the probe rows and in the run."""
    i = np.searchsorted(ends, first, side="right")
    before = ends[i - 1] if i > 0 else 0
    at = starts[i] + (first - before)
    for k in range(len(probe)):
        while first + k >= ends[i]:
            i += 1
            at = starts[i]
        probe[k] = rows[i]
        stored[k] = at
        at += 1
