"""A continuous query written step by step: `braided.stream`. It makes the specs that the functions and SQL make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.spark.frontend import run, run_order
from braided.spark.query_join import PendingJoin, grouped
from braided.spark.watermark import WATERMARK
from braided.specs.join import JoinSpec
from braided.specs.multijoin import MultiJoinSpec, check_streams
from braided.specs.order import OrderSpec
from braided.specs.row_windows import RowWindowsSpec
from braided.sqltext.windowed import Windowed, as_rows, check_kind, check_options, find_column
from braided.typing import Duration, Keys, LatenessOption

if TYPE_CHECKING:
    from collections.abc import Iterable

R = TypeVar("R")
M = TypeVar("M", bound="Callable[..., Query]")
_AROUND = ("name", "control", "redact")


@dataclass(frozen=True)
class Step:
    """How a query was made of others, so that it can be made again of other streams.

    stateful : whether rows are kept for later ones. by_spark : whether Spark may have to close windows for it.
    """

    name: str
    inputs: tuple[Query, ...]
    make: Callable[[Sequence[Query]], Query]
    stateful: bool
    by_spark: bool


def _recorded(*, stateful: bool) -> Callable[[M], M]:
    """Let a step of a query remember what it was made of."""

    def recorded(method: M) -> M:
        @wraps(method)
        def step(self: Query, *args: Any, **options: Any) -> Query:
            def make(queries: Sequence[Query]) -> Query:
                others = iter(queries[1:])
                given = [next(others) if isinstance(part, Query) else part for part in args]
                named = {name: next(others) if isinstance(part, Query) else part for name, part in options.items()}
                return step(queries[0], *given, **named)

            inputs = (self, *(part for part in (*args, *options.values()) if isinstance(part, Query)))
            by_spark = method.__name__ == "aggregate" and options.get("rows") is None
            return replace(method(self, *args, **options), step=Step(method.__name__, inputs, make, stateful, by_spark))

        return cast("M", step)

    return recorded


@dataclass(frozen=True)
class Query:
    """A stream, and what becomes of it. Every step returns a new query; `df` is its DataFrame.

    Made by `braided.stream`. Conditions and expressions are Spark SQL.
    """

    source: DataFrame | PendingJoin
    time: str | None
    lateness: LatenessOption | None = None
    step: Step | None = field(default=None, compare=False, repr=False)
    """How it was made of other queries; None for a stream as it was given."""

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame, to be written or used as any other."""
        return self.source.run() if isinstance(self.source, PendingJoin) else self.source

    @_recorded(stateful=False)
    def where(self, condition: str) -> Query:
        """Keep the rows that satisfy a condition.

        After a join it moves into it: on columns of one stream it is a filter before the join, on those of both a part
        of the predicate.
        """
        if not isinstance(condition, str):
            raise OptionError(f"where: {type(condition).__name__} is no condition; write SQL, such as 'n > 1'")
        source = self.source
        if isinstance(source, PendingJoin):
            moved = _analysed("where", condition, lambda: source.where(condition))
            if moved is not None:
                return Query(moved, self.time)
        return self._with(_analysed("where", condition, lambda: self.df.where(condition)))

    @_recorded(stateful=False)
    def select(self, *columns: str, time: str | None = None) -> Query:
        """Choose and compute columns: names, or expressions with ``AS``. `time` names the event time from now on."""
        if not columns:
            raise OptionError("select: give at least one column")
        chosen = _analysed("select", ", ".join(map(str, columns)), lambda: self.df.selectExpr(*columns))
        if time is not None:
            time = find_column(time, chosen.columns, "time")
        elif self.time in chosen.columns:
            time = self.time
        return Query(chosen, time, self.lateness)

    def cases(self, conditions: Mapping[str, str], *, rest: str = "rest") -> dict[str, Query]:
        """Split the rows by the first condition that they satisfy; those that satisfy none are under `rest`.

        This is StreamCloud's filter with its m + 1 outputs (II.A). A condition that is null is not satisfied.
        """
        if not isinstance(conditions, Mapping) or not conditions:
            raise OptionError("cases: give conditions by the names of their outputs, such as {'long': 'duration > 60'}")
        if rest in conditions:
            raise OptionError(f"rest={rest!r}: a condition has that name; choose another for what is left")
        found, before = {}, list[str]()
        for name, condition in conditions.items():
            holds = f"coalesce(({condition}), false)"
            found[name] = self.where(" AND ".join([holds, *before]))
            before.append(f"NOT {holds}")
        return {**found, rest: self.where(" AND ".join(before))}

    @_recorded(stateful=False)
    def union(self, *others: Query) -> Query:
        """Put the rows of other queries with the same columns beside these."""
        rows = self.df
        for other in others:
            _check_query(other, "union")
            for one, two, which in ((rows, other.df, "another"), (other.df, rows, "this")):
                missing = [name for name in one.columns if name not in two.columns]
                if missing:
                    raise OptionError(f"union: {which} stream has no column {missing[0]!r}; select it in both")
            rows = rows.unionByName(other.df)
        return self._with(rows)

    @_recorded(stateful=True)
    def join(self, other: Query, **options: Any) -> Query:
        """Join with another query: see `braided.join` for the options. The times are those of the two queries.

        It runs when its rows are asked for, so that a `where` and an `aggregate` after it move into it.
        """
        _check_query(other, "join")
        check_options(options, _options_of(JoinSpec), "join")
        around = {name: options.pop(name) for name in _AROUND if name in options}
        times = self._time_for("join"), other._time_for("join")
        options.setdefault("lateness", _each((self.lateness, other.lateness)))
        pending = PendingJoin.of(JoinSpec(time=times, **options), (self.df, other.df), around)
        return Query(pending, pending.time)

    @_recorded(stateful=True)
    def multijoin(self, *others: Query, **options: Any) -> Query:
        """Join with one or more other queries on a common key: see `braided.multijoin` for the options."""
        every = [self, *others]
        for other in others:
            _check_query(other, "multijoin")
        check_options(options, _options_of(MultiJoinSpec), "multijoin")
        around = {name: options.pop(name) for name in _AROUND if name in options}
        times = tuple(query._time_for("multijoin") for query in every)
        options.setdefault("lateness", _each(tuple(query.lateness for query in every)))
        spec = MultiJoinSpec(streams=check_streams(every), time=times, **options)
        rows = run(spec, [query.df for query in every], **around)
        return Query(rows, times[0] if times[0] in rows.columns else None)

    @_recorded(stateful=True)
    def order(self, *, key: Keys = None, **options: Any) -> Query:
        """Put the rows in order of event time: see `braided.order` for the options."""
        check_options(options, {*_options_of(OrderSpec), "key"} - {"control", "redact"}, "order")
        if options.get("late") == "side":
            raise OptionError("late='side': a query has one output; write 'flag' and split it with cases()")
        name = options.pop("name", None)
        options.setdefault("lateness", self.lateness)
        rows = run_order(OrderSpec(time=self._time_for("order"), key=key, **options), [self.df], name=name)
        assert isinstance(rows, DataFrame)
        return self._with(rows)

    @_recorded(stateful=True)
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
        """Group rows by windows, of time or of a number of rows, and by columns; each further option is a value.

        After a join it begins in the join's workers where its values merge: ``count``, ``sum``, ``avg``, ``min``,
        ``max``, ``first``, ``last``, ``bool_and`` and ``bool_or`` (docs/sql.md). Else it is Spark's own, which wants a
        watermark: the stream's `lateness` where it has one. `braided.explain` says which and why.

        Parameters
        ----------
        by : columns to group by, besides the window.
        window : how long a window is, ``"1 minute"``.
        rows : how many rows a window has, in order of time, instead: see `braided.row_windows`.
        every : how far apart windows begin, in time or in rows; by default they follow each other.
        time : the time that is windowed; by default the query's own.
        forget : with `rows`, after how long without a row the rows of a group are forgotten.
        values : aggregates by the names they get, ``n="count(*)", mean="avg(duration)"``.

        The result has ``window`` (start and end), the columns of `by` and the values; of windows of a number of rows
        the columns of `by`, the time of the first row and the values.
        """
        check_kind(window, rows, forget)
        if rows is not None:
            column = self._time_for("aggregate") if time is None else time
            spec = RowWindowsSpec(
                time=column,
                key=by,
                rows=rows,
                every=as_rows(every),
                values=values,
                forget=forget,
                lateness=self.lateness,
            )
            return Query(run(spec, [self.df]), None)
        windowed = Windowed.of(by=by, window=window, every=every, time=time, values=values)
        text = ", ".join(value.text for value in windowed.values)
        source = self.source
        if isinstance(source, PendingJoin):
            return Query(_analysed("aggregate", text, lambda: source.aggregate(windowed)), None)
        frame, column = self.df, self._time_for("aggregate")
        if windowed.time is not None:
            column = find_column(windowed.time, frame.columns, "time")
        marked = any(WATERMARK in (field.metadata or {}) for field in frame.schema.fields)
        if self.lateness is not None and not marked and frame.isStreaming:
            frame = frame.withWatermark(column, f"{parse_duration(self.lateness, 'lateness')} microseconds")
        return Query(_analysed("aggregate", text, lambda: grouped(frame, windowed, column)), None)

    def _with(self, rows: DataFrame) -> Query:
        return Query(rows, self.time, self.lateness)

    def _time_for(self, step: str) -> str:
        if self.time is None:
            raise OptionError(
                f"{step}: the query has no event time at this point; name one with select(..., time='ts'), for example "
                "'window.start AS ts' after an aggregate"
            )
        return self.time


