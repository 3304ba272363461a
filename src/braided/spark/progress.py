"""Reads reports from a streaming query's progress, and describes how its joins are routed."""

from __future__ import annotations

import contextlib
import io
import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from braided.errors import ControlError, OptionError
from braided.operators.physical import describe
from braided.plan.explain import explain_plan as explain_logical
from braided.plan.explain import is_worth_showing, spelled
from braided.plan.optimiser import Optimised
from braided.routing.control_directory import ControlDir
from braided.routing.table import BUCKETS, GRIDS, RoutingTable
from braided.runtime.contract import Json
from braided.runtime.report import Report, routing_lines
from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.control import InCheckpoint, open_control
from braided.spark.dataflow import METRIC
from braided.spark.session_operators import (
    Adapting,
    Watched,
    metrics_of,
    name_of,
    place_of,
    registries,
    registry_of,
    reports_of,
    root_of,
)
from braided.spark.sessions import is_connect
from braided.storage.files import is_remote
from braided.typing import StreamingQueryLike

_NATIVE = (
    "    an aggregate of its rows is Spark's: it was written with groupBy after other steps; groupBy(window(...)) "
    "right after the join, aggregate() of braided.stream, and braided.sql let one start in the workers of the join"
)


def read_report(query: Any, name: str | None = None, *, full: bool = False) -> Report:
    """See `braided.report`."""
    if not hasattr(query, "recentProgress"):
        raise OptionError(f"query={type(query).__name__}: give the StreamingQuery that start() returned")
    names: set[str] = set()
    for progress in reversed(query.recentProgress):
        metrics = metrics_of(progress)
        names |= {name_of(metric) for metric in metrics}
        chosen = [metric for metric in metrics if name is None or name_of(metric) == name]
        if name is not None and len(chosen) > 1:
            raise OptionError(
                f"name={name!r}: {len(chosen)} operators of this query have this name; give each its own name"
            )
        if chosen:
            metric, id_ = chosen[-1], str(query.id)
            reports, routed = (reports_of(progress, metric, part) for part in ("work", "route"))
            routing = _routing_of(_watched(metric), id_, reports, routed)
            result = Report.of_workers(name_of(metric), progress.batchId, reports, routing)
            result.query["id"] = id_
            return replace(result, full=full)
    if name is not None and names:
        raise OptionError(f"name={name!r}: unknown operator of this query; write one of {', '.join(sorted(names))}")
    raise OptionError("query: no braided operator has reported yet; wait for its first batch with data, if it has one")


def _watched(metric: str) -> Watched | None:
    """Return the operator of a metric; None if another process made it."""
    candidates = [registry.find(metric) for registry in registries()]
    return next((watched for watched in candidates if watched is not None), None)


def _routing_of(watched: Watched | None, query: str, reports: list[Json], routed: list[Json]) -> Json | None:
    """Describe the table that a batch used; None if there is none, if another process made it, or if it was deleted."""
    if watched is None or watched.plan.joined is None or not reports or reports[0].get("table") is None:
        return None
    adapting = watched.in_query(query)
    try:
        table = watched.table_of(adapting, reports[0])
    except ControlError:
        # Without checkpointLocation Spark deletes the query's temporary checkpoint when the query ends.
        if adapting is None or is_remote(adapting.control.location) or os.path.exists(adapting.control.location):
            raise
        return None
    described = describe_routing(table, watched, adapting)
    rows = sum(report["rows"] for report in routed)
    if rows:
        described["copies_per_row"] = round(sum(report["copies"] for report in routed) / rows, 4)
    return described


def describe_routing(table: RoutingTable, watched: Watched, adapting: Adapting | None) -> Json:
    """Return a readable form of a table, as plain JSON: its scheme, grids with their keys, moves, decisions."""
    controller = None if adapting is None else adapting.controller
    labels = {} if controller is None else controller.labels
    grids = []
    for at, key in enumerate(table.key_hashes.tolist()):
        number = int(table.live[BUCKETS + at, 0])
        shown = labels.get(key) if not watched.routing.redact else None
        if number >= GRIDS:
            grids.append(_grid(table, number, f"hot key {shown if shown is not None else f'{key:016x}'}"))
    if int(table.live[0, 0]) >= GRIDS:
        grids.append(_grid(table, int(table.live[0, 0]), "all rows"))
    described: Json = {
        "scheme": table.scheme,
        "version": table.version,
        "workers": table.workers,
        "in_use": len(table.in_use),
        "alive": len(np.unique(table.live[table.live >= 0])),
        "grids": grids,
        "moving": int((table.live[:BUCKETS, 1] >= 0).sum()),
        "control": None if adapting is None else adapting.control.location,
    }
    if adapting is not None:
        described["decisions"] = adapting.control.decisions()
    if controller is not None:
        described["loads"] = controller.loads()
    return described


def _grid(table: RoutingTable, number: int, what: str) -> Json:
    grid = table.grids[number]
    return {"what": what, "shape": grid.shape, "workers": list(grid.workers)}


