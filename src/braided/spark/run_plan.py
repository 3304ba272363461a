"""Running a logical plan on Spark: optimised, then each node as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braided.plan.nodes import Aggregate, Filter, LogicalPlan, Node, Operator, Project, Source, Union, Watermark
from braided.plan.optimiser import Optimised, Rule, optimise
from braided.plan.partials import plan_partials
from braided.plan.rules.hoist import HoistExpressions
from braided.plan.rules.partial_aggregate import PartialAggregation
from braided.plan.rules.push_filter import PushFilter
from braided.spark.analysis import SparkAnalysis
from braided.spark.frontend import run
from braided.spark.windows import merged_windows, native_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RULES: tuple[Rule, ...] = (PushFilter(), HoistExpressions(), PartialAggregation())


def run_plan(plan: LogicalPlan[DataFrame]) -> DataFrame:
    """Return the rows of a plan as a DataFrame."""
    analysis = SparkAnalysis(plan.sources)
    return _Runner(plan, analysis, optimise(plan, RULES, analysis)).frame()


class _Runner:
    def __init__(self, plan: LogicalPlan[DataFrame], analysis: SparkAnalysis, optimised: Optimised) -> None:
        self._plan = plan
        self._analysis = analysis
        self._optimised = optimised
        self._frames: list[tuple[Node, DataFrame]] = []

    def frame(self) -> DataFrame:
        """Return the rows of the plan."""
        return self._frame(self._optimised.after)

    def _frame(self, node: Node) -> DataFrame:
        """Return a node's rows; what is read twice is made once."""
        known = next((frame for other, frame in self._frames if other == node), None)
        if known is None:
            known = self._made(node)
            self._frames.append((node, known))
        return known

    def _made(self, node: Node) -> DataFrame:
        if isinstance(node, Source):
            return self._plan.sources[node.number]
        if isinstance(node, Operator):
            return run(
                node.spec,
                [self._frame(side) for side in node.inputs],
                name=node.name,
                control=node.control,
                redact=node.redact,
                logical=self._optimised,
            )
        if isinstance(node, Union):
            first, *others = (self._frame(child) for child in node.inputs)
            for other in others:
                first = first.unionByName(other)
            return first
        if isinstance(node, Aggregate):
            return self._windows(node)
        [child] = node.inputs
        below = self._frame(child)
        if isinstance(node, Filter):
            return below.where(node.condition)
        if isinstance(node, Watermark):
            return below.withWatermark(node.column, f"{node.delay} microseconds")
        assert isinstance(node, Project)
        return below.selectExpr(*node.expressions)

    def _windows(self, node: Aggregate) -> DataFrame:
        join = node.input
        if not isinstance(join, Operator):
            return native_windows(self._frame(join), node)
        frames = [self._frame(side) for side in join.inputs]
        partials = plan_partials(node, self._analysis.physical(join)) if node.in_workers else None
        rows = run(
            join.spec,
            frames,
            name=join.name,
            control=join.control,
            redact=join.redact,
            partials=partials,
            aggregated=True,
            logical=self._optimised,
        )
        return native_windows(rows, node) if partials is None else merged_windows(rows, node, partials)
