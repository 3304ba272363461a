"""Conditions of an outer join that read one stream and do not compile: Spark computes them as a column of that stream.

```
 a LEFT JOIN b ON a.k = b.k AND <times> AND a.name RLIKE '^x'      a filter of a would drop its rows
   ->  (SELECT *, a.name RLIKE '^x' AS on0 FROM a) LEFT JOIN b ON ... AND on0
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from braided.expressions.dialect import Braided
from braided.operators.join.build import compile_predicate
from braided.operators.physical import EngineFeatures
from braided.plan.nodes import LogicalPlan, Project
from braided.spark.analysis import SparkAnalysis
from braided.spark.catalyst import plan_of
from braided.spark.inputs import stream_of
from braided.spark.names import numbered, quoted
from braided.sqltext.conditions import guarded, tables_of
from braided.sqltext.joins import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sides = tuple["LogicalPlan[DataFrame]", "LogicalPlan[DataFrame]"]


def hoist_conditions(
    sides: Sides,
    parts: Sequence[exp.Expression],
    conditions: Sequence[str],
    step: Step,
    names: Mapping[tuple[str, str], str],
) -> tuple[Sides, list[str]]:
    """Return the inputs of a join and its conditions; those on one input that only Spark evaluates become columns.

    `conditions` are the parts over l. and r. columns. Parts that are not deterministic are left unchanged.
    """
    residual = []
    for number, (part, condition) in enumerate(zip(parts, conditions, strict=True)):
        analyses = [SparkAnalysis(plan.sources) for plan in sides]
        frames = [analysis.frame(plan.root) for analysis, plan in zip(analyses, sides, strict=True)]
        streams = (stream_of(frames[0], "left"), stream_of(frames[1], "right"))
        setting = EngineFeatures(filters=True, ansi=analyses[0].is_ansi)
        used = tables_of(part)
        side = 0 if used <= set(step.left) else 1 if used == {step.right} else None
        if side is None or compile_predicate(condition, streams, setting)[0] is not None:
            residual.append(condition)
            continue
        text = over_names(part, names)
        if not is_stable(frames[side], text):
            residual.append(condition)
            continue
        before = [over_names(other, names) for other in parts[:number] if tables_of(other) and tables_of(other) <= used]
        text = guarded(text, [other for other in before if is_stable(frames[side], other)])
        name = numbered("on", frames[0].columns + frames[1].columns)
        changed = sides[side].then(partial(Project, expressions=("*", f"{text} AS {quoted(name)}")))
        sides = (changed, sides[1]) if side == 0 else (sides[0], changed)
        residual.append(f"{'lr'[side]}.{quoted(name)}")
    return sides, residual


def is_stable(frame: DataFrame, text: str) -> bool:
    """Whether an expression over the columns of a DataFrame has the same value whenever it is computed."""
    return plan_of(frame.selectExpr(text)).is_deterministic


def over_names(part: exp.Expression, names: Mapping[tuple[str, str], str]) -> str:
    """Return an expression as text over the columns of one DataFrame: `names` has their names, by alias and column."""

    def renamed(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        return exp.column(exp.to_identifier(names[node.table, node.name], quoted=True))

    return f"({part.copy().transform(renamed).sql(dialect=Braided)})"
