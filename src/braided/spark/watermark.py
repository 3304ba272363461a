"""Native watermarks around a braided operator: reads them, lengthens them, and marks the result with them.

A native operator after a join drops rows older than Spark's watermark, and a result may be older than either
input's watermark by the width of the window. Spark's own join delays its output watermark for that reason;
an operator in Python cannot, and Spark refuses a second `withWatermark`. So the delay of the inputs' own
watermark is lengthened instead, in the query plan. No public API does this. If it is not possible, and with Spark
Connect, the result has no watermark: Spark then refuses an aggregate in append mode, which would lose rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from braided.durations import show_duration
from braided.operators.stream import TimeMarks
from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from braided.plan.nodes import Project

WATERMARK = "spark.watermarkDelayMs"
# How far a result's time may be behind the largest time of its column, and behind its sources' clocks.
DELAY = "braided.delayUs"
EXACT = "braided.delayIsExact"
OFFSETS = "braided.offsetsUs"
OPTIONAL = "braided.isOptional"
MIXED = "braided.isMixed"
BEHIND = "braided.behindUs"
# The sources have a watermark, but the result has none, since theirs is too short.
UNMARKED = "braided.watermarkTooShort"
MARKS = (WATERMARK, DELAY, EXACT, OFFSETS, OPTIONAL, MIXED, BEHIND, UNMARKED)

# For these operators a longer delay is harmless. They do not use the watermark; `Deduplicate` only forgets rows later.
TRANSPARENT = {
    "Project", "Filter", "SubqueryAlias", "Union", "Repartition", "RepartitionByExpression", "MapInArrow",
    "MapInPandas", "CollectMetrics", "Generate", "TypedFilter", "MapElements", "MapPartitions",
    "SerializeFromObject", "DeserializeToObject", "View", "ResolvedHint", "UnresolvedHint", "Expand",
    "AppendColumns", "BatchEvalPython", "ArrowEvalPython", "Sort", "RebalancePartitions", "Join", "Deduplicate",
}  # fmt: skip
_KEEPS_ROWS = {"Project", "Union", "Repartition", "RepartitionByExpression", "RebalancePartitions", "CollectMetrics"}
_NAMES = {
    "Filter": "a condition on the time itself",
    "TransformWithStateInPySpark": "another operator",
    "Aggregate": "an aggregate",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Join": "a join of Spark's own",
    "WithCTE": "a common table expression that is not deterministic",
}


def marks_of(metadata: Mapping[str, Any]) -> TimeMarks:
    """Return the marks in a column's metadata."""
    delay, watermark, offsets = (metadata.get(key) for key in (DELAY, WATERMARK, OFFSETS))
    return TimeMarks(
        None if delay is None else int(delay),
        int(metadata.get(BEHIND, 0)),
        None if watermark is None else int(watermark) * 1000,
        EXACT in metadata,
        None if offsets is None else (int(offsets[0]), int(offsets[1])),
        OPTIONAL in metadata,
        MIXED in metadata,
    )


def to_metadata(marks: TimeMarks, watermark_ms: int | None, *, unmarked: bool) -> dict[str, Any]:
    """Return marks as metadata, with the watermark that the inputs actually have."""
    metadata: dict[str, Any] = {BEHIND: marks.watermark_delay}
    if unmarked:
        metadata[UNMARKED] = 1
    if marks.delay is not None:
        metadata[DELAY] = marks.delay
    flags = {EXACT: marks.exact, OPTIONAL: marks.optional, MIXED: marks.mixed}
    metadata |= {key: 1 for key, is_set in flags.items() if is_set}
    if marks.offsets is not None:
        metadata[OFFSETS] = list(marks.offsets)
    if watermark_ms is not None:
        metadata[WATERMARK] = watermark_ms
    return metadata


def project(frame: DataFrame, node: Project) -> DataFrame:
    """Return a frame with the columns of a node, the smaller of two times with the marks that it then has."""
    if not node.times:
        return frame.selectExpr(*node.expressions)
    columns = [F.expr(text) for text in node.expressions]
    for time in node.times:
        both = [metadata_of(frame, column) for column in (time.left, time.right)]
        left, right = map(marks_of, both)
        marks = left.smaller_with(right, time.further)
        watermark_ms = None if marks.watermark is None else marks.watermark // 1000
        metadata = to_metadata(marks, watermark_ms, unmarked=any(UNMARKED in one for one in both))
        columns.append(F.expr(time.expression).alias(time.name, metadata=metadata))
    return frame.select(*columns)


def metadata_of(frame: DataFrame, column: str) -> dict[str, Any]:
    """Return the metadata of a column, in which both Spark and Braided store their marks."""
    metadata: dict[str, Any] = frame.schema[column].metadata or {}
    return metadata


@dataclass(frozen=True)
class TooShort:
    """A watermark that is shorter than the result needs, and why it cannot be lengthened."""

    column: str
    current_ms: int
    needed_ms: int
    reason: str

    def describe(self, names: Mapping[str, str]) -> str:
        """Return the problem and what to write, with the users' names of columns."""
        name = names.get(self.column, self.column)
        current, needed = (show_duration(ms * 1000) for ms in (self.current_ms, self.needed_ms))
        return (
            f"{name}: an aggregate of Spark's over this result needs a watermark delay of {needed} instead of "
            f"{current}, or results are lost, and Braided cannot change it {self.reason}; write withWatermark"
            f"({name.rpartition('.')[2]!r}, {needed!r}) there, and lateness={current!r} for the join"
        )


