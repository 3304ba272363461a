"""How many pairs of a theta join's window are decided in a second?

    python benchmarks/theta.py
    python benchmarks/theta.py --quick

One batch of probe rows meets one stored run, all of it in the window, in one thread:

    small    20,000 x 20,000      every pair is tested by the generated loop, since an OR is no band
    large    500,000 x 500,000    a band and two inequalities, beside the time of testing every pair

The rival of the large ones is the loop, its time estimated from its rate on two int64 comparisons, of which
less than 0.1 % of the pairs hold. The best repetition counts; the one before them compiles. DuckDB counts the
pairs again, on one thread too. One JSON line goes to stdout: million pairs a second, and how many times as
fast as the loop, with the bars of both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import duckdb
import numpy as np
import pyarrow as pa

from braided.expressions.compile import compile_where
from braided.operators.join.theta.search import ThetaPredicate

SMALL = {
    "two_int64": "l.a = r.a OR l.b > r.b + 990000",
    "two_int64_band": "l.a = r.a AND l.b > r.b",
    "string": "l.s = r.s OR l.s < r.t",
    "decimal": "l.d = r.d OR l.d < r.e",
}
LARGE = {
    "band": "l.x BETWEEN r.x - 1000 AND r.x + 1000",
    "two_inequalities": "l.x < r.x AND l.y > r.y",
}
RATE_BARS = {"two_int64": 5_000, "two_int64_band": 2_000, "string": 100, "decimal": 100}
LOOP_BAR = 5


def rows(seed: int, count: int) -> pa.RecordBatch:
    """Random rows: s and d have 5,000 values, t and e exceed one in 4,000 of them; y is x and a little."""
    rng = np.random.default_rng([3, seed])
    x = rng.integers(0, 2_000 * count, count)
    some, low = rng.integers(0, 5_000, count), rng.integers(0, 3, count)
    return pa.record_batch(
        {
            "a": rng.integers(0, 2_000, count),
            "b": rng.integers(0, 1_000_000, count),
            "s": [f"item-{value:08d}" for value in some.tolist()],
            "t": [f"item-{value:08d}" for value in low.tolist()],
            "d": _decimals(some),
            "e": _decimals(low),
            "x": x,
            "y": x + rng.integers(0, 500, count),
        }
    )


def _decimals(values: np.ndarray[Any, Any]) -> pa.Array[Any]:
    """Decimals beyond 64 bits: each value times 10**20, in decimal(30,2)."""
    return pa.array([f"{value}00000000000000000000" for value in values.tolist()]).cast(pa.decimal128(30, 2))


def measure(text: str, left: pa.RecordBatch, right: pa.RecordBatch, repetitions: int) -> dict[str, Any]:
    """Pair all rows, several times, and compare the number of pairs with DuckDB's."""
    theta = ThetaPredicate.of(compile_where(text, left.schema, right.schema), left.schema, right.schema)
    first, past = np.zeros(left.num_rows, np.int64), np.full(left.num_rows, right.num_rows)
    seconds = []
    for _ in range(repetitions + 1):
        fresh = left.slice(0)  # a batch seen before is not read again
        started = time.perf_counter()
        results = sum(len(probes) for probes, _ in theta.pairs(0, fresh, right, first, past))
        seconds.append(time.perf_counter() - started)
    best, tested = min(seconds[1:]), left.num_rows * right.num_rows
    started = time.perf_counter()
    expected = oracle(text, left, right)
    found = {
        "where": text,
        "kind": theta.kind,
        "million_pairs_per_s": round(tested / best / 1e6, 1),
        "seconds": round(best, 5),
        "first_seconds": round(seconds[0], 3),
        "results": results,
        "share": results / tested,
        "duckdb_seconds": round(time.perf_counter() - started, 3),
        "equal": results == expected,
    }
    _say(f"{text}: {found['million_pairs_per_s']:,} million pairs/s, {results:,} pairs of {expected:,}")
    return found


def oracle(text: str, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """The number of pairs, by DuckDB."""
    with duckdb.connect(config={"threads": 1}) as db:
        db.register("l_rows", pa.Table.from_batches([left]))
        db.register("r_rows", pa.Table.from_batches([right]))
        [(count,)] = db.execute(f"select count(*) from l_rows l join r_rows r on {text}").fetchall()
    return int(count)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=20_000, help="rows a side where every pair is tested")
    parser.add_argument("--large", type=int, default=500_000, help="rows a side of the bands")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few rows; the rates mean nothing")
    options = parser.parse_args()
    small, large, repetitions = options.small, options.large, options.repetitions
    if options.quick:
        small, large, repetitions = 2_000, 20_000, 1
    left, right = rows(1, small), rows(2, small)
    found = {name: measure(text, left, right, repetitions) for name, text in SMALL.items()}
    for name, bar in RATE_BARS.items():
        found[name] |= {"bar": bar, "met": found[name]["million_pairs_per_s"] >= bar}
    left, right = rows(3, large), rows(4, large)
    rate = found["two_int64"]["million_pairs_per_s"]
    for name, text in LARGE.items():
        found[name] = measure(text, left, right, repetitions)
        times = found[name]["million_pairs_per_s"] / rate
        found[name] |= {
            "loop_seconds_estimated": round(large * large / rate / 1e6, 2),
            "times_as_fast_as_loop": round(times, 1),
            "bar": LOOP_BAR,
            "met": times >= LOOP_BAR,
        }
    summary = {
        "benchmark": "theta",
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "cpus": os.cpu_count(),
        "small_rows": small,
        "large_rows": large,
        **found,
        "met": all(case["met"] for case in found.values()),
    }
    print(json.dumps(summary))
    return 0 if all(case["equal"] for case in found.values()) else 1


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
