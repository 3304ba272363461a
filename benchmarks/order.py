"""How well is K learned, and how fast are rows put in order?

    python benchmarks/order.py --data DIR [--plot DIR]

Streams run one row at a time in order of arrival, with K learned after every row and no floor; see `order_sets`. Per
set, one JSON line:

    in order    the share of rows before which no later row had left, with margin 0, and with the default margin
                after the first second
    wait        how far the clock moves while a row waits, on average, under a recall target, over the same with the
                smallest constant K that meets the target, found in hindsight by bisection
    rows kept   by a join of the two network logs with K learned per side, over a K of 10 minutes

Then the operator in one process, routers included: rows a second of CPU time.
A table of all sets comes last. `--plot` draws K and the delays over time, with the rows that came too late.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import order_join
import order_plots
import pyarrow as pa
from order_sets import ADAPTIVE, Times, all_sets

from braided.local.runtime import LocalRuntime
from braided.operators.order.spec import OrderSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.sim.slack import SlackRun, slack_rows
from braided.time.lateness import Lateness

TARGETS = (0.99, 0.999)
IN_ORDER_BAR, WAIT_BAR, ADAPTIVE_BAR, KERNEL_BAR = 0.99, 1.2, 1.0, 5.0


def learned(times: Times, **options: Any) -> SlackRun:
    """Run a stream with K learned and no floor."""
    return slack_rows(times, Lateness(floor="0 seconds", **options))


def best_constant(times: Times, target: float) -> tuple[int, SlackRun]:
    """Return the smallest constant K that keeps the target share in order, to 0.05%, and its run."""
    low, high = -1, int((np.maximum.accumulate(times) - times).max())
    while high - low > max(1, high // 2000):
        middle = (low + high) // 2
        if slack_rows(times, Lateness(), lateness=middle).in_order.mean() >= target:
            high = middle
        else:
            low = middle
    return high, slack_rows(times, Lateness(), lateness=high)


def measure_set(name: str, times: Times) -> dict[str, Any]:
    """Measure one set under both rules."""
    delays = np.maximum.accumulate(times) - times
    plain, default = learned(times, margin=0), learned(times)
    settled = times - times[0] > 1_000_000
    line: dict[str, Any] = {
        "benchmark": "order",
        "set": name,
        "rows": len(times),
        "late": round(float((delays > 0).mean()), 4),
        "largest_delay_s": round(int(delays.max()) / 1e6, 3),
        "in_order": round(float(plain.in_order.mean()), 5),
        "in_order_default_after_1s": round(float(default.in_order[settled].mean()), 6),
        "mean_k_default_s": round(float(default.lateness.mean()) / 1e6, 4),
        "targets": {},
    }
    for target in TARGETS:
        run = learned(times, recall=target)
        constant, best = best_constant(times, target)
        line["targets"][str(target)] = {
            "in_order": round(float(run.in_order.mean()), 5),
            "wait_s": round(float(run.wait.mean()) / 1e6, 4),
            "constant_k_s": round(constant / 1e6, 4),
            "constant_wait_s": round(float(best.wait.mean()) / 1e6, 4),
            "wait_ratio": round(float(run.wait.mean() / best.wait.mean()), 3),
            "bar": ADAPTIVE_BAR if name in ADAPTIVE else WAIT_BAR,
        }
    return line


def measure_operator(rows: int, batches: int) -> dict[str, Any]:
    """Time the operator in one process, routers included: 100,000 rows a second of event time, 5-45 ms late."""
    random = np.random.default_rng(1)
    total = rows * batches
    times = np.arange(total) * 10
    order = np.argsort(times + random.integers(5_000, 45_000, total), kind="stable")
    table = pa.table({"ts": pa.array(times[order], pa.timestamp("us")), "n": order, "x": random.random(total)})
    operator = build(OrderSpec(time="ts", idle=None), [Stream("input", table.schema)]).operator
    runtime = LocalRuntime(operator)
    seconds, released = [], 0
    for number in range(batches):
        start = time.process_time()
        released += sum(p.num_rows for p in runtime.run_batch([(0, table.slice(number * rows, rows).to_batches())]))
        seconds.append(time.process_time() - start)
    steady = float(np.median(seconds[2:]))
    return {
        "benchmark": "order_operator",
        "rows": rows,
        "released": released,
        "million_rows_per_s": round(rows / steady / 1e6, 1),
        "bar": KERNEL_BAR,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Lay the sets out as a Markdown table; a figure that misses its bar is bold."""

    def mark(text: str, good: bool) -> str:
        return text if good else f"**{text}**"

    heads = ["set", "rows", "late", "largest delay", "in order, margin 0", "default, after 1 s"]
    heads += [f"{target:.1%}: {what}" for target in TARGETS for what in ("in order", "wait ratio")]
    out = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for line in lines:
        cells = [line["set"], f"{line['rows']:,}", f"{line['late']:.0%}", f"{line['largest_delay_s']:g} s"]
        cells.append(mark(f"{line['in_order']:.2%}", line["in_order"] >= IN_ORDER_BAR))
        default = line["in_order_default_after_1s"]
        cells.append(mark(f"{default:.3%}", default == 1 or line["set"] != "paper"))
        for target in TARGETS:
            found = line["targets"][str(target)]
            cells.append(mark(f"{found['in_order']:.2%}", found["in_order"] >= target))
            cells.append(mark(f"{found['wait_ratio']:.2f}", found["wait_ratio"] <= found["bar"]))
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def main() -> None:
    """Run everything that the data at hand allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of the real streams; without it only generated ones run")
    parser.add_argument("--plot", type=Path, help="directory to write plots to, as SVG")
    parser.add_argument("--operator-rows", type=int, default=1_000_000)
    options = parser.parse_args()
    lines = []
    for name, times in all_sets(options.data):
        lines.append(measure_set(name, times))
        print(json.dumps(lines[-1]), flush=True)
        if options.plot:
            order_plots.draw_set(options.plot, name, times)
    if options.data is not None and (options.data / "zeek_ssl.parquet").exists():
        for line in order_join.measure(options.data):
            print(json.dumps(line), flush=True)
    operator = measure_operator(options.operator_rows, 10)
    print(json.dumps({**operator, "date": str(datetime.date.today()), "numpy": np.__version__}), flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