@dataclass(frozen=True)
class HeldBack:
    """Why rows that wait for a stream's clock may be late for Spark's watermark when they are returned."""

    column: str
    reason: str

    def describe(self, names: Mapping[str, str]) -> str:
        """Return the problem and what to write, with the users' names of columns."""
        name = names.get(self.column, self.column)
        return (
            f"{name}: rows that match nothing wait for this time, and {self.reason}; an aggregate of Spark's over this "
            "result would lose rows"
        )


@dataclass(frozen=True)
class Lengthened:
    """Inputs with watermarks that the result can use, each with its delay in milliseconds; or the reason why not."""

    frames: Sequence[DataFrame]
    delays_ms: Sequence[int | None]
    problem: TooShort | HeldBack | None = None
    unmarked: bool = False
    """Whether an input lost its watermark in an earlier operator."""


def lengthen_watermarks(
    frames: Sequence[DataFrame],
    columns: Sequence[str],
    delays_us: Sequence[int],
    learned: Mapping[int, bool] | None = None,
) -> Lengthened:
    """Return the inputs with a delay of at least `delays_us` for each watermark; inputs without one do not change.

    A query in Spark has one watermark, the least of all: one that is too short makes all of them useless. `learned` has
    the inputs for whose clock rows of the other input wait, each with whether its lateness is learned.
    """
    none = [None] * len(frames)
    problem = _held_back(frames, columns, learned or {})
    if problem is not None:
        return Lengthened(frames, none, problem, unmarked=True)
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
        except BlockedError as error:
            return Lengthened(frames, none, TooShort(column, current, needed, str(error)), unmarked=True)
        delays.append(needed)
    return Lengthened(changed, delays)


def _held_back(frames: Sequence[DataFrame], columns: Sequence[str], learned: Mapping[int, bool]) -> HeldBack | None:
    """Return why rows that wait for a clock could be returned behind Spark's watermark; None if they cannot.

    Spark's watermark follows the clock of an input if it sees the same rows, and waits as long as the join does.
    """
    is_marked = [WATERMARK in metadata_of(frame, column) for frame, column in zip(frames, columns, strict=True)]
    if not any(is_marked):
        return None
    for side, is_learned in learned.items():
        if not is_marked[side]:
            return HeldBack(columns[side], "it has no watermark, but the other input has one: write withWatermark")
        if is_learned:
            return HeldBack(
                columns[side],
                "its lateness is learned, and may grow beyond its watermark: leave lateness= out, or write a duration",
            )
        between = None if is_connect(frames[side]) else _drops_after_watermark(frames[side])
        if between is not None:
            return HeldBack(
                columns[side],
                f"{_NAMES.get(between, between)} drops rows after its watermark: write withWatermark after that",
            )
    return None


def _drops_after_watermark(frame: DataFrame) -> str | None:
    """Return the operator between the watermark of a stream and its end that may drop rows; None if there is none.

    Filters that Spark moves below the watermark are none of these.
    """
    nodes = [plan_of(frame).with_inlined_ctes().optimised()]
    while nodes:
        node = nodes.pop()
        if node.kind == "EventTimeWatermark" or not node.is_streaming:
            continue
        if node.kind not in _KEEPS_ROWS:
            return node.kind
        nodes += node.children
    return None


class BlockedError(Exception):
    """A watermark cannot be changed; the text has the operator between it and the result."""


def _with_delay(frame: DataFrame, delay_ms: int) -> DataFrame:
    if is_connect(frame):
        raise BlockedError("with Spark Connect")
    plan = _lengthened(plan_of(frame).with_inlined_ctes(), delay_ms)
    if plan is None:
        raise BlockedError("in this plan")
    return plan.to_frame()


def _lengthened(plan: PlanNode, delay_ms: int) -> PlanNode | None:
    """Return the plan with every watermark below lengthened; None if there is none. Raise if this is not possible."""
    if plan.kind == "EventTimeWatermark":
        return plan.with_watermark_delay(delay_ms)
    changed = [_lengthened(child, delay_ms) if child.is_streaming else None for child in plan.children]
    if all(child is None for child in changed):
        return None
    if is_stateful_join(plan) or not (plan.kind in TRANSPARENT or is_ours(plan)):
        raise BlockedError(f"below {called(plan)}")
    return plan.with_children([old if new is None else new for old, new in zip(plan.children, changed, strict=True)])


def called(plan: PlanNode) -> str:
    """Return the name of a node in messages."""
    return _NAMES.get(plan.kind, plan.kind)


def is_stateful_join(plan: PlanNode) -> bool:
    """Whether this is a join of streams by Spark itself."""
    return plan.kind == "Join" and all(child.is_streaming for child in plan.children)


def is_ours(plan: PlanNode) -> bool:
    """Whether this is a stateful operator of Braided's runtime, which does not use the watermark."""
    return plan.kind == "TransformWithStateInPySpark" and plan.output[-1].name == "__braided_report"
