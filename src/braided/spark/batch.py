"""Specs over batch DataFrames: Spark's own operators with our conditions and our columns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from braided.compile.plan import Copied, Plan
from braided.errors import OptionError
from braided.joins.many.multijoin import MultiJoin
from braided.joins.window_join import WindowJoin
from braided.matching.matching import Matching
from braided.ordering.ordering import LATE, SEQ, Ordering
from braided.specs.join import JoinSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def run_batch(plan: Plan, frames: Sequence[DataFrame]) -> DataFrame:
    """Return what a spec means for rows that are all there."""
    if isinstance(plan.operator, Ordering):
        return _ordered(plan.operator, frames)
    if isinstance(plan.joined, WindowJoin):
        assert isinstance(plan.spec, JoinSpec)
        return _join(plan, plan.joined, frames, plan.spec.where)
    if isinstance(plan.joined, MultiJoin):
        return _multijoin(plan, plan.joined, frames)
    if isinstance(plan.operator, Matching):
        raise OptionError(
            "df: a batch DataFrame is not supported yet; give a stream, or an Arrow table to braided.local.match"
        )
    raise OptionError("streams: batch DataFrames need no budget; write one braided.join each")


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
    return _chosen(plan, frames[0].alias("l").join(frames[1].alias("r"), condition, "inner"), "lr")


def _multijoin(plan: Plan, join: MultiJoin, frames: Sequence[DataFrame]) -> DataFrame:
    """Spark's own join of each stream with those before it."""
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


def _ordered(operator: Ordering, frames: Sequence[DataFrame]) -> DataFrame:
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


def _chosen(plan: Plan, joined: DataFrame, letters: Sequence[str]) -> DataFrame:
    """Return the result's columns."""
    columns = [column for column in plan.columns if isinstance(column, Copied)]
    return joined.select(*(_column(letters[column.stream], column.source).alias(column.name) for column in columns))


def _column(letter: str, source: str) -> Column:
    return F.col(f"{letter}.{_in_quotes(source)}")


def _quoted(source: str) -> Column:
    return F.col(_in_quotes(source))


def _in_quotes(source: str) -> str:
    return f"`{source.replace('`', '``')}`"
