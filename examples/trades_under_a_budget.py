"""Trades joined by symbol under a budget: how much of the exact result a tenth of the memory keeps.

    python examples/trades_under_a_budget.py

Two exchanges report trades of the same symbols, which are traded very unequally. All pairs of the last minute would
need the whole minute in memory; `memory=` is a tenth of that, and the report estimates what is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from local import results, run, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, SYMBOLS, SECONDS, IN_A_WINDOW = 12_000, 2_000, 240.0, 6_000


def trades(seed: int) -> pa.Table:
    """Return trades in order; the n-th symbol is traded as often as 1/n."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, SYMBOLS + 1)
    symbols = random.choice(SYMBOLS, ROWS, p=weights / weights.sum())
    return pa.table(
        {
            "symbol": [f"S{number:04d}" for number in symbols],
            "ts": times(np.sort(random.uniform(0, SECONDS, ROWS)).tolist()),
            "price": np.round(random.uniform(10, 20, ROWS), 2),
        }
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Run the exact join and the one with a budget, and compare."""
    here, there = (stream(spark, folder / name, trades(seed), 4) for seed, name in enumerate(("here", "there")))
    options = {"on": "symbol", "time": "ts", "within": "1 minute", "lateness": "1 second"}
    exact, _ = results(braided.join(here, there, **options), folder / "exact")
    budget = IN_A_WINDOW // 10 // 2  # a tenth of the rows in both windows, for each of two workers
    bounded, query = results(braided.join(here, there, memory=budget, **options), folder / "bounded")
    known = braided.report(query).query
    pairs = exact.num_rows - waiting(exact)
    recall = bounded.num_rows / pairs
    print(f"a tenth of the memory keeps more than a tenth of the pairs: {recall > 0.1}")
    wrong = abs(known["recall"] - recall)
    print(f"the estimate is within three standard errors: {wrong < 3 * known['recall_error'] + 0.02}")
    print(f"no pair is wrong: {bounded.num_rows == matching(bounded)}")


def waiting(exact: pa.Table) -> int:
    """Count pairs of the last second, which a join with a budget still puts in order."""
    last = times([SECONDS - 1.0])[0].as_py()
    pairs = exact.to_pandas()
    return int(((pairs["ts"] > last) | (pairs["ts_right"] > last)).sum())


def matching(pairs: pa.Table) -> int:
    """Count pairs whose times are within the window."""
    found = pairs.to_pandas()
    return int(((found["ts"] - found["ts_right"]).abs().dt.total_seconds() <= 60).sum())


if __name__ == "__main__":
    run(main)
