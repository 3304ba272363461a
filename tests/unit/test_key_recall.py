"""The estimate of recall for joins of many streams: exact where all keys are held, within 0.03 where few are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from test_recall import make_events

from braided.errors import BraidedError
from braided.eviction.buffer import Events
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.eviction.recall.key_recall import KeyRecall
from braided.eviction.tuning.adaptive import make_buffer
from braided.sim.gdj.zipf_pareto import zipf_pareto

POLICIES = [GDJ(initial=0.3), PROB(), FIFO(), RAND()]


def found_by(events: Events, capacity: int, policy: Any, within: int, streams: int) -> Any:
    """Return how many combinations a buffer finds with each event: choices of a pair from every other stream."""
    result = make_buffer(capacity, policy, window=(-within, within), streams=streams).run(events)
    pairs = np.zeros((len(events.keys), streams), np.int64)
    np.add.at(pairs, (result.pair_event, events.streams[result.pair_row]), 1)
    pairs[np.arange(len(pairs)), events.streams] = 1
    return pairs.prod(axis=1)


def exact_of(events: Events, within: int, streams: int) -> Any:
    """Return how many combinations each event completes, per key by binary search."""
    total = np.ones(len(events.keys), np.int64)
    order = np.argsort(events.keys, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(events.keys[order].view(np.int64))) + 1):
        for stream in range(streams):
            theirs = at[events.streams[at] == stream]
            mine = at[events.streams[at] != stream]
            before = np.searchsorted(theirs, mine)
            total[mine] *= before - np.searchsorted(events.times[theirs], events.times[mine] - within)
    return total


@st.composite
def small(draw: st.DrawFn) -> tuple[Events, int, int]:
    n, streams = draw(st.integers(1, 60)), draw(st.integers(2, 4))
    ints = [draw(st.lists(st.integers(0, most), min_size=n, max_size=n)) for most in (3, 50, streams - 1)]
    return make_events(*(np.array(column) for column in ints)), draw(st.integers(0, 20)), streams


@settings(max_examples=examples(120), deadline=None)
@given(small(), st.integers(8, 60), st.sampled_from(POLICIES), st.lists(st.integers(0, 60), max_size=3))
def test_it_is_exact_where_all_keys_are_held(case: Any, capacity: int, policy: Any, cuts: list[int]) -> None:
    events, within, streams = case
    found, exact = found_by(events, capacity, policy, within, streams), exact_of(events, within, streams)
    assert (found <= exact).all()
    whole = KeyRecall(capacity, within=within, streams=streams)
    whole.feed(events, found)
    wanted = (found.sum() / exact.sum(), 0.0) if exact.sum() else (None, None)
    assert whole.estimate() == wanted
    saved = None
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(found)], strict=True):
        part = KeyRecall(capacity, within=within, streams=streams)
        if saved is not None:
            part.restore(saved)
        part.feed(events.part(start, stop), found[start:stop])
        saved = part.to_bytes()
    assert saved == whole.to_bytes()


def stream_of(domain: int, pareto: float | None, streams: int, rows: int = 60_000, seed: int = 5) -> Events:
    table = zipf_pareto(rows=rows, rate=1000, domain=domain, pareto=pareto, streams=streams, seed=seed)
    return make_events(table["key"].to_numpy(), table["time"].cast("int64").to_numpy(), table["stream"].to_numpy())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    ("domain", "pareto", "streams"), [(3000, None, 3), (3000, 0.6, 3), (300, 0.8, 4), (20_000, None, 2)]
)
def test_it_errs_little_where_few_keys_are_held(domain: int, pareto: float | None, streams: int, policy: Any) -> None:
    events, within = stream_of(domain, pareto, streams), 10_000_000
    found, exact = found_by(events, 2000, policy, within, streams), exact_of(events, within, streams)
    recall = KeyRecall(2000, within=within, streams=streams)
    recall.feed(events, found)
    estimate, true = recall.estimate(), found.sum() / exact.sum()
    assert estimate.recall is not None
    assert estimate.error is not None
    assert abs(estimate.recall - true) <= 0.03
    assert abs(estimate.recall - true) <= 4 * estimate.error + 1e-9
    assert estimate.error <= 0.02
    assert recall.nodes <= recall.most < 0.5 * 10_000, "of the rows in the window"
    assert recall._head["share"][0] < 0.1, "all keys are held, which proves nothing"


def test_the_error_is_what_it_says_and_cuts_change_nothing() -> None:
    events, within = stream_of(3000, None, 2, 40_000), 10_000_000
    found, exact = found_by(events, 2000, PROB(), within, 2), exact_of(events, within, 2)
    off = []
    for number in range(30):
        # Other keys fall into other buckets.
        other = events._replace(keys=events.keys ^ np.uint64(number * 0x9E3779B97F4A7C15 % 2**64))
        recall = KeyRecall(2000, within=within, streams=2)
        recall.feed(other, found)
        estimate = recall.estimate()
        assert estimate.recall is not None
        assert estimate.error
        off.append((estimate.recall - found.sum() / exact.sum()) / estimate.error)
    assert abs(np.mean(off)) < 0.8
    assert 0.6 < np.std(off) < 1.5
    half = KeyRecall(2000, within=within, streams=2)
    half.feed(other.part(0, 17_777), found[:17_777])
    again = KeyRecall(2000, within=within, streams=2)
    again.restore(half.to_bytes())
    again.feed(other.part(17_777, len(found)), found[17_777:])
    assert again.to_bytes() == recall.to_bytes()


def test_what_it_says_lately_follows_a_change() -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    # First few keys, of which all are kept; then very many more than fit.
    keys = np.where(np.arange(n) < n // 2, rng.integers(0, 2000, n) % 5, rng.integers(0, 3000, n))
    keep = np.arange(n) % np.where(np.arange(n) < n // 2, 20, 1) == 0
    events = make_events(keys[keep], np.arange(n)[keep] * 1000, rng.integers(0, 3, n)[keep])
    recall = KeyRecall(300, within=4_000_000, streams=3)
    recall.feed(events, found_by(events, 300, FIFO(), 4_000_000, 3))
    total, recent = recall.estimate().recall, recall.recent().recall
    assert total is not None
    assert recent is not None
    assert recent < 0.1 < total


def test_damaged_bytes_are_refused() -> None:
    events = make_events(np.arange(50) % 5, np.arange(50), np.arange(50) % 3)
    recall = KeyRecall(20, within=5, streams=3)
    recall.feed(events, np.zeros(50, np.int64))
    saved = recall.to_bytes()
    for damaged in (b"", saved[:4], saved[:-1], saved[:20], b"x" * 40):
        with pytest.raises(BraidedError, match=r"damaged|incomplete"):
            KeyRecall(20, within=5, streams=3).restore(damaged)
