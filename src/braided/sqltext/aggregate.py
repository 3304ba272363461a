"""The aggregate of a SELECT without its joins: a node over the join, and the SELECT that reads the result of this node.

```
 SELECT w.start, upper(c.cell), count(*) + 1 ... GROUP BY window(c.ts, '1 minute', '10 seconds'), upper(c.cell)
   ->  Aggregate c__ts in windows of 1 minute every 10 seconds by upper(c__cell): a0 = count(*)
       SELECT w.start, k0, a0 + 1 ... FROM the aggregate
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.expressions.dialect import Braided
from braided.plan.aggregates import WINDOW
from braided.plan.nodes import Aggregate, Node
from braided.plan.optimiser import NotApplied
from braided.sqltext.conditions import tables_of
from braided.sqltext.cut import own_columns, own_nodes
from braided.sqltext.joins import Cut, Source

_PLAIN_GROUPS = ("cube", "rollup", "grouping_sets")


@dataclass(frozen=True)
class AggregateReader:
    """The parts of a SELECT that become columns of its aggregate."""

    select: exp.Select
    columns: tuple[tuple[exp.Expression, str], ...]

    def read(self, view: str) -> None:
        """Change the SELECT so that it reads a view of the aggregate's result."""
        for node, name in self.columns:
            node.replace(exp.column(exp.to_identifier(name, quoted=True), view))
        having = self.select.args.get("having")
        self.select.set("where", exp.Where(this=having.this) if having is not None else None)
        self.select.set("having", None)
        self.select.set("group", None)


def aggregate_of(
    select: exp.Select,
    cut: Cut,
    sources: Mapping[str, Source],
    names: Mapping[tuple[str, str], str],
    is_aggregate: Callable[[str], bool | None],
    input: Node,
) -> tuple[Aggregate, AggregateReader]:
    """Return the aggregate of a SELECT over a join; raise `NotApplied` if the node cannot express it.

    `names` has the columns of the join by alias and column. `is_aggregate` returns whether a function is an aggregate
    of Spark; None if Spark does not know it.
    """
    group = select.args.get("group")
    if group is None:
        raise NotApplied("it is in another SELECT than the join")
    if select.args.get("joins") or select.args.get("where"):
        raise NotApplied("there are tables or conditions of Spark between join and aggregate")
    if select.args.get("distinct") or any(group.args.get(kind) for kind in _PLAIN_GROUPS):
        raise NotApplied("its groups are not plain")
    groups = _not_aggregated(select) if group.args.get("all") else group.expressions
    windows = [each for each in groups if is_window(each)]
    keys = [each for each in groups if not is_window(each)]
    if len(windows) != 1:
        raise NotApplied("it does not group by one window")
    if not all(tables_of(key) and tables_of(key) <= set(cut.columns) for key in keys):
        raise NotApplied("it does not only group by columns of streams")
    time, size, slide, offset = _window(windows[0], sources)
    calls = list(_aggregates(select))
    if not calls:
        raise NotApplied("it has no aggregate function")
    for node in own_nodes(select):
        _check_scalar(node, is_aggregate)
    shown = [each for each in own_nodes(select) if is_window(each)]
    if any(each.sql() != windows[0].sql() for each in shown):
        raise NotApplied("it has several windows")
    values = {text: f"a{at}" for at, text in enumerate(dict.fromkeys(_over(call, names) for call in calls))}
    by = [(f"k{at}", key) for at, key in enumerate(keys)]
    columns = [(call, values[_over(call, names)]) for call in calls]
    columns += [(each, WINDOW) for each in shown if _is_outside(each, calls)]
    grouped = [(each, name) for name, key in by for each in own_nodes(select) if each == key]
    columns += [(each, name) for each, name in grouped if _is_outside(each, [node for node, _ in columns])]
    taken = [node for node, _ in columns]
    for column in own_columns(select):
        if column.table in cut.columns and _is_outside(column, taken):
            raise NotApplied(f"{column.sql()} is neither grouped nor aggregated")
    node = Aggregate(
        input,
        tuple((name, _over(key, names)) for name, key in by),
        names[time],
        size,
        slide,
        tuple((name, text) for text, name in values.items()),
        offset,
    )
    return node, AggregateReader(select, tuple(columns))


