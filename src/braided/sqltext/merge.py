"""Which aggregate can run where the pairs of a join are made, and how the query's text reads over its partials.

```
 SELECT w.start, c.cell, count(*), avg(a.n) ... GROUP BY window(c.ts, '1 minute', '10 seconds'), c.cell
   ->  partials by pane of 10 seconds and c.cell: rows, sum of a.n, count of a.n
       SELECT w.start, cell, sum(rows), sum(s) / sum(n) ... GROUP BY window(pane, '1 minute', '10 seconds'), cell
```
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from braided.aggregates.measures import VALUE, Kind
from braided.durations import parse_duration
from braided.errors import OptionError
from braided.predicates.evaluate import ARROW
from braided.predicates.formula import Formula, compile_formula
from braided.predicates.parse import Uncompilable
from braided.sqltext.conditions import tables_of
from braided.sqltext.cut import Cut, Source, own_columns, own_nodes
from braided.sqltext.dialect import Braided

Total = Literal["count", "sum", "min", "max", "avg", "bool_and", "bool_or", "first", "last"]
KINDS: dict[type[exp.Expression], Total] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.AnyValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
}
_WORDS = {kind: word for word, kind in ARROW.items()}
_WHOLE = ("tinyint", "smallint", "int")
_SUM_DIGITS, _MOST_DIGITS = 10, 38
_NESTED = ("struct", "array", "map", "variant", "interval")
_ORDERED = (*_WHOLE, "bigint", "date", "timestamp", "timestamp_ntz", "boolean")
_EXTREMES: dict[str, Literal["min", "max"]] = {"min": "min", "max": "max", "bool_and": "min", "bool_or": "max"}
_TIMED = (*_ORDERED, "float", "double", "string")  # not with a collation, by which Spark would compare


@dataclass(frozen=True)
class Wanted:
    """A partial result: its kind, the column or expression that it is of, and the Spark type that it has."""

    kind: Kind
    of: tuple[str, str] | exp.Expression | None
    type: str


@dataclass
class Merge:
    """An aggregate that runs in the workers of a join.

    time : the (alias, column) that is windowed.
    """

    time: tuple[str, str]
    width: int
    offset: int
    keys: list[tuple[str, str]]
    measures: list[Wanted] = field(default_factory=list)
    uses: list[tuple[exp.Expression, str, list[int]]] = field(default_factory=list)
    """(aggregate in the text, how its partials merge, which they are)"""
    windows: list[exp.Expression] = field(default_factory=list)


class Unmerged(Exception):
    """Why an aggregate is left to Spark."""


def find_merge(
    select: exp.Select, cut: Cut, sources: dict[str, Source], is_aggregate: Callable[[str], bool | None]
) -> Merge:
    """Return how the aggregate of a SELECT, whose joins were cut, runs in the workers; or raise why it does not.

    `is_aggregate` says of a function whether Spark aggregates by it; None: it does not know it.
    """
    group = select.args.get("group")
    if group is None:
        raise Unmerged("it has no aggregate")
    if select.args.get("joins") or select.args.get("where"):
        raise Unmerged("tables or conditions of Spark's lie between join and aggregate")
    if select.args.get("distinct") or any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets", "all")):
        raise Unmerged("its groups are not plain")
    windows = [each for each in group.expressions if is_window(each)]
    keys = [each for each in group.expressions if not is_window(each)]
    if len(windows) != 1:
        raise Unmerged("it does not group by one window")
    if not all(isinstance(key, exp.Column) and key.table in cut.columns for key in keys):
        raise Unmerged("it groups by more than columns of streams")
    for key in keys:
        type_ = sources[key.table].types[key.name]
        if type_.startswith(_NESTED):
            raise Unmerged(f"{key.sql()} is of type {type_}")
    found = _window(windows[0], [(key.table, key.name) for key in keys], sources)
    for each in _aggregates(select):
        found.uses.append(_use(each, found, sources))
    for each in own_nodes(select):
        _check_scalar(each, is_aggregate)
    found.windows = [each for each in own_nodes(select) if is_window(each)]
    inside = {id(column) for each, _, _ in found.uses for column in each.find_all(exp.Column)}
    inside |= {id(column) for each in found.windows for column in each.find_all(exp.Column)}
    for column in own_columns(select):
        known = (column.table, column.name) in found.keys
        if column.table in cut.columns and id(column) not in inside and not known:
            raise Unmerged(f"{column.sql()} is neither grouped nor aggregated")
    if any(each.sql() != windows[0].sql() for each in found.windows):
        raise Unmerged("it has several windows")
    return found


def _check_scalar(node: exp.Expression, is_aggregate: Callable[[str], bool | None]) -> None:
    """Refuse a function that Spark aggregates by and sqlglot does not know to."""
    operators = (exp.AggFunc, exp.Binary)  # AND is a function there
    if isinstance(node, operators) or not isinstance(node, exp.Func | exp.Any | exp.All) or is_window(node):
        return
    called = is_aggregate(node.sql(dialect=Braided).partition("(")[0].strip().lower())
    if called or (called is None and isinstance(node, exp.Anonymous | exp.Any | exp.All)):
        raise Unmerged(f"{node.sql(dialect=Braided)} is not known to merge")


def is_window(node: exp.Expression) -> bool:
    """Whether it calls Spark's `window`."""
    return isinstance(node, exp.Func) and str(node.name or node.sql_name()).lower() == "window"


