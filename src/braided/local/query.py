"""A query over Arrow data in one process, written step by step: a join, and a windowed aggregate in its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError, OptionError
from braided.local.analysis import LocalAnalysis
from braided.local.frontend import run, tables_of
from braided.local.results import LocalResult
from braided.operators.aggregate.final import windows_of
from braided.operators.aggregate.measures import VALUE
from braided.operators.aggregate.partial import TICK, PartialAggregate
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn, Plan
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.plan.aggregates import WINDOW, aggregate_node, as_rows, check_kind
from braided.plan.columns import check_options, find_column
from braided.plan.explain import why_native
from braided.plan.nodes import Aggregate, LogicalPlan, Operator, SmallerTime, combine, plan_of_source
from braided.plan.optimiser import optimise
from braided.plan.partials import Partials, plan_partials, with_partials
from braided.plan.rules.partial_aggregate import PartialAggregation
from braided.plan.smaller_time import check_time, smaller_time
from braided.plan.values import parse_value
from braided.typing import ArrowData, Duration, Keys

S = TypeVar("S", bound=JoinSpec | AsofSpec)
_RUNNING = ("workers", "arrival", "batch_rows", "name")


@dataclass(frozen=True)
class LocalQuery:
    """A stream of Arrow data; `braided.local.stream` makes it."""

    data: ArrowData
    time: str

    def join(self, other: LocalQuery, *, time: Literal["left", "min"] = "left", **options: Any) -> LocalJoin:
        """Join two streams with the options of `braided.local.join`; `time` as of `Query.join`."""
        check_time(time)
        spec, running = self._with(other, JoinSpec, options, "join")
        joined = LocalJoin(spec, (self.data, other.data), running)
        return joined if time == "left" else replace(joined, smaller=joined._smaller_time())

    def join_asof(self, other: LocalQuery, **options: Any) -> LocalResult:
        """Join each row with the closest row of another stream, with the options of `braided.local.join_asof`."""
        spec, running = self._with(other, AsofSpec, options, "join_asof")
        return run(spec, (self.data, other.data), **running)

    def _with(self, other: LocalQuery, kind: type[S], options: dict[str, Any], step: str) -> tuple[S, dict[str, Any]]:
        """Return the spec of two streams and the options for running it."""
        if not isinstance(other, LocalQuery):
            raise OptionError(
                f"other: {type(other).__name__} is not a stream; write braided.local.stream(table, time='ts')"
            )
        check_options(options, [*_RUNNING, *(set(kind.descriptions()) - {"time"})], step)
        running = {name: options.pop(name) for name in _RUNNING if name in options}
        return kind(time=(self.time, other.time), **options), running

    def aggregate(
        self,
        *,
        by: Keys = None,
        rows: int,
        every: int | None = None,
        time: str | None = None,
        forget: Duration | None = None,
        **values: str,
    ) -> LocalResult:
        """Aggregate windows of a number of rows of each group, in order of time: see `braided.local.row_windows`."""
        spec = RowWindowsSpec(time=time or self.time, key=by, rows=rows, every=every, values=values, forget=forget)
        return run(spec, [self.data])


@dataclass(frozen=True)
class LocalJoin:
    """A join of two streams. `result` runs the join; an aggregate after it runs in its workers."""

    spec: JoinSpec
    data: tuple[ArrowData, ArrowData]
    running: dict[str, Any]
    smaller: SmallerTime | None = None

    @property
    def result(self) -> LocalResult:
        """Run the join."""
        result = run(self.spec, self.data, **self.running)
        if self.smaller is None:
            return result
        both = pc.min_element_wise(result.table[self.smaller.left], result.table[self.smaller.right])
        return replace(result, table=result.table.append_column(self.smaller.name, both))

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
    ) -> LocalResult:
        """Run the join with a windowed aggregate in its workers; see `Query.aggregate` for the options.

        At the end, every window of time is closed. Aggregates that only Spark can compute are refused. Windows of a
        number of rows are computed from the join's rows.
        """
        check_kind(window, rows, forget)
        if rows is not None:
            table = self.result.table
            own = self.spec.time_of(0) if self.smaller is None else self.smaller.name
            column = find_column(own if time is None else time, table.column_names, "time")
            spec = RowWindowsSpec(time=column, key=by, rows=rows, every=as_rows(every), values=values, forget=forget)
            return run(spec, [table.sort_by(column)])
        if self.smaller is not None and time is None:
            raise OptionError(
                "time='min': windows of the smaller time cannot be aggregated in one process; give the aggregate the "
                "time= of one stream"
            )
        node, physical = self._aggregate(by=by, window=window, every=every, time=time, values=values)
        planned = plan_partials(node, physical)
        operator = with_partials(physical, planned).operator
        assert isinstance(operator, PartialAggregate)
        result = run(self.spec, self.data, partials=planned, **self.running)
        rows = result.table.filter(pc.invert(result.table[TICK]))
        closed = windows_of(rows, operator.keys, operator.measures, size=node.size, slide=node.slide)
        return LocalResult(_finished(closed, node, operator, planned), result.report)

    def _smaller_time(self) -> SmallerTime:
        _, _, physical = self._planned()
        return smaller_time(self.spec, physical)

    def _planned(self) -> tuple[LogicalPlan[pa.Table], LocalAnalysis, Plan]:
        """Return the plan of the join, what answers questions about it, and its physical plan."""
        tables = tables_of(self.spec, self.data)
        analysis = LocalAnalysis([table.schema for table in tables])
        sources = [plan_of_source(table, table.column_names) for table in tables]
        plan = combine(sources, lambda streams: Operator(self.spec, streams))
        assert isinstance(plan.root, Operator)
        return plan, analysis, analysis.physical(plan.root)

    def _aggregate(self, *, time: str | None, values: Mapping[str, str], **options: Any) -> tuple[Aggregate, Plan]:
        """Return the optimised aggregate, and the physical plan of the join."""
        for name, text in values.items():
            value = parse_value(name, text)
            if value.problem is not None:
                raise OptionError(f"{name}={text!r}: {value.problem}")
        plan, analysis, physical = self._planned()
        columns = [column for column in physical.columns if isinstance(column, InputColumn)]
        left = next(column.name for column in columns if (column.stream, column.source) == (0, physical.times[0]))
        names = [column.name for column in columns]
        plan = plan.then(lambda root: aggregate_node(root, names, time=time or left, values=values, **options))
        optimised = optimise(plan, [PartialAggregation()], analysis)
        node = optimised.after
        assert isinstance(node, Aggregate)
        if not node.in_workers:
            raise OptionError(f"aggregate: cannot run in one process, because {why_native(optimised)}")
        return node, physical


def _finished(closed: pa.Table, node: Aggregate, operator: PartialAggregate, partials: Partials) -> pa.Table:
    """Return the windows with the values that the user requested."""
    start = closed.column(0).combine_chunks()
    end = pa.array(start.view(pa.int64()).to_numpy() + node.size).view(start.type)
    columns = {WINDOW: pa.StructArray.from_arrays([start, end], ["start", "end"])}
    columns |= {name: closed[name] for name in operator.keys}
    for (name, text), use in zip(node.values, partials.uses, strict=True):
        first = closed[operator.measures[use.parts[0]].name]
        if use.how == "avg":
            counts = closed[operator.measures[use.parts[1]].name]
            some = pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.int64()), counts)
            first = pc.divide(first.cast(pa.float64()), some.cast(pa.float64()))
        elif use.how in ("first", "last"):
            first = pc.struct_field(first, VALUE)
        elif use.how == "bigint":
            try:
                first = first.cast(pa.int64())
            except pa.ArrowInvalid as error:
                raise BraidedError(
                    f"{name}: {text} of a window does not fit 64 bits; cast it to a wider type"
                ) from error
        columns[name] = first
    return pa.table(columns)


def stream(data: ArrowData, *, time: str) -> LocalQuery:
    """Return Arrow data as a stream for a query, as `braided.stream` does on Spark.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> calls = stream(pa.table({"phone": [1, 1], "ts": pa.array([0, 5_000_000], us)}), time="ts")
    >>> joined = calls.join(calls, on="phone", within="10 seconds")
    >>> joined.aggregate(by="phone", window="1 minute", n="count(*)").table.to_pylist()[0]["n"]
    4
    """
    return LocalQuery(data, time)
