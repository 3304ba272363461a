"""A windowed aggregate after a join begins in the join's workers, so that pairs never leave them (StreamCloud III).

The rule holds for all kinds of joins without ``rows=``: the partial result of a pair, or of a row without a match, does
not depend on where it is computed. Windows close by the horizon of the join. Spark allows only one watermark in such a
query, so the watermarks of the inputs become the join's lateness. No row without a match is returned behind that
horizon: it leaves when the other stream's clock has passed it by the bound and the lateness, and the horizon is behind
the clock by the same amount.
"""

from __future__ import annotations

from dataclasses import replace

from braided.operators.join.spec import JoinSpec
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project
from braided.plan.optimiser import Analysis, NotApplied
from braided.plan.partials import plan_partials
from braided.plan.rules.take_watermarks import take_watermarks

NOT_ANSI = "spark.sql.ansi.enabled is off, but workers compute in ANSI mode"


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
            raise NotApplied("its join has rows=")
        if join is not node.input:
            raise NotApplied("there are tables or conditions of Spark between join and aggregate")
        if join.spec.late == "side":
            raise NotApplied("with late='side' the join has a second result")
        if not analysis.is_streaming(join):
            raise NotApplied("the inputs are not streams")
        join = take_watermarks(join, analysis)
        plan = analysis.physical(join)
        partials = plan_partials(node, plan)
        if partials.computes and not analysis.is_ansi:
            raise NotApplied(NOT_ANSI)
        if analysis.needs_time_zone and plan.operator.output.field(node.time).type.tz is None:
            raise NotApplied(f"{node.time} has no time zone, but Spark's watermark needs one: cast it to timestamp")
        return replace(node, input=join, in_workers=True)