def _window(node: exp.Expression, keys: list[tuple[str, str]], sources: dict[str, Source]) -> Merge:
    given = list(node.expressions) if node.expressions else [value for value in node.args.values() if value]
    column, durations = given[0], given[1:]
    if not isinstance(column, exp.Column) or column.table not in sources:
        raise Unmerged("its window is not over a time of a stream")
    if sources[column.table].types[column.name] == "timestamp_ntz":
        raise Unmerged(f"{column.sql()} has no time zone, which Spark's watermark needs: cast it to timestamp")
    if not durations or not all(isinstance(each, exp.Literal) and each.is_string for each in durations):
        raise Unmerged("its window's durations are not constants")
    try:
        micros = [parse_duration(each.this, "window") for each in durations]
    except OptionError as error:
        raise Unmerged(str(error)) from error
    size, slide = micros[0], micros[1] if len(micros) > 1 else micros[0]
    return Merge((column.table, column.name), math.gcd(size, slide), micros[2] if len(micros) > 2 else 0, keys)


def _aggregates(select: exp.Select) -> list[exp.Expression]:
    found = [node for node in own_nodes(select) if isinstance(node, exp.AggFunc)]
    if not found:
        raise Unmerged("it has no aggregate function")
    return found


def _use(node: exp.Expression, merge: Merge, sources: dict[str, Source]) -> tuple[exp.Expression, str, list[int]]:
    """Return how an aggregate is made of partials; they are added to the merge."""
    if isinstance(node.parent, exp.Window | exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        raise Unmerged(f"{node.parent.sql()} is no plain aggregate")
    kind = KINDS.get(type(node))
    argument = node.this
    if kind is None or node.expressions or isinstance(argument, exp.Distinct):
        raise Unmerged(f"partials of {node.sql()} do not merge")
    if kind == "count" and isinstance(argument, exp.Star | exp.Literal):
        how, parts = partials_of(kind, None, "bigint")
        return node, how, [_add(merge, part) for part in parts]
    if not tables_of(argument) or not tables_of(argument) <= set(sources):
        raise Unmerged(f"{node.sql()} is not over columns of streams")
    if isinstance(argument, exp.Column):
        of: tuple[str, str] | exp.Expression = (argument.table, argument.name)
        type_ = sources[argument.table].types[argument.name]
    else:
        columns = {(c.table, c.name): sources[c.table].types[c.name] for c in argument.find_all(exp.Column)}
        of, type_ = argument, _type_of(argument, columns)
    how, parts = partials_of(kind, of, type_)
    return node, how, [_add(merge, part) for part in parts]


def _type_of(expression: exp.Expression, columns: Mapping[tuple[str, str], str]) -> str:
    """Return the type of an expression that workers can compute, by the types of its columns; or raise `Unmerged`."""
    names = {column: f"c{at}" for at, column in enumerate(columns)}
    schema = pa.schema([(names[column], ARROW.get(word, pa.null())) for column, word in columns.items()])
    return word_of(formula_of(expression, names, schema).type)


def formula_of(expression: exp.Expression, names: Mapping[tuple[str, str], str], schema: pa.Schema) -> Formula:
    """Return an expression as what workers compute from columns of these names; or raise `Unmerged`."""

    def renamed(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        return exp.column(exp.to_identifier(names[node.table, node.name], quoted=True))

    text = expression.copy().transform(renamed).sql(dialect=Braided)
    try:
        return compile_formula(text, schema)
    except Uncompilable as error:
        raise Unmerged(f"only Spark can compute {expression.sql(dialect=Braided)}") from error


def word_of(kind: pa.DataType) -> str:
    """Return what Spark calls a type."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _WORDS.get(kind, str(kind))


def partials_of(kind: Total, of: tuple[str, str] | exp.Expression | None, type_: str) -> tuple[str, list[Wanted]]:
    """Return how an aggregate of a column, an expression or the rows is made of partials, and of which; or raise
    `Unmerged`.

    How is ``sum``, ``min``, ``max``, ``first``, ``last`` or ``avg`` of them, or the type that their sum is cast to.
    """
    if of is None:
        return "sum", [Wanted("rows", None, "bigint")]
    if kind == "count":
        return "sum", [Wanted("count", of, "bigint")]
    if kind == "first" or kind == "last":  # noqa: PLR1714  (so that mypy knows which)
        if type_ not in _TIMED and not type_.startswith("decimal("):
            raise Unmerged(f"{kind} of {type_} is left to Spark")
        return kind, [Wanted(kind, of, type_)]
    if kind in _EXTREMES:
        if type_ not in _ORDERED:
            raise Unmerged(f"{kind} of {type_} is left to Spark")
        if kind in ("bool_and", "bool_or") and type_ != "boolean":
            raise Unmerged(f"{kind} is of booleans, not of {type_}")
        extreme = _EXTREMES[kind]
        return extreme, [Wanted(extreme, of, type_)]
    if type_ in _WHOLE:
        partial = "bigint"
    elif type_ == "bigint":
        partial = "decimal(38,0)"  # fails just where the total does not fit, not before
    elif type_ in ("float", "double"):
        partial = "double"
    elif kind == "sum" and (widened := _sum_of_decimals(type_)) is not None:
        return widened, [Wanted("sum", of, widened)]
    else:
        raise Unmerged(f"{kind} of {type_} is left to Spark")
    total = Wanted("sum", of, partial)
    if kind == "sum":
        return "bigint" if type_ == "bigint" else "sum", [total]
    return "avg", [total, Wanted("count", of, "bigint")]


def _sum_of_decimals(type_: str) -> str | None:
    """Return the type that Spark gives to the sum of a decimal, where no sum of fewer rows than 10^10 overflows it."""
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if found is None or int(found[1]) + _SUM_DIGITS > _MOST_DIGITS:
        return None
    return f"decimal({int(found[1]) + _SUM_DIGITS},{found[2]})"


def _add(merge: Merge, wanted: Wanted) -> int:
    if wanted not in merge.measures:
        merge.measures.append(wanted)
    return merge.measures.index(wanted)


def rewrite(
    merge: Merge, view: str, pane: str, keys: dict[tuple[str, str], str], names: list[str], select: exp.Select
) -> None:
    """Let the text read partials: aggregates become aggregates of them, the window's time the start of their pane."""

    def column(name: str) -> exp.Column:
        return exp.column(exp.to_identifier(name, quoted=True), view)

    for node, how, parts in merge.uses:
        sums: list[exp.Expression] = [exp.Sum(this=column(names[part])) for part in parts]
        if how == "avg":
            whole = exp.cast(sums[0], "double")
            node.replace(exp.Anonymous(this="try_divide", expressions=[whole, sums[1]]))
        elif how in ("min", "max"):
            node.replace((exp.Min if how == "min" else exp.Max)(this=column(names[parts[0]])))
        elif how in ("first", "last"):
            timed = (exp.Min if how == "first" else exp.Max)(this=column(names[parts[0]]))
            node.replace(exp.Dot(this=timed, expression=exp.to_identifier(VALUE)))
        else:
            node.replace(sums[0] if how == "sum" else exp.cast(sums[0], how))
    for window in merge.windows:
        for inner in list(window.find_all(exp.Column)):
            inner.replace(column(pane))
    for known in own_columns(select):
        if (known.table, known.name) in keys:
            known.replace(column(keys[known.table, known.name]))
