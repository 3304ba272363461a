"""StreamCloud's three strategies (III.B, IV.C) for a query of three stateful operators: costs and idle time.

The package's compiler (`plan/stages.py`) cuts the plan, and its instantiator (`plan/shares.py`) distributes the
processors, both unchanged. The cost of a stage is that of its operators for the rows that reach them, of topics for the
rows that pass from stage to stage, and per batch of each stateful operator that of its tasks and their blocks:

```
 query      N tasks and N x N blocks for each of three operators, no topic
 operator   n_i tasks and n_i x n_i blocks, a topic after every operator
 subquery   the same, a topic after every subquery
```
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from braided.operators.join.spec import JoinSpec
from braided.plan.aggregates import aggregate_node
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project, Source
from braided.plan.shares import Cost, shares_of
from braided.plan.stages import Stage, Strategy, split
from braided.sim.operator_costs import MEASURED, OperatorCosts
from braided.sim.streamcloud import key_shares

_COLUMNS = ("k", "ts", "v")
_KEPT = {"v % 2 = 0": 0.5, "v < 900": 0.9}


@dataclass(frozen=True)
class Query:
    """The chain of `benchmarks/streamcloud.py`: rows per second of each stream, keys, seconds of the joins' windows."""

    rate: float = 10_000.0
    keys: int = 20_000
    within: float = 5.0


def plan() -> Node:
    """Return the logical plan: filter, join, select, filter, join, windowed count and mean, select."""
    first, second, third = (Source(number, _COLUMNS) for number in range(3))
    spec = JoinSpec(on="k", time="ts", within="5 seconds", lateness="10 seconds")
    pairs = Operator(spec, (Filter(first, "v % 2 = 0"), second))
    moved = Project(pairs, ("k", "ts_right AS ts"))
    joined = Operator(spec, (moved, Filter(third, "v < 900")))
    windows = aggregate_node(
        joined, ["k", "ts", "ts_right", "v"], by="k", window="10 seconds", every="10 seconds", time="ts",
        values={"n": "count(*)", "m": "avg(v)"},
    )  # fmt: skip
    return Project(windows, ("window.start AS s", "k AS g", "n", "m"))


@dataclass(frozen=True)
class StageCost:
    """Microseconds per source row, of operators and of topics; the number of stateful operators; their keys."""

    name: str
    work: float
    topic: float
    stateful: int


@dataclass(frozen=True)
class Layout:
    """A strategy on a number of processors: the most rows per second, and the shares of the processors' time."""

    strategy: Strategy
    processors: dict[str, int]
    rows: float
    work: float
    other: float
    idle: float


def stage_costs(strategy: Strategy, query: Query, costs: OperatorCosts = MEASURED) -> list[StageCost]:
    """Return the stages into which the compiler cuts the query, with the cost of a row of the three sources in each."""
    stages = split(plan(), 3, strategy, lambda join: False)
    flows: dict[str, float] = {}
    out = []
    for stage in stages:
        work, flow, topic = 0.0, 0.0, 0.0
        stateful = 0
        for node, rows_in, rows_out in _walk(stage.root, stage, flows, query):
            flow = rows_out
            if isinstance(node, Operator):
                stateful += 1
                inside = isinstance(stage.root, Aggregate) or any(isinstance(n, Aggregate) for n in stage.root.walk())
                # Pairs of a join below an aggregate of the same stage never leave the workers.
                work += rows_in * (costs.spark + costs.row) + (
                    0.0 if inside and node is _last_join(stage.root) else rows_out * costs.result
                )
            elif isinstance(node, Aggregate):
                merged = any(isinstance(n, Operator) for n in node.input.walk())
                stateful += not merged
                work += rows_in * (costs.aggregated + (0.0 if merged else costs.spark + costs.routed))
            elif isinstance(node, Filter | Project):
                alone = not stage.root.stateful and not any(below.stateful for below in stage.root.walk())
                work += rows_in * ((costs.spark if alone else 0.0) + max(0.0, costs.mapped - costs.routed))
        flows[stage.name] = flow
        reads = sum(flows[given.name] for given in stage.inputs)
        topic = reads * costs.topic  # written by one stage and read by the next: both are counted for the reader
        out.append(StageCost(stage.name, work, topic, stateful))
    return out


def _last_join(root: Node) -> Node | None:
    for node in root.walk():
        if isinstance(node, Aggregate):
            return next((below for below in node.input.walk() if isinstance(below, Operator)), None)
    return None


def _walk(node: Node, stage: Stage, flows: dict[str, float], query: Query) -> Iterator[tuple[Node, float, float]]:
    """Yield each node of a stage, children first, with its input and output rows per row of the three sources."""
    rows: dict[int, float] = {}

    def visit(at: Node) -> Iterator[tuple[Node, float, float]]:
        if isinstance(at, Source):
            before = at.number - 3
            rows[id(at)] = 1 / 3 if before < 0 else flows[stage.inputs[before].name]
            return
        for child in at.inputs:
            yield from visit(child)
        given = [rows[id(child)] for child in at.inputs]
        made = sum(given)
        if isinstance(at, Filter):
            made *= _KEPT[at.condition]
        elif isinstance(at, Operator):
            per_second = 3 * query.rate
            left, right = (share * per_second for share in given)
            made = left * right * 2 * query.within / query.keys / per_second
        elif isinstance(at, Aggregate):
            made = query.keys / 10 / (3 * query.rate)  # a row for each key in each window of ten seconds
        rows[id(at)] = made
        yield at, sum(given), made

    yield from visit(node)


@lru_cache(maxsize=256)
def _unevenness(workers: int, keys: int) -> float:
    """Return the busiest worker's share of the rows divided by the mean, by the package's hash buckets."""
    return float(key_shares(workers, keys).max() * workers)


def lay_out(
    strategy: Strategy, processors: int, query: Query, costs: OperatorCosts = MEASURED, batch_s: float = 1.0
) -> Layout:
    """Return the capacity of a strategy on a number of processors, with batches of a number of seconds."""
    stages = stage_costs(strategy, query, costs)
    measured = {stage.name: Cost((stage.work + stage.topic) * 1e3, 1_000_000) for stage in stages}
    shares = shares_of([stage.name for stage in stages], processors, measured)
    rates = {}
    for stage in stages:
        n = shares[stage.name]
        # A task of each stateful operator, or one for the files, on each processor; blocks from all to all.
        fixed = max(1, stage.stateful) * costs.task + stage.stateful * n * costs.block
        free = max(0.0, 1e6 - fixed / batch_s)
        rates[stage.name] = n * free / (stage.work * _unevenness(n, query.keys) + stage.topic)
    rows = min(rates.values())
    work = other = 0.0
    for stage in stages:
        n = shares[stage.name]
        work += rows * stage.work / 1e6
        other += rows * stage.topic / 1e6
        other += n * (max(1, stage.stateful) * costs.task + stage.stateful * n * costs.block) / batch_s / 1e6
    total = sum(shares.values())
    return Layout(strategy, shares, rows, work / total, other / total, 1 - (work + other) / total)
