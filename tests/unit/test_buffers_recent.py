"""RECENT against a few plain lines; cuts and restarts; counts that fade, and stay bounded; what it is good for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import BraidedError
from braided.eviction.buffer import Buffer, Events, sorted_events
from braided.eviction.policies.fading import half_life, weight_at
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.recent import RECENT
from braided.eviction.stored_rows import row_keys, slots_by_age
from braided.routing.hash_kernels import mix
from braided.sim.gdj.zipf_pareto import zipf_pareto


class Reference:
    """RECENT in plain lists: counts per (key, stream, memory), scaled down by 2**8 every 8 half-lives."""

    def __init__(self, capacity, refresh, span, memory, most):
        self.memories = (2,) if memory == "long" else (0, 1, 2)
        self.capacity, self.refresh, self.span, self.most = capacity, refresh, span, most
        self.halves = [max(1, span // 128), max(1, span // 16), 4 * span]
        self.counts, self.rows, self.clock, self.events = {}, [], None, 0

    def weight(self, half):
        steps, rest = divmod(self.clock % (8 * half), half)
        whole = 32 * 2**steps
        return whole + int(whole * (rest / half))

    def worth(self, key, stream):
        total = 0.0
        for j in self.memories:
            half = self.halves[j]
            seen = sum(n[j] for (k, s), n in self.counts.items() if k == key and s != stream)
            total += seen * (self.span / half / self.weight(half) / 3 * (3 if self.memories == (2,) else 1))
        return total

    def forget(self, key):
        """Without room for a new key, drop the quarter that the longest memory has seen least."""
        known = {k for k, _ in self.counts}
        if key in known or len(known) < self.most:
            return
        seen = {k: sum(n[2] for (other, _), n in self.counts.items() if other == k) for k in known}
        least = sorted(seen.values())[len(seen) // 4]
        self.counts = {(k, s): n for (k, s), n in self.counts.items() if seen[k] > least}

    def event(self, key, time, stream, id):
        self.rows = [r for r in self.rows if time - r[1] <= self.span]
        matched = [r[3] for r in self.rows if r[0] == key and r[2] != stream]
        if self.events % self.refresh == 0:
            for n in self.counts.values():
                for j, half in enumerate(self.halves):
                    n[j] >>= 8 * (time // (8 * half) - self.clock // (8 * half))
            self.clock = time
            self.counts = {at: n for at, n in self.counts.items() if any(n)}
        self.forget(key)
        n = self.counts.setdefault((key, stream), [0, 0, 0])
        for j, half in enumerate(self.halves):
            n[j] += self.weight(half)
        self.events += 1
        if len(self.rows) == self.capacity:
            worst = min(self.rows, key=lambda r: self.worth(r[0], r[2]))  # the oldest of equals
            if self.worth(worst[0], worst[2]) > self.worth(key, stream):
                return matched
            self.rows.remove(worst)
        self.rows.append((key, time, stream, id))
        return matched


@st.composite
def sequences(draw, streams=2, most=50):
    n = draw(st.integers(1, most))
    keys = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    steps = draw(st.lists(st.sampled_from([0, 1, 3, 100, 900, 5000, 300_000]), min_size=n, max_size=n))
    which = draw(st.lists(st.integers(0, streams - 1), min_size=n, max_size=n))
    times = 1_700_000_000_000_000 + np.cumsum(np.array(steps, np.int64))
    numbers = np.arange(n, dtype=np.int64)
    return sorted_events(
        Events(
            np.array(keys, np.uint64) + np.uint64(1),
            times,
            np.array(which, np.int8),
            numbers.astype(np.uint64),
            numbers,
        )
    )


@settings(max_examples=examples(120), deadline=None)
@given(
    data=st.data(),
    streams=st.integers(2, 4),
    capacity=st.integers(1, 7),
    refresh=st.integers(1, 5),
    span=st.sampled_from([1, 100, 5000]),
    memory=st.sampled_from(["mixed", "long"]),
    most=st.sampled_from([1, 2, 3, 100]),
)
def test_it_equals_its_reference(data, streams, capacity, refresh, span, memory, most):
    events = data.draw(sequences(streams))
    policy = RECENT(refresh=refresh, memory=memory, count_keys=most)
    buffer = Buffer(capacity, policy, window=(-span, span), streams=streams)
    reference = Reference(capacity, refresh, span, memory, most)
    for i in range(len(events.keys)):
        matched = reference.event(int(events.keys[i]), int(events.times[i]), int(events.streams[i]), i)
        assert sorted(buffer.run(events.part(i, i + 1)).pair_row.tolist()) == sorted(events.rows[matched].tolist())
        state = buffer.state
        stored = np.sort(state.rows["row"][slots_by_age(state)])
        assert stored.tolist() == sorted(events.rows[[r[3] for r in reference.rows]].tolist())


@settings(max_examples=examples(60), deadline=None)
@given(
    events=sequences(),
    alike=st.lists(st.booleans(), min_size=50, max_size=50),
    capacity=st.integers(2, 7),
    cut=st.integers(0, 50),
    share=st.sampled_from(["unified", "proportional"]),
    room=st.integers(1, 3),
)
def test_cuts_small_outputs_and_restarts_change_nothing(events, alike, capacity, cut, share, room):
    high = np.array(alike[: len(events.keys)]).astype(np.uint64) << np.uint64(60)
    events = events._replace(keys=events.keys | high)  # counted as one key, stored as two
    policy = RECENT(refresh=3, count_keys=3)
    whole = Buffer(capacity, policy, window=(-5000, 5000), share=share)
    expected = whole.run(events)
    buffer = Buffer(capacity, policy, window=(-5000, 5000), share=share)
    cut = min(cut, len(events.keys))
    first = buffer.run(events.part(0, cut), room=room)
    buffer = Buffer.from_bytes(buffer.to_bytes(), policy)
    second = buffer.run(events.part(cut, len(events.keys)), room=room)
    assert [*first.pair_row.tolist(), *second.pair_row.tolist()] == expected.pair_row.tolist()
    assert [*first.dropped_row.tolist(), *second.dropped_row.tolist()] == expected.dropped_row.tolist()
    assert buffer.to_bytes() == whole.to_bytes()


def test_an_occurrence_counts_twice_as_much_a_half_life_later():
    half = half_life(12_800, 0)
    assert half == 100
    weights = [weight_at(800 * 7 + t, half) for t in (0, 50, 100, 200, 799)]
    assert weights[:4] == [32, 48, 64, 128]
    assert weights[4] < 32 << 8


def stream_of(rows, domain, pareto, seed):
    table = zipf_pareto(rows=rows, rate=1000, domain=domain, pareto=pareto, streams=2, seed=seed)
    with np.errstate(over="ignore"):
        keys = mix.py_func(table["key"].to_numpy().astype(np.uint64) + np.uint64(1))
    times, which = table["time"].cast("int64").to_numpy(), table["stream"].to_numpy()
    return sorted_events(Events(keys, times, which, keys, np.arange(rows)))


@pytest.mark.parametrize(("pareto", "least"), [(None, 0.98), (0.6, 1.02)])
def test_it_finds_more_than_the_policies_of_the_paper_where_keys_come_in_bursts(pareto, least):
    events = stream_of(60_000, 1000, pareto, seed=11)
    window = (-6_000_000, 6_000_000)
    others = [PROB(), FIFO(), *(GDJ(initial=p) for p in (0.1, 0.2, 0.35, 0.5))]
    best = max(Buffer(1200, p, window=window).count(events) for p in others)
    assert Buffer(1200, RECENT(), window=window).count(events) >= least * best


def test_counts_stay_bounded_and_keys_that_never_come_back_are_forgotten():
    n = 40_000
    keys = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys[::2] = np.uint64(7)
    events = Events(keys, np.arange(n) * 10, (np.arange(n) // 2 % 2).astype(np.int8), keys, np.arange(n))
    buffer = Buffer(50, RECENT(count_keys=200), window=(-1000, 1000))
    saved = []
    for at in range(0, n, 4000):
        buffer.count(events.part(at, at + 4000))
        saved.append(len(buffer.to_bytes()))
        assert buffer.learned.head["keys"][0] <= 200
    assert max(saved) < 5_000
    stored = row_keys(buffer.state, slots_by_age(buffer.state))
    assert (stored == 7).mean() > 0.9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"refresh": 0}, "refresh=0: write a number above 0"),
        ({"count_keys": -1}, "count_keys=-1: write a number above 0"),
        ({"memory": "short"}, "memory='short': write one of 'mixed', 'long'"),
    ],
)
def test_errors_say_what_to_write(options, text):
    with pytest.raises(BraidedError, match=text):
        RECENT(**options)
