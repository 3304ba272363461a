"""The first part of an aggregate in the workers of a join: which partial results it needs, and how they are merged.

```
 avg(n), count(*) by cell in windows of 1 minute every 10 seconds
   ->  partials by (pane of 10 seconds, cell): m0 = sum of n, m1 = count of n, m2 = rows
       values: sum(m0) / sum(m1), sum(m2)
```
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from braided.expressions.dialect import Braided
from braided.expressions.evaluate import ARROW
from braided.expressions.formula import Formula, compile_formula
from braided.expressions.parse import Uncompilable
from braided.operators.aggregate.measures import VALUE, Kind, Measure, timed_type
from braided.operators.aggregate.partial import HORIZON, PANE, TICK, Panes, PartialAggregate
from braided.operators.join.window_join import WindowJoin
from braided.operators.physical import Column, ComputedColumn, InputColumn, Plan
from braided.plan.columns import find_column
from braided.plan.nodes import Aggregate
from braided.plan.optimiser import NotApplied
from braided.plan.values import Total, Value, parse_value

_WORDS = {kind: word for word, kind in ARROW.items()}
_WHOLE = ("tinyint", "smallint", "int")
_SUM_DIGITS, _MOST_DIGITS = 10, 38
_ORDERED = (*_WHOLE, "bigint", "date", "timestamp", "timestamp_ntz", "boolean")
_EXTREMES: dict[str, Literal["min", "max"]] = {"min": "min", "max": "max", "bool_and": "min", "bool_or": "max"}
_TIMED = (*_ORDERED, "float", "double", "string")  # without collated strings, which Spark compares differently


_SUMS = {"bigint": pa.int64(), "double": pa.float64()}


@dataclass(frozen=True)
class Wanted:
    """A partial result: its kind, its column or expression, and its Spark type."""

    kind: Kind
    of: str | exp.Expression | None
    type: str


@dataclass(frozen=True)
class Use:
    """How a value is computed from partial results: ``sum``, ``min``, ``max``, ``first``, ``last`` or ``avg`` of them,
    or the type to which their sum is cast."""

    how: str
    parts: tuple[int, ...]

    def sql(self) -> str:
        """Return the value as an aggregate over partial results."""
        names = [measure_name(part) for part in self.parts]
        if self.how == "avg":
            return f"try_divide(cast(sum({names[0]}) AS double), sum({names[1]}))"
        if self.how in ("sum", "min", "max"):
            return f"{self.how}({names[0]})"
        if self.how in ("first", "last"):
            return f"{'min' if self.how == 'first' else 'max'}({names[0]}).{VALUE}"
        return f"cast(sum({names[0]}) AS {self.how})"


@dataclass(frozen=True)
class Partials:
    """The partial results that the workers of a join compute for an aggregate.

    keys : the columns of the join to group by, in the aggregate's order.
    uses : for each value of the aggregate, how it is computed from `wanted`.
    """

    time: str
    width: int
    offset: int
    keys: tuple[str, ...]
    wanted: tuple[Wanted, ...]
    uses: tuple[Use, ...]

    @property
    def computes(self) -> bool:
        """Whether workers compute expressions for it, and not only columns."""
        return any(isinstance(part.of, exp.Expression) for part in self.wanted)


def measure_name(number: int) -> str:
    """Return the column name of a partial result."""
    return f"m{number}"


def plan_partials(aggregate: Aggregate, plan: Plan) -> Partials:
    """Return how an aggregate over a join runs in its workers; raise `NotApplied` if it cannot."""
    if plan.residual is not None:
        raise NotApplied(f"only Spark can evaluate {plan.residual.where}")
    known = {column.name: column for column in plan.columns if isinstance(column, InputColumn)}
    names = list(known)
    time = known[aggregate.time]
    if time.source != plan.times[time.stream]:
        raise NotApplied(f"{aggregate.time} is not a time column of the join")
    keys = []
    for _, text in aggregate.by:
        if text not in known:
            raise NotApplied(f"it groups by {text}, which is not a column")
        column = known[text]
        kind = plan.streams[column.stream].schema.field(column.source).type
        if pa.types.is_nested(kind) or pa.types.is_duration(kind):
            raise NotApplied(f"{text} has type {kind}")
        if text.lower() in (PANE, TICK, HORIZON) or re.fullmatch(r"m\d+", text.lower()):
            raise NotApplied(f"{text} is also the name of a column of partial results")
        keys.append(text)
    wanted: list[Wanted] = []
    uses = []
    for name, text in aggregate.values:
        how, parts = _parts(parse_value(name, text), names, known, plan)
        wanted += [part for part in parts if part not in wanted]
        uses.append(Use(how, tuple(wanted.index(part) for part in parts)))
    width = math.gcd(aggregate.size, aggregate.slide)
    return Partials(aggregate.time, width, aggregate.offset, tuple(keys), tuple(wanted), tuple(uses))


def _parts(value: Value, names: Sequence[str], known: dict[str, InputColumn], plan: Plan) -> tuple[str, list[Wanted]]:
    """Return how a value is computed from partial results, and these partial results."""
    if value.kind is None:
        raise NotApplied(f"partial results of {value.text} cannot be merged")
    if isinstance(value.of, str):
        column = known[find_column(value.of, names, value.name)]
        stream = plan.streams[column.stream]
        if column.source in stream.collated and value.kind in ("first", "last"):
            raise NotApplied(f"{column.name} has a collation, which Spark uses to compare values")
        return partials_of(value.kind, column.name, word_of(stream.schema.field(column.source).type))
    if value.of is None:
        return partials_of(value.kind, None, "bigint")
    computed = value.of.copy()
    for node in computed.find_all(exp.Column):
        node.set("this", exp.to_identifier(find_column(node.name, names, value.name), quoted=True))
    return partials_of(value.kind, computed, word_of(formula_of(computed, plan.operator.output).type))


def formula_of(expression: exp.Expression, schema: pa.Schema) -> Formula:
    """Return an expression as a formula that workers compute from columns."""
    text = expression.sql(dialect=Braided)
    try:
        return compile_formula(text, schema)
    except Uncompilable as error:
        raise NotApplied(f"only Spark can compute {text}") from error


def word_of(kind: pa.DataType) -> str:
    """Return Spark's name of a type."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _WORDS.get(kind, str(kind))


