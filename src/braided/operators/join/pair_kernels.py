"""Compiled kernels of the join: find each probe row's matches, expand the pairs.

A run's *directory* (`braided.routing.sorting`) says where hashes begin. One look-up replaces a binary search over the
whole run.

Its *filter* has one byte per directory entry and one bit per eighth of an entry, set if a hash falls into it. Its size
is an eighth of that of the directory and the hashes. So a probe that finds nothing, which in a window of many runs is
almost every probe, does not access memory outside the caches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.routing.sorting import SMALL

UInt64s = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Directory = npt.NDArray[np.int32]
Filter = npt.NDArray[np.uint8]


@compiled
def build_filter(hashes: UInt64s, shift: int) -> Filter:
    filter_ = np.zeros(1 << (64 - shift), np.uint8)
    for h in hashes:
        bit = (h >> np.uint64(shift - 3)) & np.uint64(7)
        filter_[np.int64(h >> np.uint64(shift))] |= np.uint8(1 << bit)
    return filter_


@compiled
def first_at_least(sorted_: UInt64s | Times, start: int, end: int, value: int | np.uint64) -> int:
    """Return the first position in a sorted range that holds at least the value."""
    if end - start <= SMALL:
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
    probe_hashes: UInt64s,
    probe_times: Times,
    hashes: UInt64s,
    times: Times,
    directory: Directory,
    filter_: Filter,
    shift: int,
    low: int,
    high: int,
    any_time: bool,
    rows: Index,
    starts: Index,
    ends: Index,
) -> int:
    """Write the probe rows with matches to `rows`, their first match to `starts`, the matches so far to `ends`.

    A match has the probe's hash and a time from t + low to t + high. With `any_time` times are not compared. Both sides
    are sorted by (hash, time), so probe rows of one key share the search for that key. Returns the number of probe rows
    with matches.
    """
    # Passes that only gather let the processor overlap its cache misses; in one loop each miss would wait for the
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
    count = 0
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
            first, past = from_, to
            if not any_time:
                first = first_at_least(times, from_, to, saturated(probe_times[row], low))
                last = saturated(probe_times[row], high)
                past = to if last == np.int64(0x7FFFFFFFFFFFFFFF) else first_at_least(times, first, to, last + 1)
            if past > first:
                total += past - first
                rows[count] = row
                starts[count] = first
                ends[count] = total
                count += 1
    return count


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
