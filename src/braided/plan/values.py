"""The values of an aggregate: the argument of each, if it is a plain aggregate that workers can begin."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.errors import OptionError
from braided.expressions.dialect import Braided

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


@dataclass(frozen=True)
class Value:
    """One value of each group: the expression of the user and, if it is a plain aggregate, its argument."""

    name: str
    text: str
    kind: Total | None
    of: str | exp.Expression | None
    """The argument: a column or an expression of columns; None for the rows themselves."""
    problem: str | None = None
    """Why it is not a plain aggregate although it looks like one."""


def parse_value(name: str, text: object) -> Value:
    """Parse a value and check it, except for its columns.

    >>> value = parse_value("n", "count(*) FILTER (WHERE x > 1)")
    >>> value.kind, value.of.sql()
    ('count', 'CASE WHEN x > 1 THEN 1 END')
    """
    if not isinstance(text, str):
        raise OptionError(f"{name}={text!r}: write an aggregate as text, such as 'count(*)' or 'avg(duration)'")
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
    except SqlglotError as error:
        raise OptionError(
            f"{name}={text!r}: cannot be parsed; write an aggregate such as 'count(*)' or 'avg(duration)'"
        ) from error
    if tree.find(exp.Query):
        raise OptionError(f"{name}={text!r}: a subquery is not an aggregate; join with its result before")
    called = tree.find(exp.Anonymous, exp.AnonymousAggFunc, exp.Any)
    if tree.find(exp.AggFunc) is None and called is None:
        raise OptionError(f"{name}={text!r}: not an aggregate; write for example 'max({text})', or add it to by=")
    tree = _without_filter(tree)
    kind = KINDS.get(type(tree))
    plain = kind is not None and not tree.expressions
    if plain and kind == "count" and isinstance(tree.this, exp.Star | exp.Literal):
        return Value(name, text, kind, None)
    if plain and isinstance(tree.this, exp.Column) and not tree.this.table:
        return Value(name, text, kind, tree.this.name)
    if plain and _is_computed(tree.this):
        return Value(name, text, kind, tree.this)
    return Value(name, text, None, None, _problem(tree, kind))


def _without_filter(tree: exp.Expression) -> exp.Expression:
    """Return an aggregate with FILTER as an aggregate of a CASE expression, if both are the same."""
    if isinstance(tree, exp.CountIf) and not isinstance(tree.this, exp.Distinct):
        return exp.Count(this=exp.Case(ifs=[exp.If(this=tree.this.copy(), true=exp.Literal.number(1))]))
    if not isinstance(tree, exp.Filter):
        return tree
    inner = tree.this
    is_plain = not inner.expressions and not isinstance(inner.this, exp.Distinct)
    if KINDS.get(type(inner), "first") in ("first", "last") or not is_plain:
        return tree
    what = exp.Literal.number(1) if isinstance(inner.this, exp.Star) else inner.this.copy()
    value = exp.Case(ifs=[exp.If(this=tree.expression.this.copy(), true=what)])
    return type(inner)(this=value)


def _is_computed(argument: exp.Expression | None) -> bool:
    """Whether an argument is an expression of columns of one row."""
    if argument is None or argument.find(exp.AggFunc, exp.Distinct, exp.Star, exp.Anonymous, exp.Window):
        return False
    columns = list(argument.find_all(exp.Column))
    return bool(columns) and not any(column.table for column in columns)


def _problem(tree: exp.Expression, kind: Total | None) -> str | None:
    """Return why an expression is not a plain aggregate; None if it is an aggregate that is not known here."""
    known = sorted(set(KINDS.values()))
    if isinstance(tree, exp.Alias):
        return "the name of the option is the name of the value; omit the alias in the text"
    if isinstance(tree, exp.Any):
        return "no such aggregate; did you mean bool_or?"
    if isinstance(tree, exp.Anonymous):
        close = difflib.get_close_matches(str(tree.this).lower(), known, n=1, cutoff=0.7)
        return "no such aggregate; " + (
            f"did you mean {close[0]}?" if close else f"the aggregates are {', '.join(known)}"
        )
    if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls):
        return "first and last include nulls; filter nulls before the join"
    if kind is None:
        return None if isinstance(tree, exp.AggFunc) else "more than one aggregate; compute with its value afterwards"
    argument = tree.this
    if argument is None or isinstance(argument, exp.Star):
        return f"no column; write {kind} and a column in brackets"
    if tree.expressions or isinstance(argument, exp.Distinct):
        return f"more than one column, or distinct values; write {kind} and one column in brackets"
    if argument.find(exp.AggFunc):
        return "an aggregate inside another one; aggregate twice"
    return "the argument is not computed from columns alone; compute it in the streams, before the join"
