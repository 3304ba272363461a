"""`braided.join` on Spark DataFrames: read the options, run the operator, name and mark the result."""

from __future__ import annotations

import datetime
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from braided.durations import Duration
from braided.errors import BraidedError
from braided.joins.arrivals import OutputColumn
from braided.joins.predicates.compile import Predicate, Uncompilable, compile_where
from braided.joins.window_join import WindowJoin
from braided.operator.contract import Operator
from braided.routing.keys import common_key_type
from braided.spark.dataflow import Routing, check_session, stateful, with_delay
from braided.spark.driver import watch
from braided.spark.inputs import arrow_schema, check_frames
from braided.spark.planning import is_collated, learned_delay, make_routing, mark_time, result_schema, stream_lateness
from braided.specs.join_options import (
    JoinNames,
    On,
    build_join,
    check_how,
    check_theta,
    check_time_types,
    resolve_bounds,
    resolve_columns,
    resolve_names,
)
from braided.time.clocks import Window
from braided.time.resolve import how_learned, least, resolve_idle, resolve_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger("braided")
_numbers = itertools.count(1)
_SIDES = ("left", "right")


def join_frames(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Any = None,
    idle: Duration | None = None,
    workers: int | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    how: str = "inner",
    name: str | None = None,
    partition: str = "auto",
    control: str | None = None,
    redact: bool = False,
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
) -> DataFrame:
    """See `braided.join`."""
    check_how(how)
    check_theta(on, where)
    session = check_frames({"left": left, "right": right})
    lo, hi = resolve_bounds(within, between)
    given = resolve_rules(lateness, 2)
    names = resolve_names(on, time, left.columns, right.columns)
    _check_keys(names, (left, right))
    schemas = (arrow_schema(left, "left"), arrow_schema(right, "right"))
    check_time_types(names.times, *schemas)
    columns = resolve_columns(names, left.columns, right.columns, suffixes)
    if not left.isStreaming:
        for pair in zip(*names.keys, strict=True):
            common_key_type(schemas[0].field(pair[0]).type, schemas[1].field(pair[1]).type, pair)
        return _batch_join(left, right, names, (lo, hi), where, columns)

    routing = make_routing(check_session(session, workers), partition, control, redact, keyed=bool(names.keys[0]))
    frames = (left, right)
    rules = [stream_lateness(frame, names, side, given) for side, frame in enumerate(frames)]
    window = Window(lo, hi, tuple(map(least, rules)))
    predicate = _compile(where, frames, schemas, session)
    marked, marks = [], []
    for side, frame in enumerate(frames):
        changed, mark = mark_time(with_delay(frame), names.times[side], window, side)
        marked.append(changed)
        marks.append(mark)
    operator = build_join(
        names, schemas, window, suffixes, predicate, where, learned=how_learned(rules), idle=resolve_idle(idle)
    )
    label = name or f"join-{next(_numbers)}"
    limited = _limit(memory, evict, share, shed, control)
    limited(operator)  # a bad budget is told before anything else happens
    watch(session, label, operator, routing)
    if where is None or predicate is not None:
        output = result_schema(operator.columns, names, frames, marks)
        hand_on = learned_delay(window, rules) if memory is None else None
        return stateful(limited(operator), marked, output, name=label, routing=routing, hand_on=hand_on)
    if not names.keys[0]:
        _log.warning("where=%r: only Spark can evaluate it, so every pair within the window is emitted first", where)
    return _filtered_by_spark(operator, where, names, frames, marked, marks, label, routing, limited)


def _limit(
    memory: int | str | None, evict: Any, share: str, shed: float | str | None, control: str | None
) -> Callable[[WindowJoin], Operator]:
    """Return what gives a join its budget, or takes a share of its rows."""
    if memory is None and shed is None:
        return lambda join: join
    from braided.specs.budget import limit

    return lambda join: limit(join, memory, evict, share, shed, adapts=control is not None)


