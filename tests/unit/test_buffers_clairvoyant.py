"""The clairvoyant gives what it planned, within its bound, and on tiny streams nearly the best there is."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.sim.gdj.clairvoyant import Clairvoyant, foresee


@st.composite
def tiny_streams(draw, most=40):
    n = draw(st.integers(1, most))
    keys = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), np.uint64)
    times = np.cumsum(np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int64))
    streams = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int8)
    return Events(keys, times, streams, np.arange(n, dtype=np.uint64), np.arange(n))


windows = st.sampled_from([(-5, 5), (0, 8), (-3, 9), (2, 6)])


@settings(max_examples=examples(100), deadline=None)
@given(events=tiny_streams(), capacity=st.integers(1, 6), window=windows)
def test_the_kernel_gives_what_was_planned_within_the_bound(events, capacity, window):
    future = foresee(events, capacity=capacity, window=window)
    got = Buffer(capacity, Clairvoyant(), window=window).count(events._replace(hints=future.hints))
    assert future.pairs <= got <= future.limit + 1e-6  # a row may find more while its place is not needed
    for policy in (FIFO(), RAND(), PROB(), GDJ(initial=0.5)):
        assert Buffer(capacity, policy, window=window).count(events) <= future.limit + 1e-6
    assert future.exact == Buffer(100, FIFO(), window=window).count(events)


def best_of_all(events, capacity, window):
    """Every choice of what to keep after every event."""
    lo, hi = window
    states = {frozenset(): 0}
    for i in range(len(events.keys)):
        after: dict[frozenset, int] = {}
        for kept, pairs in states.items():
            found = 0
            for j in kept:
                gap = events.times[i] - events.times[j]
                gap = gap if events.streams[i] == 1 else -gap
                found += events.keys[i] == events.keys[j] and events.streams[i] != events.streams[j] and lo <= gap <= hi
            rows = [*kept, i]
            for n in range(min(capacity, len(rows)) + 1):
                for choice in itertools.combinations(rows, n):
                    key = frozenset(choice)
                    after[key] = max(after.get(key, 0), pairs + int(found))
        states = after
    return max(states.values())


@settings(max_examples=examples(40), deadline=None)
@given(events=tiny_streams(most=9), capacity=st.integers(1, 2), window=windows)
def test_no_choice_passes_the_bound_and_the_plan_is_near_it(events, capacity, window):
    future = foresee(events, capacity=capacity, window=window)
    best = best_of_all(events, capacity, window)
    assert future.pairs <= best <= future.limit + 1e-6
    assert future.pairs >= 0.5 * best
