"""A join with a budget: a part of the exact result, the same however the stream is cut, never more than the budget."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import braided

POLICIES = ("auto", "gdj", "recent", "prob", "age", "fifo", "random")


def two_tables(rows: int = 20_000) -> list[pa.Table]:
    rng = np.random.default_rng(3)
    return [
        pa.table(
            {
                "k": rng.zipf(1.3, rows) % 1000,
                "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("us")),
                "id": np.arange(rows),
            }
        )
        for _ in range(2)
    ]


@pytest.mark.long
def test_the_public_local_join_takes_a_budget() -> None:
    left, right = two_tables()
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "2 seconds", "lateness": "0 seconds"}
    exact = braided.local.join(left, right, **options).table.num_rows
    recall = {
        evict: braided.local.join(left, right, **options, memory=800, evict=evict).table.num_rows / exact
        for evict in POLICIES
    }
    assert all(0 < share < 1 for share in recall.values())
    # Popular keys are worth keeping, and these streams have them.
    assert recall["prob"] > 1.5 * recall["random"]
    assert recall["gdj"] > 1.5 * recall["random"]
    assert recall["auto"] > 0.9 * max(recall.values())
    again = braided.local.join(left, right, **options, memory=800, evict="gdj", batch_rows=777).table.num_rows
    assert again / exact == recall["gdj"]
    fixed = braided.local.join(left, right, **options, memory=800, evict=braided.GDJ(initial=0.99)).table.num_rows
    assert 0 < fixed / exact < 1


@pytest.mark.parametrize("partition", ["hash", "ssp", "grid"])
def test_a_budget_for_the_whole_window_is_exact_on_every_scheme(partition: str) -> None:
    left, right = two_tables(1500)
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "workers": 4, "partition": partition}
    exact, bounded = (
        braided.local.join(left, right, **options, **budget, batch_rows=400)
        for budget in ({}, {"memory": 20_000, "evict": "prob"})
    )
    ids = [
        Counter(zip(result.table["id"].to_pylist(), result.table["id_right"].to_pylist(), strict=True))
        for result in (exact, bounded)
    ]
    assert ids[0] == ids[1]
    assert bounded.report.to_dict()["query"]["recall"] > 0.99
    assert sum(stream["late"] for stream in bounded.report.to_dict()["streams"]) == 0


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (0, r"memory=0: no row fits; write a number of rows of 1 or more, or '256 MB'"),
        (-5, "no row fits"),
        ("256", "write a number of rows, or a size with its unit, such as '256 MB'"),
        ("5 parsecs", "write a number of rows, or a size with its unit"),
        ("10 B", "less than one row, which takes"),
        (True, "write a number of rows"),
    ],
)
def test_bad_budgets_are_refused(memory: Any, message: str) -> None:
    left, right = two_tables(10)
    with pytest.raises(braided.BraidedError, match=message):
        braided.local.join(left, right, on="k", time="ts", within="1 second", memory=memory)


def test_other_bad_options_are_refused() -> None:
    left, right = two_tables(10)
    options: dict[str, Any] = {"time": "ts", "within": "1 second", "memory": 10}
    with pytest.raises(braided.BraidedError, match=r"evict='lru': write one of 'auto', 'gdj'"):
        braided.local.join(left, right, on="k", evict="lru", **options)
    with pytest.raises(braided.BraidedError, match=r"share='even': write 'unified' or 'proportional'"):
        braided.local.join(left, right, on="k", share="even", **options)
    one = {**options, "memory": 1}
    with pytest.raises(
        braided.BraidedError, match=r"memory=1: too small to share among 2 streams; write more, or share='unified'"
    ):
        braided.local.join(left, right, on="k", share="proportional", **one)
    assert braided.local.join(left, right, on="k", **one).report.to_dict()["query"]["recall"] >= 0
    with pytest.raises(braided.BraidedError, match="a join without keys cannot have a budget"):
        braided.local.join(left, right, where="l.k < r.k", **options)
