"""What the optimiser asks Spark about a plan's nodes: names, types and meanings, analysed on frames without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from braided.operators.physical import EngineFeatures, Plan
from braided.operators.registry import build
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project, Source, Union, Watermark, WithoutWatermark
from braided.spark.conf import is_ansi
from braided.spark.control import Fixed, find_control
from braided.spark.fields import planned_field
from braided.spark.inputs import check_kinds, stream_of
from braided.spark.safety import is_safe
from braided.spark.watermark import BlockedError, project
from braided.spark.windows import native_windows
from braided.spark.without_watermark import has_watermark, without_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkAnalysis:
    """Answers about the nodes of one plan; each is analysed once."""

    needs_time_zone = True

    def __init__(self, sources: Sequence[DataFrame]) -> None:
        self._sources = sources
        self._frames: dict[int, tuple[Node, DataFrame]] = {}
        self._plans: dict[int, tuple[Operator, Plan]] = {}

    @property
    def session(self) -> SparkSession:
        """The session of all sources."""
        session: SparkSession = self._sources[0].sparkSession
        return session

    @property
    def is_ansi(self) -> bool:
        """See `Analysis`."""
        return is_ansi(self.session)

    def columns(self, node: Node) -> list[str]:
        """See `Analysis`."""
        return list(self.frame(node).columns)

    def is_streaming(self, node: Node) -> bool:
        """See `Analysis`."""
        return any(self._sources[leaf.number].isStreaming for leaf in node.walk() if isinstance(leaf, Source))

    def has_watermark(self, node: Node) -> bool:
        """See `Analysis`."""
        if isinstance(node, Source):
            return has_watermark(self._sources[node.number])
        if isinstance(node, Watermark | WithoutWatermark):
            return isinstance(node, Watermark)
        return any(self.has_watermark(child) for child in node.inputs)

    def why_marked(self, node: WithoutWatermark) -> str | None:
        """See `Analysis`."""
        try:
            self.frame(node)
        except BlockedError as why:
            return str(why)
        return None

    def reads_alike(self, node: Node, condition: str, again: str) -> bool:
        """See `Analysis`."""
        frame = self.frame(node)
        return bool(frame.where(condition).sameSemantics(frame.where(again)))

    def is_safe(self, node: Node, expression: str) -> bool:
        """See `Analysis`."""
        return is_safe(self.frame(node), expression)

    def physical(self, node: Operator) -> Plan:
        """See `Analysis`."""
        known = self._plans.get(id(node))
        if known is None:
            labels = node.spec.labels
            streaming = {label: self.is_streaming(side) for label, side in zip(labels, node.inputs, strict=True)}
            check_kinds(streaming)
            streams = [stream_of(self.frame(side), label) for side, label in zip(node.inputs, labels, strict=True)]
            place = find_control(self.session, node.spec, node.control, streaming=all(streaming.values()))
            adaptive, ends = not isinstance(place, Fixed), not any(streaming.values())
            setting = EngineFeatures(adaptive=adaptive, filters=True, ansi=self.is_ansi, ends=ends)
            known = self._plans[id(node)] = node, build(node.spec, streams, setting)
        return known[1]

    def frame(self, node: Node) -> DataFrame:
        """Return a frame with the columns of a node, to analyse expressions over; an operator's frame has no rows."""
        known = self._frames.get(id(node))
        if known is None:
            known = self._frames[id(node)] = node, self._frame(node)
        return known[1]

    def _frame(self, node: Node) -> DataFrame:
        if isinstance(node, Source):
            return self._sources[node.number]
        if isinstance(node, Operator):
            inputs = [self.frame(side) for side in node.inputs]
            plan = self.physical(node)
            return self._empty(StructType([planned_field(column, inputs) for column in plan.columns]))
        if isinstance(node, Union):
            frames = [self.frame(child) for child in node.inputs]
            result = frames[0]
            for other in frames[1:]:
                result = result.unionByName(other)
            return result
        [child] = node.inputs
        below = self.frame(child)
        if isinstance(node, Filter):
            return below.where(node.condition)
        if isinstance(node, Project):
            return project(below, node)
        if isinstance(node, Watermark):
            return below.withWatermark(node.column, f"{node.delay} microseconds")
        if isinstance(node, WithoutWatermark):
            return without_watermark(below, node.column)
        assert isinstance(node, Aggregate)
        return native_windows(below, node)

    def _empty(self, schema: StructType) -> DataFrame:
        return self.session.createDataFrame([], schema)
