"""`braided.sql`: Spark analyses the text, the joins of its streams become ours, the rest goes back to Spark as text."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from pyspark.sql import functions as F
from pyspark.sql.types import DayTimeIntervalType, DoubleType, FloatType, StructType
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from braided.aggregates.partial import HORIZON, PANE, TICK, Measure, Panes, PartialAggregate
from braided.compile.plan import Column, Copied, Made, Plan
from braided.errors import BraidedError, OptionError
from braided.joins.window_join import WindowJoin
from braided.spark.frontend import run
from braided.spark.inputs import arrow_of
from braided.spark.watermark import WATERMARK
from braided.specs.join import JoinSpec
from braided.sqltext.conditions import Bound, limits, position
from braided.sqltext.cut import Cut, Source, Step, cut_select, own_columns
from braided.sqltext.dialect import Braided
from braided.sqltext.merge import Merge, Unmerged, Wanted, find_merge, rewrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Options of a join that a query may set, for all of its joins or by a hint for one.
_OPTIONS = ("lateness", "idle", "partition", "memory", "evict", "share", "shed", "name", "control", "redact")
_REFUSED = (
    "sql: this text cannot be taken apart safely, since Spark reads it in another way than we do; write the join with "
    "braided.join, or leave the query to spark.sql"
)
_DAY_US = 86_400_000_000
# Clocks on the wall differ between two moments by at most this much, in any zone.
_WALL_US = 26 * 3_600_000_000
_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|GMT|Z)([+-]\d{1,2}(:\d{2})?)?|[+-]\d{2}:\d{2}")


def run_sql(
    session: SparkSession, text: str, streams: Mapping[str, DataFrame], options: Mapping[str, Any]
) -> DataFrame:
    """See `braided.sql`."""
    _check(session, text, streams, options)
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
    except SqlglotError as error:
        raise OptionError(f"sql: does not parse: {str(error).splitlines()[0]}") from error
    if not isinstance(tree, exp.Query):
        raise OptionError(f"sql: {tree.key.upper()} is no query; write a SELECT")
    if tree.find(exp.TableSample):
        raise OptionError("sql: a sample of a stream differs from run to run; leave this query to spark.sql")
    with _views(session) as views:
        named = {name.lower(): views.add(frame) for name, frame in streams.items()}
        # Spark's names, types and errors are the contract.
        contract = _analysed(session, _rename(tree, named, text), named)
        frames = {named[name.lower()]: frame for name, frame in streams.items()}
        for merging in (True, False):
            query = _Query(session, tree.copy(), views, frames, options, merging)
            try:
                query.qualify(contract)
                query.cut()
                result = session.sql(query.tree.sql(dialect=Braided))
            except BraidedError:
                raise
            except Exception as error:
                raise OptionError(f"{_REFUSED} ({type(error).__name__}: {str(error).splitlines()[0][:200]})") from error
            if [field.dataType for field in result.schema] == [field.dataType for field in contract.schema]:
                return result.toDF(*contract.columns)
    raise BraidedError(f"sql: the compiled query gives {result.schema}, Spark's own {contract.schema}; report this")


def _check(session: SparkSession, text: Any, streams: Any, options: Mapping[str, Any]) -> None:
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"sql: {type(text).__name__} is no query; write a SELECT")
    if not isinstance(streams, Mapping) or not streams:
        raise OptionError("streams=: give the streaming DataFrames by the names that the query uses")
    for name in options:
        if name not in _OPTIONS:
            raise OptionError(f"{name}=: is no option of the joins of a query; those are {', '.join(_OPTIONS)}")
    if str(session.conf.get("spark.sql.caseSensitive")).lower() == "true":
        raise OptionError("spark.sql.caseSensitive: braided.sql finds names as Spark does by default; set it to false")


class _Views:
    """Temporary views under names that nobody else has."""

    def __init__(self, session: SparkSession) -> None:
        self._prefix = f"braided_{uuid.uuid4().hex[:12]}"
        self.names: list[str] = []

    def add(self, frame: DataFrame) -> str:
        """Return the name of a new view."""
        self.names.append(f"{self._prefix}_{len(self.names)}")
        frame.createTempView(self.names[-1])
        return self.names[-1]


@contextmanager
def _views(session: SparkSession) -> Iterator[_Views]:
    views = _Views(session)
    try:
        yield views
    finally:
        for name in views.names:
            session.catalog.dropTempView(name)


def _rename(tree: exp.Expression, named: Mapping[str, str], text: str) -> str:
    """Let streams in the tree be the views, under what the text calls them; return the text with that change."""
    shadowed = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    changes = []
    for table in list(tree.find_all(exp.Table)):
        called, name = table.name, table.name.lower()
        if name in named and not table.db and name not in shadowed:
            given = table.args.get("alias")
            view = exp.to_identifier(named[name])
            view.meta.update(table.this.meta)
            at = table.this.meta
            changes.append((at["start"], at["end"] + 1, named[name] + ("" if given else f" AS `{called}`")))
            table.set("this", view)
            table.set("alias", given or exp.TableAlias(this=exp.to_identifier(called)))
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _analysed(session: SparkSession, text: str, named: Mapping[str, str]) -> DataFrame:
    try:
        return session.sql(text)
    except Exception as error:
        said = str(error)
        for name, view in named.items():
            said = said.replace(view, name)
        raise OptionError(f"sql: {said.split('JVM stacktrace')[0].strip()}") from error


class _Query:
    """A query while its joins are cut out."""

    def __init__(
        self,
        session: SparkSession,
        tree: exp.Expression,
        views: _Views,
        frames: Mapping[str, DataFrame],
        options: Mapping[str, Any],
        merging: bool,
    ) -> None:
        self.merging = merging
        self.said: list[str] = []
        self.session = session
        self.tree = tree
        self.views = views
        self.frames = dict(frames)
        self.options = dict(options)

    def qualify(self, contract: DataFrame) -> None:
        """Give every column its table, every result its name; make sure that this changed nothing."""
        schemas: dict[str, dict[str, str]] = {}
        ctes = {cte.alias.lower() for cte in self.tree.find_all(exp.CTE)}
        for table in self.tree.find_all(exp.Table):
            if table.name.lower() not in ctes or table.db:
                frame = self._frame(table)
                schemas[table.name] = {name.lower(): "string" for name in frame.columns}
        self.tree = qualify(self.tree, schema=schemas, dialect=Braided, validate_qualify_columns=False)
        ours = self.session.sql(self.tree.sql(dialect=Braided))
        # Not `optimizedPlan`, which refuses streams that do not run.
        optimizer = self.session._jsparkSession.sessionState().optimizer()
        plans = [optimizer.execute(frame._jdf.queryExecution().analyzed()) for frame in (contract, ours)]
        if not plans[0].sameResult(plans[1]) and _shape(plans[0]) != _shape(plans[1]):
            raise OptionError(_REFUSED)

    def _frame(self, table: exp.Table) -> DataFrame:
        if table.name in self.frames:
            return self.frames[table.name]
        return self.session.table(exp.table_name(table, dialect=Braided))

    def cut(self) -> None:
        """Replace the joins of streams in every SELECT, the inner ones first."""
        for scope in traverse_scope(self.tree):
            if isinstance(scope.expression, exp.Select):
                self._cut_select(scope)

    def _cut_select(self, scope: Scope) -> None:
        select = scope.expression
        inputs = {alias: self._input(node, source) for alias, (node, source) in scope.selected_sources.items()}
        sources = {
            alias: Source(
                alias,
                scope.selected_sources[alias][0],
                {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields},
                frame.isStreaming,
            )
            for alias, frame in inputs.items()
        }
        found = cut_select(select, sources)
        if found is None:
            return
        self.said = []
        merge = self._merge(select, found, sources, inputs)
        joined, names = self._join(found, inputs, sources, merge)
        view = self.views.add(joined)
        select.set("from_" if "from_" in select.args else "from", exp.From(this=exp.to_table(view)))
        if merge is not None:
            keys = {key: names[key] for key in merge.keys}
            rewrite(merge, view, PANE, keys, [_measure(at) for at in range(len(merge.measures))], select)
            return
        for column in own_columns(select):
            if (column.table, column.name) in names:
                column.replace(exp.column(exp.to_identifier(names[column.table, column.name], quoted=True), view))

    def _merge(
        self, select: exp.Select, found: Cut, sources: dict[str, Source], inputs: Mapping[str, DataFrame]
    ) -> Merge | None:
        """Return how the aggregate after the joins runs in the workers of the last; None where it stays Spark's."""
        if not self.merging:
            return None
        try:
            merge = find_merge(select, found, sources)
            if merge.time not in {(time.table, time.name) for time in found.steps[-1].times}:
                raise Unmerged("its window is not over a time by which the streams are joined")
            if any(WATERMARK in (field.metadata or {}) for a in found.columns for field in inputs[a].schema.fields):
                raise Unmerged("an input has a watermark of its own, and Spark takes one in a query")
        except Unmerged as why:
            if select.args.get("group") is not None:
                self.said = [f"the aggregate after it is Spark's: {why}"]
            return None
        self.said = ["the aggregate after it begins in its workers, which hand on partial results"]
        return merge

    def _input(self, node: exp.Expression, source: Any) -> DataFrame:
        """Return an input of a SELECT as a DataFrame; its own joins have been cut already."""
        if not isinstance(source, Scope):
            return self._frame(node if isinstance(node, exp.Table) else node.this)
        if isinstance(node, exp.Table):  # a common table expression, which may use those before it
            chosen = exp.select("*").from_(exp.to_table(node.name, quoted=True))
            with_ = self.tree.args.get("with_") or self.tree.args.get("with")
            text = f"{with_.sql(dialect=Braided)} {chosen.sql(dialect=Braided)}"
        else:
            text = source.expression.sql(dialect=Braided)
        return self.session.sql(text)

    def _join(
        self, found: Cut, inputs: Mapping[str, DataFrame], sources: Mapping[str, Source], merge: Merge | None
    ) -> tuple[DataFrame, dict[tuple[str, str], str]]:
        """Return the streams joined, and what each column is called there."""
        names = {
            (alias, column): f"{alias}__{column}" for alias, columns in found.columns.items() for column in columns
        }
        if len(set(names.values())) != len(names):
            names = {key: f"c{number}__{key[1]}" for number, key in enumerate(names)}
        values = self._constants([each for step in found.steps for each in step.bounds])
        prepared = {}
        for alias in found.columns:
            frame = inputs[alias]
            for part in found.filters[alias]:
                frame = frame.where(_bare(part))
            actual = {name.lower(): name for name in frame.columns}
            prepared[alias] = frame.select(
                *(F.col(_quoted(actual[column])).alias(names[alias, column]) for column in found.columns[alias])
            )
        joined = prepared[found.first]
        for number, step in enumerate(found.steps):
            options = self._options(found, step, number)
            last = merge if step is found.steps[-1] else None
            said = self.said if step is found.steps[-1] else []
            joined = self._step(joined, prepared[step.right], step, names, values, sources, options, last, said)
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
        said: Sequence[str],
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
                copies[other] = f"{other}__copy"
                right = right.withColumn(copies[other], F.col(_quoted(other)))
        sides = dict.fromkeys(step.left, "l") | {step.right: "r"}
        where = " AND ".join(f"({_sided(part, sides, names)})" for part in rest) or None
        if not keys and where is None:
            where = f"l.{_quoted(name(step.times[0]))} IS NOT NULL"
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
            merged=None if merge is None else lambda plan: _merged(plan, merge, names, held),
            said=said,
        )
        if merge is not None:
            return closing(_with_keys(result, [names[key] for key in merge.keys], held))
        for key, other in keys:
            if other in copies:
                result = result.withColumnRenamed(copies[other], other)
            else:
                result = result.withColumn(other, F.col(_quoted(key)))
        return result

    def _constants(self, bounds: Sequence[Bound]) -> dict[int, int]:
        """Let Spark evaluate the intervals of bounds; return the sum of each bound's, in microseconds."""
        texts = [value.sql(dialect=Braided) for each in bounds for _, value in each.constants]
        if not texts:
            return {id(each): 0 for each in bounds}
        frame = self.session.sql("SELECT " + ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts)))
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
        if sources[each.plus.table].types[each.plus.name] == "timestamp_ntz":
            return True
        zone = str(self.session.conf.get("spark.sql.session.timeZone"))
        return bool(_FIXED_ZONE.fullmatch(zone)) or not (each.subtracts or abs(value) >= _DAY_US)

    def _options(self, found: Cut, step: Step, number: int) -> dict[str, Any]:
        """Return the options of one join: those of the call, and those that hints give to its inputs."""
        options = dict(self.options)
        lateness: list[Any] = [options.get("lateness")] * 2
        known = {alias for each in found.steps for alias in (*each.left, each.right)}
        for alias, given in found.hints.items():
            if alias not in known:
                raise OptionError(
                    f"sql: the hint BRAIDED({alias!r}, ...): no stream has that alias; it is one of "
                    f"{', '.join(sorted(known))}"
                )
            is_left = number == 0 and alias == found.first
            if alias != step.right and not is_left:
                continue
            for text in given:
                name, _, value = (part.strip() for part in text.partition("="))
                if name not in _OPTIONS or not value:
                    raise OptionError(
                        f"sql: the hint BRAIDED({alias!r}, {text!r}): write 'option=value'; options are "
                        f"{', '.join(_OPTIONS)}"
                    )
                if name == "lateness":
                    lateness[0 if is_left else 1] = value
                else:
                    options[name] = _value(name, value)
        if lateness[0] is not None or lateness[1] is not None:
            options["lateness"] = tuple(lateness)
        return options


