"""The two halves of an aggregate after a join: partials in the join's workers, and windows that Spark closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from braided.aggregates.partial import HORIZON, PANE, TICK, Measure, Panes, PartialAggregate
from braided.compile.plan import Column, Copied, Made, Plan
from braided.joins.window_join import WindowJoin
from braided.spark.inputs import arrow_of
from braided.spark.plans import quoted
from braided.spark.watermark import WATERMARK
from braided.sqltext.merge import Merge, Unmerged, Wanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def measure_name(number: int) -> str:
    """Return what a partial result is called."""
    return f"m{number}"


def with_keys(partials: DataFrame, keys: Sequence[str], held: Mapping[str, str]) -> DataFrame:
    """Return partials with every key of their groups under its own name."""
    for key in keys:
        if key in held:
            partials = partials.withColumn(key, F.col(quoted(held[key])))
    return partials


def with_partials(
    plan: Plan, merge: Merge, names: Mapping[tuple[str, str], str], held: Mapping[str, str], said: list[str]
) -> Plan:
    """Return a join's plan with the first half of an aggregate in its workers; `said` gets what it is worth saying."""

    def of(column: tuple[str, str]) -> str:
        return held.get(names[column], names[column])

    if plan.residual is not None:
        raise Unmerged(f"only Spark can evaluate {plan.residual.where}")
    join = plan.joined
    assert isinstance(join, WindowJoin)
    # Results with the same group are the same rows, however often it is named.
    keys = tuple(dict.fromkeys(of(key) for key in merge.keys))
    time = of(merge.time)
    known = {column.name: column for column in plan.columns if isinstance(column, Copied)}
    side = known[time].stream
    reach = join.window.hi if side == 0 else -join.window.lo
    panes = Panes(merge.width, merge.offset, side, reach, plan.waits)
    measures = tuple(
        Measure(measure_name(at), wanted.kind, wanted.column and of(wanted.column), _arrow_type(wanted))
        for at, wanted in enumerate(merge.measures)
    )
    inner = plan.operator
    if isinstance(inner, WindowJoin):  # pairs have no more than the aggregate reads
        read = {time, *keys, *(measure.source for measure in measures)}
        inner = replace(inner, columns=tuple(column for column in inner.columns if column.name in read))
    operator = PartialAggregate(inner, time, keys, measures, panes)
    if operator.layout is not None:
        said.append("they count and sum over ranges of matches, and make no pairs where that is less work")
    kind = operator.output.field(PANE).type
    columns: list[Column] = [Made(PANE, kind, True)]
    columns += [replace(known[key], marks=None) for key in keys]
    columns += [Made(measure.name, measure.type, True) for measure in measures]
    columns += [Made(TICK, pa.bool_(), True), Made(HORIZON, kind, True)]
    return replace(plan, operator=operator, columns=tuple(columns), hand_on=None)


def _arrow_type(wanted: Wanted) -> pa.DataType:
    """Return the Arrow type of a partial result."""
    return arrow_of(StructType.fromDDL(f"x {wanted.type}"), "sql").field(0).type


def closing(partials: DataFrame) -> DataFrame:
    """Return partials by which Spark closes windows as soon as nothing can be added to them: by the horizon.

    Ticks carry it in every batch and are dropped after Spark has seen them; the filter mentions it, since Spark moves
    others below the watermark. The mark that makes it the clock of the window is then on the pane.
    """
    marked = partials.withWatermark(HORIZON, "0 seconds").where(f"NOT ({TICK} AND {HORIZON} IS NOT NULL)")
    others = [F.col(quoted(name)) for name in partials.columns if name not in (PANE, TICK, HORIZON)]
    return marked.select(F.col(PANE).alias(PANE, metadata={WATERMARK: 0}), *others)
