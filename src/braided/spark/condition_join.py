"""`braided.join` by a condition, as `DataFrame.join` takes it: Spark analyses it, and keys and bounds are found in it.

```
 braided.join(ads, clicks, F.expr("clickAdId = adId AND clickTime BETWEEN adTime AND adTime + INTERVAL 8 SECONDS"))
   ->  Spark's own join of the two, analysed but never run: its condition, with all columns resolved and cast
   ->  keys, bounds on times and the rest, as in SQL
   ->  our join, under the names and numbers of the columns of Spark's join
```

Preconditions: a classic session, since the analysed condition is read from Spark's plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.errors import BraidedError, OptionError
from braided.expressions.conjuncts import conjuncts
from braided.expressions.dialect import Braided
from braided.operators.join.spec import join_kind_of
from braided.plan.explain import spelled
from braided.spark.catalyst import PlanNode, expressions_of, plan_of
from braided.spark.inputs import check_frames
from braided.spark.joined_frame import joined_frame
from braided.spark.names import numbered, quoted
from braided.spark.nested_keys import flat_key
from braided.spark.run_plan import optimise_plan, run_optimised
from braided.spark.sessions import refuse_connect
from braided.spark.sql_conditions import is_stable
from braided.spark.sql_joins import JoinPlanner
from braided.spark.watermark import WATERMARK
from braided.sqltext.caps import Caps, capped, check_caps, parse_cap
from braided.sqltext.conditions import bound, guarded, tables_of, ties, two_sided
from braided.sqltext.joins import Cut, Source, Step
from braided.sqltext.struct_fields import fields_as_dots

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from braided.typing import How

_SIDES = ("l", "r")
# Words that are names only in backticks, which Spark leaves out of the condition's text.
_NO_NAMES = ("not", "select")
# The sides whose own conditions may become a filter before the join: rows that fail it are in no result, and no row
# waits for the clock of that side, which then sees only the rows that pass.
_FILTERED: dict[How, tuple[str, ...]] = {
    "inner": _SIDES, "left": (), "right": (), "full": (), "left_semi": _SIDES, "left_anti": (),
}  # fmt: skip


def run_condition_join(
    left: DataFrame, right: DataFrame, condition: Column | Sequence[Column], how: str, options: Mapping[str, Any]
) -> DataFrame:
    """Return two streams joined by a condition, with all columns of Spark's own join."""
    session = check_frames({"left": left, "right": right})
    refuse_connect(session, "condition=")
    kind = join_kind_of(how)
    options = dict(options)
    cap = parse_cap(options.pop("cap", None))
    native = left.join(right, condition, how)
    join = plan_of(native)
    if any(node.kind == "PythonUDF" for each in expressions_of(join) for node in each.walk()):
        raise OptionError("condition=: has a Python function; compute its columns in the streams before the join")
    inputs = {side: frame.toDF(*_names(frame)) for side, frame in zip(_SIDES, (left, right), strict=True)}
    analysis = _Analysis(dict(inputs), kind, _condition(join, inputs, how), cap)
    spelling = {name.lower(): name for name in (*left.columns, *right.columns)}
    joins = JoinPlanner(session, options, spelling).plan(analysis.cut, analysis.inputs, analysis.sources)
    written = {name: text.partition(".")[2] for name, text in joins.spelling.items()}
    try:
        result = run_optimised(optimise_plan(joins.plan), notes=joins.notes, names=written)
    except OptionError as error:
        raise OptionError(spelled(str(error), written)) from error
    sides = _SIDES[:1] if kind in ("left_semi", "left_anti") else _SIDES
    names = [joins.names[side, name] for side in sides for name in inputs[side].columns]
    chosen = plan_of(result.select(*(quoted(name) for name in names)))
    # Spark may mark a field of a struct as nullable that is never null: no row shows this difference.
    types = [[each.dataType.simpleString() for each in frame.schema] for frame in (chosen.to_frame(), native)]
    if types[0] != types[1]:
        raise BraidedError(
            f"join: the result would have {chosen.to_frame().schema}, but Spark's join has {native.schema}; please "
            "report this"
        )
    return joined_frame(chosen.standing_for(join).to_frame(), joins.plan, names, written)


def _names(frame: DataFrame) -> list[str]:
    """Return different names for the columns of an input: a DataFrame may have two columns of one name."""
    names: list[str] = []
    for name in map(str.lower, frame.columns):
        names.append(numbered(f"{name}_", names) if name in (*names, *_NO_NAMES) else name)
    return names


def _condition(join: PlanNode, inputs: Mapping[str, DataFrame], how: str) -> exp.Expression:
    """Return the condition of Spark's join over the inputs' names; refuse one that cannot be written as text."""
    text = join.condition_over(_numbers(join, inputs))
    if text is None:
        raise OptionError("condition=: is always true; write the keys and the bounds on times")
    problem = f"condition={text}: Spark and Braided read it differently; write it with on=, time=, within= and where="
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
        left, right = (frame.alias(side) for side, frame in inputs.items())
        again = plan_of(left.join(right, F.expr(tree.sql(dialect=Braided)), how))
    except (SqlglotError, PySparkException) as error:
        raise OptionError(problem) from error
    if again.condition_over(_numbers(again, inputs)) != text:
        raise OptionError(problem)
    return fields_as_dots(tree, _SIDES)


