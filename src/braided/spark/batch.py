"""Specs over batch DataFrames: Spark's own operators with our conditions and our columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from braided.errors import OptionError
from braided.operators.asof.asof_join import AsofJoin
from braided.operators.detect.detect_operator import DetectOperator
from braided.operators.join.spec import JoinSpec
from braided.operators.join.window_join import WindowJoin
from braided.operators.match.match_operator import MatchOperator
from braided.operators.multijoin.multijoin import MultiJoin
from braided.operators.order.order_operator import LATE, SEQ, OrderOperator
from braided.operators.physical import ComputedColumn, InputColumn, Plan
from braided.operators.rows_join.rows_join import RowsJoin
from braided.runtime.router import conform
from braided.spark.arrow_types import from_arrow
from braided.spark.names import quoted
from braided.spark.tasks import wire_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# How many rows are answered at a time, about.
_ENOUGH_ROWS = 1 << 18


def run_batch(plan: Plan, frames: Sequence[DataFrame]) -> DataFrame:
    """Return the result of a spec over batch DataFrames."""
    if isinstance(plan.operator, OrderOperator):
        return _ordered(plan.operator, frames)
    if isinstance(plan.joined, WindowJoin):
        assert isinstance(plan.spec, JoinSpec)
        return _join(plan, plan.joined, frames, plan.spec.where)
    if isinstance(plan.joined, MultiJoin):
        return _multijoin(plan, plan.joined, frames)
    if isinstance(plan.operator, MatchOperator):
        return _matched(plan, plan.operator, frames[0])
    if isinstance(plan.operator, AsofJoin | RowsJoin):
        return _answered(plan, plan.operator, frames)
    if isinstance(plan.operator, DetectOperator):
        return _detected(plan, plan.operator, frames)
    raise OptionError("streams: batch DataFrames need no budget; write a braided.join for each join")


def _join(plan: Plan, join: WindowJoin, frames: Sequence[DataFrame], where: str | None) -> DataFrame:
    times = [_column("lr"[side], join.times[side]) for side in (0, 1)]
    lo, hi = join.window.lo, join.window.hi
    condition: Column
    if join.inputs[0].field(join.times[0]).type.tz is None:
        # Exact for times without a zone; for zoned ones Spark would subtract local times across DST changes.
        condition = (times[1] - times[0]).between(
            F.lit(datetime.timedelta(microseconds=lo)), F.lit(datetime.timedelta(microseconds=hi))
        )
    else:
        condition = (F.unix_micros(times[1]) - F.unix_micros(times[0])).between(F.lit(lo), F.lit(hi))
    for a, b in zip(*join.keys, strict=True):
        condition = (_column("l", a) == _column("r", b)) & condition
    if where is not None:
        condition = condition & F.expr(where)
    assert isinstance(plan.spec, JoinSpec)
    kind = plan.spec.join_kind
    joined = frames[0].alias("l").join(frames[1].alias("r"), condition, kind)
    if kind not in ("right", "full"):
        return _chosen(plan, joined, "lr")
    keys = dict(zip(*join.keys, strict=True))
    return joined.select(
        *(
            F.coalesce(_column("l", column.source), _column("r", keys[column.source])).alias(column.name)
            if column.stream == 0 and column.source in keys
            else _column("lr"[column.stream], column.source).alias(column.name)
            for column in plan.columns
            if isinstance(column, InputColumn)
        )
    )


def _multijoin(plan: Plan, join: MultiJoin, frames: Sequence[DataFrame]) -> DataFrame:
    """Join each stream with the ones before it, by Spark's own join."""
    letters = [f"s{side}" for side in range(len(frames))]
    times = [_column(letter, source) for letter, source in zip(letters, join.times, strict=True)]
    if join.inputs[0].field(join.times[0]).type.tz is None:
        limit = F.lit(datetime.timedelta(microseconds=join.window.within))
    else:
        # Spark would subtract local times across DST changes.
        times, limit = [F.unix_micros(time) for time in times], F.lit(join.window.within)
    joined = frames[0].alias(letters[0])
    for side in range(1, len(frames)):
        keys = zip(join.keys[0], join.keys[side], strict=True)
        same = reduce(lambda a, b: a & b, [_column(letters[0], a) == _column(letters[side], b) for a, b in keys])
        known = times[: side + 1]
        near = (F.greatest(*known) - F.least(*known)) <= limit
        joined = joined.join(frames[side].alias(letters[side]), same & near & times[side].isNotNull(), "inner")
    return _chosen(plan, joined.where(times[0].isNotNull()), letters)


