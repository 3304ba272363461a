"""The clairvoyant policy: it knows all future matches and keeps the best rows. It is the upper limit for policies.

For benchmarks only. The matches of a stored row depend only on the events, not on other stored rows. So keeping a row
from its event to one of its matches has a known gain and a known cost: the number of events times one place.
Of each row the concave hull of matches over events is cut into segments of falling density::

    matches |        ___x         segments of one row: (1 match, 2 events), (2, 6), ...
            |   __x~~             a segment is worth taking only after those before it
            | x~
            +-------------- events since the row came

Segments of all rows are taken by density, while their places are free. This plan is nearly optimal: `limit` is a bound
that no policy can exceed, the value of the plan if every place had the same price (a Lagrange bound).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled, in_place
from braided.eviction.buffer import Events
from braided.eviction.policies.hooks import Hooks
from braided.eviction.policies.policy import Policy
from braided.eviction.records import Ints, Reals, State

Flags = npt.NDArray[np.bool_]


@in_place
def _newcomer(
    state: State, learned: Any, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    return hint, min(hint, float(state.totals[0].events))


@dataclass(frozen=True, kw_only=True, repr=False)
class Clairvoyant(Policy):
    """Keep each row until the event in its `hints`, counted from the buffer's first (see `foresee`).

    >>> Clairvoyant().hinted
    True
    """

    name = "clairvoyant"

    @property
    def hooks(self) -> Hooks:
        """Use a row's hint as its credit."""
        return Hooks(newcomer=_newcomer)

    @property
    def hinted(self) -> bool:
        """The hints have the future."""
        return True


@dataclass(frozen=True)
class Future:
    """A plan for a whole stream: the hints for `Clairvoyant`, its number of pairs, and an upper bound for any plan."""

    hints: Reals
    pairs: int
    limit: float
    exact: int


