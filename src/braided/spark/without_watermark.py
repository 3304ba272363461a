"""A stream without its own watermark: the join after it knows the delay as its lateness, and closes windows by that.

The `EventTimeWatermark` node is taken out of the analysed plan, and a projection on top takes the mark off the column.
Marks remain inside the plan, on columns that only operators without state read.

Nothing may be in between that keeps rows until the watermark passes them, nor a union, since each of its streams has a
clock of its own, and the one stream that the join sees has not.
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

# These take rows of one stream, keep none of them, and do not use the watermark.
_STATELESS = {
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "ResolvedHint", "UnresolvedHint", "CollectMetrics",
    "Repartition", "RepartitionByExpression", "RebalancePartitions", "Join",
}  # fmt: skip
# An operator of ours does not use the watermarks of its inputs, and has settled their lateness.
_AROUND_OURS = (TRANSPARENT | _STATELESS) - {"Deduplicate"}


def has_watermark(frame: DataFrame) -> bool:
    """Whether Spark takes a watermark from the rows of a DataFrame, be it on a column that is still there or not."""
    if any(WATERMARK in (field.metadata or {}) for field in frame.schema.fields):
        return True
    return not is_connect(frame) and any(node.kind == "EventTimeWatermark" for node in plan_of(frame).walk())


def without_watermark(frame: DataFrame, column: str) -> DataFrame:
    """Return a DataFrame without the watermark that it has on a column; raise `BlockedError` where it must stay."""
    if is_connect(frame):
        raise BlockedError("with Spark Connect")
    stripping = _Stripping()
    stripped = stripping.apply(plan_of(frame).with_inlined_ctes(), below_ours=False)
    marked = [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if stripping.of_source and marked != [column]:
        raise BlockedError(f"on {marked[0]}, by which nothing is joined" if marked else "on a column that is dropped")
    if stripped is None:
        raise BlockedError("in no place that Braided knows")
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
    """Whether a watermark is the stream's own, not one of the inputs of an operator of ours."""

    def apply(self, plan: PlanNode, *, below_ours: bool) -> PlanNode | None:
        """Return the plan without the watermarks below it, None where there is none; or raise what is in the way."""
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