def _ordered(operator: OrderOperator, frames: Sequence[DataFrame]) -> DataFrame:
    """Let Spark sort; ties break by input and the columns' values."""
    number = "__braided_input"
    while number in [name.lower() for name in operator.schema.names]:
        number += "_"
    numbered = [frame.withColumn(number, F.lit(at)) for at, frame in enumerate(frames)]
    time = _quoted(operator.time)
    together = reduce(lambda a, b: a.unionByName(b), numbered).where(time.isNotNull())
    columns = [_quoted(field.name) for field in operator.schema if not pa.types.is_nested(field.type)]
    by = [time, F.col(number), *columns]
    ordered = together.sort(*by)
    if not operator.key:
        ordered = together.withColumn(SEQ, (F.row_number().over(SparkWindow.orderBy(*by)) - 1).cast("long")).sort(SEQ)
    ordered = ordered.drop(number)
    return ordered.withColumn(LATE, F.lit(False)) if operator.flagged else ordered


def _matched(plan: Plan, operator: MatchOperator, frame: DataFrame) -> DataFrame:
    """Let Spark group the rows of each key; the same search finds the matches."""
    names = wire_names(len(frame.columns))
    at = dict(zip(operator.schema.names, names, strict=True))
    floating = [key for key in operator.matcher.key if pa.types.is_floating(operator.schema.field(key).type)]
    # -0.0 is 0.0.
    keys = [F.col(at[key]) + 0.0 if key in floating else F.col(at[key]) for key in operator.matcher.key]
    time = F.col(at[operator.time])
    rows = frame.toDF(*names).where(time.isNotNull())
    rows = (rows.repartition(*keys) if keys else rows.coalesce(1)).sortWithinPartitions(*keys, time)
    return rows.mapInArrow(FindAll(operator), _wire(plan, frame)).toDF(*(column.name for column in plan.columns))


def _wire(plan: Plan, *frames: DataFrame) -> StructType:
    """Return the result's columns under plain names. If only the first frame is given, there are no other columns."""
    kinds = [
        frames[column.stream].schema[column.source].dataType
        if isinstance(column, InputColumn)
        else from_arrow(column.kind)
        for column in plan.columns
        if isinstance(column, InputColumn | ComputedColumn)
    ]
    return StructType([StructField(name, kind, True) for name, kind in zip(wire_names(len(kinds)), kinds, strict=True)])


def _detected(plan: Plan, operator: DetectOperator, frames: Sequence[DataFrame]) -> DataFrame:
    """Let Spark group the rows of each key, with a struct for each stream; the same detectors see them."""
    names = wire_names(len(operator.keys.key) + len(frames))
    keys, sides = names[: len(operator.keys.key)], names[len(operator.keys.key) :]
    parts = []
    for side, frame in enumerate(frames):
        timed = frame.where(_quoted(operator.keys.time).isNotNull())
        # -0.0 is 0.0.
        floating = [pa.types.is_floating(kind) for kind in operator.keys.hasher.types]
        key_columns = [
            _quoted(key) + 0.0 if f else _quoted(key) for key, f in zip(operator.keys.key, floating, strict=True)
        ]
        whole = F.struct(*(_quoted(name) for name in frame.columns))
        structs = [
            whole if other == side else F.lit(None).cast(of.schema).alias(sides[other])
            for other, of in enumerate(frames)
        ]
        parts.append(timed.select(*key_columns, *structs).toDF(*names))
    rows = reduce(lambda a, b: a.unionAll(b), parts)
    rows = _by_key(rows, keys)
    fields = _wire(plan, frames[0])
    return rows.select(*sides).mapInArrow(DetectAll(operator), fields).toDF(*(column.name for column in plan.columns))


