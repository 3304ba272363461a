"""Shedding: a fair share of the rows, the same whatever the batches, and results that are a sample of all."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import braided
from braided.eviction.buffer import Events
from braided.eviction.policies.gdj import GDJ
from braided.eviction.shed import Shedding
from braided.sim.gdj.zipf_pareto import zipf_pareto
from braided.workloads.distortion import distortion, key_counts

OPTIONS: dict[str, Any] = {"on": "key", "time": "time", "within": "2 seconds", "lateness": "1 second"}


ROWS = 16_000


@cache
def two_streams(rows: int = ROWS) -> list[pa.Table]:
    table = zipf_pareto(rows=rows, rate=1000, domain=200, streams=2, seed=6)
    table = table.append_column("id", pa.array(np.arange(rows)))
    return [table.filter(np.asarray(table["stream"]) == s).drop(["stream"]) for s in (0, 1)]


def pairs(result: Any) -> Any:
    """Each pair as one number, in order."""
    return np.sort(result.table["id"].to_numpy() * ROWS + result.table["id_right"].to_numpy())


@cache
def exact_pairs() -> Any:
    return pairs(braided.local.join(*two_streams(), **OPTIONS))


def is_part(some: Any, exact: Any) -> bool:
    """Whether these are some of the pairs, each once."""
    return bool(np.isin(some, exact).all()) and len(np.unique(some)) == len(some) < len(exact)


def test_a_share_is_dropped_whatever_the_batches_and_the_workers() -> None:
    sides = two_streams()
    exact = exact_pairs()
    found = []
    for batch_rows, workers in ((ROWS, 1), (1234, 1), (999, 3)):
        result = braided.local.join(
            *sides, **OPTIONS, memory=100_000, evict="fifo", shed=0.3, batch_rows=batch_rows, workers=workers
        )
        found.append(pairs(result))
        report = result.report.to_dict()
        shed = sum(worker["total"]["shed"] for worker in report["workers"])
        assert abs(shed / ROWS - 0.3) < 0.01
        # What was shed is lost, and the estimate knows.
        assert abs(report["query"]["recall"] - len(found[-1]) / len(exact)) <= 0.03
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    assert is_part(found[0], exact)
    assert abs(len(found[0]) / len(exact) - 0.7**2) < 0.02


def test_the_exact_join_of_a_sample() -> None:
    sides = two_streams()
    exact = exact_pairs()
    found = []
    for batch_rows in (ROWS, 999):
        result = braided.local.join(*sides, **OPTIONS, shed=0.3, batch_rows=batch_rows)
        found.append(pairs(result))
        shed = sum(stream["shed"] for stream in result.report.to_dict()["streams"])
        assert abs(shed / ROWS - 0.3) < 0.01
    np.testing.assert_array_equal(found[0], found[1])
    assert is_part(found[0], exact)
    assert abs(len(found[0]) / len(exact) - 0.7**2) < 0.02
    np.testing.assert_array_equal(pairs(braided.local.join(*sides, **OPTIONS, shed=0)), exact)


def test_identical_rows_are_told_apart() -> None:
    n = 2000
    same = pa.table({"key": [1] * n, "time": pa.array([0] * n, pa.timestamp("us"))})
    one = pa.table({"key": [1] * n, "time": pa.array(np.arange(n) % 7, pa.timestamp("us"))})
    for options in ({"memory": 10 * n, "evict": "fifo"}, {}):
        result = braided.local.join(same, one.slice(0, 1), **OPTIONS, shed=0.5, **options).table.num_rows
        assert result == 0 or abs(result / n - 0.5) < 0.05


def test_unbiased_drops_what_does_not_fit_for_the_whole_window() -> None:
    sides = two_streams(60_000)
    exact = braided.local.join(*sides, **OPTIONS).table
    distortions = {}
    for shed in (None, "unbiased"):
        result = braided.local.join(*sides, **OPTIONS, memory=400, evict=braided.GDJ(initial=0.3), shed=shed)
        total = result.report.to_dict()["workers"][0]["total"]
        if shed:
            # 1,000 rows a second for 2 seconds: 400 of 2,000 stay.
            assert abs(total["shed"] / 60_000 - 0.8) < 0.01
            # On average they fit; where more have come by chance, some go early.
            assert total["evicted"] + total["refused"] < 0.2 * 60_000 * 0.2
        distortions[shed] = distortion(*key_counts(result.table["key"], exact["key"]))
    assert distortions["unbiased"].sse < distortions[None].sse / 5
    assert distortions["unbiased"].kl < distortions[None].kl / 2


def test_unbiased_follows_the_rate_and_not_the_cuts() -> None:
    rng = np.random.default_rng(2)
    times = np.concatenate([np.arange(20_000) * 1000, 20_000_000 + np.arange(40_000) * 250])
    n = len(times)
    events = Events(
        rng.integers(0, 50, n).astype(np.uint64), times, rng.integers(0, 2, n).astype(np.int8),
        rng.integers(0, 1 << 62, n).astype(np.uint64), np.arange(n),
    )  # fmt: skip
    retention = (1_000_000, 1_000_000)
    whole = Shedding("unbiased", capacity=250, retention=retention)
    dropped = whole.drop(events)
    assert abs(dropped[2000:20_000].mean() - 0.75) < 0.02
    assert abs(dropped[26_000:].mean() - 0.9375) < 0.01
    parts, saved = [], None
    for start in range(0, n, 777):
        part = Shedding("unbiased", capacity=250, retention=retention)
        if saved is not None:
            part.restore(saved)
        parts.append(part.drop(events.part(start, min(n, start + 777))))
        saved = part.to_json()
    assert (np.concatenate(parts) == dropped).all()
    assert saved == whole.to_json()


def test_a_window_to_one_side_counts_the_stream_that_is_kept() -> None:
    n = 10_000
    rng = np.random.default_rng(2)
    contents = rng.integers(0, 1 << 62, n).astype(np.uint64)
    events = Events(contents, np.arange(n) * 1000, (np.arange(n) % 2).astype(np.int8), contents, np.arange(n))
    # Only left rows wait, for up to 2 seconds: 1,000 of them.
    dropped = Shedding("unbiased", capacity=500, retention=(2_000_000, -1_000_000)).drop(events)
    assert abs(dropped[4000:].mean() - 0.5) < 0.03


def test_distortion_is_that_of_the_definition() -> None:
    produced, exact = np.array([3, 1, 0]), np.array([10, 5, 5])
    p, q = produced / 4, exact / 20
    result = distortion(produced, exact)
    assert result.sse == pytest.approx(sum((a - b) ** 2 for a, b in zip(p, q, strict=True)))
    assert result.kl == pytest.approx(0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.25))
    for bad, text in (
        ((produced, exact[:2]), "counts of 3 and of 2 keys"),
        ((produced * 0, exact), "no results to compare"),
        ((exact, produced), "the exact result does not have a produced key"),
    ):
        with pytest.raises(braided.BraidedError, match=text):
            distortion(*bad)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shed": 1.0}, r"shed=1\.0: write a share of the rows to drop, at least 0 and below 1, or 'unbiased'"),
        ({"shed": -0.1}, "write a share"),
        ({"shed": "half"}, "write a share"),
        ({"shed": True, "memory": 10}, "write a share"),
        ({"shed": "unbiased"}, "shed='unbiased': needs a budget; set memory=, or write a share"),
    ],
)
def test_bad_shares_are_refused(options: dict[str, Any], text: str) -> None:
    sides = two_streams(10)
    with pytest.raises(braided.BraidedError, match=text):
        braided.local.join(*sides, **OPTIONS, **options)


def test_gdj_finds_more_than_fifo_where_less_is_shed() -> None:
    """The paper's trade (section 5.4): less shedding gives more results and more distortion."""
    sides = two_streams(60_000)
    exact = braided.local.join(*sides, **OPTIONS).table
    recalls, sses = [], []
    for shed in (0, 0.4, 0.8):
        result = braided.local.join(*sides, **OPTIONS, memory=400, evict=GDJ(initial=0.3), shed=shed).table
        recalls.append(result.num_rows / exact.num_rows)
        sses.append(distortion(*key_counts(result["key"], exact["key"])).sse)
    assert recalls[0] > recalls[1] > recalls[2]
    assert sses[0] > sses[1] > sses[2]
