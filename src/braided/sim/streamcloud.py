"""StreamCloud's experiments (Gulisano et al., section IV): one operator on many processors, under rising loads.

In each batch, rows go to workers as the package routes them: `first_table` and `route`, unchanged. A batch takes the
time of its busiest worker plus the time that Spark needs for any batch. Rows that arrive meanwhile are the next batch:

```
 arriving   |--- batch 1 ---|---- batch 2 ----|------ batch 3 ------|     overloaded: each is longer than the last
 processing                 |--- batch 1 -----|------ batch 2 ------|
```

The costs of rows and comparisons are measured (`sim/operator_costs.py`). Comparisons are counted, not executed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from braided.routing.hash_kernels import hash_words
from braided.routing.routes import route
from braided.routing.start import first_table
from braided.sim.operator_costs import MEASURED, OperatorCosts

Floats = npt.NDArray[np.float64]
SECONDS = 600.0
"""The simulated seconds of a run: the paper's steady state."""
SAMPLE = 400_000
"""The number of rows that are routed over a grid to measure each worker's share; the shares hold for all rows."""
_MICROS = 1e6


@dataclass(frozen=True)
class Setup:
    """The input of the operators: the window, callers, districts, and the rows of a fixed window (IV.B, IV.D)."""

    window: float = 60.0
    callers: int = 50_000
    districts: int = 5_000
    window_rows: int = 20_000
    seed: int = 1


@dataclass(frozen=True)
class Work:
    """The cost of rows at some rate: microseconds per second and worker, and comparisons per second in total."""

    busy: Floats
    comparisons: float


@dataclass(frozen=True)
class Sample:
    """One point of a figure: rows and comparisons per second, use of the processors, waiting rows per processor."""

    rows: float
    comparisons: float
    use: float
    queue: float


Operator = Callable[[float, int, Setup, OperatorCosts], Work]
"""The cost of a rate of rows per second for a number of workers."""


@lru_cache(maxsize=64)
def key_shares(workers: int, keys: int) -> Floats:
    """Return each worker's share of rows with equally frequent keys, by the package's hash buckets."""
    hashes = np.zeros(keys, np.uint64)
    hash_words(np.arange(keys, dtype=np.uint64), hashes)
    table = first_table("hash", workers, keyed=True, version=1)
    return np.bincount(route(table, 0, hashes, lambda rows: hashes[rows]).workers, minlength=workers) / keys


@lru_cache(maxsize=64)
def grid_shares(workers: int, seed: int) -> tuple[Floats, Floats]:
    """Return each worker's share of the left and of the right rows in the package's cheapest grid; copies count."""
    random = np.random.default_rng([seed, workers])
    table = first_table("grid", workers, keyed=False, version=1)
    shares = []
    for side in (0, 1):
        contents = random.integers(0, 1 << 63, SAMPLE, np.uint64) * np.uint64(2)
        routes = route(table, side, np.zeros(SAMPLE, np.uint64), lambda rows, c=contents: c[rows])  # type: ignore[misc]
        shares.append(np.bincount(routes.workers, minlength=workers) / SAMPLE)
    return shares[0], shares[1]


def mapped(rate: float, workers: int, setup: Setup, costs: OperatorCosts) -> Work:
    """Figure 7a: files are distributed evenly; no row depends on another."""
    return Work(np.full(workers, rate / workers * (costs.spark + costs.mapped)), 0.0)


def joined(rate: float, workers: int, setup: Setup, costs: OperatorCosts) -> Work:
    """Figure 7b: calls with those of the same caller within a minute before and after, a real equijoin."""
    rows = rate * key_shares(workers, setup.callers)
    pairs = rate * setup.window / setup.callers  # the earlier rows that a row meets
    return Work(rows * (costs.spark + costs.row + pairs * costs.result), rate * pairs)


def aggregated(rate: float, workers: int, setup: Setup, costs: OperatorCosts) -> Work:
    """Figure 7c: windows of a minute by district; each row goes to the worker of its district."""
    rows = rate * key_shares(workers, setup.districts)
    return Work(rows * (costs.spark + costs.routed + costs.aggregated), 0.0)


def product(rate: float, workers: int, setup: Setup, costs: OperatorCosts) -> Work:
    """Figure 7d: every pair of two streams within a minute is tested, in a grid of workers."""
    left, right = grid_shares(workers, setup.seed)
    pairs = (rate / 2) ** 2 * 2 * setup.window
    tested = left * right * pairs
    return Work(rate / 2 * (left + right) * (costs.spark + costs.row) + tested * costs.comparison, pairs)


def fixed_windows(rate: float, workers: int, setup: Setup, costs: OperatorCosts) -> Work:
    """Figure 7e: as 7d, but a stored window has 20,000 rows in total at any rate; each worker has its share."""
    left, right = grid_shares(workers, setup.seed)
    tested = rate / 2 * setup.window_rows * (left * right * 2)
    return Work(
        rate / 2 * (left + right) * (costs.spark + costs.row) + tested * costs.comparison, rate * setup.window_rows
    )


OPERATORS: dict[str, Operator] = {
    "map": mapped, "join": joined, "aggregate": aggregated, "product": product, "fixed": fixed_windows,
}  # fmt: skip


def capacity(operator: Operator, workers: int, setup: Setup, costs: OperatorCosts = MEASURED) -> float:
    """Return the rate at which the busiest worker has no idle time."""
    low, high = 0.0, 1e12
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if operator(middle, workers, setup, costs).busy.max() < _MICROS else (low, middle)
    return low


def simulate(
    operator: Operator, rate: float, workers: int, setup: Setup, costs: OperatorCosts = MEASURED,
    seconds: float = SECONDS,
) -> Sample:  # fmt: skip
    """Let rows arrive for some seconds, and process them batch after batch; arrivals of a batch are Poisson."""
    random = np.random.default_rng([setup.seed, workers, int(rate)])
    work = operator(rate, workers, setup, costs)
    fixed = (costs.batch + costs.task / 1000) / 1000
    blocks = workers * costs.block / _MICROS
    now, waiting, spent = 0.0, float(random.poisson(rate * fixed)), 0.0
    processed, compared, queued = 0.0, 0.0, 0.0
    while now < seconds:
        span = waiting / rate  # the time in which these rows arrived
        busy = work.busy * span / _MICROS + blocks
        took = fixed + float(busy.max())
        share = min(1.0, (seconds - now) / took)  # only the part of the last batch within the run counts
        processed += share * waiting
        compared += share * work.comparisons * span
        spent += share * float(busy.sum() + workers * costs.task / _MICROS)
        arrived = float(random.poisson(rate * took))
        queued += share * took * (waiting + share * arrived / 2)
        now += took
        waiting = arrived
    use = min(1.0, spent / (workers * seconds))
    return Sample(processed / seconds, compared / seconds, use, queued / seconds / workers)
