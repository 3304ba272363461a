"""Native watermarks around a braided operator: read them, lengthen them, mark the result with them.

A native operator after a join drops rows older than Spark's watermark, and a result may be older than either
input's watermark by the width of the window. Spark's own join delays its output watermark for that reason;
an operator in Python cannot, and a second `withWatermark` is refused. So the delay of the inputs' own
watermark is lengthened instead, in the query plan. No public API does this; where the plan has a shape we do
not know, and with Spark Connect, it stays as it is and a warning says which delay to write.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from braided.compile.stream import TimeMarks
from braided.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("braided")

WATERMARK = "spark.watermarkDelayMs"
# How far a result's time may be behind the largest of its column, and behind its sources' clocks.
DELAY = "braided.delayUs"
BEHIND = "braided.behindUs"
MARKS = (WATERMARK, DELAY, BEHIND)

# Through these a longer delay is harmless: they neither drop nor expire by the watermark.
_TRANSPARENT = {
    "Project", "Filter", "SubqueryAlias", "Union", "Repartition", "RepartitionByExpression", "MapInArrow",
    "MapInPandas", "CollectMetrics", "Generate", "TypedFilter", "MapElements", "MapPartitions",
    "SerializeFromObject", "DeserializeToObject", "View", "ResolvedHint", "UnresolvedHint", "Expand",
    "AppendColumns", "BatchEvalPython", "ArrowEvalPython", "Sort", "RebalancePartitions", "Join",
}  # fmt: skip


def marks_of(metadata: Mapping[str, Any]) -> TimeMarks:
    """Return the marks in a column's metadata."""
    delay, watermark = metadata.get(DELAY), metadata.get(WATERMARK)
    return TimeMarks(
        None if delay is None else int(delay),
        int(metadata.get(BEHIND, 0)),
        None if watermark is None else int(watermark) * 1000,
    )


def to_metadata(marks: TimeMarks, watermark_ms: int | None) -> dict[str, int]:
    """Return marks as metadata, with the watermark that the inputs really have."""
    metadata = {BEHIND: marks.behind}
    if marks.delay is not None:
        metadata[DELAY] = marks.delay
    if watermark_ms is not None:
        metadata[WATERMARK] = watermark_ms
    return metadata


def metadata_of(frame: DataFrame, column: str) -> dict[str, Any]:
    """Return the metadata of a column, where Spark and Braided both keep their marks."""
    metadata: dict[str, Any] = frame.schema[column].metadata or {}
    return metadata


def lengthen_watermark(frame: DataFrame, column: str, delay_us: int) -> tuple[DataFrame, int | None]:
    """Return the input with its watermark's delay at least `delay_us`, and that delay in milliseconds.

    An input that has no watermark stays as it is.
    """
    metadata = metadata_of(frame, column)
    if WATERMARK not in metadata:
        return frame, None
    wanted_ms = -(-delay_us // 1000)
    current_ms = int(metadata[WATERMARK])
    if current_ms >= wanted_ms:
        return frame, current_ms
    plan = None
    if not is_connect(frame):
        plan = _lengthened(frame._jdf.queryExecution().analyzed(), wanted_ms, frame.sparkSession._jvm)
    if plan is None:
        _log.warning(
            "time=%r: a native aggregation after this join may drop results as late; "
            "write withWatermark(%r, '%d milliseconds') and lateness= what it is now",
            column, column, wanted_ms,
        )  # fmt: skip
        return frame, current_ms
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    session = frame.sparkSession
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return ClassicDataFrame(dataset, session), wanted_ms


def _lengthened(plan: Any, delay_ms: int, jvm: Any) -> Any:
    """Return the plan with every watermark below lengthened; None where there is none or it may matter."""
    kind = plan.getClass().getSimpleName()
    if kind == "EventTimeWatermark":
        months_days_micros = (0, 0, delay_ms * 1000)
        delay = jvm.org.apache.spark.unsafe.types.CalendarInterval(*months_days_micros)
        # An id of its own: in a join of a stream with itself both sides start from one node, with different delays.
        return plan.copy(jvm.java.util.UUID.randomUUID(), plan.eventTime(), delay, plan.child())
    if not (kind in _TRANSPARENT or _is_ours(plan, kind)):
        return None
    children = plan.children()
    if kind == "Join" and all(children.apply(i).isStreaming() for i in range(children.size())):
        return None
    new, found = [], False
    for i in range(children.size()):
        child = children.apply(i)
        changed = _lengthened(child, delay_ms, jvm) if child.isStreaming() else None
        found = found or changed is not None
        new.append(child if changed is None else changed)
    if not found:
        return None
    return plan.withNewChildren(jvm.PythonUtils.toSeq(new))


def _is_ours(plan: Any, kind: str) -> bool:
    """Whether this is a stateful operator of Braided's runtime, which does not look at the watermark."""
    if kind != "TransformWithStateInPySpark":
        return False
    output = plan.output()
    return str(output.apply(output.size() - 1).name()) == "__braided_report"