def explain_frame(frame: DataFrame) -> str:
    """See `braided.explain`."""
    numbers = _numbers(frame)
    registry = registry_of(frame.sparkSession)
    operators = registry.numbered(numbers)
    notes = registry.notes_of(frame)
    native = set() if is_connect(frame) else _aggregated_by_spark(plan_of(frame))
    lines: list[str] = []
    plans: list[Optimised] = []
    for watched in operators:
        lines += explain_operator(watched)
        reasons = [note for note in (*watched.notes, *notes) if note.startswith("the aggregate after it")]
        if watched.number in native and not reasons:
            lines.append(_NATIVE)
        if watched.logical is not None and watched.logical not in plans and is_worth_showing(watched.logical):
            plans.append(watched.logical)
    lines += [line for optimised in plans for line in explain_logical(optimised)]
    return "\n".join([*(lines or ["no braided join in this DataFrame"]), *notes])


def _aggregated_by_spark(plan: PlanNode) -> set[int]:
    """Return the numbers of the operators whose rows an aggregate of Spark's reads, with any steps in between."""
    if plan.kind == "CollectMetrics" and plan.metric.startswith(METRIC):
        return set()
    if plan.kind != "Aggregate":
        return set().union(*map(_aggregated_by_spark, plan.children))
    numbers: set[int] = set()
    waiting = list(plan.children)
    while waiting:
        node = waiting.pop()
        if node.kind == "CollectMetrics" and node.metric.startswith(METRIC):
            numbers.add(int(node.metric.removeprefix(METRIC).partition("-")[0]))
        else:
            waiting += node.children
    return numbers


def _numbers(frame: DataFrame) -> list[int]:
    """Return the numbers of the operators of a DataFrame, by the metrics in its plan."""
    if not isinstance(frame, DataFrame):
        raise OptionError(f"df={type(frame).__name__}: give a Spark DataFrame")
    if is_connect(frame):
        # Spark Connect has the plan only as text, and prints it.
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            frame.explain(extended=True)
        plan = shown.getvalue()
    else:
        plan = plan_of(frame).text
    return sorted({int(number) for number in re.findall(rf"{re.escape(METRIC)}(\d+)-[0-9a-f]{{8}}:", plan)})


def explain_operator(watched: Watched) -> list[str]:
    """Return what one operator does, how its rows are distributed to workers, and its notes."""
    first, *notes = explain_plan(watched)
    lines = [first]
    if watched.plan.joined is not None:
        adapting = next(reversed(watched.adapting.values()), None) or _own(watched)
        published = adapting is not None and adapting.control.versions()
        table = adapting.control.newest() if adapting is not None and published else watched.routing.first()
        lines += routing_lines(describe_routing(table, watched, adapting))
        lines.append(f"    {_adapts(watched, adapting)}")
    return lines + notes


def explain_plan(watched: Watched) -> list[str]:
    """Return what one operator does, without its routing."""
    lines = [f"{watched.name}: {describe(watched.plan)}", *(f"    {note}" for note in watched.notes)]
    if watched.plan.residual is not None:
        lines.append(f"    where={watched.plan.residual.where!r} runs in Spark: {watched.plan.residual.why}")
    return lines if watched.logical is None else [spelled(line, watched.logical.names) for line in lines]


def _own(watched: Watched) -> Adapting | None:
    """Return the routing of an operator with its own directory, which can be found without a query."""
    control = watched.routing.control
    return Adapting(control) if isinstance(control, ControlDir) else None


def _adapts(watched: Watched, adapting: Adapting | None) -> str:
    if adapting is not None:
        return f"adapts by {adapting.control.location}"
    if isinstance(watched.routing.control, InCheckpoint):
        return f"adapts by {place_of(watched)}/{watched.routing.operator}"
    root = root_of(watched)
    return (
        f"fixed: {watched.routing.fixed}" if root is None else f"adapts by {root}/<query id>/{watched.routing.operator}"
    )


def request_scale(control: str | os.PathLike[str] | StreamingQueryLike, workers: int | str, name: str | None) -> None:
    """See `braided.scale`."""
    if workers != "auto" and (type(workers) is not int or workers < 1):
        raise OptionError(f"workers={workers!r}: write a number of 1 or more, or 'auto'")
    location = control if isinstance(control, str | os.PathLike) else _location(control, name)
    directory = open_control(location)
    if not directory.versions() and not _is_control(directory):
        raise ControlError(
            f"control={str(location)!r}: not a control directory of a join; give the one that the report names"
        )
    directory.want(workers)


def _is_control(directory: ControlDir) -> bool:
    """Whether a directory belongs to a join that has not started yet."""
    return any(
        isinstance(control, ControlDir) and control.location == directory.location
        for registry in registries()
        for control in registry.controls()
    )


def _location(query: StreamingQueryLike, name: str | None) -> str:
    """Return the control directory of a query's operator, from its report."""
    report = read_report(query, name)
    location = None if report.routing is None else report.routing["control"]
    if location is None:
        raise OptionError(f"query: the routing of {report.query['name']} is fixed; `braided.explain` shows the reason")
    return str(location)