def _numbers(join: PlanNode, inputs: Mapping[str, DataFrame]) -> dict[int, tuple[str, str]]:
    """Return the side and the name of each column of a join's inputs, by its number."""
    return {
        column.id: (side, name)
        for child, (side, frame) in zip(join.children, inputs.items(), strict=True)
        for column, name in zip(child.output, frame.columns, strict=True)
    }


@dataclass
class _Analysis:
    """The condition taken apart: a `Cut`, like that of a SQL text."""

    inputs: dict[str, DataFrame]
    kind: How
    tree: exp.Expression
    cap: int | None = None
    columns: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = {side: list(frame.columns) for side, frame in self.inputs.items()}
        self.sources = {side: _source(side, frame) for side, frame in self.inputs.items()}
        self.cut = self._cut()

    def _cut(self) -> Cut:
        filters: dict[str, list[exp.Expression]] = {side: [] for side in _SIDES}
        between: list[exp.Expression] = []
        for part in conjuncts(self.tree):
            used = tables_of(part)
            if len(used) == 1 and min(used) in _FILTERED[self.kind]:
                filters[min(used)].append(part)
            else:
                between.append(part)
        bounds = [(part, each) for part in between if (each := bound(part, self._is_time)) is not None]
        caps = Caps(of_all=self.cap)
        one_sided = [each.sql(dialect=Braided) for each, _ in bounds]
        bounds += capped(bounds, "r", caps, self._is_marked)
        times = two_sided(bounds, "r", self._is_marked)
        if times is None:
            raise OptionError(self._unbounded(one_sided))
        chosen = [(part, each) for part, each in bounds if ties(each) == {time.sql() for time in times}]
        if self.cap is not None and not any(each.assumed for _, each in chosen):
            raise OptionError("cap=: the condition has bounds on both sides; leave it out")
        taken = {id(part) for part, each in chosen if not each.assumed}
        keys: list[tuple[exp.Column, exp.Column]] = []
        rest: list[exp.Expression] = []
        guards = {side: [part for part in between if tables_of(part) == {side}] for side in _SIDES}
        for part in between:
            if id(part) in taken:
                continue
            key = self._key(part, guards)
            if key is None:
                rest.append(part)
            else:
                keys.append(key)
        step = Step(("l",), "r", keys, [each for _, each in chosen], times, rest, self.kind)
        checked = check_caps(caps, [("r", step.bounds)])
        return Cut("l", [step], filters, self.columns, capped=checked)

    def _is_time(self, column: exp.Column) -> bool:
        return self.sources[column.table].is_time(column.name)

    def _is_marked(self, column: exp.Column) -> bool:
        return column.name in self.sources[column.table].marked

    def _key(
        self, part: exp.Expression, guards: Mapping[str, Sequence[exp.Expression]]
    ) -> tuple[exp.Column, exp.Column] | None:
        """Return the columns of a key: those that are compared, or new ones for values computed from each side."""
        if not isinstance(part, exp.EQ):
            return None
        sides = [side.unnest() for side in (part.left, part.right)]
        if [sorted(tables_of(side)) for side in sides] == [["r"], ["l"]]:
            sides.reverse()
        if [sorted(tables_of(side)) for side in sides] != [["l"], ["r"]]:
            return None
        left, right = (self._key_column(side, name, guards[name]) for side, name in zip(sides, _SIDES, strict=True))
        return left, right

    def _key_column(self, value: exp.Expression, side: str, guards: Sequence[exp.Expression]) -> exp.Column:
        """Return the column of a key; in joins with nulls a copy, since the result's own column is not a key then."""
        text = _over_one_input(value)
        flat = flat_key(text, self.inputs[side].select(F.expr(text)).schema[0].dataType)
        if isinstance(value, exp.Column):
            return value if self.kind == "inner" and flat is None else self._computed(flat or text, side)
        others = [other for other in map(_over_one_input, guards) if is_stable(self.inputs[side], other)]
        return self._computed(guarded(flat or text, others), side)

    def _computed(self, text: str, side: str) -> exp.Column:
        """Return a new column of an input."""
        name = numbered("key", self.inputs[side].columns)
        self.inputs[side] = self.inputs[side].withColumn(name, F.expr(text))
        self.sources[side] = _source(side, self.inputs[side])
        self.columns[side].append(name)
        return exp.column(exp.to_identifier(name), side)

    def _unbounded(self, bounds: Sequence[str]) -> str:
        times = [next((n for n in self.columns[side] if self.sources[side].is_time(n)), None) for side in _SIDES]
        if None in times:
            return "condition=: both streams need a TIMESTAMP column, because rows are joined within a window of time"
        one, other = times
        hint = f"; {bounds[0]} is on one side only" if bounds else ""
        return (
            f"condition=: no bounds on both sides tie a time of the right stream to one of the left{hint}, so rows "
            f"would be kept for ever; add a cap to the condition, such as {other} BETWEEN {one} - INTERVAL 1 HOUR "
            f"AND {one} + INTERVAL 1 HOUR" + (", or cap='1 hour'" if bounds else "")
        )


def _over_one_input(value: exp.Expression) -> str:
    """Return an expression over the columns of one input as text."""
    own = value.copy()
    for column in list(own.find_all(exp.Column)):
        column.set("table", None)
    return str(own.sql(dialect=Braided))


def _source(side: str, frame: DataFrame) -> Source:
    return Source(
        side,
        exp.to_table(side),
        {each.name.lower(): each.dataType.simpleString() for each in frame.schema.fields},
        frame.isStreaming,
        frozenset(each.name.lower() for each in frame.schema.fields if WATERMARK in (each.metadata or {})),
    )
