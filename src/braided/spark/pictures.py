"""The query behind a DataFrame as a picture: Braided's operators with their descriptions, Spark's by their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braided.errors import OptionError
from braided.operators.aggregate.partial import HORIZON, PANE
from braided.picture import Box, draw, lay_out
from braided.runtime.contract import Json
from braided.spark.catalyst import PlanNode, is_classic, plan_of, running_plan_of
from braided.spark.dataflow import METRIC
from braided.spark.progress import explain_operator, explain_plan
from braided.spark.session_operators import Registry, Watched, registry_of
from braided.spark.sessions import refuse_connect
from braided.spark.tasks import REPORT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# The names of Spark's operators here; others, such as projections that only rename, are not drawn.
_NAMES = {"Filter": "filter", "Aggregate": "aggregate", "Union": "union", "Join": "join", "Deduplicate": "distinct"}
_LETTERS = 160
_FILES = "path, modificationTime, length, content"


def draw_frame(frame: DataFrame) -> str:
    """Return the picture of a DataFrame's query as SVG."""
    refuse_connect(frame, "svg")
    return draw(trace_frame(frame))


def trace_frame(frame: DataFrame) -> Box:
    """Return the query of a DataFrame, from its result back to its sources."""
    if not is_classic(frame):
        raise OptionError(f"df={type(frame).__name__}: give a Spark DataFrame")
    above = _Walk(registry_of(frame.sparkSession), explain_operator).boxes(plan_of(frame))
    return Box("result", "spark", [", ".join(frame.columns)], above)


def lay_out_query(query: StreamingQuery, session: SparkSession, registry: Registry) -> Json:
    """Return the picture of a running query, laid out; its routing, which may change, is left out."""
    plan = running_plan_of(query, session)
    return lay_out(Box("result", "spark", inputs=_Walk(registry, explain_plan).boxes(plan)))


@dataclass(frozen=True)
class _Walk:
    """Walks a plan of the JVM; the texts of our operators come from `explain`."""

    registry: Registry
    explain: Callable[[Watched], list[str]]

    def boxes(self, plan: PlanNode) -> list[Box]:
        """Return the boxes from which a plan's rows come: its own box, or the boxes below if it is not drawn."""
        kind = plan.kind
        if kind == "CollectMetrics" and plan.metric.startswith(METRIC) and plan.metric.endswith(":work"):
            return [self._operator(plan)]
        inputs = [box for child in plan.children for box in self.boxes(child)]
        text = re.sub(r"^\W+|#\d+L?|-T\d+ms", "", plan.line()) if kind in _NAMES else ""
        if kind in _NAMES and not _is_own(text, inputs):
            return [Box(f"Spark: {_NAMES[kind]}", "spark", [text[:_LETTERS]], inputs)]
        if not plan.children:
            shown = ", ".join(column.name for column in plan.output)
            return [Box("stream" if plan.is_streaming else "table", "source", [shown])]
        return inputs

    def _operator(self, plan: PlanNode) -> Box:
        """Return the box of one of our operators: its inputs are below its routers."""
        metric = plan.metric.removeprefix(METRIC).removesuffix(":work")
        watched = self.registry.find(metric)
        if watched is None:
            raise OptionError("df: has an operator from another process; draw it in that process")
        node = plan.child
        while not (node.kind == "CollectMetrics" and node.metric == f"{METRIC}{metric}:route"):
            node = node.children[0]
        routers, waiting = [], [node.child]
        while waiting:
            part = waiting.pop(0)
            if part.kind == "Union":
                waiting = [*part.children, *waiting]
            else:
                routers.append(part)
        first, *lines = self.explain(watched)
        inputs = []
        for router, stream in zip(routers, watched.plan.streams, strict=True):
            boxes = self.boxes(router)
            if [list(box.lines) for box in boxes] == [[_FILES]]:  # the routers read them
                boxes = [Box("stream of files", "source", [", ".join(stream.schema.names)])]
            inputs += boxes
        lines_of_box = [first.partition(": ")[2], *(line.strip() for line in lines)]
        return Box(f"Braided: {watched.name}", "braided", lines_of_box, inputs, metric)


def _is_own(text: str, inputs: list[Box]) -> bool:
    """Whether a filter belongs to one of our operators: it drops report rows, ticks, or rows without a pane."""
    if not text.startswith("Filter ") or [box.kind for box in inputs] != ["braided"]:
        return False
    merged = any("partial results" in line for line in inputs[0].lines)
    return REPORT in text or (merged and re.search(rf"\b({PANE}|{HORIZON})\b", text) is not None)
