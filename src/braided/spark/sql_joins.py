"""The joins of streams that were cut out of a query, as a plan over columns with unique names."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, DayTimeIntervalType, DoubleType, FloatType
from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.dialect import Braided
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.shared_options import no_pair
from braided.operators.spec import Spec
from braided.plan.nodes import Filter, LogicalPlan, Node, Operator, Project, combine, plan_of_source
from braided.spark.names import numbered, quoted
from braided.spark.sql_conditions import hoist_conditions
from braided.spark.sql_many import common_lateness, many_spec
from braided.sqltext.caps import OF_TIMES
from braided.sqltext.common import find_common
from braided.sqltext.conditions import Bound, limits, position
from braided.sqltext.joins import Cut, Source, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AROUND = ("name", "control", "redact")
# Options of a join that a query may set, for all of its joins or by a hint for one.
OPTIONS = ("lateness", "late", "idle", "partition", "memory", "evict", "share", "shed", "name", "control", "redact")
_DAY_US = 86_400_000_000
# The offset from UTC changes between two moments by at most this much, in any time zone.
_WALL_US = 26 * 3_600_000_000
_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|GMT|Z)([+-]\d{1,2}(:\d{2})?)?|[+-]\d{2}:\d{2}")


@dataclass
class JoinPlan:
    """The joins of a SELECT as a plan over its inputs.

    names : the result's name of each column of the inputs, by alias and column.
    spelling : the users' name of each column of the result.
    """

    plan: LogicalPlan[DataFrame]
    names: dict[tuple[str, str], str]
    spelling: dict[str, str]
    notes: list[str]


class _Copies:
    """The two inputs of a join, with copies of keys beside the single column that the result has for both."""

    def __init__(
        self,
        sides: tuple[LogicalPlan[DataFrame], LogicalPlan[DataFrame]],
        names: Mapping[tuple[str, str], str],
        needed: Collection[tuple[str, str]],
    ) -> None:
        """`needed` are the columns that are read after the join."""
        self.sides = sides
        self.after = dict(names)
        """The result's name of each column."""
        self._needed = needed

    def copy(self, side: int, columns: Sequence[tuple[str, str]], name: str) -> None:
        """Add a copy of a key column to its input, if it is read; `columns` are all that it stands for."""
        read = [column for column in columns if column in self._needed]
        if not read:
            return
        copy = numbered(f"{name}__copy", self.after.values())
        self.after |= dict.fromkeys(read, copy)
        changed = self.sides[side].then(partial(Project, expressions=("*", f"{quoted(name)} AS {quoted(copy)}")))
        self.sides = (changed, self.sides[1]) if side == 0 else (self.sides[0], changed)


