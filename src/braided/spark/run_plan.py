"""Runs a logical plan on Spark: optimises it, then turns each node into a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.order_operator import LATE
from braided.operators.order.spec import OrderSpec
from braided.operators.spec import Spec
from braided.plan.explain import spelled, why_native
from braided.plan.nodes import (
    Aggregate,
    Filter,
    LogicalPlan,
    Node,
    Operator,
    Project,
    Source,
    Union,
    Watermark,
    WithoutWatermark,
    combine,
    plan_of_source,
)
from braided.plan.optimiser import Optimised, Rule, optimise
from braided.plan.partials import Partials, plan_partials
from braided.plan.rules.hoist import HoistExpressions
from braided.plan.rules.partial_aggregate import PartialAggregation
from braided.plan.rules.prune import PruneColumns
from braided.plan.rules.push_filter import PushFilter
from braided.spark.analysis import SparkAnalysis
from braided.spark.frontend import run
from braided.spark.inputs import check_frames
from braided.spark.late_frames import split_late
from braided.spark.watermark import project
from braided.spark.windows import merged_windows, native_windows
from braided.spark.without_watermark import without_watermark
from braided.typing import Control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RULES: tuple[Rule, ...] = (PushFilter(), HoistExpressions(), PruneColumns(), PartialAggregation())


@dataclass(frozen=True)
class OptimisedPlan:
    """A plan after the optimiser, with its analysis. `reason` is why it has no aggregate in workers."""

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


def run_operator(
    spec: Spec,
    frames: Sequence[DataFrame],
    *,
    name: str | None = None,
    control: Control = None,
    redact: bool = False,
) -> DataFrame:
    """Return the results of one operator over DataFrames."""
    check_frames(dict(zip(spec.labels, frames, strict=True)))
    sources = [plan_of_source(frame, frame.columns) for frame in frames]
    return run_plan(combine(sources, lambda streams: Operator(spec, streams, name, control, redact)))


def run_join(
    spec: JoinSpec | AsofSpec | MultiJoinSpec,
    frames: Sequence[DataFrame],
    *,
    name: str | None,
    control: Control = None,
    redact: bool = False,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Return the results of a join; with ``late="side"``, late rows apart."""
    results = run_operator(spec, frames, name=name, control=control, redact=redact)
    return split_late(results, frames) if spec.late == "side" else results


def run_order(
    spec: OrderSpec, frames: Sequence[DataFrame], *, name: str | None
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Return streams in order; with ``late="side"``, late rows apart."""
    results = run_operator(spec, frames, name=name)
    if spec.late != "side":
        return results
    return results.where(~F.col(LATE)).drop(LATE), results.where(F.col(LATE)).drop(LATE)


def run_optimised(
    plan: OptimisedPlan,
    *,
    notes: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    aggregated: bool = False,
) -> DataFrame:
    """Return the rows of an optimised plan.

    notes : further lines for explain about the last operator. names : the users' names of columns. aggregated : whether
    Spark aggregates the result in the same query.
    """
    plan = replace(plan, optimised=replace(plan.optimised, names=names or {}))
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
        self._frames: dict[int, DataFrame] = {}

    def frame(self) -> DataFrame:
        """Return the rows of the plan."""
        return self._frame(self._optimised.after)

    def _frame(self, node: Node) -> DataFrame:
        """Return a node's rows. A node that is read twice is built once; two equal nodes are two operators."""
        if id(node) not in self._frames:
            self._frames[id(node)] = self._made(node)
        return self._frames[id(node)]

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
        if isinstance(node, WithoutWatermark):
            return without_watermark(below, node.column)
        assert isinstance(node, Project)
        return project(below, node)

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
        """Return why the aggregate after the last operator is Spark's, if it is."""
        if partials is not None or not aggregated:
            return []
        reason = self._plan.reason or why_native(self._optimised)
        return [] if reason is None else [f"the aggregate after it is Spark's: {spelled(reason, self._names)}"]


def _last_operator(node: Node) -> Node | None:
    return next((each for each in reversed(list(node.walk())) if isinstance(each, Operator)), None)