def _shape(plan: Any) -> str:
    """Return a plan as text without what each analysis gives anew, and what means the same to Spark."""
    unnamed = re.sub(r"#\d+L?", "", re.sub(r" AS .*?#\d+L?", "", str(plan.toString())))
    return unnamed.replace("Join Cross", "Join Inner").lower()


def _measure(number: int) -> str:
    return f"m{number}"


def _with_keys(partials: DataFrame, keys: Sequence[str], held: Mapping[str, str]) -> DataFrame:
    """Return partials with every key of their groups under its own name."""
    for key in keys:
        if key in held:
            partials = partials.withColumn(key, F.col(_quoted(held[key])))
    return partials


def _merged(plan: Plan, merge: Merge, names: Mapping[tuple[str, str], str], held: Mapping[str, str]) -> Plan:
    """Return a join's plan with the first half of an aggregate in its workers."""

    def of(column: tuple[str, str]) -> str:
        return held.get(names[column], names[column])

    join = plan.joined
    assert isinstance(join, WindowJoin)
    # Results with the same group are the same rows, however often it is named.
    keys = tuple(dict.fromkeys(of(key) for key in merge.keys))
    time = of(merge.time)
    side = 0 if names[merge.time] == plan.times[0] else 1
    reach = join.window.hi if side == 0 else -join.window.lo
    measures = tuple(
        Measure(_measure(at), wanted.kind, None if wanted.column is None else of(wanted.column), to_arrow_type(wanted))
        for at, wanted in enumerate(merge.measures)
    )
    operator = PartialAggregate(plan.operator, time, keys, measures, Panes(merge.width, merge.offset, side, reach))
    known = {column.name: column for column in plan.columns if isinstance(column, Copied)}
    kind = operator.output.field(PANE).type
    columns: list[Column] = [Made(PANE, kind, True)]
    columns += [replace(known[key], marks=None) for key in keys]
    columns += [Made(measure.name, measure.type, True) for measure in measures]
    columns += [Made(TICK, pa.bool_(), True), Made(HORIZON, kind, True)]
    return replace(plan, operator=operator, columns=tuple(columns), hand_on=None)


