"""A continuous query written step by step: `braided.stream`. Every step adds a node to a logical plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.multijoin.spec import MultiJoinSpec, check_streams
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import InputColumn
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import Spec
from braided.plan.aggregates import aggregate_node, as_rows, check_kind
from braided.plan.columns import check_options, find_column
from braided.plan.nodes import (
    Filter,
    LogicalPlan,
    Operator,
    Project,
    Union,
    Watermark,
    combine,
    plan_of_source,
)
from braided.plan.smaller_time import check_time, smaller_time
from braided.spark.analysis import SparkAnalysis
from braided.spark.run_plan import run_plan
from braided.time.lateness import Lateness
from braided.typing import Duration, Keys, LatenessOption

if TYPE_CHECKING:
    from collections.abc import Iterable

R = TypeVar("R")
_AROUND = ("name", "control", "redact")


@dataclass(frozen=True)
class Query:
    """A stream and the steps over it. Every step returns a new query; `df` is its DataFrame.

    `braided.stream` returns it. Conditions and expressions are Spark SQL.
    """

    plan: LogicalPlan[DataFrame]
    time: str | None
    lateness: LatenessOption | None = None

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame, which can be written or used like any other."""
        return run_plan(self.plan)

    @cached_property
    def _analysis(self) -> SparkAnalysis:
        return SparkAnalysis(self.plan.sources)

    @property
    def _columns(self) -> list[str]:
        return self._analysis.columns(self.plan.root)

    def where(self, condition: str) -> Query:
        """Keep the rows that satisfy a condition.

        After a join it moves into the join: a condition on columns of one stream becomes a filter before the join, one
        on columns of both a part of the predicate.
        """
        if not isinstance(condition, str):
            raise OptionError(f"where: expected a condition in SQL, such as 'n > 1', not {type(condition).__name__}")
        return self._then("where", condition, lambda root: Filter(root, condition))

    def select(self, *columns: str, time: str | None = None) -> Query:
        """Select and compute columns: names, or expressions with ``AS``. `time` is then the event-time column."""
        if not columns:
            raise OptionError("select: give at least one column")
        text = ", ".join(map(str, columns))
        chosen = self._then("select", text, lambda root: Project(root, tuple(map(str, columns))))
        if time is not None:
            return replace(chosen, time=find_column(time, chosen._columns, "time"))
        return chosen if self.time in chosen._columns else replace(chosen, time=None)

    def cases(self, conditions: Mapping[str, str], *, rest: str = "rest") -> dict[str, Query]:
        """Split the rows by the first condition that they satisfy; rows that satisfy none are under `rest`.

        This is StreamCloud's filter with its m + 1 outputs (II.A). A condition that is null counts as not satisfied.
        """
        if not isinstance(conditions, Mapping) or not conditions:
            raise OptionError("cases: give conditions by the names of their outputs, such as {'long': 'duration > 60'}")
        if rest in conditions:
            raise OptionError(f"rest={rest!r}: a condition has that name; choose another name for the remaining rows")
        found, before = {}, list[str]()
        for name, condition in conditions.items():
            holds = f"coalesce(({condition}), false)"
            found[name] = self.where(" AND ".join([holds, *before]))
            before.append(f"NOT {holds}")
        return {**found, rest: self.where(" AND ".join(before))}

    def union(self, *others: Query) -> Query:
        """Add the rows of other queries with the same columns."""
        for other in others:
            _check_query(other, "union")
            for one, two, which in ((self, other, "another"), (other, self, "this")):
                missing = [name for name in one._columns if name not in two._columns]
                if missing:
                    raise OptionError(f"union: {which} stream has no column {missing[0]!r}; select it in both")
        plan = combine([self.plan, *(other.plan for other in others)], Union)
        lateness = _longest([self.lateness, *(other.lateness for other in others)])
        return _checked("union", "", Query(plan, self.time, lateness))

    def join(self, other: Query, *, time: Literal["left", "min"] = "left", **options: Any) -> Query:
        """Join with another query: see `braided.join` for the options. The times are those of the two queries.

        The join is built when its rows are needed, so that a following `where` and `aggregate` can move into it. With
        ``time="min"`` the time of a result is the smaller of its two times, as in StreamCloud (II.A): a last column,
        named like the left one with ``_min``. Later steps know how late it may be. Conditions stay after the join, and
        an aggregate over its windows is Spark's own. Inner, left and right joins support it
        (docs/reference/queries.md).
        """
        check_time(time)
        if time == "min":
            return self.join(other, **options)._with_smaller_time()
        _check_query(other, "join")
        check_options(options, _options_of(JoinSpec), "join")
        _refuse_side(options, "braided.join")
        around = {name: options.pop(name) for name in _AROUND if name in options}
        times = self._time_for("join"), other._time_for("join")
        options.setdefault("lateness", _each((self.lateness, other.lateness)))
        return self._joined(other, JoinSpec(time=times, **options), around)

    def join_asof(self, other: Query, **options: Any) -> Query:
        """Join each row with the closest row of another query: see `braided.join_asof` for the options.

        The times are those of the two queries. Following conditions and aggregates do not move into it.
        """
        _check_query(other, "join_asof")
        check_options(options, set(_options_of(AsofSpec)) - {"control", "redact"}, "join_asof")
        _refuse_side(options, "braided.join_asof")
        around = {"name": options.pop("name", None)}
        times = self._time_for("join_asof"), other._time_for("join_asof")
        options.setdefault("lateness", _each((self.lateness, other.lateness)))
        if "tolerance" not in options:
            raise OptionError("join_asof: give tolerance=, a duration such as '5 seconds'")
        return self._joined(other, AsofSpec(time=times, **options), around)

    def _joined(self, other: Query, spec: JoinSpec | AsofSpec, around: dict[str, Any]) -> Query:
        """Return the join of two queries. Its time is the left one, unless this may have any age."""
        joined = Query(combine([self.plan, other.plan], lambda inputs: Operator(spec, inputs, **around)), None)
        operator = joined.plan.root
        assert isinstance(operator, Operator)
        physical = joined._analysis.physical(operator)
        columns = [column for column in physical.columns if isinstance(column, InputColumn)]
        time = next(column for column in columns if (column.stream, column.source) == (0, physical.times[0]))
        return joined if time.marks is None else replace(joined, time=time.name)

    def _with_smaller_time(self) -> Query:
        """Return this join with the smaller of its two times as the time."""
        join = self.plan.root
        assert isinstance(join, Operator)
        assert isinstance(join.spec, JoinSpec)
        smaller = smaller_time(join.spec, self._analysis.physical(join))
        name = smaller.name
        return replace(self._then("join", name, lambda root: Project(root, ("*",), (smaller,))), time=name)

    def multijoin(self, *others: Query, **options: Any) -> Query:
        """Join with one or more other queries on a common key: see `braided.multijoin` for the options."""
        every = [self, *others]
        for other in others:
            _check_query(other, "multijoin")
        check_options(options, _options_of(MultiJoinSpec), "multijoin")
        _refuse_side(options, "braided.multijoin")
        around = {name: options.pop(name) for name in _AROUND if name in options}
        times = tuple(query._time_for("multijoin") for query in every)
        options.setdefault("lateness", _each(tuple(query.lateness for query in every)))
        spec = MultiJoinSpec(streams=check_streams(every), time=times, **options)
        joined = Query(combine([query.plan for query in every], lambda inputs: Operator(spec, inputs, **around)), None)
        return replace(joined, time=times[0] if times[0] in joined._columns else None)

    def order(self, *, key: Keys = None, **options: Any) -> Query:
        """Put the rows in order of event time: see `braided.order` for the options."""
        check_options(options, {*_options_of(OrderSpec), "key"} - {"control", "redact"}, "order")
        if options.get("late") == "side":
            raise OptionError("late='side': a query has one output; write 'flag' and split it with cases()")
        name = options.pop("name", None)
        options.setdefault("lateness", self.lateness)
        spec = OrderSpec(time=self._time_for("order"), key=key, **options)
        return self._then("order", "", lambda root: Operator(spec, (root,), name=name))

    def aggregate(
        self,
        *,
        by: Keys = None,
        window: Duration | None = None,
        rows: int | None = None,
        every: Duration | int | None = None,
        time: str | None = None,
        forget: Duration | None = None,
        **values: str,
    ) -> Query:
        """Group rows by windows, of time or of a number of rows, and by columns; each further option is an aggregate.

        After a join it starts in the join's workers if its values can be merged: ``count``, ``sum``, ``avg``, ``min``,
        ``max``, ``first``, ``last``, ``bool_and`` and ``bool_or`` (docs/reference/sql.md). Otherwise it is Spark's own,
        which needs a watermark: the stream's `lateness` if it has one. `braided.explain` reports which one runs and
        why.

        Parameters
        ----------
        by : columns to group by, besides the window.
        window : how long a window is, ``"1 minute"``.
        rows : instead of `window`, how many rows a window has, in order of time: see `braided.row_windows`.
        every : how far apart windows begin, in time or in rows; by default they follow each other.
        time : the time that is windowed; by default the query's own.
        forget : with `rows`, after how long without a row the rows of a group are removed.
        values : aggregates by the names of their columns, ``n="count(*)", mean="avg(duration)"``.

        The result has ``window`` (start and end), the columns of `by` and the values. With windows of a number of rows
        it has the columns of `by`, the time of the first row and the values.
        """
        check_kind(window, rows, forget)
        if rows is not None:
            spec = RowWindowsSpec(
                time=self._time_for("aggregate") if time is None else time,
                key=by,
                rows=rows,
                every=as_rows(every),
                values=values,
                forget=forget,
                lateness=self.lateness,
            )
            return replace(self._then("aggregate", "", lambda root: Operator(spec, (root,))), time=None, lateness=None)
        column = self._time_for("aggregate") if time is None else find_column(time, self._columns, "time")
        plan = self.plan
        stated = self.lateness is not None and self._analysis.is_streaming(plan.root)
        if stated and not self._analysis.has_watermark(plan.root):
            delay = parse_duration(self.lateness, "lateness")
            plan = plan.then(lambda root: Watermark(root, column, delay))
        columns = self._columns
        plan = plan.then(
            lambda root: aggregate_node(root, columns, by=by, window=window, every=every, time=column, values=values)
        )
        return _checked("aggregate", ", ".join(values.values()), Query(plan, None))

    def _then(self, step: str, text: str, make: Callable[[Any], Any]) -> Query:
        return _checked(step, text, replace(self, plan=self.plan.then(make)))

    def _time_for(self, step: str) -> str:
        if self.time is None:
            raise OptionError(
                f"{step}: the query has no event time at this point; name one with select(..., time='ts'), for example "
                "'window.start AS ts' after an aggregate"
            )
        return self.time


