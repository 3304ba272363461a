"""Reading reports out of a streaming query's progress, and describing how its joins are routed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from braided.compile.plan import describe
from braided.errors import ControlError, OptionError
from braided.operator.contract import Json
from braided.operator.report import Report, routing_lines
from braided.routing.table import BUCKETS, GRIDS, RoutingTable
from braided.spark.dataflow import METRIC
from braided.spark.registry import Watched, metrics_of, name_of, registries, registry_of
from braided.spark.routing import open_control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_report(query: Any, name: str | None = None) -> Report:
    """See `braided.report`."""
    if not hasattr(query, "recentProgress"):
        raise OptionError(f"query={type(query).__name__}: give the StreamingQuery that start() returned")
    names: set[str] = set()
    for progress in reversed(query.recentProgress):
        found = metrics_of(progress)
        names |= {name_of(metric) for metric in found}
        chosen = [metric for metric in found if name is None or name_of(metric) == name]
        if name is not None and len(chosen) > 1:
            raise OptionError(f"name={name!r}: {len(chosen)} operators of this query share it; give each its own")
        if chosen:
            metric, metrics = chosen[-1], progress.observedMetrics
            reports = [json.loads(text) for text in metrics[f"{METRIC}{metric}:work"]["reports"]]
            routed = [json.loads(text) for text in metrics[f"{METRIC}{metric}:route"]["reports"]]
            watched = _watched(metric)
            result = Report.of_workers(
                name_of(metric), progress.batchId, reports, _routing_of(watched, reports, routed)
            )
            result.query["id"] = str(query.id)
            return result
    if name is not None and names:
        raise OptionError(f"name={name!r}: this query has no such join; it has {', '.join(sorted(names))}")
    raise OptionError("query: no braided operator has reported yet; wait for its first batch with data, if it has one")


def _watched(metric: str) -> Watched | None:
    """Return the operator of a metric; None for one that this process did not make."""
    found = [registry.find(metric) for registry in registries()]
    return next((watched for watched in found if watched is not None), None)


def _routing_of(watched: Watched | None, reports: list[Json], routed: list[Json]) -> Json | None:
    """Describe the table that a batch used; None for an operator that this process did not make, or that has none."""
    if watched is None or watched.plan.joined is None or not reports or reports[0].get("table") is None:
        return None
    control = watched.routing.control
    table = watched.routing.table if control is None else control.table(reports[0]["table"][0])
    described = describe_routing(table, watched)
    rows = sum(report["rows"] for report in routed)
    if rows:
        described["copies_per_row"] = round(sum(report["copies"] for report in routed) / rows, 4)
    return described


def describe_routing(table: RoutingTable, watched: Watched) -> Json:
    """Return a table for people, as plain JSON: its scheme, grids with what lies on them, moves, decisions."""
    control = watched.routing.control
    labels = watched.controller.labels if watched.controller is not None else {}
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
        "control": None if control is None else control.location,
    }
    if control is not None:
        described["decisions"] = control.decisions()
    if watched.controller is not None:
        described["loads"] = watched.controller.loads()
    return described


def _grid(table: RoutingTable, number: int, what: str) -> Json:
    grid = table.grids[number]
    return {"what": what, "shape": grid.shape, "workers": list(grid.workers)}


def explain_frame(frame: DataFrame) -> str:
    """See `braided.explain`."""
    if not hasattr(frame, "_jdf"):
        raise OptionError(f"df={type(frame).__name__}: give a Spark DataFrame")
    plan = frame._jdf.queryExecution().analyzed().toString()
    numbers = sorted({int(number) for number in re.findall(rf"{re.escape(METRIC)}(\d+)-[0-9a-f]{{8}}:", plan)})
    found = registry_of(frame.sparkSession).numbered(numbers)
    lines = [line for watched in found for line in explain_operator(watched)]
    return "\n".join(lines) if lines else "no braided join in this DataFrame"


def explain_operator(watched: Watched) -> list[str]:
    """Return what one operator does, how its rows are laid over workers, and what else there is to say of it."""
    first, *notes = explain_plan(watched)
    lines = [first]
    if watched.plan.joined is not None:
        control = watched.routing.control
        table = watched.routing.table if control is None else control.newest()
        lines += routing_lines(describe_routing(table, watched))
        adapts = "fixed: give control= to let it adapt" if control is None else f"adapts by {control.location}"
        lines.append(f"    {adapts}")
    return lines + notes


def explain_plan(watched: Watched) -> list[str]:
    """Return what one operator does, whatever its routing."""
    lines = [f"{watched.name}: {describe(watched.plan)}", *(f"    {note}" for note in watched.notes)]
    if watched.plan.residual is not None:
        lines.append(f"    where={watched.plan.residual.where!r} runs in Spark: {watched.plan.residual.why}")
    return lines


def request_scale(control: str, workers: int | str) -> None:
    """See `braided.scale`."""
    if workers != "auto" and (type(workers) is not int or workers < 1):
        raise OptionError(f"workers={workers!r}: write a number of 1 or more, or 'auto'")
    directory = open_control(control)
    if not directory.versions():
        raise ControlError(f"control={control!r}: is no control directory of a join")
    directory.want(workers)