def partials_of(kind: Total, of: str | exp.Expression | None, type_: str) -> tuple[str, list[Wanted]]:
    """Return how an aggregate of a column, an expression or the rows is computed from partial results, and these.

    The first value is ``sum``, ``min``, ``max``, ``first``, ``last`` or ``avg`` of them, or the type to which their sum
    is cast. Raises `NotApplied` if only Spark can compute it.
    """
    if of is None:
        return "sum", [Wanted("rows", None, "bigint")]
    if kind == "count":
        return "sum", [Wanted("count", of, "bigint")]
    if kind == "first" or kind == "last":  # noqa: PLR1714  (so that mypy knows which)
        if type_ not in _TIMED and not type_.startswith("decimal("):
            raise NotApplied(f"only Spark can compute {kind} of {type_}")
        return kind, [Wanted(kind, of, type_)]
    if kind in _EXTREMES:
        if type_ not in _ORDERED:
            raise NotApplied(f"only Spark can compute {kind} of {type_}")
        if kind in ("bool_and", "bool_or") and type_ != "boolean":
            raise NotApplied(f"{kind} needs booleans, not {type_}")
        extreme = _EXTREMES[kind]
        return extreme, [Wanted(extreme, of, type_)]
    if type_ in _WHOLE:
        partial = "bigint"
    elif type_ == "bigint":
        partial = "decimal(38,0)"  # an error only if the total does not fit, not a partial sum
    elif type_ in ("float", "double"):
        partial = "double"
    elif kind == "sum" and (widened := _sum_of_decimals(type_)) is not None:
        return widened, [Wanted("sum", of, widened)]
    else:
        raise NotApplied(f"only Spark can compute {kind} of {type_}")
    total = Wanted("sum", of, partial)
    if kind == "sum":
        return "bigint" if type_ == "bigint" else "sum", [total]
    return "avg", [total, Wanted("count", of, "bigint")]


def _sum_of_decimals(type_: str) -> str | None:
    """Return Spark's type for the sum of a decimal, if no sum of fewer than 10^10 rows can overflow it; or None."""
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if decimal is None or int(decimal[1]) + _SUM_DIGITS > _MOST_DIGITS:
        return None
    return f"decimal({int(decimal[1]) + _SUM_DIGITS},{decimal[2]})"


def with_partials(plan: Plan, partials: Partials) -> Plan:
    """Return a join's plan with the first part of an aggregate in its workers."""
    join = plan.joined
    assert isinstance(join, WindowJoin)
    # A key that is named twice does not change the groups.
    keys = tuple(dict.fromkeys(partials.keys))
    time = partials.time
    known = {column.name: column for column in plan.columns if isinstance(column, InputColumn)}
    side = known[time].stream
    reach = join.window.hi if side == 0 else -join.window.lo
    # Rows of an outer join wait until they can be returned, not to be joined.
    panes = Panes(partials.width, partials.offset, side, reach, plan.waits and not join.preserved)
    rows = plan.operator.output
    measures, read = [], {time, *keys}
    computed: dict[str, Formula] = {}
    for at, wanted in enumerate(partials.wanted):
        if isinstance(wanted.of, exp.Expression):
            formula = formula_of(wanted.of, rows)
            source: str | None = next((name for name, other in computed.items() if other == formula), None)
            source = source or _unused(f"computed {at}", rows.names)
            computed[source], kind = formula, formula.type
            read.update(formula.columns)
        elif wanted.of is not None:
            source = wanted.of
            kind = rows.field(source).type
            read.add(source)
        else:
            source, kind = None, pa.int64()
        measures.append(Measure(measure_name(at), wanted.kind, source, _type(wanted, kind, rows.field(time).type)))
    inner = plan.operator
    if isinstance(inner, WindowJoin):  # pairs have only the columns that the aggregate reads
        inner = replace(inner, columns=tuple(column for column in inner.columns if column.name in read))
    operator = PartialAggregate(inner, time, keys, tuple(measures), panes, tuple(computed.items()))
    kind = operator.output.field(PANE).type
    columns: list[Column] = [ComputedColumn(PANE, kind, True)]
    columns += [replace(known[key], marks=None) for key in keys]
    columns += [ComputedColumn(measure.name, measure.type, True) for measure in measures]
    columns += [ComputedColumn(TICK, pa.bool_(), True), ComputedColumn(HORIZON, kind, True)]
    return replace(plan, operator=operator, columns=tuple(columns), propagated_delay=None)


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
