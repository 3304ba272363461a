"""An expression over one stream, in an aggregate after a join, becomes a column of that stream before the join.

```
 Aggregate sum(price * 1.2D), by upper(city)     ->   Aggregate sum(e0), by e1
 +- Join                                              +- Join
    +- Source 0: price, ts                               +- Project *, price * 1.2D AS e0
    +- Source 1: city, ts                                |  +- Source 0: price, ts
                                                         +- Project *, upper(city) AS e1
                                                            +- Source 1: city, ts
```

It is computed once per row instead of once per pair, by Spark's own code. The rule holds for inner joins without
``rows=``, for expressions that fail for no row, and only if the aggregate can then begin in the workers of the join.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.expressions.dialect import Braided
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn
from braided.plan.nodes import Aggregate, Node, Operator, Project
from braided.plan.optimiser import Analysis
from braided.plan.rules.partial_aggregate import PartialAggregation
from braided.plan.rules.push_filter import columns_of, over_inputs
from braided.plan.values import KINDS, parse_value

_ColumnOf = Callable[[exp.Expression], str | None]


class HoistExpressions:
    """Aggregate of expressions over Join -> Aggregate of columns over Join over Project."""

    name = "expressions below the join"

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """See `Rule`."""
        if not isinstance(node, Aggregate) or node.in_workers or not isinstance(node.input, Operator):
            return None
        join = node.input
        if not isinstance(join.spec, JoinSpec) or not join.spec.is_pairwise or not analysis.is_streaming(join):
            return None
        columns = {column.name: column for column in analysis.physical(join).columns if isinstance(column, InputColumn)}
        names = {name.lower() for side in join.inputs for name in analysis.columns(side)} | set(columns)
        inputs = list(join.inputs)
        known: dict[tuple[int, str], str] = {}

        def column_of(expression: exp.Expression) -> str | None:
            """Add a column with the expression to the single input that it reads, and return its name."""
            sides = {column.stream for column in columns_of(expression, columns)}
            if len(sides) != 1:
                return None
            [side] = sides
            text = over_inputs(expression, columns, ("", ""))
            if (side, text) in known:
                return known[side, text]
            if not analysis.is_safe(inputs[side], text):
                return None
            name = next(name for number in itertools.count() if (name := f"e{number}") not in names)
            names.add(name)
            known[side, text] = name
            inputs[side] = Project(inputs[side], ("*", f"{text} AS {name}"))
            return name

        values = tuple((name, _hoisted_value(name, text, column_of)) for name, text in node.values)
        by = tuple((name, _hoisted_key(text, columns, column_of)) for name, text in node.by)
        if (values, by) == (node.values, node.by):
            return None
        hoisted = replace(node, input=replace(join, streams=tuple(inputs)), values=values, by=by)
        # If it still cannot begin in the workers, Spark computes it after the join, as the user wrote it.
        PartialAggregation().apply(hoisted, analysis)
        return hoisted


def _hoisted_value(name: str, text: str, column_of: _ColumnOf) -> str:
    value = parse_value(name, text)
    if value.kind is None or not isinstance(value.of, exp.Expression):
        return text
    column = column_of(value.of)
    if column is None:
        return text
    call = next(kind for kind, total in KINDS.items() if total == value.kind)
    return str(call(this=exp.column(column)).sql(dialect=Braided))


def _hoisted_key(text: str, columns: dict[str, InputColumn], column_of: _ColumnOf) -> str:
    if text in columns:
        return text
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
    except SqlglotError:
        return text
    if not list(tree.find_all(exp.Column)) or tree.find(exp.Query, exp.AggFunc, exp.Window):
        return text
    return column_of(tree) or text
