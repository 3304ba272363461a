"""The delay that a result's rows carry, found again below what a user put on top of the result.

An operator whose lateness is learned gives its rows a last column that says how late they may be, and the DataFrame
that the user gets is a projection without it. An operator after it puts the column back into the projections and
filters in between. No public API adds a column below a projection; where the plan has another shape, and with Spark
Connect, it stays as it is, and only the least that the lateness may be is known (the time column's marks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braided.spark.sessions import is_connect
from braided.time.hand_on import COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# These hand on all rows of one child, or some of them, with all its columns.
_TRANSPARENT = {"Filter", "SubqueryAlias", "Repartition", "RepartitionByExpression", "RebalancePartitions"}


def with_delay(frame: DataFrame) -> DataFrame:
    """Return a DataFrame with the delay of its rows in a last column, where an operator of ours gave them one."""
    if is_connect(frame):
        return frame
    session = frame.sparkSession
    plan = _carrying(frame._jdf.queryExecution().analyzed(), session._jvm)
    if plan is None:
        return frame
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    return ClassicDataFrame(
        session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session
    )


def _carrying(plan: Any, jvm: Any) -> Any:
    """Return the plan with the column as its last; None where it has none to carry."""
    kind = plan.getClass().getSimpleName()
    if kind == "Project":
        if _delay_of(plan) is not None:
            return plan
        child = plan.child() if _delay_of(plan.child()) is not None else _carrying(plan.child(), jvm)
        if child is None:
            return None
        columns = plan.projectList()
        kept = [columns.apply(at) for at in range(columns.size())]
        return plan.copy(jvm.PythonUtils.toSeq([*kept, _delay_of(child)]), child)
    if kind in _TRANSPARENT:
        child = _carrying(plan.child(), jvm)
        return None if child is None else plan.withNewChildren(jvm.PythonUtils.toSeq([child]))
    return None


def _delay_of(plan: Any) -> Any:
    """Return the attribute of the column in a plan's output."""
    output = plan.output()
    for at in range(output.size()):
        if str(output.apply(at).name()) == COLUMN:
            return output.apply(at)
    return None