def _checked(step: str, text: str, query: Query) -> Query:
    """Let Spark analyse a query's last step; its errors are raised as ours, with the step and the text."""
    try:
        _ = query._columns
    except AnalysisException as error:
        raise OptionError(f"{step}: {text!r}: {str(error).splitlines()[0]}") from error
    return query


def _options_of(spec: type[Spec]) -> Iterable[str]:
    return {*spec.descriptions(), *_AROUND} - {"time"}


def _each(given: tuple[LatenessOption | None, ...]) -> tuple[LatenessOption | None, ...] | None:
    return None if all(value is None for value in given) else given


def _refuse_side(options: Mapping[str, Any], function: str) -> None:
    if options.get("late") == "side":
        raise OptionError(f"late='side': a query has one output; write 'drop', or call {function} for both")


def _check_query(other: object, step: str) -> None:
    if not isinstance(other, Query):
        raise OptionError(f"{step}: expected a query, not {type(other).__name__}; write braided.stream(df, time='ts')")


def _longest(lateness: Sequence[LatenessOption | None]) -> LatenessOption | None:
    """Return the lateness of several streams as one: the longest, or else what is learned."""
    known = [rule for rule in lateness if rule is not None]
    if len(known) < len(lateness):
        return None
    learned = [rule for rule in known if rule == "auto" or isinstance(rule, Lateness)]
    return learned[0] if learned else max(known, key=lambda rule: parse_duration(rule, "lateness"))


def make_query(frame: DataFrame, time: str, lateness: LatenessOption | None) -> Query:
    """See `braided.stream`."""
    if not isinstance(frame, DataFrame):
        raise OptionError(
            f"df: {type(frame).__name__} is not a Spark DataFrame; for Arrow data use braided.local.stream"
        )
    column = find_column(time, frame.columns, "time")
    kind = frame.schema[column].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise OptionError(f"time={column!r}: has type {kind}, not TIMESTAMP; cast it before")
    return Query(plan_of_source(frame, frame.columns), column, lateness)
