"""The query behind a DataFrame as a picture: Braided's operators with what they say, Spark's by their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braided.aggregates.partial import HORIZON, PANE
from braided.errors import OptionError
from braided.operator.contract import Json
from braided.picture import Box, draw, lay_out
from braided.spark.dataflow import METRIC
from braided.spark.plans import kind_of
from braided.spark.progress import explain_operator, explain_plan
from braided.spark.registry import Registry, Watched, registry_of
from braided.spark.sessions import refuse_connect
from braided.spark.tasks import REPORT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What Spark's operators are called here; others, such as projections that only rename, are not drawn.
_NAMES = {"Filter": "filter", "Aggregate": "aggregate", "Union": "union", "Join": "join", "Deduplicate": "distinct"}
_LETTERS = 160
_FILES = "path, modificationTime, length, content"


def draw_frame(frame: DataFrame) -> str:
    """Return the picture of a DataFrame's query as SVG."""
    refuse_connect(frame, "svg")
    return draw(trace_frame(frame))


def trace_frame(frame: DataFrame) -> Box:
    """Return the query of a DataFrame, from its result back to its sources."""
    if not hasattr(frame, "_jdf"):
        raise OptionError(f"df={type(frame).__name__}: give a Spark DataFrame")
    above = _Walk(registry_of(frame.sparkSession), explain_operator).boxes(frame._jdf.queryExecution().analyzed())
    return Box("result", "spark", [", ".join(frame.columns)], above)


def lay_out_query(query: Any, registry: Registry) -> Json:
    """Return the picture of a running query, laid out; its routing, which may change, is left out."""
    plan = query._jsq.streamingQuery().logicalPlan()
    return lay_out(Box("result", "spark", inputs=_Walk(registry, explain_plan).boxes(plan)))


@dataclass(frozen=True)
class _Walk:
    """Walks a plan of the JVM; `explain` says what there is to say of one of our operators."""

    registry: Registry
    explain: Callable[[Watched], list[str]]

    def boxes(self, plan: Any) -> list[Box]:
        """Return the boxes from which a plan's rows come: its own, or those below where it is not worth one."""
        kind = kind_of(plan)
        below = _children(plan)
        if kind == "CollectMetrics" and str(plan.name()).startswith(METRIC) and str(plan.name()).endswith(":work"):
            return [self._operator(plan)]
        inputs = [box for child in below for box in self.boxes(child)]
        said = re.sub(r"^\W+|#\d+L?|-T\d+ms", "", str(plan.simpleString(25))) if kind in _NAMES else ""
        if kind in _NAMES and not _is_own(said, inputs):
            return [Box(f"Spark: {_NAMES[kind]}", "spark", [said[:_LETTERS]], inputs)]
        if not below:
            shown = ", ".join(
                str(name) for name in (plan.output().apply(at).name() for at in range(plan.output().size()))
            )
            return [Box("stream" if plan.isStreaming() else "table", "source", [shown])]
        return inputs

    def _operator(self, plan: Any) -> Box:
        """Return the box of one of our operators: its inputs are below its routers."""
        metric = str(plan.name()).removeprefix(METRIC).removesuffix(":work")
        watched = self.registry.find(metric)
        if watched is None:
            raise OptionError("df: has an operator that another process made; draw it there")
        node = _children(plan)[0]
        while not (kind_of(node) == "CollectMetrics" and str(node.name()) == f"{METRIC}{metric}:route"):
            node = _children(node)[0]
        routers, waiting = [], [_children(node)[0]]
        while waiting:
            part = waiting.pop(0)
            if kind_of(part) == "Union":
                waiting = [*_children(part), *waiting]
            else:
                routers.append(part)
        first, *lines = self.explain(watched)
        inputs = []
        for router, stream in zip(routers, watched.plan.streams, strict=True):
            found = self.boxes(router)
            if [list(box.lines) for box in found] == [[_FILES]]:  # the routers read them
                found = [Box("stream of files", "source", [", ".join(stream.schema.names)])]
            inputs += found
        told = [first.partition(": ")[2], *(line.strip() for line in lines)]
        return Box(f"Braided: {watched.name}", "braided", told, inputs, metric)


def _is_own(said: str, inputs: list[Box]) -> bool:
    """Whether a filter is part of how our operators run: it drops report rows, ticks, or rows without a pane."""
    if not said.startswith("Filter ") or [box.kind for box in inputs] != ["braided"]:
        return False
    merged = any("partial results" in line for line in inputs[0].lines)
    return REPORT in said or (merged and re.search(rf"\b({PANE}|{HORIZON})\b", said) is not None)


def _children(plan: Any) -> list[Any]:
    found = plan.children()
    return [found.apply(at) for at in range(found.size())]
