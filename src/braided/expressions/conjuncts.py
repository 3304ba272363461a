"""The parts of a condition."""

from __future__ import annotations

from sqlglot import exp


def conjuncts(condition: exp.Expression | None) -> list[exp.Expression]:
    """Return the parts of a condition that must all be true; BETWEEN becomes two parts."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        this = condition.this
        return [
            exp.GTE(this=this.copy(), expression=condition.args["low"].copy()),
            exp.LTE(this=this.copy(), expression=condition.args["high"].copy()),
        ]
    return [condition]