def is_window(node: exp.Expression) -> bool:
    """Whether a node calls Spark's `window`."""
    return isinstance(node, exp.Func) and str(node.name or node.sql_name()).lower() == "window"


def _not_aggregated(select: exp.Select) -> list[exp.Expression]:
    """Return the groups of ``GROUP BY ALL``: the columns of a SELECT that contain no aggregate."""
    columns = [column.unalias() for column in select.expressions if not column.find(exp.AggFunc)]
    return [column for at, column in enumerate(columns) if column not in columns[:at]]


def window_of(node: exp.Expression) -> tuple[exp.Column, int, int, int]:
    """Return the time of a window, its size, slide and offset; raise `NotApplied` if they are not plain."""
    arguments = list(node.expressions) if node.expressions else [value for value in node.args.values() if value]
    column, durations = arguments[0], arguments[1:]
    if not isinstance(column, exp.Column):
        raise NotApplied("its window is not over a time of a stream")
    if not durations or not all(isinstance(each, exp.Literal) and each.is_string for each in durations):
        raise NotApplied("its window's durations are not constants")
    try:
        micros = [parse_duration(each.this, "window") for each in durations]
    except OptionError as error:
        raise NotApplied(str(error)) from error
    slide = micros[1] if len(micros) > 1 else micros[0]
    return column, micros[0], slide, micros[2] if len(micros) > 2 else 0


def _window(node: exp.Expression, sources: Mapping[str, Source]) -> tuple[tuple[str, str], int, int, int]:
    """Return the time of a window, as alias and column, its size, slide and offset."""
    column, size, slide, offset = window_of(node)
    if column.table not in sources:
        raise NotApplied("its window is not over a time of a stream")
    return (column.table, column.name), size, slide, offset


def _aggregates(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield the aggregates of a SELECT, each with its filter."""
    for node in own_nodes(select):
        if not isinstance(node, exp.AggFunc):
            continue
        if isinstance(node.parent, exp.Window | exp.IgnoreNulls | exp.RespectNulls):
            raise NotApplied(f"{node.parent.sql()} is not a plain aggregate")
        yield node.parent if isinstance(node.parent, exp.Filter) else node


def _check_scalar(node: exp.Expression, is_aggregate: Callable[[str], bool | None]) -> None:
    """Raise if a function is an aggregate of Spark, but not for sqlglot."""
    operators = (exp.AggFunc, exp.Binary)  # AND is a function there
    if isinstance(node, operators) or not isinstance(node, exp.Func | exp.Any | exp.All) or is_window(node):
        return
    called = is_aggregate(node.sql(dialect=Braided).partition("(")[0].strip().lower())
    if called or (called is None and isinstance(node, exp.Anonymous | exp.Any | exp.All)):
        raise NotApplied(f"partial results of {node.sql(dialect=Braided)} cannot be merged")


def _over(node: exp.Expression, names: Mapping[tuple[str, str], str]) -> str:
    """Return an expression over the columns of the join; a plain column becomes its name without quotes."""
    if isinstance(node, exp.Column):
        return names[node.table, node.name]

    def renamed(part: exp.Expression) -> exp.Expression:
        if not isinstance(part, exp.Column) or (part.table, part.name) not in names:
            return part
        return exp.column(exp.to_identifier(names[part.table, part.name], quoted=True))

    return str(node.copy().transform(renamed).sql(dialect=Braided))


def _is_outside(node: exp.Expression, others: list[exp.Expression]) -> bool:
    """Whether a part of a SELECT is not inside any of others."""
    around: exp.Expression | None = node
    while around is not None:
        if any(around is other for other in others):
            return False
        around = around.parent
    return True