def _options_of(spec: type[JoinSpec] | type[MultiJoinSpec] | type[OrderSpec]) -> Iterable[str]:
    return {*spec.words(), *_AROUND} - {"time"}


def _each(given: tuple[LatenessOption | None, ...]) -> tuple[LatenessOption | None, ...] | None:
    return None if all(value is None for value in given) else given


def _check_query(other: object, step: str) -> None:
    if not isinstance(other, Query):
        raise OptionError(f"{step}: {type(other).__name__} is no query; write braided.stream(df, time='ts')")


def _analysed(step: str, text: str, made: Callable[[], R]) -> R:
    """Let Spark analyse a text; its error is ours, with the step and the text."""
    try:
        return made()
    except AnalysisException as error:
        raise OptionError(f"{step}: {text!r}: {str(error).splitlines()[0]}") from error


def make_query(frame: DataFrame, time: str, lateness: LatenessOption | None) -> Query:
    """See `braided.stream`."""
    if not isinstance(frame, DataFrame):
        raise OptionError(
            f"df: {type(frame).__name__} is not a Spark DataFrame; for Arrow data use braided.local.stream"
        )
    column = find_column(time, frame.columns, "time")
    kind = frame.schema[column].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise OptionError(f"time={column!r}: is of type {kind}; write a TIMESTAMP, for example with a cast before")
    return Query(frame, column, lateness)
