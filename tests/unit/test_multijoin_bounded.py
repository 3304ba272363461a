"""A join of many streams with a budget: a part of the exact result, the same however the streams are cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import braided

POLICIES = ("auto", "gdj", "prob", "age", "fifo", "random")


def tables(count: int, rows: int = 4000) -> list[pa.Table]:
    rng = np.random.default_rng(3)
    return [
        pa.table(
            {
                "k": rng.zipf(1.5, rows) % 1000,
                "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("us")),
                "id": np.arange(rows),
            }
        )
        for _ in range(count)
    ]


OPTIONS: dict[str, Any] = {"on": "k", "time": "ts", "within": "50 milliseconds", "lateness": "0 seconds"}


@pytest.mark.long
def test_the_public_multijoin_takes_a_budget() -> None:
    streams = tables(3)
    exact = braided.local.multijoin(streams, **OPTIONS)
    results = {
        evict: braided.local.multijoin(streams, **OPTIONS, memory=30, evict=evict).table.num_rows
        for evict in ("prob", "gdj", "random", "auto")
    }
    assert all(0 < found < exact.table.num_rows for found in results.values())
    assert results["prob"] > 1.5 * results["random"]
    cut = braided.local.multijoin(streams, **OPTIONS, memory=30, evict="gdj", batch_rows=333)
    assert cut.table.num_rows == results["gdj"]
    enough = braided.local.multijoin(streams, **OPTIONS, memory=1000, evict="gdj", workers=2)
    everything = [(name, "ascending") for name in exact.table.column_names]
    assert enough.table.sort_by(everything) == exact.table.sort_by(everything)


def test_bad_budgets_are_refused() -> None:
    for options, message in (
        ({"memory": 0}, "memory=0: no row fits"),
        ({"memory": 10, "evict": "lru"}, "evict='lru': write one of 'auto', 'gdj'"),
        ({"memory": 10, "share": "even"}, "share='even': write 'unified' or 'proportional'"),
        ({"memory": 2, "share": "proportional"}, "memory=2: too small to share among 3 streams"),
    ):
        with pytest.raises(braided.BraidedError, match=message):
            braided.local.multijoin(tables(3, 5), **OPTIONS, **options)


def combinations(table: pa.Table) -> Counter[Any]:
    names = [name for name in table.column_names if name.startswith("id")]
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_the_report_estimates_what_was_lost() -> None:
    streams = tables(3)
    exact = braided.local.multijoin(streams, **OPTIONS).table.num_rows
    reports = []
    for rows in (12_000, 999):
        result = braided.local.multijoin(streams, **OPTIONS, memory=30, evict="gdj", workers=2, batch_rows=rows)
        report = result.report.to_dict()
        assert abs(report["query"]["recall"] - result.table.num_rows / exact) <= 0.03
        assert report["query"]["recall_error"] < 0.03
        assert f"recall {report['query']['recall']:.3f} +- " in str(result.report)
        reports.append([report["query"]["recall"], *(worker["total"]["recall"] for worker in report["workers"])])
    assert reports[0] == reports[1]
    assert braided.local.multijoin(streams, **OPTIONS, memory=1000).report.to_dict()["query"]["recall"] == 1


@pytest.mark.long
def test_a_share_is_dropped_with_and_without_a_budget() -> None:
    streams = tables(3, 1000)
    exact = combinations(braided.local.multijoin(streams, **OPTIONS).table)
    found = []
    for options in ({}, {"batch_rows": 333}, {"memory": 1000}, {"memory": 1000, "batch_rows": 333, "workers": 2}):
        result = braided.local.multijoin(streams, **OPTIONS, shed=0.3, **options)  # type: ignore[arg-type]
        found.append(combinations(result.table))
        assert not found[-1] - exact
        assert abs(found[-1].total() / exact.total() - 0.7**3) < 0.1
        report = result.report.to_dict()
        told = report["workers"] if "memory" in options else report["streams"]
        shed = sum((worker["total"] if "memory" in options else worker)["shed"] for worker in told)
        assert abs(shed / 3_000 - 0.3) < 0.03
        if "memory" in options:
            # What was shed is lost, and the estimate knows.
            assert abs(report["query"]["recall"] - found[-1].total() / exact.total()) <= 0.03
    assert found[0] == found[1]
    assert found[2] == found[3]
    unbiased = braided.local.multijoin(streams, **OPTIONS, memory=60, shed="unbiased", evict="fifo").report.to_dict()
    # 3 rows a millisecond for 50 of them: 60 of 150 stay.
    assert abs(unbiased["workers"][0]["total"]["shed"] / 3_000 - 0.6) < 0.03
    for options, message in (
        ({"shed": 1.0}, "shed=1.0: write a share of the rows to drop"),
        ({"shed": "unbiased"}, "shed='unbiased': needs a budget"),
    ):
        with pytest.raises(braided.BraidedError, match=message):
            braided.local.multijoin(streams, **OPTIONS, **options)