def to_arrow_type(wanted: Wanted) -> pa.DataType:
    """Return the Arrow type of a partial result."""
    return arrow_of(StructType.fromDDL(f"x {wanted.type}"), "sql").field(0).type


def closing(partials: DataFrame) -> DataFrame:
    """Return partials by which Spark closes windows as soon as nothing can be added to them: by the horizon.

    Ticks carry it in every batch and are dropped after Spark has seen them; the filter mentions it, since Spark moves
    others below the watermark. The mark that makes it the clock of the window is then on the pane.
    """
    marked = partials.withWatermark(HORIZON, "0 seconds").where(f"NOT ({TICK} AND {HORIZON} IS NOT NULL)")
    others = [F.col(_quoted(name)) for name in partials.columns if name not in (PANE, TICK, HORIZON)]
    return marked.select(F.col(PANE).alias(PANE, metadata={WATERMARK: 0}), *others)


def _value(name: str, text: str) -> Any:
    """Return an option's value out of a hint."""
    if name == "redact":
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
    return Bound(each.plus, each.minus, op, each.constants, each.subtracts, each.source)


def _bare(part: exp.Expression) -> str:
    """Return a condition on one input as text over its columns alone."""
    bare = part.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    return str(bare.sql(dialect=Braided))


def _sided(part: exp.Expression, sides: Mapping[str, str], names: Mapping[tuple[str, str], str]) -> str:
    """Return a condition on two inputs as text over l. and r."""
    sided = part.copy()
    for column in list(sided.find_all(exp.Column)):
        renamed = exp.to_identifier(names[column.table, column.name], quoted=True)
        new = exp.column(renamed, exp.to_identifier(sides[column.table]))
        if column is sided:
            sided = new
        else:
            column.replace(new)
    return str(sided.sql(dialect=Braided))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
