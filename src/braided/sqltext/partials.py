"""A join's plan with the first half of an aggregate in its workers, whoever asked for it: SQL, or options of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from braided.aggregates.measures import Measure, timed_type
from braided.aggregates.partial import HORIZON, PANE, TICK, Panes, PartialAggregate
from braided.compile.plan import Column, Copied, Made, Plan
from braided.joins.window_join import WindowJoin
from braided.predicates.formula import Formula
from braided.sqltext.merge import Merge, Unmerged, Wanted, formula_of, partials_of, word_of
from braided.sqltext.windowed import Windowed, find_column

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
        if key.lower() in (PANE, TICK, HORIZON) or re.fullmatch(r"m\d+", key.lower()):
            raise Unmerged(f"a column of partial results is called {key} too")
    uses = []
    for value in windowed.values:
        if value.kind is None:
            raise Unmerged(f"partials of {value.text} do not merge")
        of: tuple[str, str] | exp.Expression | None = None
        word = "bigint"
        if isinstance(value.of, str):
            name = find_column(value.of, names, value.name)
            word = word_of(plan.streams[known[name].stream].schema.field(known[name].source).type)
            of = (OWN, name)
        elif value.of is not None:
            computed = value.of.copy()
            for column in computed.find_all(exp.Column):
                column.set("this", exp.to_identifier(find_column(column.name, names, value.name), quoted=True))
            of, word = computed, word_of(formula_of(computed, own_names(plan), plan.operator.output).type)
        how, parts = partials_of(value.kind, of, word)
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
    measures, read = [], {time, *keys}
    computed: dict[str, Formula] = {}
    for at, wanted in enumerate(merge.measures):
        if isinstance(wanted.of, exp.Expression):
            formula = formula_of(wanted.of, {column: of(column) for column in names}, rows)
            source: str | None = next((name for name, other in computed.items() if other == formula), None)
            source = source or _unused(f"computed {at}", rows.names)
            computed[source], kind = formula, formula.type
            read.update(formula.columns)
        elif wanted.of is not None:
            source = of(wanted.of)
            kind = rows.field(source).type
            read.add(source)
        else:
            source, kind = None, pa.int64()
        measures.append(Measure(measure_name(at), wanted.kind, source, _type(wanted, kind, rows.field(time).type)))
    inner = plan.operator
    if isinstance(inner, WindowJoin):  # pairs have no more than the aggregate reads
        inner = replace(inner, columns=tuple(column for column in inner.columns if column.name in read))
    operator = PartialAggregate(inner, time, keys, tuple(measures), panes, tuple(computed.items()))
    if operator.layout is not None:
        said.append("they count and sum over ranges of matches, and make no pairs where that is less work")
    kind = operator.output.field(PANE).type
    columns: list[Column] = [Made(PANE, kind, True)]
    columns += [replace(known[key], marks=None) for key in keys]
    columns += [Made(measure.name, measure.type, True) for measure in measures]
    columns += [Made(TICK, pa.bool_(), True), Made(HORIZON, kind, True)]
    return replace(plan, operator=operator, columns=tuple(columns), hand_on=None)


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _type(wanted: Wanted, kind: pa.DataType, time: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a partial result of values of a kind."""
    if wanted.kind in ("first", "last"):
        return timed_type(time, kind)
    if wanted.kind in ("min", "max"):
        return kind
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", wanted.type)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SUMS[wanted.type]
