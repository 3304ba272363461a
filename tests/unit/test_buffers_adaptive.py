"""Buffers that tune themselves: they follow the best candidate, and neither cuts nor restarts change anything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import BraidedError
from braided.eviction.buffer import Buffer, Events, sorted_events
from braided.eviction.policies.age import AGE
from braided.eviction.policies.auto import AUTO
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.eviction.policies.recent import RECENT
from braided.eviction.tuning.adaptive import AdaptiveBuffer, buffer_from_bytes, make_buffer
from braided.eviction.tuning.switch import switched
from braided.routing.hash_kernels import mix
from braided.sim.gdj.zipf_pareto import zipf_pareto


def events_of(rows, domain, pareto, seed=1):
    table = zipf_pareto(rows=rows, rate=1000, domain=domain, pareto=pareto, streams=2, seed=seed)
    with np.errstate(over="ignore"):
        keys = mix.py_func(table["key"].to_numpy().astype(np.uint64) + np.uint64(1))
    contents = np.random.default_rng(seed).permutation(rows).astype(np.uint64)
    return sorted_events(
        Events(keys, table["time"].cast("int64").to_numpy(), table["stream"].to_numpy(), contents, np.arange(rows))
    )


def exact_count(events, window):
    return Buffer(len(events.keys), FIFO(), window=window).count(events)


WINDOW = (-4_000_000, 4_000_000)


@pytest.mark.parametrize("pareto", [None, 0.6])
def test_a_tuned_initial_credit_is_near_the_best_fixed_one(pareto):
    events = events_of(60_000, 1000, pareto)
    fixed = [Buffer(800, GDJ(initial=p), window=WINDOW).count(events) for p in (0.0, 0.1, 0.2, 0.5, 0.9, 0.99)]
    tuned = make_buffer(800, GDJ(initial="auto"), window=WINDOW).count(events)
    assert tuned >= 0.97 * max(fixed)
    assert min(fixed) < 0.8 * max(fixed)  # there was something to tune


@pytest.mark.parametrize("pareto", [None, 0.6])
def test_auto_is_near_the_best_policy(pareto):
    events = events_of(60_000, 1000, pareto)
    single = [Buffer(800, p, window=WINDOW).count(events) for p in (GDJ(initial=0.2), PROB(), AGE(), FIFO(), RAND())]
    auto = AdaptiveBuffer(800, AUTO(), window=WINDOW)
    assert auto.count(events) >= 0.98 * max(single)
    assert auto.rows <= 800


def test_auto_leaves_recent_where_rows_match_at_an_age():
    """Every key comes once in each stream, the second time when most of the window has passed."""
    n = 40_000
    rng = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        keys = mix.py_func(np.arange(1, n + 1, dtype=np.uint64))
    first = np.arange(n) * 1000
    second = first + rng.integers(2_000_000, 3_600_000, n)
    events = sorted_events(
        Events(
            np.tile(keys, 2),
            np.concatenate([first, second]),
            np.repeat(np.array([0, 1], np.int8), n),
            np.tile(keys, 2),
            np.arange(2 * n),
        )
    )
    counts = {p: Buffer(1600, p, window=WINDOW).count(events) for p in (RECENT(), AGE(), RAND(), FIFO())}
    best = max(counts.values())
    assert counts[RECENT()] < 0.5 * best
    auto = AdaptiveBuffer(1600, AUTO(), window=WINDOW)
    assert auto.count(events) >= 0.7 * best
    assert not isinstance(auto.following, RECENT)


@pytest.mark.parametrize("policy", [GDJ(), AUTO(sample=2)], ids=str)
@pytest.mark.parametrize("share", ["unified", "proportional"])
@settings(max_examples=examples(8, quick=2), deadline=None)
@given(cuts=st.lists(st.integers(0, 12_000), max_size=6), restart=st.integers(0, 6), room=st.integers(3, 400))
def test_cuts_and_restarts_change_nothing(policy, share, cuts, restart, room):
    events = events_of(12_000, 60, 0.7)
    whole = AdaptiveBuffer(100, policy, window=(-500_000, 500_000), share=share)
    expected = whole.run(events)
    buffer = AdaptiveBuffer(100, policy, window=(-500_000, 500_000), share=share)
    edges = sorted({0, 12_000, *cuts})
    rows, drops = [], []
    for i, (start, end) in enumerate(itertools.pairwise(edges)):
        result = buffer.run(events.part(start, end), room=room)
        rows += list(zip((result.pair_event + start).tolist(), result.pair_row.tolist(), strict=True))
        drops += result.dropped_row.tolist()
        if i == restart:
            buffer = buffer_from_bytes(buffer.to_bytes(), policy)
    assert rows == list(zip(expected.pair_event.tolist(), expected.pair_row.tolist(), strict=True))
    assert drops == expected.dropped_row.tolist()
    assert buffer.to_bytes() == whole.to_bytes()


POLICIES = [RAND(), FIFO(), RECENT(), AGE(), GDJ(initial=0.5)]


@pytest.mark.parametrize("first", POLICIES, ids=str)
@pytest.mark.parametrize("second", POLICIES, ids=str)
def test_a_switch_keeps_rows_and_totals_and_never_a_wrong_pair(first, second):
    events = events_of(3000, 60, 0.7)
    window = (-500_000, 500_000)
    before, recent, shadow = (Buffer(100, p, window=window) for p in (first, RECENT(), second))
    result = before.run(events.part(0, 1500))
    for other in (recent, shadow):
        other.run(events.part(0, 1500))
    after = switched(before, second, counts=recent.learned, shadow=shadow.learned, now=int(events.times[1499]))
    assert after.rows == before.rows
    assert after.counts == before.counts
    later = after.run(events.part(1500, 3000))
    pairs = list(zip(result.pair_event.tolist(), result.pair_row.tolist(), strict=True))
    pairs += list(zip((later.pair_event + 1500).tolist(), later.pair_row.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    at = {int(row): i for i, row in enumerate(events.rows)}
    for event, row in pairs:
        stored = at[row]
        assert stored < event
        assert events.keys[stored] == events.keys[event]
        assert events.streams[stored] != events.streams[event]
        assert events.times[event] - events.times[stored] <= 500_000
    assert after.rows <= 100


def test_damaged_bytes_are_refused():
    buffer = AdaptiveBuffer(50, AUTO(), window=(-500_000, 500_000))
    buffer.count(events_of(1000, 60, 0.7))
    saved = buffer.to_bytes()
    for at in range(0, len(saved), 97):
        damaged = saved[:at] + bytes([saved[at] ^ 1]) + saved[at + 1 :]
        with pytest.raises(BraidedError, match="buffer: "):
            AdaptiveBuffer.from_bytes(damaged, AUTO())
        with pytest.raises(BraidedError, match="buffer: "):
            AdaptiveBuffer.from_bytes(saved[:at], AUTO())


def test_a_policy_with_nothing_to_tune_needs_no_adaptive_buffer():
    with pytest.raises(BraidedError, match="this policy has no tuner; use Buffer"):
        AdaptiveBuffer(10, FIFO(), window=(-1, 1))


@pytest.mark.parametrize("policy", [AUTO(), GDJ()], ids=str)
def test_what_is_saved_beside_the_rows_is_at_most_16_bytes_a_row(policy):
    """Keys that hardly ever come back are the most to count."""
    n, capacity = 200_000, 20_000
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        keys = mix.py_func(rng.integers(1, 1_000_000, n).astype(np.uint64))
    events = Events(keys, np.arange(n) * 100, rng.integers(0, 2, n).astype(np.int8), keys, np.arange(n))
    buffer = AdaptiveBuffer(capacity, policy, window=(-10_000_000, 10_000_000))
    for at in range(0, n, 10_000):
        buffer.count(events.part(at, at + 10_000))
        buffer.main.rows_elsewhere = True
        assert len(buffer.to_bytes()) <= 16 * capacity


def test_a_trial_is_one_shadow_that_goes_again_and_ends_where_rows_only_probe():
    events = events_of(20_480, 60, 0.7)
    buffer = AdaptiveBuffer(100, GDJ(), window=(-500_000, 500_000))
    shadows = []
    for at in range(0, 20_480, 512):
        buffer.count(events.part(at, at + 512))
        shadows.append(buffer.tuner.shadow is not None)
    assert set(shadows) == {True, False}
    again = AdaptiveBuffer(100, GDJ(), window=(-500_000, 500_000))
    again.count(events.part(0, 5120))
    assert again.tuner.shadow is not None
    again.main.set_facts(probes=np.ones(20_480, np.int8))
    again.count(events.part(5120, 5632))
    assert again.tuner.shadow is None
