"""How often each key has occurred in each stream, for PROB: exact in a bounded table, or in a count-min sketch.

The table is exact until it is full of different keys (`count_keys`). Then all counts are halved, and keys that reach
zero are removed, until the table is at most half full. The frequent keys are left, and recent occurrences have more
weight than old ones.

The sketch (Cormode and Muthukrishnan, 2005) never removes occurrences and never counts too low.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled, in_place
from braided.eviction.key_index import home
from braided.eviction.records import SPREAD, Ints, Records, UInt64s
from braided.routing.hash_kernels import mix

SKETCH_ROWS = 4


@in_place
def is_free(counts: Ints, at: int) -> bool:
    """Return whether a place has no key, because all its counts are 0."""
    total = 0
    for s in range(counts.shape[1]):
        total += counts[at, s]
    return total == 0


@in_place
def place_of(count_key: UInt64s, counts: Ints, key: np.uint64) -> int:
    """Return the place of a key, or the free place for it."""
    size = len(count_key)
    at = home(key, size)
    while count_key[at] != key and not is_free(counts, at):
        at = (at + 1) & (size - 1)
    return at


@in_place
def count_in_table(head: Records, count_key: UInt64s, counts: Ints, key: np.uint64, stream: int) -> bool:
    """Count one occurrence; return whether other counts were halved, so that credits must be read again."""
    at, fallen = _place_for(head, count_key, counts, key)
    counts[at, stream] += 1
    return fallen


@in_place
def _place_for(head: Records, count_key: UInt64s, counts: Ints, key: np.uint64) -> tuple[int, bool]:
    """Return the place of a key, which is added if it is new, and whether counts were halved for it."""
    at = place_of(count_key, counts, key)
    fallen = False
    if is_free(counts, at):
        if head[0].keys >= len(count_key) // 2:
            head[0].keys = _halve(count_key, counts)
            fallen = True
            at = place_of(count_key, counts, key)
        count_key[at] = key
        head[0].keys += 1
    return at, fallen


@in_place
def _halve(count_key: UInt64s, counts: Ints) -> int:
    """Halve all counts until at most a quarter of the table is used; return the number of keys left."""
    used = len(count_key)
    while used > len(count_key) // 4:
        used = 0
        for at in range(len(count_key)):
            for s in range(counts.shape[1]):
                counts[at, s] >>= 1
            used += 0 if is_free(counts, at) else 1
    return repack(count_key, counts)


@compiled
def repack(count_key: UInt64s, counts: Ints) -> int:
    """Remove keys with counts of zero, and put the others into their places; return their number."""
    used = 0
    for at in range(len(count_key)):
        used += 0 if is_free(counts, at) else 1
    left_key = np.empty(used, np.uint64)
    left = np.empty((used, counts.shape[1]), np.int64)
    n = 0
    for at in range(len(count_key)):
        if not is_free(counts, at):
            left_key[n] = count_key[at]
            for s in range(counts.shape[1]):
                left[n, s] = counts[at, s]
                counts[at, s] = 0
            n += 1
        count_key[at] = 0
    # The place of a key has no effect on results, so any order is correct.
    for i in range(used):
        at = place_of(count_key, counts, left_key[i])
        count_key[at] = left_key[i]
        for s in range(counts.shape[1]):
            counts[at, s] = left[i, s]
    return used


@in_place
def _column(key: np.uint64, row: int, width: int) -> int:
    return int(np.int64(mix(key + np.uint64(row + 1) * SPREAD) >> np.uint64(20))) % width


@in_place
def count_in_sketch(sketch: Ints, key: np.uint64, stream: int) -> None:
    """Count one occurrence in a sketch (stream, row, column)."""
    for r in range(SKETCH_ROWS):
        sketch[stream, r, _column(key, r, sketch.shape[2])] += 1


@in_place
def count_of_sketch(sketch: Ints, key: np.uint64, stream: int) -> int:
    """Return how often the key has occurred in a stream; this may be too high."""
    least = sketch[stream, 0, _column(key, 0, sketch.shape[2])]
    for r in range(1, SKETCH_ROWS):
        least = min(least, sketch[stream, r, _column(key, r, sketch.shape[2])])
    return int(least)
