"""The joins of streams that were cut out of a query: each a `braided.join` over columns with names of their own."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DayTimeIntervalType, DoubleType, FloatType
from sqlglot import exp

from braided.errors import OptionError
from braided.spark.frontend import run
from braided.spark.names import numbered, quoted
from braided.spark.sql_aggregates import closing, with_keys
from braided.spark.sql_many import common_lateness, join_many
from braided.specs.join import JoinSpec
from braided.sqltext.caps import OF_TIMES
from braided.sqltext.common import find_common
from braided.sqltext.conditions import Bound, limits, position
from braided.sqltext.cut import Cut, Source, Step
from braided.sqltext.dialect import Braided
from braided.sqltext.merge import Merge
from braided.sqltext.partials import with_partials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Options of a join that a query may set, for all of its joins or by a hint for one.
OPTIONS = ("lateness", "idle", "partition", "memory", "evict", "share", "shed", "name", "control", "redact")
_DAY_US = 86_400_000_000
# Clocks on the wall differ between two moments by at most this much, in any zone.
_WALL_US = 26 * 3_600_000_000
_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|GMT|Z)([+-]\d{1,2}(:\d{2})?)?|[+-]\d{2}:\d{2}")


class Joins:
    """Builds the joins of a query, with the options of the call."""

    def __init__(self, session: SparkSession, options: Mapping[str, Any], spelling: Mapping[str, str]) -> None:
        """`spelling` has the names of the streams' columns as they are written, by their names in lower case."""
        self._session = session
        self._given = dict(options)
        self._spelling = spelling

    def build(
        self,
        found: Cut,
        inputs: Mapping[str, DataFrame],
        sources: Mapping[str, Source],
        merge: Merge | None,
        said: list[str],
        *,
        aggregated: bool,
    ) -> tuple[DataFrame, dict[tuple[str, str], str]]:
        """Return the streams joined, and what each column is called there."""
        names = {
            (alias, column): f"{alias}__{column}" for alias, columns in found.columns.items() for column in columns
        }
        if len(set(names.values())) != len(names):
            names = {key: f"c{number}__{key[1]}" for number, key in enumerate(names)}
        values = self._constants([each for step in found.steps for each in step.bounds])
        prepared, written = {}, {}
        for alias in found.columns:
            frame = inputs[alias]
            for part in found.filters[alias]:
                frame = frame.where(bare(part))
            actual = {name.lower(): name for name in frame.columns}
            for column in found.columns[alias]:
                written[names[alias, column]] = f"{alias}.{self._spelling.get(column, column)}"
            prepared[alias] = frame.select(
                *(F.col(quoted(actual[column])).alias(names[alias, column]) for column in found.columns[alias])
            )
        messages = {"names": written, "aggregated": aggregated}
        many = None if merge is not None else self._many(found, prepared, sources, names, said, messages)
        if many is not None:
            return many, names
        joined = prepared[found.first]
        for number, step in enumerate(found.steps):
            options = self._options(found, step, number)
            last = merge if step is found.steps[-1] else None
            notes = said if step is found.steps[-1] else []
            joined = self._step(
                joined, prepared[step.right], step, names, values, sources, options, last, notes, messages
            )
        return joined, names

    def _step(
        self,
        left: DataFrame,
        right: DataFrame,
        step: Step,
        names: Mapping[tuple[str, str], str],
        values: Mapping[int, int],
        sources: Mapping[str, Source],
        options: dict[str, Any],
        merge: Merge | None,
        said: list[str],
        messages: Mapping[str, Any],
    ) -> DataFrame:
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
            else:
                keys.append((name(a), name(b)))
        # The result has a key once, as on the left. Where the right one may look different, it is carried beside.
        copies = {}
        for key, other in keys:
            same = left.schema[key].dataType == right.schema[other].dataType
            if not same or isinstance(right.schema[other].dataType, DoubleType | FloatType):
                copies[other] = numbered(f"{other}__copy", [*left.columns, *right.columns])
                right = right.withColumn(copies[other], F.col(quoted(other)))
        sides = dict.fromkeys(step.left, "l") | {step.right: "r"}
        where = " AND ".join(f"({_sided(part, sides, names)})" for part in rest) or None
        if not keys and where is None:
            where = f"l.{quoted(name(step.times[0]))} IS NOT NULL"
        if lo > hi:
            raise OptionError(f"sql: {position(step.times[1])}: the bounds on the times exclude every pair")
        spec = JoinSpec(
            on=keys or None,
            time=(name(step.times[0]), name(step.times[1])),
            between=(datetime.timedelta(microseconds=lo), datetime.timedelta(microseconds=hi)),
            where=where,
            **{key: value for key, value in options.items() if key not in ("name", "control", "redact")},
        )
        # Where the join's result has a key of the right stream: as the left one, or beside it.
        held = {other: copies.get(other, key) for key, other in keys}
        result = run(
            spec,
            [left, right],
            name=options.get("name"),
            control=options.get("control"),
            redact=options.get("redact", False),
            merged=None if merge is None else lambda plan: with_partials(plan, merge, names, held, said),
            said=said,
            **messages,
        )
        if merge is not None:
            return closing(with_keys(result, [names[key] for key in merge.keys], held))
        for key, other in keys:
            if other in copies:
                result = result.withColumnRenamed(copies[other], other)
            else:
                result = result.withColumn(other, F.col(quoted(key)))
        return result

    def _many(
        self,
        found: Cut,
        prepared: Mapping[str, DataFrame],
        sources: Mapping[str, Source],
        names: Mapping[tuple[str, str], str],
        said: Sequence[str],
        messages: Mapping[str, Any],
    ) -> DataFrame | None:
        """Return three and more streams that share a key and a window as one join of many; None where they do not."""
        common = find_common(found, sources)
        if common is None or self._given.get("partition", "auto") not in ("auto", "hash"):
            return None
        values = self._constants(common.bounds)
        span = common.within(lambda each: values[id(each)])
        lateness = common_lateness(common, found.hints, self._given.get("lateness"))
        if span is None or lateness is None:
            return None
        if not all(self._is_exact(each, values[id(each)], sources) for each in common.bounds):
            return None
        options = {**self._given, "lateness": lateness}
        streams = [prepared[alias] for alias in common.streams]
        joined = join_many(common, span, streams, names, options, said, messages)
        if joined is None:
            return None
        for part in common.rest:
            joined = joined.where(_sided(part, {}, names))
        return joined

    def _constants(self, bounds: Sequence[Bound]) -> dict[int, int]:
        """Let Spark evaluate the intervals of bounds; return the sum of each bound's, in microseconds."""
        texts = [value.sql(dialect=Braided) for each in bounds for _, value in each.constants]
        if not texts:
            return {id(each): 0 for each in bounds}
        frame = self._session.sql("SELECT " + ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts)))
        for text, field in zip(texts, frame.schema.fields, strict=True):
            if not isinstance(field.dataType, DayTimeIntervalType):
                raise OptionError(f"sql: {text} has no fixed length; bound times by days, hours, minutes or seconds")
        found = iter(frame.collect()[0])
        micro = datetime.timedelta(microseconds=1)
        return {id(each): sum(sign * (next(found) // micro) for sign, _ in each.constants) for each in bounds}

    def _is_exact(self, each: Bound, value: int, sources: Mapping[str, Source]) -> bool:
        """Whether a bound on instants says just what the text says.

        Spark counts days, and subtracts times, by the clock on the wall of the session's zone.
        """
        if each.assumed or sources[each.plus.table].types[each.plus.name] == "timestamp_ntz":
            return True
        zone = str(self._session.conf.get("spark.sql.session.timeZone"))
        return bool(_FIXED_ZONE.fullmatch(zone)) or not (each.subtracts or abs(value) >= _DAY_US)

    def _options(self, found: Cut, step: Step, number: int) -> dict[str, Any]:
        """Return the options of one join: those of the call, and those that hints give to its inputs."""
        options = dict(self._given)
        lateness: list[Any] = [options.get("lateness")] * 2
        for alias, given in found.hints.items():
            is_left = number == 0 and alias == found.first
            if alias != step.right and not is_left:
                continue
            for text in given:
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
        return options


def _value(name: str, text: str) -> Any:
    """Return an option's value out of a hint."""
    if name == "redact" or (name == "control" and text.lower() in ("true", "false")):
        return text.lower() == "true"
    if name == "memory" and text.isdigit():
        return int(text)
    return float(text) if name == "shed" and re.fullmatch(r"0?\.\d+", text) else text


def _loosest(bounds: Sequence[tuple[Bound, int]]) -> list[tuple[Bound, int]]:
    """Of the two values of a bound that is not exact, keep the one that lets more through."""
    found: dict[int, tuple[Bound, int]] = {}
    result = []
    for each, value in bounds:
        before = found.get(id(each))
        if before is None:
            found[id(each)] = each, value
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
    """Return a condition on one input as text over its columns alone."""
    bare = part.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    return str(bare.sql(dialect=Braided))


def _sided(part: exp.Expression, sides: Mapping[str, str], names: Mapping[tuple[str, str], str]) -> str:
    """Return a condition on inputs as text over l. and r., or over the names alone where no sides are given."""
    sided = part.copy()
    for column in list(sided.find_all(exp.Column)):
        renamed = exp.to_identifier(names[column.table, column.name], quoted=True)
        new = exp.column(renamed, exp.to_identifier(sides.get(column.table)))
        if column is sided:
            sided = new
        else:
            column.replace(new)
    return str(sided.sql(dialect=Braided))
