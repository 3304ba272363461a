"""The delay column of a result's rows, found again below the user's projections and filters.

An operator whose lateness is learned adds a last column to its rows with how late they may be. The DataFrame that the
user gets is a projection without it. The next operator puts the column back into the projections and filters in
between. No public API adds a column below a projection. If the plan has another shape, and with Spark Connect, the plan
stays unchanged, and only the least possible lateness is known (the time column's marks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.sessions import is_connect
from braided.time.propagated_delay import COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# These nodes pass on all rows of one child, or some of them, with all its columns.
_TRANSPARENT = {"Filter", "SubqueryAlias", "Repartition", "RepartitionByExpression", "RebalancePartitions"}


def with_delay(frame: DataFrame) -> DataFrame:
    """Return a DataFrame with the delay of its rows in a last column, if one of our operators added it."""
    if is_connect(frame):
        return frame
    plan = _carrying(plan_of(frame))
    return frame if plan is None else plan.to_frame()


def _carrying(plan: PlanNode) -> PlanNode | None:
    """Return the plan with the delay column as its last column; None if it has none."""
    if plan.kind == "Project":
        if _delay_of(plan) is not None:
            return plan
        child = plan.child if _delay_of(plan.child) is not None else _carrying(plan.child)
        if child is None:
            return None
        number = _delay_of(child)
        assert number is not None
        return plan.with_columns([number], child)
    if plan.kind in _TRANSPARENT:
        child = _carrying(plan.child)
        return None if child is None else plan.with_children([child])
    return None


def _delay_of(plan: PlanNode) -> int | None:
    """Return the number of the column in a plan's output."""
    return next((column.id for column in plan.output if column.name == COLUMN), None)
