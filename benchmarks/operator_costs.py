"""What a row, a result, a comparison and a block cost: the constants of the simulated StreamCloud figures.

    python benchmarks/operator_costs.py            about a minute; prints `braided.sim.operator_costs.MEASURED` anew
    python benchmarks/operator_costs.py --quick    tries everything; its figures mean nothing

Microseconds of CPU time on one core, the local runtime, the least of five runs each. A cost is the difference between
two runs that differ in it alone: joins with few and with many results; with and without an aggregate in the workers;
batches of many rows and of one. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braided.expressions.compile import compile_where
from braided.local.query import stream
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.join.theta.search import ThetaPredicate
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.table import RoutingTable
from braided.runtime.router import route_task
from braided.runtime.worker import fingerprint

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
SECOND = 1_000_000
BATCHES = 12
ROUNDS = 5


def batch(number: int, side: int, rows: int, keys: int) -> pa.RecordBatch:
    """One second of a stream of random keys."""
    random = np.random.default_rng([number, side, rows, keys])
    times = number * SECOND + np.sort(random.integers(0, SECOND, rows))
    columns = [random.integers(0, keys, rows), times, random.integers(0, 1000, rows)]
    return pa.record_batch([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def join_cost(rows: int, keys: int, *, workers: int = 1, tasks: int = 1, **options: Any) -> tuple[float, int]:
    """Return CPU seconds and results of all batches of a join within two seconds, the first third not counted."""
    spec = JoinSpec(on="k", time="ts", within="2 seconds", lateness="1 second", **options)
    operator = build(spec, [Stream(label, SCHEMA) for label in spec.labels]).operator
    runtime = LocalRuntime(operator, workers)
    seconds, results = 0.0, 0
    for number in range(BATCHES):
        given = [(side, [batch(number, side, rows, keys)]) for side in (0, 1) for _ in range(tasks)]
        started = time.process_time()
        found = sum(piece.num_rows for piece in runtime.run_batch(given))
        if number >= BATCHES // 3:
            seconds += time.process_time() - started
            results += found
    return seconds, results


def route_cost(rows: int) -> float:
    """Return CPU seconds for a row that a router reads, hashes and packs for four workers."""
    spec = JoinSpec(on="k", time="ts", within="2 seconds", lateness="1 second")
    operator = build(spec, [Stream(label, SCHEMA) for label in spec.labels]).operator
    given = batch(0, 0, rows, rows)
    table = RoutingTable.hashed(4)
    mark = fingerprint(operator.options)
    return cpu(lambda: list(route_task(operator, mark, table, 0, 0, 4, [given], None, None))) / rows


def least(measure: Callable[[], float]) -> float:
    """Return the least of some runs, which other processes have disturbed least."""
    return min(measure() for _ in range(ROUNDS))


def cpu(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    started = time.process_time()
    run()
    return time.process_time() - started


def measure(rows: int) -> dict[str, float]:
    """Return all costs in microseconds."""
    counted = 2 * rows * (BATCHES - BATCHES // 3)
    few = least(lambda: join_cost(rows, 50 * rows)[0])
    results = join_cost(rows, rows // 2)[1]
    many = least(lambda: join_cost(rows, rows // 2)[0])
    result = (many - few) / results
    costs = {"row": few / counted, "result": result, "routed": least(lambda: route_cost(rows))}
    one = batch(0, 0, rows, rows)
    computed = least(lambda: cpu(lambda: pc.add(pc.multiply(one["v"], 3), one["k"]))) / rows
    costs["mapped"] = costs["routed"] + computed

    table = pa.Table.from_batches([batch(n, 0, rows, rows // 2) for n in range(BATCHES)])
    other = pa.Table.from_batches([batch(n, 1, rows, rows // 2) for n in range(BATCHES)])
    # A condition on both sides, so that pairs are made and tested one by one.
    joined = stream(table, time="ts").join(
        stream(other, time="ts"), on="k", within="2 seconds", where="l.v + r.v >= 0", workers=1, batch_rows=2 * rows
    )
    pairs = joined.result.table.num_rows
    plain = least(lambda: cpu(lambda: joined.result.table.num_rows))

    def aggregate() -> object:
        return joined.aggregate(by="k", window="60 seconds", every="10 seconds", n="count(*)", m="avg(v)").table

    aggregate()
    costs["aggregated"] = max(0.0, least(lambda: cpu(aggregate)) - plain) / pairs

    small = max(200, rows // 5)
    left, right = (batch(0, side, small, small) for side in (0, 1))
    predicate = "l.v <= r.v + 100 AND r.v <= l.v + 100 OR l.k = -1"  # an OR is no band: all pairs are compared
    theta = ThetaPredicate.of(compile_where(predicate, left.schema, right.schema), left.schema, right.schema)
    first, past = np.zeros(small, np.int64), np.full(small, small)

    def compare() -> object:
        return sum(len(probes) for probes, _ in theta.pairs(0, left.slice(0), right, first, past))

    compare()
    costs["comparison"] = least(lambda: cpu(compare)) / small**2

    # Two streams, n tasks each, n workers: 2 n n blocks a batch, beside what a batch, a task and a worker cost.
    sizes = np.array([2, 4, 8, 16])
    spent = [least(lambda n=n: join_cost(256, 100_000, workers=n, tasks=n)[0]) for n in sizes.tolist()]  # type: ignore[misc]
    fixed = np.polyfit(sizes, np.array(spent) / (BATCHES - BATCHES // 3), 2)
    costs["block"], costs["task"] = fixed[0] / 2, fixed[1] / 3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topic.parquet"

        def through_a_topic() -> None:
            pq.write_table(table, path)
            pq.read_table(path)

        through_a_topic()
        costs["topic"] = least(lambda: cpu(through_a_topic)) / table.num_rows
    return {name: float(f"{1e6 * value:.4g}") for name, value in costs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows = 5_000 if options.quick else 100_000
    summary = {"benchmark": "operator_costs", "quick": options.quick, "python": platform.python_version()}
    print(json.dumps({**summary, "microseconds": measure(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
