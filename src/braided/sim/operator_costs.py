"""What a row, a comparison, a block, a task and a batch cost here, as measured: simulated figures compute with it.

`benchmarks/operator_costs.py` and `benchmarks/cores.py` measure them anew. Other machines have other costs, but what
the figures say depends on their ratios alone; `tests/slow/test_papers_figures.py` fails when a ratio has changed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorCosts:
    """Microseconds of CPU time on one core.

    row : a row of a join, routed, probed with and stored. result : a pair of a join. routed : a row read, hashed and
    packed by a router. mapped : the same with an expression evaluated. aggregated : a pair added to its windows.
    comparison : a pair tested by a predicate. block : a block from one task to one worker. topic : a row written to a
    topic and read again. spark : what Spark adds for a row that enters an
    operator: reading it, and handing it to Python. task : a task of Spark with its Python process, whatever it joins.
    batch : milliseconds of a
    batch, whatever it joins.
    """

    row: float
    result: float
    routed: float
    mapped: float
    aggregated: float
    comparison: float
    block: float
    topic: float
    spark: float
    task: float
    batch: float


@dataclass(frozen=True)
class Cores:
    """A join on Spark, on so many cores: rows a second, CPU seconds per million rows in the JVM and in Python."""

    cores: int
    rows_a_second: int
    jvm: float
    python: float


MEASURED = OperatorCosts(
    row=0.12, result=0.018, routed=0.06, mapped=0.07, aggregated=0.08, comparison=0.0023, block=8.0, topic=0.08,
    spark=2.5, task=30_000.0, batch=330.0,
)  # fmt: skip
CORES = (Cores(1, 300_000, 2.0, 1.0), Cores(2, 500_000, 2.0, 1.0))
WHEN = "18 November 2026"