class JoinPlanner:
    """Plans the joins of a query, with the options of the call."""

    def __init__(self, session: SparkSession, options: Mapping[str, Any], spelling: Mapping[str, str]) -> None:
        """`spelling` has the names of the streams' columns in their original case, by their names in lower case."""
        self._session = session
        self._given = _one_result(dict(options))
        self._spelling = spelling

    def plan(self, cut: Cut, inputs: Mapping[str, DataFrame], sources: Mapping[str, Source]) -> JoinPlan:
        """Return the streams of a SELECT joined."""
        names = {(alias, column): f"{alias}__{column}" for alias, columns in cut.columns.items() for column in columns}
        if len(set(names.values())) != len(names):
            names = {key: f"c{number}__{key[1]}" for number, key in enumerate(names)}
        spelling = {
            name: f"{alias}.{_written(column, inputs[alias].columns, self._spelling)}"
            for (alias, column), name in names.items()
        }
        fields = [(alias, field) for alias in cut.columns for field in inputs[alias].schema.fields]
        types = {(alias, field.name.lower()): field.dataType for alias, field in fields}
        streams = {alias: _stream(alias, cut, inputs[alias], names) for alias in cut.columns}
        many = self._many(cut, streams, sources, names, types)
        if many is not None:
            plan, names, note = many
            return JoinPlan(plan, names, spelling, [*cut.capped, note])
        values = self._constants([each for step in cut.steps for each in step.bounds])
        joined = streams[cut.first]
        for number, step in enumerate(cut.steps):
            options = self._options(cut, step, number)
            later = [column for after in cut.steps[number + 1 :] for column in after.columns]
            needed = {*cut.read, *((column.table, column.name) for column in later)}
            copies = _Copies((joined, streams[step.right]), names, needed)
            if step.match is None:
                spec: Spec = self._step(copies, step, names, types, values, sources, options)
            else:
                spec = self._asof(copies, step, names, values, sources, options)
            names = copies.after
            joined = combine(copies.sides, partial(_operator, spec, options))
        return JoinPlan(joined, names, spelling, cut.capped)

    def _step(
        self,
        inputs: _Copies,
        step: Step,
        names: dict[tuple[str, str], str],
        types: Mapping[tuple[str, str], DataType],
        values: Mapping[int, int],
        sources: Mapping[str, Source],
        options: dict[str, Any],
    ) -> JoinSpec:
        """Return the spec of one join, and give its inputs the columns that it needs."""

        def name(column: exp.Column) -> str:
            return names[column.table, column.name]

        rest = list(step.rest)
        bounds = []
        for each in step.bounds:
            value = values[id(each)]
            if self._is_exact(each, value, sources):
                bounds.append((each, value))
            else:
                bounds += [(each, value - _WALL_US), (each, value + _WALL_US)]
                rest.append(each.source)
        lo, hi = limits(_loosest(bounds), set(step.left))
        assert lo is not None
        assert hi is not None
        keys: list[tuple[str, str]] = []
        for a, b in step.keys:
            if name(a) in {key for key, _ in keys} or name(b) in {key for _, key in keys}:
                rest.append(exp.EQ(this=a.copy(), expression=b.copy()))
                continue
            keys.append((name(a), name(b)))
            of_a, of_b = types[a.table, a.name], types[b.table, b.name]
            if step.how in ("right", "full") and of_a != of_b:
                raise OptionError(
                    f"sql: {position(b)}: {a.sql()} and {b.sql()} are of types {of_a.simpleString()} and "
                    f"{of_b.simpleString()}; for a {step.how.upper()} JOIN of streams cast one of them in a subquery"
                )
            # The result has a key once: that of the left row, or of the only row. If a key may look
            # different, or be null where this column is not, it is copied into another column.
            inputs.after[b.table, b.name] = name(a)
            if step.how != "inner" or of_a != of_b or isinstance(of_b, DoubleType | FloatType):
                inputs.copy(1, [(b.table, b.name)], name(b))
            if step.how in ("right", "full"):
                # After an inner join it may be the key of several streams.
                inputs.copy(0, [column for column, known in names.items() if known == name(a)], name(a))
        letters = dict.fromkeys(step.left, "l") | {step.right: "r"}
        conditions = [f"({_sided(part, letters, names)})" for part in rest]
        if step.how != "inner":
            inputs.sides, conditions = hoist_conditions(inputs.sides, rest, conditions, step, names)
        if lo > hi:
            raise OptionError(f"sql: {position(step.times[1])}: {no_pair(lo, hi)}")
        return JoinSpec(
            on=keys or None,
            time=(name(step.times[0]), name(step.times[1])),
            between=(datetime.timedelta(microseconds=lo), datetime.timedelta(microseconds=hi)),
            where=" AND ".join(conditions) or None,
            how=step.how,
            **{key: value for key, value in options.items() if key not in _AROUND},
        )

    def _asof(
        self,
        inputs: _Copies,
        step: Step,
        names: dict[tuple[str, str], str],
        values: Mapping[int, int],
        sources: Mapping[str, Source],
        options: dict[str, Any],
    ) -> AsofSpec:
        """Return the spec of one as-of join, and give its inputs the columns that it needs."""
        assert step.match is not None
        where = f"sql: {position(step.times[1])}: this ASOF JOIN"
        for each in step.bounds:
            if not self._is_exact(each, values[id(each)], sources):
                raise OptionError(
                    f"{where} is bounded by days in the session's time zone, which differ in length; write hours"
                )
        lo, hi = limits([(each, values[id(each)]) for each in step.bounds], set(step.left))
        backward = step.match.direction == "backward"
        near, far = (hi, lo) if backward else (lo, hi)
        if near is not None and (near < 0 if backward else near > 0):
            raise OptionError(f"{where} has a bound on its rows' times that excludes the closest row; leave it out")
        tolerance = None if far is None else datetime.timedelta(microseconds=-far if backward else far)
        unknown = [option for option in options if option not in ("lateness", "idle", "name", "redact")]
        if unknown:
            raise OptionError(
                f"{where}: unknown option {unknown[0]}; write lateness, idle, name, redact or, in a hint, tolerance"
            )
        keys: list[tuple[str, str]] = []
        for a, b in step.keys:
            keys.append((names[a.table, a.name], names[b.table, b.name]))
            inputs.copy(1, [(b.table, b.name)], names[b.table, b.name])
        return AsofSpec(
            on=keys or None,
            time=(names[step.times[0].table, step.times[0].name], names[step.times[1].table, step.times[1].name]),
            direction=step.match.direction,
            tolerance=tolerance,
            allow_exact_matches=step.match.exact,
            how="left" if step.how == "left" else "inner",
            **{key: value for key, value in options.items() if key not in _AROUND},
        )

    def _many(
        self,
        cut: Cut,
        streams: Mapping[str, LogicalPlan[DataFrame]],
        sources: Mapping[str, Source],
        names: Mapping[tuple[str, str], str],
        types: Mapping[tuple[str, str], DataType],
    ) -> tuple[LogicalPlan[DataFrame], dict[tuple[str, str], str], str] | None:
        """Return three and more streams that share a key and a window as one join of many; None if they do not."""
        if any(step.how != "inner" or step.match is not None for step in cut.steps):
            return None
        common = find_common(cut, sources)
        if common is None or self._given.get("partition", "auto") not in ("auto", "hash"):
            return None
        values = self._constants(common.bounds)
        span = common.within(lambda each: values[id(each)])
        lateness = common_lateness(common, cut.hints, self._given.get("lateness"))
        if span is None or lateness is None:
            return None
        if not all(self._is_exact(each, values[id(each)], sources) for each in common.bounds):
            return None
        spec = many_spec(common, span, names, types, {**self._given, "lateness": lateness})
        if spec is None:
            return None
        after = dict(names)
        for key in common.keys:
            for alias, column in zip(common.streams, key, strict=True):
                after[alias, column] = names[common.streams[0], key[0]]
        plan = combine([streams[alias] for alias in common.streams], partial(_operator, spec, self._given))
        for part in common.rest:
            plan = plan.then(partial(Filter, condition=_sided(part, {}, after)))
        return plan, after, f"{len(common.streams)} streams share their key and window: one join of many"

    def _constants(self, bounds: Sequence[Bound]) -> dict[int, int]:
        """Let Spark evaluate the intervals of bounds; return the sum of each bound's, in microseconds."""
        texts = [value.sql(dialect=Braided) for each in bounds for _, value in each.constants]
        if not texts:
            return {id(each): 0 for each in bounds}
        frame = self._session.sql("SELECT " + ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts)))
        for text, field in zip(texts, frame.schema.fields, strict=True):
            if not isinstance(field.dataType, DayTimeIntervalType):
                raise OptionError(f"sql: {text} has no fixed length; bound times by days, hours, minutes or seconds")
        values = iter(frame.collect()[0])
        micro = datetime.timedelta(microseconds=1)
        return {id(each): sum(sign * (next(values) // micro) for sign, _ in each.constants) for each in bounds}

    def _is_exact(self, each: Bound, value: int, sources: Mapping[str, Source]) -> bool:
        """Whether a bound on instants means exactly what the text means.

        Spark counts days, and subtracts times, by the local time of the session's zone.
        """
        if each.assumed or sources[each.plus.table].types[each.plus.name] == "timestamp_ntz":
            return True
        zone = str(self._session.conf.get("spark.sql.session.timeZone"))
        return bool(_FIXED_ZONE.fullmatch(zone)) or not (each.subtracts or abs(value) >= _DAY_US)

    def _options(self, cut: Cut, step: Step, number: int) -> dict[str, Any]:
        """Return the options of one join: those of the call, and those that hints give to its inputs."""
        options = dict(self._given)
        lateness: list[Any] = [options.get("lateness")] * 2
        for alias, texts in cut.hints.items():
            is_left = number == 0 and alias == cut.first
            if alias != step.right and not is_left:
                continue
            for text in texts:
                name, _, value = (part.strip() for part in text.partition("="))
                if name not in OPTIONS or not value:
                    raise OptionError(
                        f"sql: the hint BRAIDED({alias!r}, {text!r}): write 'option=value'; options are "
                        f"{', '.join((*OPTIONS, *OF_TIMES))}"
                    )
                if name == "lateness":
                    lateness[0 if is_left else 1] = value
                else:
                    options[name] = _value(name, value)
        if lateness[0] is not None or lateness[1] is not None:
            options["lateness"] = tuple(lateness)
        return _one_result(options)


def _one_result(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("late") == "side":
        raise OptionError("late='side': SQL has one result; write 'drop', or call braided.join for both")
    return options


def _stream(alias: str, cut: Cut, frame: DataFrame, names: Mapping[tuple[str, str], str]) -> LogicalPlan[DataFrame]:
    """Return an input with its own conditions, and the columns that are read, under the names of the result."""
    plan = plan_of_source(frame, frame.columns)
    for part in cut.filters[alias]:
        plan = plan.then(partial(Filter, condition=bare(part)))
    actual = {name.lower(): name for name in frame.columns}
    columns = tuple(f"{quoted(actual[column])} AS {quoted(names[alias, column])}" for column in cut.columns[alias])
    return plan.then(partial(Project, expressions=columns))


def _written(column: str, columns: Sequence[str], spelling: Mapping[str, str]) -> str:
    """Return a column as users write it. Computed columns have lost their case; the streams still have it."""
    own = next((name for name in columns if name.lower() == column), column)
    return own if own != column or column in spelling.values() else spelling.get(column, column)


def _operator(spec: Spec, options: Mapping[str, Any], streams: tuple[Node, ...]) -> Operator:
    return Operator(spec, streams, **{name: options[name] for name in _AROUND if name in options})


def _value(name: str, text: str) -> Any:
    """Return the value of an option in a hint."""
    if name == "redact" or (name == "control" and text.lower() in ("true", "false")):
        return text.lower() == "true"
    if name == "memory" and text.isdigit():
        return int(text)
    return float(text) if name == "shed" and re.fullmatch(r"0?\.\d+", text) else text


def _loosest(bounds: Sequence[tuple[Bound, int]]) -> list[tuple[Bound, int]]:
    """Of the two values of a bound that is not exact, keep the wider one."""
    loosest: dict[int, tuple[Bound, int]] = {}
    result = []
    for each, value in bounds:
        before = loosest.get(id(each))
        if before is None:
            loosest[id(each)] = each, value
            result.append((each, value))
            continue
        if each.op is exp.EQ:
            at = next(i for i, (b, _) in enumerate(result) if b is each)
            result[at] = (_as(each, exp.GTE), min(before[1], value))
            result.append((_as(each, exp.LTE), max(before[1], value)))
            continue
        widest = max if each.op in (exp.LT, exp.LTE) else min
        at = next(i for i, (b, _) in enumerate(result) if b is each)
        result[at] = each, widest(before[1], value)
    return result


def _as(each: Bound, op: type[exp.Expression]) -> Bound:
    return replace(each, op=op)


def bare(part: exp.Expression) -> str:
    """Return a condition on one input as text over its bare columns."""
    bare = part.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    return str(bare.sql(dialect=Braided))


def _sided(part: exp.Expression, sides: Mapping[str, str], names: Mapping[tuple[str, str], str]) -> str:
    """Return a condition on inputs as text over l. and r., or over bare names if no sides are given."""
    sided = part.copy()
    for column in list(sided.find_all(exp.Column)):
        renamed = exp.to_identifier(names[column.table, column.name], quoted=True)
        new = exp.column(renamed, exp.to_identifier(sides.get(column.table)))
        if column is sided:
            sided = new
        else:
            column.replace(new)
    return str(sided.sql(dialect=Braided))
