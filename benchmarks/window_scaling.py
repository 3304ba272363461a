"""Does a row cost more when the window holds a thousand batches instead of ten?

    python benchmarks/window_scaling.py
    python benchmarks/window_scaling.py --quick

The local runtime joins the same number of equal batches under two windows, with the number of keys in
proportion to the window, so that a row meets as many others either way. Only the state's size, and the
number of batches it came in, differ:

    10 batches in the window      |#|          100,000 keys    0.2 million rows of state
    1,000 batches                 |#########|  10 million keys  20 million rows of state

A batch counts once the window is full; the mean is taken, since merging old runs comes in bursts.
One JSON line goes to stdout: the ratio of the times per row, to stay below the bar of 1.5.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
import pyarrow as pa

BAR = 1.5
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
Batch = tuple[pa.RecordBatch, pa.RecordBatch]


@dataclass(frozen=True)
class Case:
    """One window. A batch is a second of event time, so `window` is also its length in seconds."""

    window: int
    rows: int
    """Rows a batch, per side."""
    measured: int

    @property
    def warm(self) -> int:
        """Batches until the state is full and old rows have been leaving for a while."""
        return self.window + self.window // 4 + 20

    def batches(self) -> Iterator[Batch]:
        """Both sides of each batch: made as they are asked for, the same every time."""
        keys = self.window * self.rows  # two matches a left row
        for b in range(self.warm + self.measured):
            rng = np.random.default_rng([1, self.window, b])
            ts = pa.array((b * self.rows + np.arange(self.rows)) * 1_000_000 // self.rows, SCHEMA.field(1).type)
            left, right = (
                pa.record_batch(
                    [
                        pa.array(rng.integers(0, keys, self.rows)),
                        ts,
                        pa.array(rng.integers(0, 1 << 31, self.rows)),
                    ],
                    schema=SCHEMA,
                )
                for _ in range(2)
            )
            yield left, right


def run_local(case: Case) -> Iterator[tuple[float, int]]:
    """ADAPTER to the local runtime: yield each batch's seconds (without making it) and result rows."""
    from braided.local.runtime import LocalRuntime
    from braided.operators.join.spec import JoinSpec
    from braided.operators.registry import build
    from braided.operators.stream import Stream

    spec = JoinSpec(on="k", time="ts", within=f"{case.window} seconds", lateness="1 second")
    operator = build(spec, [Stream(label, SCHEMA) for label in spec.labels]).operator
    runtime = LocalRuntime(operator, workers=1)
    for left, right in case.batches():
        started = time.perf_counter()
        results = sum(piece.num_rows for piece in runtime.run_batch([(0, [left]), (1, [right])]))
        yield time.perf_counter() - started, results


def oracle(case: Case) -> int:
    """The number of pairs, by DuckDB."""
    import duckdb

    left, right = (pa.Table.from_batches(side) for side in zip(*case.batches(), strict=True))
    with duckdb.connect() as db:
        db.register("l", left)
        db.register("r", right)
        [(count,)] = db.execute(f"""
            select count(*) from l join r on l.k = r.k
            and abs(epoch_us(r.ts) - epoch_us(l.ts)) <= {case.window * 1_000_000}""").fetchall()
    return int(count)


def measure(case: Case) -> dict[str, float | int | bool]:
    _say(f"{case.window} batches in the window: {case.warm} to fill it, {case.measured} measured")
    seconds, results = zip(*run_local(case), strict=True)
    steady = seconds[case.warm :]
    expected = oracle(case)
    _say(f"{1000 * statistics.mean(steady):.1f} ms a batch, {sum(results):,} pairs of {expected:,}")
    return {
        "window_batches": case.window,
        "warm": case.warm,
        "measured": case.measured,
        "mean_us_per_row": round(1e6 * statistics.mean(steady) / (2 * case.rows), 4),
        "median_us_per_row": round(1e6 * statistics.median(steady) / (2 * case.rows), 4),
        "slowest_batch_s": round(max(steady), 4),
        "results": sum(results),
        "equal": sum(results) == expected,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="rows a batch, per side")
    parser.add_argument("--measured", type=int, default=1_000, help="batches measured, for each window")
    parser.add_argument("--windows", type=int, nargs=2, default=(10, 1_000), help="batches in each window")
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    options = parser.parse_args()
    rows, measured, windows = options.rows, options.measured, tuple(options.windows)
    if options.quick:
        rows, measured, windows = 1_000, 50, (10, 100)
    for _ in run_local(Case(1, rows, 5)):  # compiles the kernels
        pass
    small, large = (measure(Case(window, rows, measured)) for window in windows)
    ratio = large["mean_us_per_row"] / small["mean_us_per_row"]
    summary = {
        "benchmark": "window_scaling",
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "cpus": os.cpu_count(),
        "rows_per_batch": 2 * rows,
        "small": small,
        "large": large,
        "ratio": round(ratio, 3),
        "ratio_by_median": round(large["median_us_per_row"] / small["median_us_per_row"], 3),
        "bar": BAR,
        "met": ratio <= BAR,
    }
    print(json.dumps(summary))
    return 0 if small["equal"] and large["equal"] else 1


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
