"""`braided.sql`: Spark analyses the text; joins and patterns of streams become ours, and Spark runs the rest."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.eliminate_ctes import eliminate_ctes
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from braided.errors import BraidedError, OptionError
from braided.expressions.dialect import Braided
from braided.plan.explain import spelled, why_native
from braided.plan.nodes import Aggregate, LogicalPlan
from braided.plan.optimiser import NotApplied
from braided.spark.catalyst import aggregates, plan_of
from braided.spark.run_plan import OptimisedPlan, optimise_plan, run_optimised
from braided.spark.session_operators import registry_of
from braided.spark.sessions import refuse_connect
from braided.spark.sql_computed_keys import ComputedKeys
from braided.spark.sql_inputs import streams_of_views, with_arguments
from braided.spark.sql_joins import OPTIONS, JoinPlan, JoinPlanner
from braided.spark.sql_keys import cast_keys
from braided.spark.sql_match import with_matches
from braided.spark.watermark import WATERMARK
from braided.sqltext.aggregate import AggregateReader, aggregate_of
from braided.sqltext.asof import AsofClause, place_matches, take_asof
from braided.sqltext.caps import parse_cap
from braided.sqltext.conditions import position
from braided.sqltext.cut import cut_select, own_columns
from braided.sqltext.fold import fold
from braided.sqltext.joins import Cut, LeftToSparkError, Source
from braided.sqltext.shape import shape, without_distinct
from braided.sqltext.shared_columns import keep_shared
from braided.sqltext.struct_fields import fields_as_dots
from braided.sqltext.subqueries import has_subquery, join_subqueries
from braided.sqltext.watermarks import take_watermarks
from braided.sqltext.window_names import name_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("braided")
_REFUSED = (
    "sql: this text cannot be taken apart safely, because Spark and Braided read it differently; write the join with "
    "braided.join, or run the query with spark.sql"
)


def run_sql(
    session: SparkSession,
    text: str,
    streams: Mapping[str, DataFrame] | None,
    options: Mapping[str, Any],
    args: Mapping[str, Any] | Sequence[Any] | None = None,
) -> DataFrame:
    """See `braided.sql`."""
    _check_text(session, text)
    if args is not None:
        text = with_arguments(session, text, args)
    if streams is None:
        streams = streams_of_views(session, text)
    _check(session, streams, options)
    text, streams = _with_watermarks(session, text, streams)
    text, streams = with_matches(
        session, text, streams, options, lambda part, known: run_sql(session, part, known, options)
    )
    text, clauses = take_asof(text)
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
    except SqlglotError as error:
        raise OptionError(f"sql: does not parse: {str(error).splitlines()[0]}") from error
    if not isinstance(tree, exp.Query):
        raise OptionError(f"sql: expected a query, not {tree.key.upper()}; write a SELECT")
    _refuse_unsupported(tree)
    name_windows(tree)
    with _views(session) as views:
        named = {name.lower(): views.add(frame) for name, frame in streams.items()}
        # Spark's names, types and errors are the contract.
        renamed = _rename(tree, named, text)
        frames = {named[name.lower()]: frame for name, frame in streams.items()}
        stand_ins = {view: views.add(_stand_in(frame)) for view, frame in frames.items()} if has_subquery(tree) else {}
        contract = _analysed(session, _with_views(renamed, stand_ins), named, stand_ins)
        left_to_spark: str | None = None
        for _ in range(2):
            query = _Query(session, tree.copy(), views, frames, options, clauses, stand_ins, left_to_spark)
            try:
                query.qualify(renamed)
                query.fold(contract)
                query.cut()
                result = session.sql(query.tree.sql(dialect=Braided))
            except BraidedError:
                raise
            except Exception as error:
                raise OptionError(f"{_REFUSED} ({type(error).__name__}: {str(error).splitlines()[0][:200]})") from error
            if [field.dataType for field in result.schema] == [field.dataType for field in contract.schema]:
                result = result.toDF(*contract.columns)
                registry_of(session).note(result, query.notes)
                return result
            left_to_spark = "its types would differ"
    raise BraidedError(
        f"sql: the compiled query has {result.schema}, but Spark's own has {contract.schema}; please report this"
    )


def _with_watermarks(
    session: SparkSession, text: str, streams: Mapping[str, DataFrame]
) -> tuple[str, Mapping[str, DataFrame]]:
    """Return the text without WATERMARK clauses, and the streams with these watermarks."""
    known = {name.lower(): frame for name, frame in streams.items()}
    text, clauses = take_watermarks(text, known)
    marked = dict(streams)
    with _views(session) as views:
        for clause in clauses:
            view = views.add(known[clause.stream.lower()])
            marked[clause.name] = _analysed(session, f"SELECT * FROM {view} {clause.text}", {clause.stream: view})
    return text, marked


def _refuse_unsupported(tree: exp.Query) -> None:
    """Refuse what cannot be taken apart yet; the error has its position."""
    if tree.find(exp.TableSample):
        raise OptionError("sql: a sample of a stream differs from run to run; run this query with spark.sql")
    for lateral in tree.find_all(exp.Lateral):
        raise OptionError(
            f"sql: {position(lateral)}: LATERAL is not supported yet; use it in a query over the result of braided.sql"
        )
    for inner in tree.find_all(exp.With):
        if inner.parent is not tree:
            raise OptionError(
                f"sql: {position(inner)}: WITH inside of a query is not supported yet; write it once, before the first "
                "SELECT"
            )


def _check_text(session: SparkSession, text: Any) -> None:
    refuse_connect(session, "braided.sql", "write the join with braided.join, or use a classic SparkSession")
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"sql: expected a query, not {type(text).__name__}; write a SELECT")


def _check(session: SparkSession, streams: Any, options: Mapping[str, Any]) -> None:
    if not isinstance(streams, Mapping) or not streams:
        raise OptionError("streams=: give the streaming DataFrames by the names that the query uses")
    known: dict[str, str] = {}
    for name, frame in streams.items():
        other = known.setdefault(str(name).lower(), str(name))
        if other != name:
            raise OptionError(f"streams: {other!r} and {name!r} are the same name for Spark; choose another")
        if not hasattr(frame, "createTempView"):
            raise OptionError(f"streams: {name!r} is a {type(frame).__name__}; give a streaming DataFrame")
    for name in options:
        if name not in (*OPTIONS, "cap"):
            raise OptionError(
                f"{name}=: unknown option of the joins of a query; write one of {', '.join((*OPTIONS, 'cap'))}"
            )
    if str(session.conf.get("spark.sql.caseSensitive")).lower() == "true":
        raise OptionError(
            "spark.sql.caseSensitive: braided.sql finds names case-insensitively, as Spark does by default; set it to "
            "false"
        )


class _Views:
    """Temporary views under unused names."""

    def __init__(self) -> None:
        self._prefix = f"braided_{uuid.uuid4().hex[:12]}"
        self.names: list[str] = []

    def add(self, frame: DataFrame) -> str:
        """Return the name of a new view."""
        self.names.append(f"{self._prefix}_{len(self.names)}")
        frame.createTempView(self.names[-1])
        return self.names[-1]


@contextmanager
def _views(session: SparkSession) -> Iterator[_Views]:
    views = _Views()
    try:
        yield views
    finally:
        for name in views.names:
            session.catalog.dropTempView(name)


def _rename(tree: exp.Expression, named: Mapping[str, str], text: str) -> str:
    """Replace streams in the tree by the views, under their names in the text; return the text with that change."""
    shadowed = set()
    for cte in tree.find_all(exp.CTE):
        shadowed.add(cte.alias.lower())
        if any(table.name.lower() == cte.alias.lower() in named for table in cte.this.find_all(exp.Table)):
            raise OptionError(
                f"sql: the common table expression {cte.alias} reads a stream of the same name; rename it"
            )
    changes = []
    for table in list(tree.find_all(exp.Table)):
        called, name = table.name, table.name.lower()
        if name in named and not table.db and name not in shadowed:
            alias = table.args.get("alias")
            view = exp.to_identifier(named[name])
            view.meta.update(table.this.meta)
            at = table.this.meta
            changes.append((at["start"], at["end"] + 1, named[name] + ("" if alias else f" AS `{called}`")))
            table.set("this", view)
            table.set("alias", alias or exp.TableAlias(this=exp.to_identifier(called)))
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _stand_in(frame: DataFrame) -> DataFrame:
    """Return a table with the columns of a stream: Spark does not analyse subqueries of WHERE over streams.

    It has no rows, but Spark must not know this, or it would optimise the query away.
    """
    session = frame.sparkSession
    return session.createDataFrame(session.sparkContext.emptyRDD(), frame.schema)


def _with_views(text: str, views: Mapping[str, str]) -> str:
    """Return a text that reads other views."""
    return re.sub(r"braided_\w+", lambda name: views.get(name[0], name[0]), text) if views else text


def _analysed(
    session: SparkSession, text: str, named: Mapping[str, str], stand_ins: Mapping[str, str] | None = None
) -> DataFrame:
    try:
        return session.sql(text)
    except Exception as error:
        reason = _with_views(str(error), {name: view for view, name in (stand_ins or {}).items()})
        for name, view in named.items():
            reason = reason.replace(view, name)
        raise OptionError(f"sql: {reason.split('JVM stacktrace')[0].strip()}") from error


def _is_aggregated(select: exp.Select) -> bool:
    """Whether Spark groups the rows of a SELECT, there or in a query around it."""
    around: exp.Select | None = select
    while around is not None:
        if around.args.get("group") or around.args.get("distinct"):
            return True
        around = around.parent_select
    return False


def _sources(nodes: Mapping[str, exp.Expression], inputs: Mapping[str, DataFrame]) -> dict[str, Source]:
    """Return the facts about the inputs of a SELECT."""
    return {
        alias: Source(
            alias,
            nodes[alias],
            {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields},
            frame.isStreaming,
            frozenset(field.name.lower() for field in frame.schema.fields if WATERMARK in (field.metadata or {})),
        )
        for alias, frame in inputs.items()
    }


class _Query:
    """A query while its joins are cut out."""

    def __init__(
        self,
        session: SparkSession,
        tree: exp.Expression,
        views: _Views,
        frames: Mapping[str, DataFrame],
        options: Mapping[str, Any],
        clauses: Sequence[AsofClause],
        stand_ins: Mapping[str, str],
        left_to_spark: str | None,
    ) -> None:
        self.left_to_spark = left_to_spark
        """Why no aggregate may start in the workers of a join; None if it may."""
        self.notes: list[str] = []
        """Lines for explain about the whole query."""
        self.session = session
        self.tree = tree
        self.views = views
        self.frames = dict(frames)
        self.options = {name: value for name, value in options.items() if name != "cap"}
        self.cap = parse_cap(options.get("cap"))
        self.capped = False
        """Whether a join has a bound that no condition sets."""
        self.clauses = clauses
        """The match conditions of as-of joins, which are plain joins in the tree."""
        self.matches: dict[int, exp.Expression] = {}
        self.stand_ins = stand_ins

    def qualify(self, text: str) -> None:
        """Give every column its table, and every result its name; check that Spark reads the query like the text."""
        schemas: dict[str, dict[str, str]] = {}
        ctes = {cte.alias.lower() for cte in self.tree.find_all(exp.CTE)}
        for table in self.tree.find_all(exp.Table):
            if table.name.lower() not in ctes or table.db:
                frame = self._frame(table)
                schemas[table.name] = {name.lower(): "string" for name in frame.columns}
        shared = any(join.args.get("using") or join.method == "NATURAL" for join in self.tree.find_all(exp.Join))
        self.tree = qualify(self.tree, schema=schemas, dialect=Braided, validate_qualify_columns=False)
        self.tree = fields_as_dots(self.tree)
        if shared:
            keep_shared(self.tree)
        # Unread streams are not built: a match may have been their only reader.
        self.tree = eliminate_ctes(self.tree)
        (text, count), (ours, theirs) = map(without_distinct, (text, self.tree.sql(dialect=Braided)))
        frames = [self.session.sql(_with_views(each, self.stand_ins)) for each in (text, ours)]
        one, other = (plan_of(frame).optimised() for frame in frames)
        same = one.same_result(other) or shape(one.text) == shape(other.text)
        if not same or count != theirs:
            raise OptionError(_REFUSED)

    def _frame(self, table: exp.Table) -> DataFrame:
        if table.name in self.frames:
            return self.frames[table.name]
        return self.session.table(exp.table_name(table, dialect=Braided))

    def fold(self, contract: DataFrame) -> None:
        """Collect rows with the aggregate of their group, if the query joins them with it."""
        if self.left_to_spark is None and not self.clauses and plan_of(contract).is_deterministic:
            self.notes += fold(self.tree, self._streams())

    def _streams(self) -> set[str]:
        return {name for name, frame in self.frames.items() if frame.isStreaming}

    def cut(self) -> None:
        """Replace the joins of streams in every SELECT, the inner ones first."""
        join_subqueries(self.tree, self._streams())
        self.matches = place_matches(self.tree, self.clauses)
        for scope in traverse_scope(self.tree):
            if isinstance(scope.expression, exp.Select):
                self._cut_select(scope)
        if self.cap is not None and not self.capped:
            raise OptionError("cap=: no join has a bound on one side only; leave it out")
        # Spark's watermark waits for every `withWatermark` of a plan, even for one that is no longer read.
        self.tree = eliminate_ctes(self.tree)

    def _cut_select(self, scope: Scope) -> None:
        select = scope.expression
        # Not `selected_sources`: those lack the right inputs of semi and anti joins.
        nodes = {alias: node for alias, node in scope.references if alias in scope.sources}
        inputs = {alias: self._input(node, scope.sources[alias]) for alias, node in nodes.items()}
        sources = _sources(nodes, inputs)
        computed = ComputedKeys(select, inputs, sources, self.matches)
        try:
            cut = cut_select(select, sources, self.matches, self.cap)
        except LeftToSparkError as why:
            computed.undo()
            self.notes.append(str(why))
            return
        if cut is None:
            return
        self.capped |= bool(cut.capped)
        cast_keys(cut, inputs, sources)
        spelling = {name.lower(): name for frame in self.frames.values() for name in frame.columns} | computed.texts
        joins = JoinPlanner(self.session, self.options, spelling).plan(cut, inputs, sources)
        try:
            grouped = self._with_aggregate(select, cut, sources, joins)
            if isinstance(grouped, str):
                optimised = optimise_plan(joins.plan, reason=grouped)
                self._warn_if_unmarked(select, cut, sources, spelled(grouped, joins.spelling))
            else:
                optimised, reader = grouped
            result = run_optimised(
                optimised, notes=joins.notes, names=joins.spelling, aggregated=_is_aggregated(select)
            )
        except OptionError as error:
            raise OptionError(spelled(str(error), joins.spelling)) from error
        if isinstance(grouped, str):
            self._warn_if_lost(select, sources, joins, result)
        view = self.views.add(result)
        select.set("from_" if "from_" in select.args else "from", exp.From(this=exp.to_table(view)))
        if not isinstance(grouped, str):
            reader.read(view)
        for column in own_columns(select):
            if (column.table, column.name) in joins.names:
                name = exp.to_identifier(joins.names[column.table, column.name], quoted=True)
                column.replace(exp.column(name, view))

    def _with_aggregate(
        self, select: exp.Select, cut: Cut, sources: dict[str, Source], joins: JoinPlan
    ) -> tuple[OptimisedPlan, AggregateReader] | str:
        """Return the aggregate of a SELECT, started in the workers of its last join; or why it stays Spark's."""
        if self.left_to_spark is not None:
            return self.left_to_spark
        try:
            node, reader = aggregate_of(
                select, cut, sources, joins.names, partial(aggregates, self.session), joins.plan.root
            )
        except NotApplied as why:
            return str(why)
        optimised = optimise_plan(LogicalPlan(node, joins.plan.sources))
        after = optimised.optimised.after
        if isinstance(after, Aggregate) and after.in_workers:
            return optimised, reader
        return why_native(optimised.optimised) or "it is not over a join of two streams"

    def _warn_if_unmarked(self, select: exp.Select, cut: Cut, sources: Mapping[str, Source], why: str) -> None:
        """Warn that Spark's own aggregate needs a watermark, if no input has one."""
        if select.args.get("group") is not None and not any(sources[alias].marked for alias in cut.columns):
            _log.warning(
                "sql: the aggregate after the join of %s is Spark's own: %s. In append mode it needs a "
                "watermark, but none of the streams has one: add it with withWatermark(...)",
                " and ".join(cut.columns),
                why,
            )

    def _warn_if_lost(
        self, select: exp.Select, sources: Mapping[str, Source], joins: JoinPlan, result: DataFrame
    ) -> None:
        """Warn that Spark's own aggregate is by a time whose watermark ends at a join."""
        group = select.args.get("group")
        for column in [] if group is None else group.find_all(exp.Column):
            source, name = sources.get(column.table), joins.names.get((column.table, column.name))
            if source is None or name is None or column.name not in source.marked:
                continue
            if WATERMARK not in (result.schema[name].metadata or {}):
                _log.warning(
                    "sql: %s has no watermark after the joins, so Spark refuses windows of it in append mode: only the "
                    "times by which the last join compares its streams keep theirs; group by one of those",
                    joins.spelling.get(name, name),
                )

    def _input(self, node: exp.Expression, source: Any) -> DataFrame:
        """Return an input of a SELECT as a DataFrame; its own joins have already been cut."""
        if not isinstance(source, Scope):
            return self._frame(node if isinstance(node, exp.Table) else node.this)
        chosen = source.expression
        if isinstance(node, exp.Table):  # a common table expression
            chosen = exp.select("*").from_(exp.to_table(node.name, quoted=True))
        with_ = self.tree.args.get("with_") or self.tree.args.get("with")
        before = "" if with_ is None else with_.sql(dialect=Braided)
        return self.session.sql(f"{before} {chosen.sql(dialect=Braided)}")
