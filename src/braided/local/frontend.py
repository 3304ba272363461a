"""The local front end: it runs a spec over its tables, and returns a table of results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.balance.controller import Controller
from braided.errors import OptionError
from braided.local.reading import (
    cut_into_batches,
    in_microseconds,
    in_zones_of,
    moments_of_arrival,
    order_of_arrival,
    read,
)
from braided.local.results import LocalResult, split_late
from braided.local.runtime import LocalRuntime
from braided.operators.detect.spec import DetectSpec
from braided.operators.late_rows import WithoutLateRows
from braided.operators.match.spec import MatchSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures, Plan
from braided.operators.registry import build
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import Spec
from braided.operators.stream import Stream
from braided.plan.partials import Partials, with_partials
from braided.routing.start import first_table
from braided.typing import ArrowData

Arrival = str | Sequence[str] | None


def run(
    spec: Spec,
    data: Sequence[ArrowData],
    *,
    workers: int = 1,
    arrival: Arrival = None,
    batch_rows: int = 100_000,
    name: str | None = None,
    partials: Partials | None = None,
) -> LocalResult:
    """Run a spec over Arrow data, batch by batch, and return its results; at the end, all waiting rows are released.

    With `partials`, the first part of an aggregate is in the operator.
    """
    for option, value in (("workers", workers), ("batch_rows", batch_rows)):
        if not isinstance(value, int) or value < 1:
            raise OptionError(f"{option}={value!r}: write a number of 1 or more")
    tables = tables_of(spec, data)
    streams = [Stream(label, table.schema) for label, table in zip(spec.labels, tables, strict=True)]
    # With a budget, the result depends on which worker stores which rows; without one, only the speed does.
    adaptive = workers > 1 and getattr(spec, "memory", None) is None
    plan = build(spec, streams, EngineFeatures(adaptive=adaptive))
    if partials is not None:
        plan = with_partials(plan, partials)
    runtime = _runtime(plan, workers, adaptive=adaptive)
    order = _order(spec, tables, arrival, plan.times)
    moments = None if plan.operator.idle is None else moments_of_arrival(tables, arrival)
    pieces: list[pa.RecordBatch] = []
    for number, batch in enumerate(cut_into_batches(tables, order, batch_rows)):
        last = order[min(len(order), (number + 1) * batch_rows) - 1]
        pieces += runtime.run_batch(batch, moment=None if moments is None else int(moments[last]))
    if plan.waits:
        pieces += runtime.run_batch([(0, [])], final=True)
    report = runtime.report()
    if name is not None:
        report.query["name"] = name
    table = pa.Table.from_batches(pieces, plan.operator.output)
    if isinstance(plan.operator, WithoutLateRows) and plan.operator.aside:
        results, late = split_late(table, plan.operator.inputs)
        return LocalResult(results, report, late)
    return LocalResult(table, report)


def _runtime(plan: Plan, workers: int, *, adaptive: bool) -> LocalRuntime:
    """Return the runtime; with a controller if the routing adapts, as on Spark with a control directory."""
    table = first_table(plan.scheme, workers, keyed=plan.keyed, version=1)
    controller = None
    if adaptive and plan.joined is not None and plan.fixed is None:
        controller = Controller(
            table,
            plan.joined.window,
            measure="work",
            most_columns=plan.joined.most_columns,
            home=plan.joined.home,
        )
    runtime = LocalRuntime(plan.operator, workers, controller=controller)
    runtime.table = table
    return runtime


def tables_of(spec: Spec, data: Sequence[ArrowData]) -> list[pa.Table]:
    """Read the inputs, with time columns in microseconds as on Spark."""
    tables = [read(part, label) for part, label in zip(data, spec.labels, strict=True)]
    for number, table in enumerate(tables):
        name = str(spec.time_of(number))
        matching = [column for column in table.column_names if column.lower() == name.lower()]
        column = name if name in table.column_names else matching[0] if len(matching) == 1 else None
        if column is not None:
            tables[number] = in_microseconds(table, column)
    return [in_zones_of(table, tables[0].schema) for table in tables] if isinstance(spec, OrderSpec) else tables


def _order(spec: Spec, tables: Sequence[pa.Table], arrival: Arrival, times: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the order of arrival; a single stream that is put in order arrives in the order of its rows."""
    if isinstance(spec, OrderSpec | MatchSpec | DetectSpec | RowWindowsSpec) and arrival is None and len(tables) == 1:
        return np.arange(tables[0].num_rows)
    return order_of_arrival(tables, arrival, times)
