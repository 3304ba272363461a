"""Which expressions of an aggregate after a join read one stream only, and so can be columns of it before the join.

```
 count(*) FILTER (WHERE a.n > 3), sum(b.price * 1.2D), ... GROUP BY window(a.ts, '1 minute'), upper(b.city)
   ->  count(a.e0), sum(b.e1), ... GROUP BY window(a.ts, '1 minute'), b.e2
```
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from braided.sqltext.conditions import tables_of
from braided.sqltext.cut import own_nodes
from braided.sqltext.merge import KINDS

_WINDOWS = ("window", "session_window", "window_time")


def hoist(select: exp.Select, streams: Collection[str], column_of: Callable[[str, exp.Expression], str | None]) -> None:
    """Replace such expressions of a SELECT by columns; `column_of` gives a stream one and returns its name, or None."""
    if select.args.get("group") is None:
        return
    for node, expression in list(_candidates(select)):
        tables = tables_of(expression)
        if len(tables) != 1 or not tables <= set(streams) or _is_replaced(node, select):
            continue
        [alias] = tables
        name = column_of(alias, expression)
        if name is None:
            continue
        column = exp.column(exp.to_identifier(name, quoted=True), alias)
        if isinstance(node, exp.Filter):
            node.this.set("this", column)
            node.replace(node.this)
            continue
        for other in [found for found in own_nodes(select) if found == expression]:
            other.replace(column.copy())


def _candidates(select: exp.Select) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """Yield (what is replaced, the expression that it becomes a column of)."""
    for node in own_nodes(select):
        if type(node) not in KINDS or node.expressions or isinstance(node.parent, exp.Window):
            continue
        argument = node.this
        if isinstance(node.parent, exp.Filter):
            if KINDS[type(node)] in ("first", "last") or isinstance(argument, exp.Distinct):
                continue
            yield node.parent, _where(argument, node.parent.expression.this)
        elif _is_computed(argument):
            yield argument, argument
    for key in select.args["group"].expressions:
        if _is_computed(key) and not any(_is_of_windows(part) for part in key.walk()):
            yield key, key


def _is_of_windows(node: exp.Expression) -> bool:
    """Whether Spark makes more of a function than a value of each row."""
    return isinstance(node, exp.Func) and str(node.name or node.sql_name()).lower() in _WINDOWS


def _where(argument: exp.Expression, condition: exp.Expression) -> exp.Expression:
    """Return what an aggregate is of where a condition holds, else null."""
    what = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument.copy()
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=what)])


def _is_computed(node: exp.Expression | None) -> bool:
    plain = (exp.Column, exp.Star, exp.Literal, exp.Distinct)
    strange = (exp.Query, exp.AggFunc, exp.Distinct, exp.Window)
    return node is not None and not isinstance(node, plain) and node.find(*strange) is None


def _is_replaced(node: exp.Expression, select: exp.Select) -> bool:
    """Whether a part was replaced already, being equal to one before it."""
    return node.root() is not select.root()
