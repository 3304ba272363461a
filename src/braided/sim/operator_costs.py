"""What a row, a comparison, a block, a task and a batch cost here, as measured: simulated figures compute with it.

`benchmarks/operator_costs.py` and `benchmarks/cores.py` measure them again. Other machines have other costs, but the
figures depend only on their ratios. `tests/slow/test_operator_costs.py` measures the ratios again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorCosts:
    """Microseconds of CPU time on one core.

    row : a row of a join, routed, probed with and stored. result : a pair of a join. routed : a row read, hashed and
    packed by a router. mapped : the same with an expression evaluated. aggregated : a pair added to its windows.
    comparison : a pair tested by a predicate. block : a block from one task to one worker. topic : a row written to a
    topic and read again. spark : Spark's cost for a row that enters an operator: reading it, and passing it to
    Python. task : a task of Spark with its Python process, whatever it joins. batch : milliseconds of a batch, whatever
    it joins.
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
    """A join on Spark, on a number of cores: rows per second, CPU seconds per million rows in the JVM and in Python."""

    cores: int
    rows_a_second: int
    jvm: float
    python: float


# Rows, comparisons, blocks and topics by benchmarks/operator_costs.py; `spark` and `task` by benchmarks/cores.py, CPU
# seconds of a join minus those of its own code, and of 8 partitions minus those of 2; `batch` as in
# docs/benchmarks/benchmarks.md.
MEASURED = OperatorCosts(
    row=0.111, result=0.016, routed=0.0166, mapped=0.019, aggregated=0.048, comparison=0.00227, block=9.4, topic=0.0696,
    spark=1.44, task=44_000.0, batch=330.0,
)  # fmt: skip
CORES = (Cores(1, 794_439, 1.0, 0.2), Cores(2, 1_138_790, 1.34, 0.22))
WHEN = "18 and 19 November 2026"