def foresee(events: Events, *, capacity: int, window: tuple[int, int], streams: int = 2) -> Future:
    """Plan which rows of a stream to keep and for how long, with one unified buffer.

    Cost: about 20 ns per pair of the exact join and 1 us per segment; 32 bytes per segment.

    >>> keys = np.array([1, 2, 2, 2, 1], np.uint64)
    >>> events = Events(keys, np.arange(5), np.array([0, 0, 1, 1, 1], np.int8), keys, np.arange(5))
    >>> future = foresee(events, capacity=1, window=(-9, 9))
    >>> future.pairs, future.exact, future.hints.tolist()
    (2, 3, [0.0, 3.0, 2.0, 3.0, 4.0])
    """
    lo, hi = window
    ages = np.array([(lo, hi), (-hi, -lo)] if streams == 2 else [(lo, hi)] * streams, np.int64)
    codes = np.unique(events.keys, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    starts = np.searchsorted(codes[order], np.arange(codes.max(initial=-1) + 2)).astype(np.int64)
    longest = int(np.max(np.diff(starts), initial=0)) + 1
    stream_of = events.streams.astype(np.int64)
    arguments = (codes, order, starts, events.times, stream_of, ages, longest)
    nothing = np.empty((0, 4), np.int64)
    n, exact = _segments(*arguments, nothing)
    segments = np.empty((n, 4), np.int64)
    _segments(*arguments, segments)
    density = segments[:, 3] / (segments[:, 2] - segments[:, 1])
    # A row's own segments have falling density, and a stable sort keeps their order if rounding makes them equal.
    ranking = np.argsort(-density, kind="stable")
    segments, density = segments[ranking], density[ranking]
    until = np.arange(len(codes), dtype=np.int64)
    pairs = _take(segments, until, capacity, codes, order, starts, events.times, stream_of, ages)
    length, gain = segments[:, 2] - segments[:, 1], segments[:, 3]
    room = capacity * len(codes)
    last = int(np.searchsorted(np.cumsum(length), room))
    price = float(density[last]) if last < len(density) else 0.0
    limit = float(np.sum(gain[:last] - price * length[:last]) + price * room)
    return Future(until.astype(np.float64), int(pairs), min(limit, float(exact)), int(exact))


@compiled
def _segments(
    codes: Ints, order: Ints, starts: Ints, times: Ints, streams: Ints, ages: Ints, longest: int, out: Ints
) -> tuple[int, int]:
    """Write (row, from event, to event, matches) per segment of each row's hull; return their number and all matches.

    With an empty `out` it only counts.
    """
    at = np.empty(longest + 1, np.int64)
    matches = np.empty(longest + 1, np.int64)
    n, exact = 0, 0
    for c in range(len(starts) - 1):
        for a in range(starts[c], starts[c + 1]):
            i = order[a]
            soonest, retention = ages[streams[i]]
            at[0], matches[0] = i, 0
            top, found = 0, 0
            for b in range(a + 1, starts[c + 1]):
                j = order[b]
                age = times[j] - times[i]
                if age > retention:
                    break
                if streams[j] == streams[i] or age < soonest:
                    continue
                found += 1
                while top > 0 and (found - matches[top]) * (at[top] - at[top - 1]) >= (
                    matches[top] - matches[top - 1]
                ) * (j - at[top]):
                    top -= 1
                top += 1
                at[top], matches[top] = j, found
            exact += found
            for k in range(top):
                if len(out):
                    out[n, 0] = i
                    out[n, 1] = at[k]
                    out[n, 2] = at[k + 1]
                    out[n, 3] = matches[k + 1] - matches[k]
                n += 1
    return n, exact


@compiled
def _take(
    segments: Ints,
    until: Ints,
    capacity: int,
    codes: Ints,
    order: Ints,
    starts: Ints,
    times: Ints,
    streams: Ints,
    ages: Ints,
) -> int:
    """Take segments in order while all their places are free; a tree has the most used places per range.

    A second pass fills the rest: of segments that did not fit, it takes the matches before the buffer is full.
    """
    size = 1
    while size < len(until):
        size *= 2
    fullest = np.zeros(2 * size, np.int64)
    added = np.zeros(2 * size, np.int64)
    pairs = 0
    for k in range(len(segments)):
        row, start, end = segments[k, 0], segments[k, 1], segments[k, 2]
        if until[row] == start and _fullest(fullest, added, size, start, end) < capacity:
            _add(fullest, added, size, start, end)
            until[row] = end
            pairs += segments[k, 3]
    place = np.empty(len(until), np.int64)
    for a in range(len(order)):
        place[order[a]] = a
    for k in range(len(segments)):
        row = segments[k, 0]
        if until[row] != segments[k, 1]:
            continue
        soonest, retention = ages[streams[row]]
        for b in range(place[until[row]] + 1, starts[codes[row] + 1]):
            j = order[b]
            if j > segments[k, 2] or times[j] - times[row] > retention:
                break
            if streams[j] == streams[row] or times[j] - times[row] < soonest:
                continue
            if _fullest(fullest, added, size, until[row], j) >= capacity:
                break
            _add(fullest, added, size, until[row], j)
            until[row] = j
            pairs += 1
    return pairs


@compiled
def _fullest(fullest: Ints, added: Ints, size: int, start: int, end: int) -> int:
    """Return the most places in use at an event in [start, end)."""
    low, high = start + size, end - 1 + size
    left, right = fullest[low], fullest[high]
    while low >> 1 != high >> 1:
        if low & 1 == 0:
            left = max(left, fullest[low + 1])
        if high & 1 == 1:
            right = max(right, fullest[high - 1])
        low >>= 1
        high >>= 1
        left += added[low]
        right += added[high]
    most = max(left, right)
    low >>= 1
    while low > 0:
        most += added[low]
        low >>= 1
    return int(most)


@compiled
def _add(fullest: Ints, added: Ints, size: int, start: int, end: int) -> None:
    """Use one more place at every event in [start, end)."""
    low, high = start + size, end - 1 + size
    fullest[low] += 1
    added[low] += 1
    if high != low:
        fullest[high] += 1
        added[high] += 1
    while low >> 1 != high >> 1:
        if low & 1 == 0:
            fullest[low + 1] += 1
            added[low + 1] += 1
        if high & 1 == 1:
            fullest[high - 1] += 1
            added[high - 1] += 1
        low >>= 1
        high >>= 1
        fullest[low] = max(fullest[2 * low], fullest[2 * low + 1]) + added[low]
        fullest[high] = max(fullest[2 * high], fullest[2 * high + 1]) + added[high]
    low >>= 1
    while low > 0:
        fullest[low] = max(fullest[2 * low], fullest[2 * low + 1]) + added[low]
        low >>= 1
