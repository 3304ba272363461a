"""Running a logical plan on Spark: optimised, then each node as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braided.plan.nodes import Aggregate, Filter, LogicalPlan, Node, Operator, Project, Source, Union, Watermark
from braided.plan.optimiser import Optimised, Rule, optimise
from braided.plan.partials import Partials, plan_partials
from braided.plan.rules.hoist import HoistExpressions
from braided.plan.rules.partial_aggregate import PartialAggregation
from braided.plan.rules.push_filter import PushFilter
from braided.spark.analysis import SparkAnalysis
from braided.spark.frontend import run
from braided.spark.windows import merged_windows, native_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RULES: tuple[Rule, ...] = (PushFilter(), HoistExpressions(), PartialAggregation())


@dataclass(frozen=True)
class OptimisedPlan:
    """A plan after the optimiser, with what it was analysed by. `reason` is why it has no aggregate in workers."""

    sources: tuple[DataFrame, ...]
    analysis: SparkAnalysis
    optimised: Optimised
    reason: str | None = None


def optimise_plan(plan: LogicalPlan[DataFrame], reason: str | None = None) -> OptimisedPlan:
    """Apply all rules to a plan."""
    analysis = SparkAnalysis(plan.sources)
    return OptimisedPlan(plan.sources, analysis, optimise(plan, RULES, analysis), reason)


def run_plan(plan: LogicalPlan[DataFrame]) -> DataFrame:
    """Return the rows of a plan as a DataFrame."""
    return run_optimised(optimise_plan(plan))


def run_optimised(
    plan: OptimisedPlan,
    *,
    notes: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    aggregated: bool = False,
) -> DataFrame:
    """Return the rows of an optimised plan.

    notes : what else to explain of the last operator. names : what users call columns. aggregated : whether Spark
    aggregates the result in the same query.
    """
    return _Runner(plan, notes, names or {}, aggregated=aggregated).frame()


class _Runner:
    def __init__(
        self, plan: OptimisedPlan, notes: Sequence[str], names: Mapping[str, str], *, aggregated: bool
    ) -> None:
        self._plan = plan
        self._notes = notes
        self._names = names
        self._aggregated = aggregated
        self._optimised = plan.optimised
        self._analysis = plan.analysis
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
            return self._run(node, None, aggregated=self._aggregated)
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
        partials = plan_partials(node, self._analysis.physical(join)) if node.in_workers else None
        rows = self._run(join, partials, aggregated=True)
        return native_windows(rows, node) if partials is None else merged_windows(rows, node, partials)

    def _run(self, node: Operator, partials: Partials | None, *, aggregated: bool) -> DataFrame:
        last = node is _last_operator(self._optimised.after)
        return run(
            node.spec,
            [self._frame(side) for side in node.inputs],
            name=node.name,
            control=node.control,
            redact=node.redact,
            notes=[*self._reasons(partials, aggregated=aggregated), *self._notes] if last else (),
            names=self._names,
            aggregated=aggregated,
            partials=partials,
            logical=self._optimised,
        )

    def _reasons(self, partials: Partials | None, *, aggregated: bool) -> list[str]:
        """Return why the aggregate after the last operator is Spark's, where it is."""
        if partials is not None or not aggregated:
            return []
        reason = self._plan.reason or self._optimised.reason_of(PartialAggregation.name)
        return [] if reason is None else [f"the aggregate after it is Spark's: {spelled(reason, self._names)}"]


def spelled(text: str, names: Mapping[str, str]) -> str:
    """Return a text with columns as users call them."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f"`{name}`", names[name]).replace(name, names[name])
    return text


def _last_operator(node: Node) -> Node | None:
    return next((each for each in reversed(list(node.walk())) if isinstance(each, Operator)), None)
