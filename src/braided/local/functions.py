"""The join in one process on Arrow data, with the operators that run on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.balance.controller import Controller
from braided.durations import Duration
from braided.errors import BraidedError
from braided.local.reading import (
    cut_into_batches,
    in_microseconds,
    in_zones_of,
    moments_of_arrival,
    order_of_arrival,
    read,
)
from braided.local.runtime import LocalRuntime
from braided.operator.contract import Operator
from braided.operator.report import Report
from braided.ordering.ordering import LATE
from braided.routing.start import first_table
from braided.specs.join_options import (
    On,
    build_join,
    check_how,
    check_theta,
    resolve_bounds,
    resolve_names,
)
from braided.time.clocks import Span, Window
from braided.time.lateness import Lateness
from braided.time.resolve import JOIN_FLOOR, how_learned, least, resolve_idle, resolve_rule, resolve_rules

if TYPE_CHECKING:
    from braided.specs.group_options import Join
    from braided.specs.multi_options import MultiOn

__all__ = ["LocalGroupResult", "LocalResult", "join", "join_group", "merge", "multijoin", "order"]


@dataclass(frozen=True)
class LocalResult:
    """The results as a pyarrow table, the report and, where asked for, the late rows."""

    table: pa.Table
    report: Report
    late: pa.Table | None = None


def join(
    left: Any,
    right: Any,
    *,
    on: On = None,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Any = None,
    idle: Duration | None = None,
    workers: int = 1,
    suffixes: tuple[str, str] = ("", "_right"),
    how: str = "inner",
    name: str | None = None,
    arrival: str | tuple[str, str] | None = None,
    batch_rows: int = 100_000,
    partition: str = "auto",
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
) -> LocalResult:
    """Join two Arrow streams in this process, batch by batch, exactly as `braided.join` does on Spark.

    Rows arrive in the order of the `arrival` column (one name, or one per side; any sortable type that both
    share), else of their times; every `batch_rows` rows of both sides together make a batch. A row more than
    `lateness` behind its stream is late: it still meets what is stored, and is counted.

    Cost: see `WindowJoin`. The result is held in memory. Predicates that no kernel covers are refused.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> calls = pa.table({"phone": [1, 2], "ts": pa.array([0, 5_000_000], us)})
    >>> seen = pa.table({"phone": [1, 1], "ts": pa.array([1_000_000, 60_000_000], us), "cell": ["a", "b"]})
    >>> join(calls, seen, on="phone", time="ts", within="10 seconds").table.to_pylist()[0]["cell"]
    'a'
    """
    check_how(how)
    check_theta(on, where)
    _check_counts(workers, batch_rows)
    lo, hi = resolve_bounds(within, between)
    rules = _rules(lateness, 2)
    tables = (read(left, "left"), read(right, "right"))
    names = resolve_names(on, time, tables[0].column_names, tables[1].column_names)
    tables = (in_microseconds(tables[0], names.times[0]), in_microseconds(tables[1], names.times[1]))
    schemas = (tables[0].schema, tables[1].schema)
    window = Window(lo, hi, tuple(map(least, rules)))
    predicate = None
    if where is not None:
        from braided.joins.predicates.compile import compile_where

        predicate = compile_where(where, *schemas)
    operator = build_join(
        names, schemas, window, suffixes, predicate, where, learned=how_learned(rules), idle=resolve_idle(idle)
    )
    table = first_table(partition, workers, keyed=bool(names.keys[0]), version=1)
    controller = Controller(table, window, measure="work") if workers > 1 and memory is None else None
    bounded: Operator = operator
    if memory is not None or shed is not None:
        from braided.specs.budget import limit

        bounded = limit(operator, memory, evict, share, shed)
    runtime = LocalRuntime(bounded, workers, controller=controller)
    runtime.table = table
    order = order_of_arrival(tables, arrival, names.times)
    return _run(runtime, tables, order, batch_rows, name, waits=memory is not None)


def multijoin(
    streams: Sequence[Any],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Any = None,
    workers: int = 1,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    arrival: str | Sequence[str] | None = None,
    batch_rows: int = 100_000,
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
) -> LocalResult:
    """Join 2 to 8 Arrow streams in this process, batch by batch, exactly as `braided.multijoin` does on Spark.

    `arrival` and `batch_rows` are those of `braided.local.join`, the rest is as in `braided.multijoin`.

    Cost: see `MultiJoin`. The result is held in memory.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> rows = [pa.table({"k": [1, 2], "ts": pa.array([second, 9_000_000], us)}) for second in (0, 1, 2)]
    >>> multijoin(rows, on="k", time="ts", within="1 second").table.column_names
    ['k', 'ts', 'ts_2', 'ts_3']
    """
    from braided.specs import multi_options as options

    options.check_streams(streams)
    _check_counts(workers, batch_rows)
    rules = _rules(lateness, len(streams))
    tables = [read(stream, f"streams[{number}]") for number, stream in enumerate(streams)]
    names = options.resolve_multi_names(on, time, [table.column_names for table in tables])
    tables = [in_microseconds(table, column) for table, column in zip(tables, names.times, strict=True)]
    window = Span(options.resolve_span(within), tuple(map(least, rules)))
    adaptive = workers > 1 and memory is None
    schemas = [table.schema for table in tables]
    operator = options.build_multijoin(names, schemas, window, suffixes, how_learned(rules), adaptive=adaptive)
    table = first_table("auto", workers, keyed=True, version=1)
    controller = Controller(table, window, measure="work", most_columns=operator.most_columns) if adaptive else None
    bounded = options.bound_multijoin(operator, memory, evict, share, shed)
    runtime = LocalRuntime(bounded, workers, controller=controller)
    order = order_of_arrival(tables, arrival, names.times)
    return _run(runtime, tables, order, batch_rows, name, waits=memory is not None)


@dataclass(frozen=True)
class LocalGroupResult:
    """The rows of each join of a group as a pyarrow table, and the report."""

    tables: dict[str, pa.Table]
    report: Report


def join_group(
    joins: Sequence[Join],
    *,
    streams: Mapping[str, Any],
    time: str | Mapping[str, str],
    memory: int | str,
    evict: Any = "gdj",
    shed: float | str | None = None,
    lateness: Any = None,
    workers: int = 1,
    name: str | None = None,
    arrival: str | Mapping[str, str] | None = None,
    batch_rows: int = 100_000,
) -> LocalGroupResult:
    """Run several joins over the same Arrow streams under one budget, as `braided.join_group` does on Spark.

    `arrival` and `batch_rows` are those of `braided.local.join`, the rest is as in `braided.join_group`.

    >>> import pyarrow as pa
    >>> from braided.specs.group_options import Join
    >>> rows = pa.table({"a": [1, 2], "b": [7, 7], "ts": pa.array([0, 1], pa.timestamp("us"))})
    >>> joins = [Join(name, left="x", right="y", on=name, within="1 second") for name in ("a", "b")]
    >>> result = join_group(joins, streams={"x": rows, "y": rows}, time="ts", memory=100)
    >>> {name: table.num_rows for name, table in result.tables.items()}
    {'a': 2, 'b': 4}
    """
    from braided.specs import group_options as options

    options.check_group(joins, streams)
    streams = options.centre_first(joins, streams)
    _check_counts(workers, batch_rows)
    tables = {key: read(stream, f"streams[{key!r}]") for key, stream in streams.items()}
    names = options.resolve_group_names(time, {key: table.column_names for key, table in tables.items()})
    ordered = [in_microseconds(tables[key], column) for key, column in zip(names.streams, names.times, strict=True)]
    auto = resolve_rule("auto", JOIN_FLOOR)
    given = options.resolve_group_lateness(lateness, names.streams)
    late = [auto if rule is None else rule for rule in given]
    operator = options.build_group(joins, names, [table.schema for table in ordered], late, memory, evict, shed=shed)
    columns = None
    if arrival is not None:
        wanted = options.each_stream(arrival, "arrival", names.streams)
        columns = [wanted[key] for key in names.streams]
    runtime = LocalRuntime(operator, workers)
    result = _run(runtime, ordered, order_of_arrival(ordered, columns, names.times), batch_rows, name, waits=True)
    of_join = result.table.column("join")
    found = {
        join.name: pa.Table.from_struct_array(result.table.filter(pc.equal(of_join, join.name)).column(join.name))
        for join in joins
    }
    return LocalGroupResult(found, result.report)


def order(
    data: Any,
    *,
    time: str,
    key: str | Sequence[str] | None = None,
    lateness: Any = "auto",
    late: str = "flag",
    idle: Duration | None = "30 seconds",
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
    name: str | None = None,
) -> LocalResult:
    """Put an Arrow stream in order of event time in this process, batch by batch, as `braided.order` does on Spark.

    Rows arrive in the order of the `arrival` column, else as they are given. All of them leave: the end flushes. With
    ``late="side"`` the late rows are in `late`, apart from the table.

    >>> import pyarrow as pa
    >>> times = pa.array([0, 2_000_000, 1_000_000], pa.timestamp("us"))
    >>> order(pa.table({"ts": times}), time="ts", lateness="1 second").table["seq"].to_pylist()
    [0, 1, 2]
    """
    return merge(
        [data], time=time, key=key, lateness=lateness, late=late, idle=idle, workers=workers, arrival=arrival,
        batch_rows=batch_rows, name=name,
    )  # fmt: skip


def merge(
    inputs: Sequence[Any],
    *,
    time: str,
    key: str | Sequence[str] | None = None,
    lateness: Any = "auto",
    late: str = "flag",
    idle: Duration | None = "30 seconds",
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
    name: str | None = None,
) -> LocalResult:
    """Merge Arrow streams of one schema into one in order of event time, as `braided.merge` does on Spark.

    Rows arrive in the order of the `arrival` column, else of their times (one input: as they are given). Where that
    column is a timestamp, it tells how long an input has been silent.
    """
    from braided.specs.order_options import build_ordering

    _check_counts(workers, batch_rows)
    if not isinstance(inputs, (list, tuple)) or not inputs:
        raise BraidedError("inputs: give a list of one or more tables")
    tables = [read(data, f"input {number}") for number, data in enumerate(inputs)]
    tables = [in_microseconds(table, time) if time in table.column_names else table for table in tables]
    tables = [in_zones_of(table, tables[0].schema) for table in tables]
    rules = [resolve_rule(lateness, 0)] * len(tables)
    operator = build_ordering([table.schema for table in tables], time, key, rules, late, idle)
    if arrival is None and len(tables) == 1:
        arrived = np.arange(tables[0].num_rows)
    else:
        arrived = order_of_arrival(tables, arrival, (time,) * len(tables))
    result = _run(
        LocalRuntime(operator, workers),
        tables,
        arrived,
        batch_rows,
        name,
        waits=True,
        moments=moments_of_arrival(tables, arrival),
    )
    if late != "side":
        return result
    marks = result.table.column(LATE)
    rows = result.table.drop_columns([LATE])
    return LocalResult(rows.filter(pc.invert(marks)), result.report, rows.filter(marks))


def _rules(lateness: Any, streams: int) -> list[int | Lateness]:
    """Return the lateness of a join's streams; what is left open is learned."""
    auto = resolve_rule("auto", JOIN_FLOOR)
    return [auto if rule is None else rule for rule in resolve_rules(lateness, streams)]


def _check_counts(workers: int, batch_rows: int) -> None:
    if not isinstance(workers, int) or workers < 1:
        raise BraidedError(f"workers={workers!r}: write a number of 1 or more")
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise BraidedError(f"batch_rows={batch_rows!r}: write a number of 1 or more")


def _run(
    runtime: LocalRuntime,
    tables: Sequence[pa.Table],
    order: npt.NDArray[np.int64],
    batch_rows: int,
    name: str | None,
    *,
    waits: bool,
    moments: npt.NDArray[np.int64] | None = None,
) -> LocalResult:
    """Run all batches and, where rows wait to be put in order, a last one that lets them go.

    `moments` are when the rows arrived, where that is known.
    """
    pieces: list[pa.RecordBatch] = []
    for number, batch in enumerate(cut_into_batches(tables, order, batch_rows)):
        last = order[min(len(order), (number + 1) * batch_rows) - 1]
        pieces += runtime.run_batch(batch, stamp=None if moments is None else int(moments[last]))
    if waits:
        pieces += runtime.run_batch([(0, [])], final=True)
    report = runtime.report()
    if name is not None:
        report.query["name"] = name
    return LocalResult(pa.Table.from_batches(pieces, runtime.operator.output), report)
