"""The estimate of recall: exact where all rows are sampled, within 0.03 where few are, the same whatever the cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

import braided
from braided.errors import BraidedError
from braided.eviction.buffer import Events, sorted_events
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.eviction.recall.pair_recall import Recall, most_ghosts
from braided.eviction.tuning.adaptive import make_buffer
from braided.routing.hash_kernels import hash_words
from braided.sim.gdj.zipf_pareto import zipf_pareto

DATA = Path(__file__).parents[3] / "shared" / "data"
POLICIES = [GDJ(initial=0.3), PROB(), FIFO(), RAND()]
Window = tuple[int, int]


def make_events(keys: Any, times: Any, streams: Any) -> Events:
    hashes = np.zeros(len(keys), np.uint64)
    hash_words(np.unique(keys, return_inverse=True)[1].astype(np.uint64), hashes)
    contents = np.random.default_rng(7).integers(0, 1 << 63, len(keys)).astype(np.uint64)
    events = sorted_events(
        Events(hashes, np.asarray(times, np.int64), np.asarray(streams, np.int8), contents, np.arange(len(keys)))
    )
    return events._replace(rows=np.arange(len(keys)))


def run(events: Events, capacity: int, policy: Any, window: Window, room: int = 1 << 16) -> tuple[int, Recall]:
    buffer, recall = make_buffer(capacity, policy, window=window), Recall(capacity, window=window)
    recall.place(len(events.keys))
    pair_event, pair_row = np.empty(room, np.int64), np.empty(room, np.int64)
    at = 0
    while at < len(events.keys):
        start = at
        at, pairs, _ = buffer.step(events, start, pair_event=pair_event, pair_row=pair_row)
        recall.feed(events, start, at, pair_event[:pairs], pair_row[:pairs])
    return buffer.counts["pairs"], recall


def exact_pairs(events: Events, window: Window) -> int:
    """Count per key, by binary search in the times of the other stream."""
    total = 0
    lo, hi = window
    order = np.argsort(events.keys, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(events.keys[order].view(np.int64))) + 1):
        left, right = (np.sort(events.times[part[events.streams[part] == s]]) for s in (0, 1))
        total += int((np.searchsorted(right, left + hi, "right") - np.searchsorted(right, left + lo)).sum())
    return total


@st.composite
def small(draw: st.DrawFn) -> tuple[Events, Window]:
    n = draw(st.integers(1, 60))
    ints = [draw(st.lists(st.integers(0, most), min_size=n, max_size=n)) for most in (4, 40, 1)]
    lo = draw(st.integers(-10, 6))
    return make_events(*(np.array(column) for column in ints)), (lo, draw(st.integers(lo, 10)))


@settings(max_examples=examples(200), deadline=None)
@given(small(), st.integers(20, 60), st.sampled_from(POLICIES), st.integers(1, 7))
def test_it_is_exact_where_all_rows_are_sampled(case: Any, capacity: int, policy: Any, room: int) -> None:
    events, window = case
    pairs, recall = run(events, capacity, policy, window, room)
    exact = exact_pairs(events, window)
    if exact:
        assert recall.estimate() == (pairs / exact, 0.0)
    else:
        assert recall.estimate() == (None, None)
    whole = run(events, capacity, policy, window)[1]
    assert whole.to_bytes() == recall.to_bytes() == Recall.from_bytes(recall.to_bytes()).to_bytes()


def check(events: Events, window: Window, policy: Any) -> None:
    rows = np.arange(1, len(events.keys) + 1) - np.searchsorted(events.times, events.times - window[1])
    capacity = max(2, int(0.2 * rows.mean()))
    pairs, recall = run(events, capacity, policy, window)
    true = pairs / exact_pairs(events, window)
    estimate = recall.estimate()
    assert estimate.recall is not None
    assert estimate.error is not None
    assert abs(estimate.recall - true) <= 0.03
    assert abs(estimate.recall - true) <= 4 * estimate.error + 1e-9
    assert estimate.error <= 0.015
    assert recall.ghosts <= most_ghosts(capacity)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    ("domain", "pareto"), [(1000, None), (1000, 0.6), (100, None), (100, 0.6), (10_000, None), (10_000, 0.6)]
)
def test_it_errs_little_on_zipf_pareto_streams(domain: int, pareto: float | None, policy: Any) -> None:
    table = zipf_pareto(rows=100_000, rate=1000, domain=domain, pareto=pareto, streams=2, seed=5)
    columns = table["key"].to_numpy(), table["time"].cast("int64").to_numpy(), table["stream"].to_numpy()
    check(make_events(*columns), (-5_000_000, 5_000_000), policy)


def two_files(names: tuple[str, str], columns: tuple[str, str], origins: tuple[str, str]) -> Events:
    keys, times, streams = [], [], []
    for side, (name, column, origin) in enumerate(zip(names, columns, origins, strict=True)):
        table = pq.read_table(DATA / f"{name}.parquet")
        time = table["time"].cast("timestamp[us]").cast("int64").to_numpy()
        times.append(time - np.datetime64(origin, "us").astype(np.int64))
        keys.append(table[column].to_numpy(zero_copy_only=False).astype(str))
        streams.append(np.full(len(time), side))
    return make_events(np.concatenate(keys), np.concatenate(times), np.concatenate(streams))


MINUTE = 60_000_000
TRADES = ("trades_2024-07-16", "trades_2024-07-17")
REAL = {
    "symbol": (TRADES, ("symbol", "symbol"), ("2024-07-16", "2024-07-17"), 2 * MINUTE),
    "broker": (TRADES, ("buyer", "seller"), ("2024-07-16", "2024-07-17"), 2 * MINUTE),
    "dewpoint": (("weather_2021_q1", "weather_2022_q1"), ("dewpoint_c",) * 2, ("2021-01-01", "2022-01-01"), 0),
}


@pytest.mark.skipif(not DATA.exists(), reason="the real streams are not here")
@pytest.mark.parametrize("policy", POLICIES[:2], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("name", REAL)
def test_it_errs_little_on_real_streams(name: str, policy: Any) -> None:
    files, columns, origins, within = REAL[name]
    within = within or 24 * 60 * MINUTE
    check(two_files(files, columns, origins), (-within, within), policy)


def test_the_error_is_what_it_says() -> None:
    table = zipf_pareto(rows=30_000, rate=1000, domain=300, pareto=0.8, streams=2, seed=8)
    events = make_events(table["key"].to_numpy(), table["time"].cast("int64").to_numpy(), table["stream"].to_numpy())
    window = (-4_000_000, 4_000_000)
    exact = exact_pairs(events, window)
    off = []
    for number in range(40):
        buffer, recall = make_buffer(60, GDJ(initial=0.3), window=window), Recall(60, window=window)
        recall._head["events"] = number * 1_000_000  # another sample
        recall.place(len(events.keys))
        result = buffer.run(events)
        recall.feed(events, 0, len(events.keys), result.pair_event, result.pair_row)
        estimate = recall.estimate()
        assert estimate.recall is not None
        assert estimate.error
        off.append((estimate.recall - len(result.pair_row) / exact) / estimate.error)
    assert abs(np.mean(off)) < 0.6
    assert 0.6 < np.std(off) < 1.5


def test_what_it_says_lately_follows_a_change() -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    # First few keys, of which all are kept; then very many more than fit.
    keys = np.where(np.arange(n) < n // 2, rng.integers(0, 2000, n) % 5, rng.integers(0, 3000, n))
    keep = np.arange(n) % np.where(np.arange(n) < n // 2, 20, 1) == 0
    events = make_events(keys[keep], np.arange(n)[keep] * 1000, rng.integers(0, 2, n)[keep])
    _, recall = run(events, 300, FIFO(), (-4_000_000, 4_000_000))
    total, recent = recall.estimate().recall, recall.recent().recall
    assert total is not None
    assert recent is not None
    assert recent < 0.1 < total


def test_damaged_bytes_are_refused() -> None:
    events = make_events(np.arange(50) % 5, np.arange(50), np.arange(50) % 2)
    saved = run(events, 20, FIFO(), (-5, 5))[1].to_bytes()
    for damaged in (b"", saved[:4], saved[:-1], saved[:20], b"x" * 40):
        with pytest.raises(BraidedError, match=r"damaged|incomplete"):
            Recall.from_bytes(damaged)


@pytest.mark.parametrize("evict", ["gdj", "prob"])
def test_the_join_reports_it_whatever_the_batches(evict: str) -> None:
    table = zipf_pareto(rows=30_000, rate=1000, domain=500, streams=2, seed=2)
    sides = [table.filter(np.asarray(table["stream"]) == s).drop(["stream"]) for s in (0, 1)]
    options: dict[str, Any] = {"on": "key", "time": "time", "within": "2 seconds", "lateness": "1 second"}
    exact = braided.local.join(*sides, **options).table.num_rows
    reports = []
    for rows in (30_000, 999):
        result = braided.local.join(*sides, **options, memory=300, evict=evict, workers=2, batch_rows=rows)
        report = result.report.to_dict()
        assert abs(report["query"]["recall"] - result.table.num_rows / exact) <= 0.03
        assert 0 < report["query"]["recall_error"] < 0.02
        assert 0 < report["query"]["recent_recall"] < 1
        assert f"recall {report['query']['recall']:.3f} +- " in str(result.report)
        reports.append([report["query"]["recall"], *(worker["total"]["recall"] for worker in report["workers"])])
        assert all(worker["total"]["evicted"] > 0 for worker in report["workers"])
    assert reports[0] == reports[1]
    assert "recall" not in braided.local.join(*sides, **options).report.to_dict()["query"]
