r"""How often each key was seen recently, over three memories at once, for RECENT.

An occurrence counts as one now and half as much a half-life later. The half-lives are a 128th and a 16th of the
window, and four windows::

    worth of an occurrence | \
                           |  \_           the sum of three halvings, each by its half-life:
                           |    \______    close to 1 / age
                           +-----------

Nothing is touched because time passes: later occurrences count more instead (`weight_at`), and once in FADE_STEPS
half-lives all counts are scaled down. Time stands still between two looks at the clock, so that counts only rise.
All numbers are whole, and quotients of whole numbers: the same on every machine.

A key is known by some bits of its hash, so that one key in 500 or fewer shares its count with another; saved, that is 2
bytes a key. Where there are more keys than room, the quarter that the longest memory has seen least is forgotten: with
room for as many keys as rows, that finds as much as PROB with four times the room, and up to 15% more.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled, in_place
from braided.eviction.policies.counts import is_free, place_of, repack
from braided.eviction.policies.percentiles import select
from braided.eviction.records import Ints, Reals, Records, UInt64s

SCALES = 3
FADE_STEPS = 8
_LEAST = 32  # an occurrence's weight right after counts were scaled down


@in_place
def half_life(span: int, scale: int) -> int:
    """Return a half-life of a window of `span` microseconds."""
    return max(1, span // 128) if scale == 0 else max(1, span // 16) if scale == 1 else 4 * max(1, span)


@in_place
def weight_at(time: int, half: int) -> int:
    """Return what an occurrence counts as, from _LEAST on: twice as much a half-life later, straight in between."""
    within = time % (FADE_STEPS * half)
    whole = _LEAST << (within // half)
    return int(whole + int(float(whole) * (float(within % half) / float(half))))


@in_place
def look_at_clock(head: Records, count_key: UInt64s, counts: Ints, span: int, time: int) -> None:
    """Let time pass up to now: scale down what has counted FADE_STEPS half-lives."""
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
    """Set what an occurrence counts as now, per memory, and what turns a count into occurrences per window.

    With `only_long`, the longest memory alone is worth something.
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
    """Count one occurrence; return whether keys were forgotten to make room for it, of which there is for `most`."""
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
    """Forget the quarter of the keys that the longest memory has seen least; return the keys left."""
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
