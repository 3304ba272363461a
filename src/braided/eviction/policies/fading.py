r"""How often each key has occurred recently, in three memories, for RECENT.

The weight of an occurrence halves with every half-life. The half-lives are a 128th and a 16th of the window, and four
windows::

    weight of an occurrence| \
                           |  \_           the sum of three memories, each with its half-life:
                           |    \______    close to 1 / age
                           +-----------

Counts are not changed as time passes: instead, later occurrences get a larger weight (`weight_at`), and once in
FADE_STEPS half-lives all counts are scaled down. The clock is updated only from time to time, and between two updates
counts only rise. All numbers are integers or quotients of integers, so they are the same on every machine.

Only some bits of a key's hash are used, so at most one key of 500 shares its count with another, and a saved key takes
about 2 bytes. If there are more keys than places, the quarter with the smallest counts in the longest memory is
removed. With as many places as rows, this has as many results as PROB with four times as many, and up to 15% more.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled, in_place
from braided.eviction.policies.counts import is_free, place_of, repack
from braided.eviction.policies.percentiles import select
from braided.eviction.records import Ints, Reals, Records, UInt64s

SCALES = 3
FADE_STEPS = 8
_LEAST = 32  # the weight of an occurrence right after counts were scaled down


@in_place
def half_life(span: int, scale: int) -> int:
    """Return a half-life of a window of `span` microseconds."""
    return max(1, span // 128) if scale == 0 else max(1, span // 16) if scale == 1 else 4 * max(1, span)


@in_place
def weight_at(time: int, half: int) -> int:
    """Return the weight of an occurrence: it begins with _LEAST and doubles with each half-life, linear in between."""
    within = time % (FADE_STEPS * half)
    whole = _LEAST << (within // half)
    return int(whole + int(float(whole) * (float(within % half) / float(half))))


@in_place
def look_at_clock(head: Records, count_key: UInt64s, counts: Ints, span: int, time: int) -> None:
    """Update the clock; scale down the counts of each memory after every FADE_STEPS half-lives."""
    if head[0].looked:
        emptied = False
        for j in range(SCALES):
            stretch = FADE_STEPS * half_life(span, j)
            passed = time // stretch - head[0].time // stretch
            if passed > 0:
                for at in range(len(count_key)):
                    for c in range(j, counts.shape[1], SCALES):
                        if counts[at, c] > 0:
                            counts[at, c] >>= min(62, FADE_STEPS * passed)
                            emptied = emptied or (counts[at, c] == 0 and is_free(counts, at))
        if emptied:
            head[0].keys = repack(count_key, counts)
    head[0].time, head[0].looked = time, 1


@in_place
def set_weights(weights: Ints, factors: Reals, span: int, only_long: int, time: int) -> None:
    """Set, for each memory, the weight of an occurrence now, and the factor from a count to occurrences per window.

    With `only_long`, only the longest memory has a factor above 0.
    """
    for j in range(len(weights)):
        half = half_life(span, j)
        weights[j] = weight_at(time, half)
        factors[j] = float(span) / float(half) / float(weights[j]) / SCALES
        if only_long:
            factors[j] *= SCALES if j == SCALES - 1 else 0


@in_place
def note_occurrence(
    head: Records, count_key: UInt64s, counts: Ints, weights: Ints, most: int, key: np.uint64, stream: int
) -> bool:
    """Count one occurrence; return whether other keys were removed for it, because there were `most` keys."""
    at = place_of(count_key, counts, key)
    forgotten = False
    if is_free(counts, at):
        if head[0].keys >= most:
            head[0].keys = _forget(count_key, counts, head[0].keys)
            forgotten = True
            at = place_of(count_key, counts, key)
        count_key[at] = key
        head[0].keys += 1
    for j in range(SCALES):
        counts[at, stream * SCALES + j] += weights[j]
    return forgotten


@compiled
def _forget(count_key: UInt64s, counts: Ints, used: int) -> int:
    """Remove the quarter of the keys with the smallest counts in the longest memory; return the number of keys left."""
    seen = np.zeros(len(count_key), np.float64)
    values = np.empty(used, np.float64)
    n = 0
    for at in range(len(count_key)):
        for c in range(SCALES - 1, counts.shape[1], SCALES):
            seen[at] += float(counts[at, c])
        if not is_free(counts, at):
            values[n] = seen[at]
            n += 1
    least = select(values, n, n // 4)
    for at in range(len(count_key)):
        if seen[at] <= least:
            counts[at, :] = 0
    return repack(count_key, counts)
