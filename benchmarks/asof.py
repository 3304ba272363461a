"""`braided.local.join_asof` beside pandas.merge_asof and polars.join_asof, over the same rows in one process.

    python benchmarks/asof.py            1,000,000 rows a stream, 1,000 keys
    python benchmarks/asof.py --quick    small; the times mean nothing

The rivals see whole sorted tables; Braided sees batches of 100,000 rows, waits for a lateness of a second and stores
what it needs. Results are compared. One JSON line goes to stdout; the exit code is 1 when results differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from braided import local

KEYS = 1_000
TOLERANCE_MS = 100


def stream(rows: int, seed: int, column: str) -> pa.Table:
    """Return rows in order of time, 20 microseconds apart on average. No two right rows are as close to a left row."""
    rng = np.random.default_rng(seed)
    times = 3 * np.cumsum(rng.integers(1, 14, rows)) + seed
    return pa.table(
        {"k": rng.integers(0, KEYS, rows), "ts": pa.array(times, pa.timestamp("us")), column: np.arange(rows)}
    )


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the best of three times, and what came out."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        found = run()
        best = min(best, time.perf_counter() - started)
    return best, found


def by_left(left: Any, right: Any) -> Any:
    """Return the answers in order of the left rows, -1 for none."""
    answers = np.asarray(right, np.float64)
    return np.where(np.isnan(answers), -1, answers)[np.argsort(np.asarray(left))]


def braided_join(left: pa.Table, right: pa.Table, direction: Any) -> pa.Table:
    """Return the result of Braided."""
    options: dict[str, Any] = {"tolerance": f"{TOLERANCE_MS} milliseconds", "lateness": "1 second"}
    return local.join_asof(left, right, on="k", time="ts", direction=direction, **options).table


def pandas_join(left: pd.DataFrame, right: pd.DataFrame, direction: Any) -> pd.DataFrame:
    """Return the result of pandas."""
    tolerance = pd.Timedelta(milliseconds=TOLERANCE_MS)
    return pd.merge_asof(left, right, on="ts", by="k", direction=direction, tolerance=tolerance)


def polars_join(left: pl.DataFrame, right: pl.DataFrame, direction: Any) -> pl.DataFrame:
    """Return the result of polars."""
    tolerance = timedelta(milliseconds=TOLERANCE_MS)
    return left.join_asof(right, on="ts", by="k", strategy=direction, tolerance=tolerance, check_sortedness=False)


def main() -> int:
    """Measure all directions; return 1 if a result differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    rows = 20_000 if parser.parse_args().quick else 1_000_000
    left, right = stream(rows, 1, "a"), stream(rows, 2, "b")
    rivals = {
        "pandas": (pandas_join, left.to_pandas(), right.to_pandas()),
        "polars": (polars_join, *(pl.DataFrame(table).set_sorted("ts") for table in (left, right))),
    }
    result: dict[str, Any] = {"rows": 2 * rows, "keys": KEYS}
    wrong = 0
    for direction in ("backward", "forward", "nearest"):
        seconds, table = timed(partial(braided_join, left, right, direction))
        answers = by_left(table["a"], table["b"].to_numpy())
        told: dict[str, Any] = {"braided_s": round(seconds, 3), "rows_per_s": round(2 * rows / seconds)}
        for name, (join, *tables) in rivals.items():
            took, found = timed(partial(join, *tables, direction))
            told |= {f"{name}_s": round(took, 3), f"over_{name}": round(took / seconds, 2)}
            wrong += not (answers == by_left(found["a"], found["b"])).all()
        result[direction] = told
    print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