def _check_keys(names: JoinNames, frames: tuple[DataFrame, DataFrame]) -> None:
    for side, frame, keys in zip(_SIDES, frames, names.keys, strict=True):
        for key in keys:
            kind = frame.schema[key].dataType
            if is_collated(kind):
                raise BraidedError(
                    f"on={key!r}: the {side} key has type {kind.simpleString()}; collated keys are not supported, "
                    "cast it to string"
                )


def _compile(
    where: str | None,
    frames: tuple[DataFrame, DataFrame],
    schemas: tuple[pa.Schema, pa.Schema],
    session: SparkSession,
) -> Predicate | None:
    """Return the predicate as kernels, or None where only Spark can evaluate it."""
    if where is None:
        return None
    if not isinstance(where, str) or not where.strip():
        raise BraidedError(f"where={where!r}: write a SQL predicate over l. and r. columns")
    if str(session.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        _log.info("where=%r: evaluated by Spark after the join, since ANSI mode is off", where)
        return None
    try:
        predicate = compile_where(where, *schemas)
    except Uncompilable as reason:
        _log.info("where=%r: evaluated by Spark after the join: %s", where, reason)
        return None
    for frame, names in zip(frames, (predicate.left, predicate.right), strict=True):
        if any(is_collated(frame.schema[name].dataType) for name in names):
            _log.info("where=%r: evaluated by Spark after the join, since a column is collated", where)
            return None
    return predicate


def _filtered_by_spark(
    operator: WindowJoin,
    where: str,
    names: JoinNames,
    frames: tuple[DataFrame, DataFrame],
    marked: list[DataFrame],
    marks: list[dict[str, int]],
    label: str,
    routing: Routing,
    limited: Callable[[WindowJoin], Operator],
) -> DataFrame:
    """Let Spark evaluate the predicate on whole pairs, then choose the result's columns."""
    whole = tuple(
        OutputColumn(f"{'lr'[side]}{number}", side, source)
        for side, frame in enumerate(frames)
        for number, source in enumerate(frame.columns)
    )
    wide = replace(operator, columns=whole, where=None, where_text=where, theta=None)
    schema = result_schema(whole, names, frames, marks)
    pairs = stateful(limited(wide), marked, schema, name=label, routing=routing)
    sides = [
        F.struct(*(F.col(column.name).alias(column.source) for column in whole if column.side == side)).alias(letter)
        for side, letter in enumerate("lr")
    ]
    at = {(column.side, column.source): column.name for column in whole}
    final = result_schema(operator.columns, names, frames, marks)
    return (
        pairs.select("*", *sides)
        .where(F.expr(where))
        .select(
            *(
                F.col(at[column.side, column.source]).alias(column.name, metadata=field.metadata)
                for column, field in zip(operator.columns, final.fields, strict=True)
            )
        )
    )


def _batch_join(
    left: DataFrame,
    right: DataFrame,
    names: JoinNames,
    bounds: tuple[int, int],
    where: str | None,
    columns: tuple[OutputColumn, ...],
) -> DataFrame:
    """Spark's own join, with our time condition and our columns."""

    def column(side: int, source: str) -> Column:
        return F.col(f"{'lr'[side]}.`{source.replace('`', '``')}`")

    times = [column(side, names.times[side]) for side in (0, 1)]
    lo, hi = bounds
    condition: Column
    if isinstance(left.schema[names.times[0]].dataType, TimestampNTZType):
        # Exact for times without a zone; for zoned ones Spark would subtract local times across DST changes.
        condition = (times[1] - times[0]).between(
            F.lit(datetime.timedelta(microseconds=lo)), F.lit(datetime.timedelta(microseconds=hi))
        )
    else:
        condition = (F.unix_micros(times[1]) - F.unix_micros(times[0])).between(F.lit(lo), F.lit(hi))
    for a, b in zip(*names.keys, strict=True):
        condition = (column(0, a) == column(1, b)) & condition
    if where is not None:
        condition = condition & F.expr(where)
    joined = left.alias("l").join(right.alias("r"), condition, "inner")
    return joined.select(*(column(c.side, c.source).alias(c.name) for c in columns))
