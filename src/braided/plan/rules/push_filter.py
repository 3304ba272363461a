"""A condition after a join moves into it: before the join if it reads one stream, or else into its predicate.

The rule holds for the whole condition after an inner join. In left, semi and anti joins, only the parts that read the
left stream alone move, before the join; in right joins, those that read the right stream alone. The rows of these
streams keep their values. Other parts would no longer drop rows without a match, so they stay after the join. After a
full join, the whole condition stays. For a join with ``rows=`` nothing moves, because other rows would be the last of
their key.
"""

from __future__ import annotations

from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.expressions.conjuncts import conjuncts
from braided.expressions.dialect import Braided
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn
from braided.plan.columns import find_column
from braided.plan.nodes import Filter, Node, Operator
from braided.plan.optimiser import Analysis, NotApplied


class PushFilter:
    """Filter over Join -> Join with the condition inside."""

    name = "condition into the join"

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """See `Rule`."""
        if not isinstance(node, Filter) or not isinstance(node.input, Operator):
            return None
        join, spec = node.input, node.input.spec
        if not isinstance(spec, JoinSpec) or spec.join_kind == "full" or spec.rows is not None:
            return None
        try:
            parts = conjuncts(sqlglot.parse_one(node.condition, dialect=Braided))
        except SqlglotError as error:
            raise NotApplied("Braided cannot parse the condition") from error
        if not all(_is_plain(part) for part in parts):
            raise NotApplied("the condition does not only compare columns")
        again = " AND ".join(f"({part.sql(dialect=Braided)})" for part in parts)
        if not analysis.reads_alike(join, f"({node.condition})", again):
            raise NotApplied("Spark parses the condition differently")
        columns = {column.name: column for column in analysis.physical(join).columns if isinstance(column, InputColumn)}
        inputs, both = list(join.inputs), [] if spec.where is None else [f"({spec.where})"]
        after = []
        for part in parts:
            sides = {column.stream for column in columns_of(part, columns)}
            if spec.join_kind != "inner" and sides != {1 if spec.join_kind == "right" else 0}:
                after.append(f"({part.sql(dialect=Braided)})")
            elif len(sides) == 1:
                [side] = sides
                inputs[side] = Filter(inputs[side], over_inputs(part, columns, ("", "")))
            else:
                both.append(f"({over_inputs(part, columns, ('l', 'r'))})")
        if len(after) == len(parts):
            return None
        joined = spec if not both else replace(spec, where=" AND ".join(both))
        changed = replace(join, spec=joined, streams=tuple(inputs))
        return Filter(changed, " AND ".join(after)) if after else changed


def columns_of(part: exp.Expression, columns: dict[str, InputColumn]) -> list[InputColumn]:
    """Return the columns of a join that an expression reads."""
    return [columns[find_column(column.name, list(columns), "where")] for column in part.find_all(exp.Column)]


def over_inputs(part: exp.Expression, columns: dict[str, InputColumn], letters: tuple[str, str]) -> str:
    """Return an expression over a join's result as one over the inputs' columns, each with the letter of its side."""

    def own(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        [column] = columns_of(node, columns)
        return exp.column(exp.to_identifier(column.source, quoted=True), letters[column.stream] or None)

    return str(part.copy().transform(own).sql(dialect=Braided))


def _is_plain(part: exp.Expression) -> bool:
    """Whether a condition reads columns, and is deterministic."""
    strange = (exp.Query, exp.Anonymous, exp.Rand, exp.Randn, exp.AggFunc, exp.Window, exp.Lambda)
    columns = list(part.find_all(exp.Column))
    return bool(columns) and not any(c.table for c in columns) and not any(part.find_all(*strange))
