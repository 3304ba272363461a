"""A windowed aggregate after a join begins in the join's workers: pairs never leave them (StreamCloud III).

Holds for joins of every kind without ``rows=``: the partial results of a pair, or of a row that matches nothing, are
its own, wherever it was made. Windows close by the horizon of the join, and Spark takes one watermark in a query: those
of the inputs become the join's lateness. No row that matches nothing comes out behind that horizon: it leaves as soon
as the other stream's clock has passed it by the bound and the lateness, which is how far the horizon is behind.
"""

from __future__ import annotations

from dataclasses import replace

from braided.operators.join.spec import JoinSpec
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project
from braided.plan.optimiser import Analysis, NotApplied
from braided.plan.partials import plan_partials
from braided.plan.rules.take_watermarks import take_watermarks

NOT_ANSI = "spark.sql.ansi.enabled is off, and workers compute as with it"


class PartialAggregation:
    """Aggregate over Join -> Aggregate that begins in the workers."""

    name = "aggregate in the workers of the join"

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """See `Rule`."""
        if not isinstance(node, Aggregate) or node.in_workers:
            return None
        join = node.input
        while isinstance(join, Filter | Project):
            join = join.input
        if not isinstance(join, Operator) or not isinstance(join.spec, JoinSpec):
            return None
        if join.spec.rows is not None:
            raise NotApplied("its join is one with rows=")
        if join is not node.input:
            raise NotApplied("tables or conditions of Spark's lie between join and aggregate")
        if join.spec.late == "side":
            raise NotApplied("late='side' gives the join a second result")
        if not analysis.is_streaming(join):
            raise NotApplied("the inputs are no streams")
        join = take_watermarks(join, analysis)
        plan = analysis.physical(join)
        partials = plan_partials(node, plan)
        if partials.computes and not analysis.is_ansi:
            raise NotApplied(NOT_ANSI)
        if analysis.needs_time_zone and plan.operator.output.field(node.time).type.tz is None:
            raise NotApplied(f"{node.time} has no time zone, which Spark's watermark needs: cast it to timestamp")
        return replace(node, input=join, in_workers=True)
