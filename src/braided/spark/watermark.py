"""Native watermarks around a braided operator: read them, lengthen them, mark the result with them.

A native operator after a join drops rows older than Spark's watermark, and a result may be older than either
input's watermark by the width of the window. Spark's own join delays its output watermark for that reason;
an operator in Python cannot, and a second `withWatermark` is refused. So the delay of the inputs' own
watermark is lengthened instead, in the query plan. No public API does this. Where it is not possible, and with Spark
Connect, the result has no watermark: Spark then refuses an aggregate in append mode, which would lose rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braided.compile.stream import TimeMarks
from braided.durations import show_duration
from braided.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK = "spark.watermarkDelayMs"
# How far a result's time may be behind the largest of its column, and behind its sources' clocks.
DELAY = "braided.delayUs"
BEHIND = "braided.behindUs"
# The sources have a watermark, and the result has none since theirs is too short.
UNMARKED = "braided.watermarkTooShort"
MARKS = (WATERMARK, DELAY, BEHIND, UNMARKED)

# Through these a longer delay is harmless. They do not use the watermark; `Deduplicate` only forgets rows later.
_TRANSPARENT = {
    "Project", "Filter", "SubqueryAlias", "Union", "Repartition", "RepartitionByExpression", "MapInArrow",
    "MapInPandas", "CollectMetrics", "Generate", "TypedFilter", "MapElements", "MapPartitions",
    "SerializeFromObject", "DeserializeToObject", "View", "ResolvedHint", "UnresolvedHint", "Expand",
    "AppendColumns", "BatchEvalPython", "ArrowEvalPython", "Sort", "RebalancePartitions", "Join", "Deduplicate",
}  # fmt: skip
_NAMES = {
    "Aggregate": "an aggregate",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Join": "a join of Spark's own",
    "WithCTE": "a common table expression that is not deterministic",
}


def marks_of(metadata: Mapping[str, Any]) -> TimeMarks:
    """Return the marks in a column's metadata."""
    delay, watermark = metadata.get(DELAY), metadata.get(WATERMARK)
    return TimeMarks(
        None if delay is None else int(delay),
        int(metadata.get(BEHIND, 0)),
        None if watermark is None else int(watermark) * 1000,
    )


def to_metadata(marks: TimeMarks, watermark_ms: int | None, *, unmarked: bool) -> dict[str, int]:
    """Return marks as metadata, with the watermark that the inputs really have."""
    metadata = {BEHIND: marks.behind}
    if unmarked:
        metadata[UNMARKED] = 1
    if marks.delay is not None:
        metadata[DELAY] = marks.delay
    if watermark_ms is not None:
        metadata[WATERMARK] = watermark_ms
    return metadata


def metadata_of(frame: DataFrame, column: str) -> dict[str, Any]:
    """Return the metadata of a column, where Spark and Braided both keep their marks."""
    metadata: dict[str, Any] = frame.schema[column].metadata or {}
    return metadata


@dataclass(frozen=True)
class TooShort:
    """A watermark that is shorter than the result needs, and why it stays so."""

    column: str
    current_ms: int
    needed_ms: int
    reason: str

    def describe(self, names: Mapping[str, str]) -> str:
        """Return the problem and what to write, with the names that users know the columns by."""
        name = names.get(self.column, self.column)
        current, needed = (show_duration(ms * 1000) for ms in (self.current_ms, self.needed_ms))
        return (
            f"{name}: an aggregate of Spark's over this result needs its watermark to be {needed} late instead of "
            f"{current}, or results are lost, and Braided cannot change it {self.reason}; write withWatermark"
            f"({name.rpartition('.')[2]!r}, {needed!r}) there, and lateness={current!r} for the join"
        )


@dataclass(frozen=True)
class Lengthened:
    """Inputs with watermarks that the result can use, each with its delay in milliseconds; or why there are none."""

    frames: Sequence[DataFrame]
    delays_ms: Sequence[int | None]
    problem: TooShort | None = None
    unmarked: bool = False
    """Whether an input has lost its watermark before."""


def lengthen_watermarks(frames: Sequence[DataFrame], columns: Sequence[str], delays_us: Sequence[int]) -> Lengthened:
    """Return the inputs with the delay of each watermark at least `delays_us`; inputs without one stay as they are.

    Spark has one watermark in a query, the least of all: one that is too short makes all of them useless.
    """
    none = [None] * len(frames)
    if any(UNMARKED in metadata_of(frame, column) for frame, column in zip(frames, columns, strict=True)):
        return Lengthened(frames, none, unmarked=True)
    changed: list[DataFrame] = []
    delays: list[int | None] = []
    for frame, column, delay_us in zip(frames, columns, delays_us, strict=True):
        metadata = metadata_of(frame, column)
        current = int(metadata[WATERMARK]) if WATERMARK in metadata else None
        needed = -(-delay_us // 1000)
        if current is None or current >= needed:
            changed.append(frame)
            delays.append(current)
            continue
        try:
            changed.append(_with_delay(frame, needed))
        except _BlockedError as error:
            return Lengthened(frames, none, TooShort(column, current, needed, str(error)), unmarked=True)
        delays.append(needed)
    return Lengthened(changed, delays)


class _BlockedError(Exception):
    """Why a watermark cannot be changed: what lies between it and the result."""


def _with_delay(frame: DataFrame, delay_ms: int) -> DataFrame:
    if is_connect(frame):
        raise _BlockedError("with Spark Connect")
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    session = frame.sparkSession
    jvm = session._jvm
    assert jvm is not None
    analysed = _inlined(frame._jdf.queryExecution().analyzed(), jvm)
    plan = _lengthened(analysed, delay_ms, jvm)
    if plan is None:
        raise _BlockedError("in this plan")
    return ClassicDataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _inlined(plan: Any, jvm: Any) -> Any:
    """Return a plan with its common table expressions in place of their names, as Spark's optimiser puts them."""
    name = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
    # Versions of Spark differ in how many flags it has; all are off.
    count = jvm.java.lang.Class.forName(name).getConstructors()[0].getParameterCount()
    return jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(*[False] * count).apply(plan)


def _lengthened(plan: Any, delay_ms: int, jvm: Any) -> Any:
    """Return the plan with every watermark below lengthened, None where there is none; or raise what is in the way."""
    kind = plan.getClass().getSimpleName()
    if kind == "EventTimeWatermark":
        months_days_micros = (0, 0, delay_ms * 1000)
        delay = jvm.org.apache.spark.unsafe.types.CalendarInterval(*months_days_micros)
        # An id of its own: in a join of a stream with itself both sides start from one node, with different delays.
        return plan.copy(jvm.java.util.UUID.randomUUID(), plan.eventTime(), delay, plan.child())
    listed = plan.children()
    children = [listed.apply(at) for at in range(listed.size())]
    changed = [_lengthened(child, delay_ms, jvm) if child.isStreaming() else None for child in children]
    if all(child is None for child in changed):
        return None
    stateful_join = kind == "Join" and all(child.isStreaming() for child in children)
    if stateful_join or not (kind in _TRANSPARENT or _is_ours(plan, kind)):
        raise _BlockedError(f"below {_NAMES.get(kind, kind)}")
    kept = [old if new is None else new for old, new in zip(children, changed, strict=True)]
    return plan.withNewChildren(jvm.PythonUtils.toSeq(kept))


def _is_ours(plan: Any, kind: str) -> bool:
    """Whether this is a stateful operator of Braided's runtime, which does not look at the watermark."""
    if kind != "TransformWithStateInPySpark":
        return False
    output = plan.output()
    return str(output.apply(output.size() - 1).name()) == "__braided_report"
