"""Rows that come later than the marks of their times say: after a union, and after Spark's own stateful operators.

A union in Spark has the metadata of its first input, although the others may be later, and each has a clock of its own.
A join or an aggregate of Spark's own keeps the metadata of a time whose rows wait in it. What is known of such times is
only the least lateness, so that the next operator learns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from braided.operators.stream import TimeMarks
from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.sessions import is_connect
from braided.spark.watermark import is_ours, marks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Nodes in which rows of one stream wait.
_WAITING = ("Aggregate", "FlatMapGroups", "TransformWithState")


def with_later_rows(frame: DataFrame, marks: Mapping[str, TimeMarks]) -> Mapping[str, TimeMarks]:
    """Return the marks of a frame's times as they hold for all of its rows."""
    if not marks or is_connect(frame):
        return marks
    mixed = _mixed(plan_of(frame))
    if mixed is None:
        return marks
    below = [marks_of(metadata) for child in mixed.children for metadata in child.metadata]
    delay = max((mark.delay or mark.watermark or 0 for mark in below), default=0)
    behind = max((mark.watermark_delay for mark in below), default=0)
    return {
        name: replace(mark, delay=delay, watermark_delay=max(mark.watermark_delay, behind), exact=False, offsets=None)
        for name, mark in marks.items()
    }


def _mixed(plan: PlanNode) -> PlanNode | None:
    """Return the first node below that mixes streams or lets rows wait, up to a watermark or an operator of ours."""
    while plan.children and plan.kind != "EventTimeWatermark":
        if is_ours(plan):
            return None
        streams = [child for child in plan.children if child.is_streaming] or list(plan.children)
        if plan.kind == "Union" or plan.kind.startswith(_WAITING) or (plan.kind == "Join" and len(streams) > 1):
            return plan
        plan = streams[0]
    return None