def _by_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return rows in partitions in which those of a key come one after the other."""
    return rows.repartition(*keys).sortWithinPartitions(*keys) if keys else rows.coalesce(1)


def _answered(plan: Plan, join: AsofJoin | RowsJoin, frames: Sequence[DataFrame]) -> DataFrame:
    """Let Spark group the rows of each key, with a struct for each stream; the same search answers them."""
    names = wire_names(len(join.keys[0]) + 2)
    keys = names[:-2]
    parts = []
    for side, frame in enumerate(frames):
        # -0.0 is 0.0.
        floating = [pa.types.is_floating(kind) for kind in join.hasher.types]
        key_columns = [
            _quoted(key) + 0.0 if f else _quoted(key) for key, f in zip(join.keys[side], floating, strict=True)
        ]
        structs = [F.lit(None).cast(of.schema) for of in frames]
        structs[side] = F.struct(*(_quoted(name) for name in frame.columns))
        parts.append(frame.where(_whole(join, side)).select(*key_columns, *structs).toDF(*names))
    rows = parts[0].unionAll(parts[1])
    rows = _by_key(rows, keys)
    fields = _wire(plan, *frames)
    answered = rows.mapInArrow(AnswerAll(join), fields)
    if isinstance(join, AsofJoin) and join.outer:
        others = frames[0].where(~_whole(join, 0))
        nulls = [
            F.lit(None).cast(field.dataType) if column.side else _quoted(column.source)
            for column, field in zip(join.columns, fields, strict=True)
        ]
        answered = answered.unionAll(others.select(*nulls))
    return answered.toDF(*(column.name for column in join.columns))


def _whole(join: AsofJoin | RowsJoin, side: int) -> Column:
    """Whether a row has a key and a time."""
    return reduce(lambda a, b: a & b, [_quoted(name).isNotNull() for name in (*join.keys[side], join.times[side])])


class AnswerAll:
    """Joins a partition's rows. Rows of a key come one after the other: the key columns, then one struct per stream."""

    def __init__(self, operator: AsofJoin | RowsJoin) -> None:
        self._operator = operator

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        rows, enough = 0, _ENOUGH_ROWS
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows < enough:
                continue
            whole = pa.concat_batches(waiting)
            hashes = self._operator.hasher.hash(whole.columns[:-2], whole.num_rows)
            others = np.flatnonzero(hashes != hashes[-1])
            cut = int(others[-1]) + 1 if len(others) else 0
            yield from self._answered(whole.slice(0, cut))
            waiting, rows = [whole.slice(cut)], whole.num_rows - cut
            enough = max(_ENOUGH_ROWS, 2 * rows)
        if waiting:
            yield from self._answered(pa.concat_batches(waiting))

    def _answered(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        sides = []
        for column, schema in zip(rows.columns[-2:], self._operator.inputs, strict=True):
            own = column.filter(column.is_valid())
            sides.append(conform(pa.RecordBatch.from_arrays(own.flatten(), schema.names), schema))
        for piece in self._operator.answer_all(*sides):
            yield piece.rename_columns(wire_names(piece.num_columns))


class FindAll:
    """Finds the matches of a partition's rows, in which those of a key come one after the other."""

    def __init__(self, operator: MatchOperator) -> None:
        self._operator = operator

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self._operator.schema
        named = (conform(batch.rename_columns(schema.names), schema) for batch in batches)
        for piece in self._operator.find_all(named):
            yield piece.rename_columns(wire_names(piece.num_columns))


class DetectAll:
    """Runs detectors over a partition's rows, in which those of a key come together, one struct per stream."""

    def __init__(self, operator: DetectOperator) -> None:
        self._operator = operator

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in self._operator.detect_all(
            [self._side(batch, n) for n in range(batch.num_columns)] for batch in batches
        ):
            yield piece.rename_columns(wire_names(piece.num_columns))

    def _side(self, batch: pa.RecordBatch, side: int) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the rows of one stream, and which rows of the batch they are."""
        column, schema = batch.column(side), self._operator.schemas[side]
        own = column.is_valid()
        rows = pa.RecordBatch.from_arrays(column.filter(own).flatten(), schema.names)
        return conform(rows, schema), own


def _chosen(plan: Plan, joined: DataFrame, letters: Sequence[str]) -> DataFrame:
    """Return the result's columns."""
    columns = [column for column in plan.columns if isinstance(column, InputColumn)]
    return joined.select(*(_column(letters[column.stream], column.source).alias(column.name) for column in columns))


def _column(letter: str, source: str) -> Column:
    return F.col(f"{letter}.{quoted(source)}")


def _quoted(source: str) -> Column:
    return F.col(quoted(source))
