"""A join's plan with the first half of an aggregate in its workers, whoever asked for it: SQL, or options of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from braided.aggregates.partial import HORIZON, PANE, TICK, Measure, Panes, PartialAggregate
from braided.compile.plan import Column, Copied, Made, Plan
from braided.joins.window_join import WindowJoin
from braided.sqltext.merge import Merge, Unmerged, Wanted, partials_of
from braided.sqltext.windowed import Windowed, find_column

# What Spark calls the types whose partial results merge.
_WORDS = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
_SUMS = {"bigint": pa.int64(), "double": pa.float64()}
OWN = ""
"""What a merge calls the one table that its columns are of."""


def measure_name(number: int) -> str:
    """Return what a partial result is called."""
    return f"m{number}"


def merge_of(windowed: Windowed, plan: Plan) -> tuple[Merge, list[tuple[str, list[int]]]]:
    """Return how an aggregate over a join's columns runs in its workers: for each value how its partials merge, and
    which they are. Raise `Unmerged` where it does not."""
    known = {column.name: column for column in plan.columns if isinstance(column, Copied)}
    names = list(known)
    time = time_of(windowed, plan)
    if known[time].source != plan.times[known[time].stream]:
        raise Unmerged(f"{time} is not a time by which the streams are joined")
    merge = Merge((OWN, time), windowed.pane, 0, [(OWN, find_column(key, names, "by")) for key in windowed.by])
    for _, key in merge.keys:
        kind = plan.streams[known[key].stream].schema.field(known[key].source).type
        if pa.types.is_nested(kind):
            raise Unmerged(f"{key} is of type {kind}")
        if key in (PANE, TICK, HORIZON) or re.fullmatch(r"m\d+", key):
            raise Unmerged(f"a column of partial results is called {key} too")
    uses = []
    for value in windowed.values:
        if value.kind is None:
            raise Unmerged(f"partials of {value.text} do not merge")
        column, word = None, "bigint"
        if value.column is not None:
            name = find_column(value.column, names, value.name)
            word = _word(plan.streams[known[name].stream].schema.field(known[name].source).type)
            column = (OWN, name)
        how, parts = partials_of(value.kind, column, word)
        merge.measures += [part for part in parts if part not in merge.measures]
        uses.append((how, [merge.measures.index(part) for part in parts]))
    return merge, uses


def time_of(windowed: Windowed, plan: Plan) -> str:
    """Return the time column that is windowed: as named, else that of the first stream."""
    columns = [column for column in plan.columns if isinstance(column, Copied)]
    if windowed.time is not None:
        return find_column(windowed.time, [column.name for column in columns], "time")
    return next(column.name for column in columns if (column.stream, column.source) == (0, plan.times[0]))


def own_names(plan: Plan) -> dict[tuple[str, str], str]:
    """Return what a merge that `merge_of` made calls the columns of a join."""
    return {(OWN, column.name): column.name for column in plan.columns if isinstance(column, Copied)}


def _word(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _WORDS.get(kind, str(kind))


def with_partials(
    plan: Plan, merge: Merge, names: Mapping[tuple[str, str], str], held: Mapping[str, str], said: list[str]
) -> Plan:
    """Return a join's plan with the first half of an aggregate in its workers; `said` gets what is worth saying.

    `names` are the columns of the join, `held` those that it has under another one's name.
    """

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
    rows = plan.operator.output
    measures = []
    for at, wanted in enumerate(merge.measures):
        source = wanted.column and of(wanted.column)
        measures.append(Measure(measure_name(at), wanted.kind, source, _type(wanted, source, rows)))
    inner = plan.operator
    if isinstance(inner, WindowJoin):  # pairs have no more than the aggregate reads
        read = {time, *keys, *(measure.source for measure in measures)}
        inner = replace(inner, columns=tuple(column for column in inner.columns if column.name in read))
    operator = PartialAggregate(inner, time, keys, tuple(measures), panes)
    if operator.layout is not None:
        said.append("they count and sum over ranges of matches, and make no pairs where that is less work")
    kind = operator.output.field(PANE).type
    columns: list[Column] = [Made(PANE, kind, True)]
    columns += [replace(known[key], marks=None) for key in keys]
    columns += [Made(measure.name, measure.type, True) for measure in measures]
    columns += [Made(TICK, pa.bool_(), True), Made(HORIZON, kind, True)]
    return replace(plan, operator=operator, columns=tuple(columns), hand_on=None)


def _type(wanted: Wanted, source: str | None, rows: pa.Schema) -> pa.DataType:
    """Return the Arrow type of a partial result."""
    if wanted.kind in ("min", "max"):
        return rows.field(source).type
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", wanted.type)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SUMS[wanted.type]
