"""The only front end on Spark: it turns a spec and its DataFrames into a DataFrame of results."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from braided.errors import OptionError
from braided.operators.asof.asof_join import AsofJoin
from braided.operators.join.outer_join import OuterJoin
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import Column, EngineFeatures, InputColumn, Plan
from braided.operators.registry import build
from braided.operators.shared_options import DefaultDuration, WithLateRows
from braided.operators.spec import Spec
from braided.operators.stream import TimeMarks
from braided.plan.explain import aggregate_notes
from braided.plan.optimiser import Optimised
from braided.plan.partials import Partials, with_partials
from braided.spark.batch import run_batch
from braided.spark.checkpoint_folder import least_bytes
from braided.spark.conf import is_ansi
from braided.spark.control import Fixed, find_control
from braided.spark.dataflow import Dataflow, stateful
from braided.spark.delay_column import with_delay
from braided.spark.direct import DirectInput, read_directly
from braided.spark.fields import result_field
from braided.spark.inputs import check_changes, check_frames, stream_of
from braided.spark.routing import count_workers, make_routing, plain_name
from braided.spark.session_operators import register
from braided.spark.sessions import check_python, check_stateful, keep_watermarks
from braided.spark.ticks import make_ticks
from braided.spark.watermark import Lengthened, lengthen_watermarks, to_metadata
from braided.time.propagated_delay import COLUMN
from braided.typing import Control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("braided")


def run(
    spec: Spec,
    frames: Sequence[DataFrame],
    *,
    name: str | None = None,
    control: Control = None,
    redact: bool = False,
    notes: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    aggregated: bool = False,
    partials: Partials | None = None,
    logical: Optimised | None = None,
) -> DataFrame:
    """Return the results of a spec over streaming DataFrames, or over batch ones by Spark's own operators.

    `notes` are further lines for explain. `names` are the users' names of the columns. `aggregated` means that Spark
    aggregates the result in the same query; with `partials` the operator does the first half of the aggregate.
    `logical` is the plan that the operator is part of.

    Everything is checked before anything is created: the control directory comes last.
    """
    labelled = dict(zip(spec.labels, frames, strict=True))
    session = check_frames(labelled)
    if len(frames) > 1 and spec.kind != "order":
        check_changes(labelled)
    streams = [stream_of(frame, label) for frame, label in zip(frames, spec.labels, strict=True)]
    ansi = is_ansi(session)
    if isinstance(spec, WithLateRows) and not frames[0].isStreaming:
        spec = replace(spec, late="join")  # no row is late
    place = find_control(session, spec, control, streaming=frames[0].isStreaming)
    adaptive, ends = not isinstance(place, Fixed), not frames[0].isStreaming
    plan = build(spec, streams, EngineFeatures(adaptive=adaptive, filters=True, ansi=ansi, ends=ends))
    if isinstance(spec, JoinSpec) and spec.where is not None:
        _check_where(session, spec.where, frames)
    if not frames[0].isStreaming:
        return run_batch(plan, frames)
    lines: list[str] = []
    if partials is not None:
        plan = with_partials(plan, partials)
        lines += aggregate_notes(plan)
    lines += notes
    check_stateful(frames[0])
    workers = count_workers(session)
    least_bytes(session)  # raises if it is not a number
    check_python(session)
    keep_watermarks(session, frames)
    with_delays = [
        frame if stream.marks_of(time).delay is None else with_delay(frame)
        for frame, stream, time in zip(frames, streams, plan.times, strict=True)
    ]
    lengthened = lengthen_watermarks(with_delays, plan.times, plan.watermark_delays, _awaited(plan))
    if lengthened.problem is not None:
        problem = lengthened.problem.describe(names or {})
        if aggregated:
            raise OptionError(problem)
        _log.warning("the result has no watermark: %s", problem)
        lines.append(f"the result has no watermark: {problem}")
    routing = make_routing(plan, workers, place, name=name, redact=redact)
    inputs: list[DataFrame | DirectInput] = []
    for frame, changed, stream in zip(frames, lengthened.frames, streams, strict=True):
        direct = read_directly(frame, ansi)
        if isinstance(direct, DirectInput):
            inputs.append(direct)
            lines.append(f"{stream.label}: its files are read by the routers")
            continue
        if direct is not None:
            lines.append(f"{stream.label}: its files are read by Spark: {direct}")
        inputs.append(changed)
    if makes_ticks(plan):
        lines.append("idle: when rows wait and all streams are silent for this long, a batch without rows is made")
    operator = plan.columns if plan.residual is None else plan.residual.columns
    watched, metric = register(session, plan, routing, name, lines, logical)
    marks = _marks(plan, lengthened)
    fields = StructType([result_field(column, frames, marks) for column in operator])

    # A number from this process could equal one of an earlier process in the same checkpoint: an operator whose inputs
    # were empty so far has no folder yet, and two operators with one folder would delete each other's files.
    home = f"{plain_name(name or spec.kind)}-{secrets.token_hex(4)}"
    ticks = None
    if makes_ticks(plan):
        assert plan.operator.idle is not None
        ticks, watched.ticks = make_ticks(session, plan.operator.idle, home)
    dataflow = Dataflow(
        plan.operator,
        inputs,
        fields,
        metric,
        routing,
        plan.propagated_delay,
        home,
        _time_columns(operator, plan.times),
        ticks,
    )
    results = stateful(dataflow)
    if plan.residual is None:
        watched.dataflow = dataflow
    else:
        results = _filtered(plan, results, frames, marks)
    # Dropped for the user; the next operator finds it again below the projection.
    return results.drop(COLUMN) if plan.propagated_delay is not None else results


def _time_columns(columns: Sequence[Column], times: Sequence[str]) -> dict[str, int]:
    """Return those columns of a result that are the times of a stream for the operator, each with the stream."""
    return {
        c.name: c.stream
        for c in columns
        if isinstance(c, InputColumn) and c.marks is not None and c.source == times[c.stream]
    }


def _awaited(plan: Plan) -> dict[int, bool]:
    """Return the inputs for whose clock rows of the other input wait, each with whether its lateness is learned."""
    operator = plan.operator
    if isinstance(operator, OuterJoin):
        sides = [1 - side for side in operator.preserved if operator.how != "left_semi"]
    else:
        sides = [1] if isinstance(operator, AsofJoin) else []
    return {side: not isinstance(operator.lateness[side], int) for side in sides}


def makes_ticks(plan: Plan) -> bool:
    """Whether a silence makes a batch without rows: if rows may wait, and `idle=` was given."""
    written = not isinstance(getattr(plan.spec, "idle", None), DefaultDuration)
    return plan.waits and plan.operator.idle is not None and written


def _check_where(session: SparkSession, where: str, frames: Sequence[DataFrame]) -> None:
    """Refuse a predicate that Spark cannot analyse, before anything is created."""
    sides = StructType([StructField(letter, frame.schema) for letter, frame in zip("lr", frames, strict=True)])
    try:
        _ = session.createDataFrame([], sides).where(where).schema  # Spark Connect analyses a plan only for its schema
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(f"where={where!r}: Spark reports: {reason}") from error


def _marks(plan: Plan, lengthened: Lengthened) -> Callable[[InputColumn, TimeMarks], dict[str, int]]:
    """Return how a time column is marked: with the watermark that its input actually has."""
    return lambda column, marks: to_metadata(
        marks, _wait(plan, column, lengthened.delays_ms), unmarked=lengthened.unmarked
    )


def _wait(plan: Plan, column: InputColumn, waits: Sequence[int | None]) -> int | None:
    """Return the delay of a column's watermark; if all inputs make up one time, the shortest; None for other times."""
    if column.source != plan.times[column.stream]:
        return None
    if isinstance(plan.spec, OrderSpec):
        return min((wait for wait in waits if wait is not None), default=None)
    return waits[column.stream]


def _filtered(
    plan: Plan,
    pairs: DataFrame,
    frames: Sequence[DataFrame],
    marks: Callable[[InputColumn, TimeMarks], dict[str, int]],
) -> DataFrame:
    """Let Spark evaluate the predicate on whole pairs, then choose the result's columns."""
    assert plan.residual is not None
    whole = plan.residual.columns
    sides = [
        F.struct(*(F.col(column.name).alias(column.source) for column in whole if column.stream == side)).alias(letter)
        for side, letter in enumerate("lr")
    ]
    at = {(column.stream, column.source): column.name for column in whole}
    chosen = [
        F.col(at[column.stream, column.source]).alias(
            column.name, metadata=result_field(column, frames, marks).metadata or {}
        )
        for column in plan.columns
        if isinstance(column, InputColumn)
    ]
    lateness_columns = [F.col(COLUMN)] if plan.propagated_delay is not None else []
    return pairs.select("*", *sides).where(F.expr(plan.residual.where)).select(*chosen, *lateness_columns)
