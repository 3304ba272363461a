"""A stream without its own watermark: the following join uses the delay as its lateness, and closes windows by it.

The `EventTimeWatermark` node is removed from the analysed plan, and a projection on top removes the mark from the
column. Inside the plan marks remain on columns that only stateless operators read.

No operator in between may keep rows until the watermark passes them. A union is not allowed either: each of its streams
has its own clock, but the join sees only one stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.names import quoted
from braided.spark.sessions import is_connect
from braided.spark.watermark import TRANSPARENT, WATERMARK, BlockedError, called, is_ours, is_stateful_join, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# These operators read rows of one stream, store none of them, and do not use the watermark.
_STATELESS = {
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "ResolvedHint", "UnresolvedHint", "CollectMetrics",
    "Repartition", "RepartitionByExpression", "RebalancePartitions", "Join",
}  # fmt: skip
# Our operators do not use the watermarks of their inputs: they have resolved the lateness before.
_AROUND_OURS = (TRANSPARENT | _STATELESS) - {"Deduplicate"}


def has_watermark(frame: DataFrame) -> bool:
    """Whether Spark computes a watermark from the rows of a DataFrame, even if its column was dropped later."""
    if any(WATERMARK in (field.metadata or {}) for field in frame.schema.fields):
        return True
    return not is_connect(frame) and any(node.kind == "EventTimeWatermark" for node in plan_of(frame).walk())


def without_watermark(frame: DataFrame, column: str) -> DataFrame:
    """Return a DataFrame without the watermark on a column; raise `BlockedError` if it must stay."""
    if is_connect(frame):
        raise BlockedError("with Spark Connect")
    stripping = _Stripping()
    stripped = stripping.apply(plan_of(frame).with_inlined_ctes(), below_ours=False)
    marked = [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if stripping.of_source and marked != [column]:
        raise BlockedError(
            f"on {marked[0]}, which is not a time of the join" if marked else "on a column that is dropped"
        )
    if stripped is None:
        raise BlockedError("in a place that Braided does not know")
    columns = [_unmarked(frame, name) if name in marked else F.col(quoted(name)) for name in frame.columns]
    result = stripped.to_frame().select(*columns)
    if has_watermark(result):
        raise BlockedError("in a place that Braided does not know")
    return result


def _unmarked(frame: DataFrame, name: str) -> Column:
    clean = {key: value for key, value in metadata_of(frame, name).items() if key != WATERMARK}
    return F.col(quoted(name)).alias(name, metadata=clean)


@dataclass
class _Stripping:
    of_source: bool = False
    """Whether a watermark is the stream's own, not one of the inputs of one of our operators."""

    def apply(self, plan: PlanNode, *, below_ours: bool) -> PlanNode | None:
        """Return the plan without the watermarks below it; None if there is none; raise if an operator prevents it."""
        if plan.kind == "EventTimeWatermark":
            self.of_source |= not below_ours
            return self.apply(plan.child, below_ours=below_ours) or plan.child
        ours = is_ours(plan)
        changed = [
            self.apply(child, below_ours=below_ours or ours) if child.is_streaming else None for child in plan.children
        ]
        if all(child is None for child in changed):
            return None
        allowed = _STATELESS if self.of_source and not below_ours else _AROUND_OURS
        if is_stateful_join(plan) or not (plan.kind in allowed or ours):
            raise BlockedError(f"below {called(plan)}")
        pairs = zip(plan.children, changed, strict=True)
        return plan.with_children([old if new is None else new for old, new in pairs])
