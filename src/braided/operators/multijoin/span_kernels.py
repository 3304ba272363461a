"""Compiled kernels of the join of many streams: match partial combinations with a run, and narrow their time range.

A *partial combination* has a row of some streams. A row of the next stream fits if its time is from `first`, the
latest time so far less the window, to `last`, the earliest plus the window.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.operators.join.pair_kernels import Directory, Filter, Index, Times, UInt64s, first_at_least, saturated


@compiled
def time_ranges(times: Times, within: int) -> tuple[Times, Times]:
    """Return (first, last) of combinations that have one row each."""
    first, last = np.empty_like(times), np.empty_like(times)
    for i in range(len(times)):
        first[i] = saturated(times[i], -within)
        last[i] = saturated(times[i], within)
    return first, last


@compiled
def narrowed(first: Times, last: Times, rows: Index, times: Times, within: int) -> tuple[Times, Times]:
    """Return (first, last) of the combinations at `rows`, each with a further row of the given time."""
    new_first, new_last = np.empty_like(times), np.empty_like(times)
    for k in range(len(rows)):
        new_first[k] = max(first[rows[k]], saturated(times[k], -within))
        new_last[k] = min(last[rows[k]], saturated(times[k], within))
    return new_first, new_last


@compiled
def match_spans(
    probe_hashes: UInt64s,
    probe_first: Times,
    probe_last: Times,
    hashes: UInt64s,
    times: Times,
    directory: Directory,
    filter_: Filter,
    shift: int,
    rows: Index,
    starts: Index,
    counts: Index,
) -> int:
    """Write the combinations with matches in a run to `rows`, their first match to `starts`, their number to `counts`.

    A match has the combination's hash and a time from its first to its last. Both are sorted by hash, so that
    combinations of one key share the search for it. Returns the number of combinations with matches.
    """
    count = 0
    from_, to = 0, 0
    before = np.uint64(0)
    for i in range(len(probe_hashes)):
        h = probe_hashes[i]
        if i == 0 or h != before:
            before = h
            from_ = to = 0
            b = np.int64(h >> np.uint64(shift))
            bit = (h >> np.uint64(shift - 3)) & np.uint64(7)
            if (filter_[b] >> bit) & np.uint64(1):
                end = directory[b + 1]
                from_ = first_at_least(hashes, directory[b], end, h)
                to = from_
                if from_ < end and hashes[from_] == h:
                    if h == np.uint64(0xFFFFFFFFFFFFFFFF):
                        to = end
                    else:
                        to = first_at_least(hashes, from_ + 1, end, h + np.uint64(1))
        if from_ < to:
            start = first_at_least(times, from_, to, probe_first[i])
            last = probe_last[i]
            past = to if last == np.int64(0x7FFFFFFFFFFFFFFF) else first_at_least(times, start, to, last + 1)
            if past > start:
                rows[count] = i
                starts[count] = start
                counts[count] = past - start
                count += 1
    return count
