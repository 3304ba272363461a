"""`braided.join` on Spark DataFrames: read the options, run the operator, name and mark the result."""

from __future__ import annotations

import datetime
import itertools
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampNTZType

from braided.errors import BraidedError
from braided.join.operator import OutputColumn, WindowJoin
from braided.join.options import (
    Duration,
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
from braided.join.where import Predicate, Uncompilable, compile_where
from braided.order.clocks import Window
from braided.order.lateness import Lateness
from braided.order.resolve import how_learned, learned_above, least, resolve_idle, resolve_rules
from braided.routing.control import ControlDir
from braided.routing.keys import common_key_type
from braided.routing.start import first_table
from braided.runtime.driver import watch
from braided.runtime.operator import Operator
from braided.runtime.spark import Routing, check_session, stateful
from braided.runtime.watermark import BEHIND, DELAY, WATERMARK, lengthen_watermark, metadata_of

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
    session = _check_inputs(left, right)
    lo, hi = resolve_bounds(within, between)
    given = resolve_rules(lateness, 2)
    names = resolve_names(on, time, left.columns, right.columns)
    _check_keys(names, (left, right))
    schemas = (_arrow_schema(left, "left"), _arrow_schema(right, "right"))
    check_time_types(names.times, *schemas)
    columns = resolve_columns(names, left.columns, right.columns, suffixes)
    if not left.isStreaming:
        for pair in zip(*names.keys, strict=True):
            common_key_type(schemas[0].field(pair[0]).type, schemas[1].field(pair[1]).type, pair)
        return _batch_join(left, right, names, (lo, hi), where, columns)

    routing = _routing(check_session(session, workers), partition, control, redact, keyed=bool(names.keys[0]))
    frames = (left, right)
    rules = [_lateness(frame, names, side, given) for side, frame in enumerate(frames)]
    window = Window(lo, hi, tuple(map(least, rules)))
    predicate = _compile(where, frames, schemas, session)
    marked, marks = [], []
    for side, frame in enumerate(frames):
        changed, mark = _mark(frame, names.times[side], window, side)
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
        output = _spark_schema(operator.columns, names, frames, marks)
        return stateful(limited(operator), marked, output, name=label, routing=routing)
    if not names.keys[0]:
        _log.warning("where=%r: only Spark can evaluate it, so every pair within the window is emitted first", where)
    return _filtered_by_spark(operator, where, names, frames, marked, marks, label, routing, limited)


def _limit(
    memory: int | str | None, evict: Any, share: str, shed: float | str | None, control: str | None
) -> Callable[[WindowJoin], Operator]:
    """Return what gives a join its budget, or takes a share of its rows."""
    if memory is None and shed is None:
        return lambda join: join
    from braided.join.budget import limit

    return lambda join: limit(join, memory, evict, share, shed, adapts=control is not None)


def _routing(workers: int, partition: str, control: str | None, redact: bool, *, keyed: bool) -> Routing:
    """Return how router tasks find their table; open the control directory, with its first table if it has none."""
    if control is None:
        if partition == "auto" and keyed:
            _log.info("no control=: the routing is fixed, so hot keys and hot workers stay where they are")
        return Routing(first_table(partition, workers, keyed=keyed, version=0))
    if not isinstance(control, (str, os.PathLike)) or not str(control):
        raise BraidedError(f"control={control!r}: write a directory or an fsspec URL that all executors can reach")
    first = first_table(partition, workers, keyed=keyed, version=1)
    location = str(control)
    directory = ControlDir(location if "://" in location else os.path.abspath(location))
    directory.check()
    if not directory.versions():
        directory.publish(first)
    newest = directory.newest()
    if newest.workers != workers:
        raise BraidedError(
            f"control={location!r}: its tables are for {newest.workers} workers, this session has {workers}; set "
            f"spark.sql.shuffle.partitions={newest.workers} or give another directory"
        )
    if newest.scheme != first.scheme:
        raise BraidedError(
            f"partition={partition!r}: control={location!r} was made for {newest.scheme!r}; give another directory"
        )
    return Routing(newest, directory, redact)


def _check_inputs(left: Any, right: Any) -> SparkSession:
    from pyspark.sql import DataFrame

    for side, frame in zip(_SIDES, (left, right), strict=True):
        if not isinstance(frame, DataFrame):
            raise BraidedError(
                f"{side}: {type(frame).__name__} is not a Spark DataFrame; for Arrow data use braided.local.join"
            )
        if type(frame).__module__.startswith("pyspark.sql.connect"):
            raise BraidedError(f"{side}: Spark Connect is not supported yet; use a classic SparkSession")
    if left.isStreaming != right.isStreaming:
        streaming, batch = ("left", "right") if left.isStreaming else ("right", "left")
        raise BraidedError(
            f"{streaming} is streaming and {batch} is not; give two streams or two batch DataFrames "
            "(Spark's own join does a stream with a table)"
        )
    session: SparkSession = left.sparkSession
    return session


def _arrow_schema(frame: DataFrame, side: str) -> pa.Schema:
    fields = []
    for field in frame.schema.fields:
        try:
            fields += list(to_arrow_schema(StructType([field]), timezone="UTC"))
        except Exception as error:
            raise BraidedError(
                f"{side}: column {field.name!r} of type {field.dataType.simpleString()} cannot be carried in Arrow; "
                "drop or cast it"
            ) from error
    return pa.schema([field.remove_metadata() for field in fields])


def _check_keys(names: JoinNames, frames: tuple[DataFrame, DataFrame]) -> None:
    for side, frame, keys in zip(_SIDES, frames, names.keys, strict=True):
        for key in keys:
            kind = frame.schema[key].dataType
            if _is_collated(kind):
                raise BraidedError(
                    f"on={key!r}: the {side} key has type {kind.simpleString()}; collated keys are not supported, "
                    "cast it to string"
                )


class TimeNames(Protocol):
    """The time column of each input."""

    @property
    def times(self) -> tuple[str, ...]:
        """The columns."""


def _lateness(
    frame: DataFrame, names: TimeNames, side: int, given: tuple[int | Lateness | None, ...]
) -> int | Lateness:
    """Return a stream's lateness: as given, else of its watermark, else learned. What is learned hands its K on.

    A result of another braided operator brings the bound of its delay, as far as that is known beforehand.
    """
    metadata = metadata_of(frame, names.times[side])
    chosen, behind = given[side], int(metadata.get(DELAY, 0))
    if isinstance(chosen, int):
        return behind + chosen
    if chosen is None and DELAY not in metadata and WATERMARK in metadata:
        return int(metadata[WATERMARK]) * 1000
    return learned_above(Lateness() if chosen is None else chosen, behind)


def _mark(frame: DataFrame, column: str, window: Window, side: int) -> tuple[DataFrame, dict[str, int]]:
    """Return the input with its watermark long enough for the results, and the marks of its result column."""
    metadata = metadata_of(frame, column)
    # A source row is at most K behind its clock. A result of another join brings its distance from its inputs'
    # clocks; where it was given a watermark of its own, its K, the distance from its own largest time, counts.
    behind = max(int(metadata.get(BEHIND, 0)), window.lateness[side]) + window.watermark_reach(side)
    marks = {DELAY: window.result_delay(side), BEHIND: behind}
    if WATERMARK in metadata:
        frame, marks[WATERMARK] = lengthen_watermark(frame, column, behind)
    return frame, marks


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
        if any(_is_collated(frame.schema[name].dataType) for name in names):
            _log.info("where=%r: evaluated by Spark after the join, since a column is collated", where)
            return None
    return predicate


def _is_collated(kind: DataType) -> bool:
    return isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()


def _spark_schema(
    columns: tuple[OutputColumn, ...],
    names: JoinNames,
    frames: tuple[DataFrame, DataFrame],
    marks: list[dict[str, int]],
) -> StructType:
    """Return the Spark schema of the result, each column with the metadata it had and its time marks."""
    fields = []
    for column in columns:
        field = frames[column.side].schema[column.source]
        metadata = {k: v for k, v in (field.metadata or {}).items() if k not in (WATERMARK, DELAY, BEHIND)}
        if column.source == names.times[column.side]:
            metadata |= marks[column.side]
        fields.append(StructField(column.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


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
    schema = _spark_schema(whole, names, frames, marks)
    pairs = stateful(limited(wide), marked, schema, name=label, routing=routing)
    sides = [
        F.struct(*(F.col(column.name).alias(column.source) for column in whole if column.side == side)).alias(letter)
        for side, letter in enumerate("lr")
    ]
    at = {(column.side, column.source): column.name for column in whole}
    final = _spark_schema(operator.columns, names, frames, marks)
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
