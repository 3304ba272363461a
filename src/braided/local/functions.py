"""The public functions in one process: the same specs as on Spark, run by the local front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import OptionError
from braided.local.frontend import run
from braided.local.results import LocalGroupResult, LocalResult
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec, Join, check_named, common_stream_first, each_stream
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.match.spec import MatchSpec
from braided.operators.multijoin.spec import MultiJoinSpec, check_streams
from braided.operators.order.order_operator import LATE
from braided.operators.order.spec import DEFAULT_IDLE, OrderSpec
from braided.operators.reference import documented
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import spec_of
from braided.typing import (
    AnyDetector,
    ArrowData,
    AsofHow,
    Direction,
    Duration,
    Evict,
    GroupShare,
    How,
    Keys,
    LastRows,
    Late,
    Latenesses,
    LateRowsOption,
    Memory,
    MultiOn,
    NamedLatenesses,
    On,
    Partition,
    RowsPerMatch,
    Share,
    Shed,
    Times,
    Within,
)


@documented(JoinSpec)
def join(
    left: ArrowData,
    right: ArrowData,
    *,
    on: On = None,
    time: Times,
    within: Within | None = None,
    between: tuple[Duration, Duration] | None = None,
    rows: LastRows | None = None,
    forget: Duration | None = None,
    where: str | None = None,
    lateness: Latenesses = None,
    late: LateRowsOption = "join",
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    how: How = "inner",
    name: str | None = None,
    partition: Partition = "auto",
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
    workers: int = 1,
    arrival: str | tuple[str, str] | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Join two Arrow streams in this process, batch by batch, exactly as `braided.join` does on Spark.

    A row more than `lateness` behind its stream is late: it is joined with the rows that are still stored, and counted.

    {options}

    Cost: see `WindowJoin`. The result is in memory. Predicates outside the compiled subset are refused.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> calls = pa.table({"phone": [1, 2], "ts": pa.array([0, 5_000_000], us)})
    >>> seen = pa.table({"phone": [1, 1], "ts": pa.array([1_000_000, 60_000_000], us), "cell": ["a", "b"]})
    >>> join(calls, seen, on="phone", time="ts", within="10 seconds").table.to_pylist()[0]["cell"]
    'a'
    """
    spec = spec_of(JoinSpec, locals())
    return run(spec, [left, right], workers=workers, arrival=arrival, batch_rows=batch_rows, name=name)


@documented(MultiJoinSpec)
def multijoin(
    streams: Sequence[ArrowData],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Latenesses = None,
    late: LateRowsOption = "join",
    idle: Duration | None = None,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    partition: Literal["auto", "hash"] = "auto",
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
    workers: int = 1,
    arrival: str | Sequence[str] | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Join 2 to 8 Arrow streams in this process, batch by batch, exactly as `braided.multijoin` does on Spark.

    {options}

    Cost: see `MultiJoin`. The result is in memory.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> rows = [pa.table({"k": [1, 2], "ts": pa.array([second, 9_000_000], us)}) for second in (0, 1, 2)]
    >>> multijoin(rows, on="k", time="ts", within="1 second").table.column_names
    ['k', 'ts', 'ts_2', 'ts_3']
    """
    spec = spec_of(MultiJoinSpec, locals(), streams=check_streams(streams))
    return run(spec, streams, workers=workers, arrival=arrival, batch_rows=batch_rows, name=name)


@documented(GroupSpec)
def join_group(
    joins: Sequence[Join],
    *,
    streams: Mapping[str, ArrowData],
    time: str | Mapping[str, str],
    memory: Memory,
    evict: Evict = "gdj",
    share: GroupShare = "unified",
    shed: Shed | None = None,
    lateness: NamedLatenesses = None,
    idle: Duration | None = None,
    name: str | None = None,
    workers: int = 1,
    arrival: str | Mapping[str, str] | None = None,
    batch_rows: int = 100_000,
) -> LocalGroupResult:
    """Run several joins over the same Arrow streams with one budget, as `braided.join_group` does on Spark.

    {options}

    >>> import pyarrow as pa
    >>> from braided import Join
    >>> rows = pa.table({"a": [1, 2], "b": [7, 7], "ts": pa.array([0, 1], pa.timestamp("us"))})
    >>> joins = [Join(name, left="x", right="y", on=name, within="1 second") for name in ("a", "b")]
    >>> result = join_group(joins, streams={"x": rows, "y": rows}, time="ts", memory=100)
    >>> {name: table.num_rows for name, table in result.tables.items()}
    {'a': 2, 'b': 4}
    """
    check_named(streams)
    ordered = common_stream_first(joins, streams)
    spec = spec_of(GroupSpec, locals(), streams=tuple(ordered))
    columns = None
    if arrival is not None:
        wanted = each_stream(arrival, "arrival", spec.streams)
        columns = [str(wanted[stream]) for stream in spec.streams]
    result = run(spec, list(ordered.values()), workers=workers, arrival=columns, batch_rows=batch_rows, name=name)
    of_join = result.table.column("join")
    results = {
        join.name: pa.Table.from_struct_array(result.table.filter(pc.equal(of_join, join.name)).column(join.name))
        for join in joins
    }
    return LocalGroupResult(results, result.report)


@documented(AsofSpec)
def join_asof(
    left: ArrowData,
    right: ArrowData,
    *,
    on: On = None,
    time: Times,
    direction: Direction = "backward",
    tolerance: Duration | None,
    allow_exact_matches: bool = True,
    how: AsofHow = "left",
    lateness: Latenesses = None,
    late: LateRowsOption = "join",
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    name: str | None = None,
    workers: int = 1,
    arrival: str | tuple[str, str] | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Join each left row with the closest right row of its key in this process, as `braided.join_asof` does on Spark.

    At the end, all left rows that still wait are returned.

    {options}

    Cost: see `AsofJoin`. The result is in memory.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> trades = pa.table({"symbol": ["x", "x"], "ts": pa.array([3_000_000, 9_000_000], us)})
    >>> quotes = pa.table({"symbol": ["x", "x"], "ts": pa.array([1_000_000, 2_000_000], us), "bid": [10, 11]})
    >>> join_asof(trades, quotes, on="symbol", time="ts", tolerance="5 seconds").table["bid"].to_pylist()
    [11, None]
    """
    spec = spec_of(AsofSpec, locals())
    return run(spec, [left, right], workers=workers, arrival=arrival, batch_rows=batch_rows, name=name)


@documented(OrderSpec)
def order(
    data: ArrowData,
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Late = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Put an Arrow stream in order of event time in this process, batch by batch, as `braided.order` does on Spark.

    Rows arrive in the order of the `arrival` column, or else in the order of the table. At the end, all waiting rows
    are returned. With ``late="side"`` the late rows are in `late` instead of the table.

    {options}

    >>> import pyarrow as pa
    >>> times = pa.array([0, 2_000_000, 1_000_000], pa.timestamp("us"))
    >>> order(pa.table({"ts": times}), time="ts", lateness="1 second").table["seq"].to_pylist()
    [0, 1, 2]
    """
    spec = spec_of(OrderSpec, locals())
    return _aside(spec, run(spec, [data], workers=workers, arrival=arrival, batch_rows=batch_rows, name=name))


@documented(OrderSpec)
def merge(
    inputs: Sequence[ArrowData],
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Late = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Merge Arrow streams of one schema into one in order of event time, as `braided.merge` does on Spark.

    Rows arrive in the order of the `arrival` column, or else of their times (a single input in the order of its rows).
    If that column is a timestamp, it decides how long an input has been silent.

    {options}

    >>> import pyarrow as pa
    >>> one, two = (pa.table({"ts": pa.array(times, pa.timestamp("us"))}) for times in ([0, 5], [3]))
    >>> merge([one, two], time="ts", late="drop").table["seq"].to_pylist()
    [0, 1, 2]
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise OptionError("inputs: pass a list of one or more tables")
    spec = spec_of(OrderSpec, locals(), inputs=len(inputs))
    return _aside(spec, run(spec, inputs, workers=workers, arrival=arrival, batch_rows=batch_rows, name=name))


@documented(MatchSpec)
def match(
    data: ArrowData,
    *,
    time: str,
    key: Keys = None,
    pattern: str,
    define: Mapping[str, str] | None = None,
    measures: Mapping[str, str] | None = None,
    subsets: Mapping[str, Sequence[str]] | None = None,
    within: Duration | None = None,
    after: str = "skip past last row",
    rows: RowsPerMatch = "one",
    ties: Sequence[str] = (),
    forget: Duration | None = None,
    lateness: Latenesses = None,
    idle: Duration | None = None,
    name: str | None = None,
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Find the matches of a pattern in an Arrow stream in this process, batch by batch, as `braided.match` does.

    Rows arrive in the order of the `arrival` column, or else in the order of the table. The end of the data completes
    open matches.

    {options}

    >>> import pyarrow as pa
    >>> times = pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us"))
    >>> logins = pa.table({"user": [7, 7, 7], "ts": times, "status": ["fail", "fail", "ok"]})
    >>> result = match(logins, key="user", time="ts", pattern="FAIL+ OK", within="1 minute",
    ...     define={"FAIL": "status = 'fail'", "OK": "status = 'ok'"}, measures={"tries": "count(FAIL.*)"})
    >>> result.table.to_pylist()
    [{'user': 7, 'tries': 2}]
    """
    spec = spec_of(MatchSpec, locals())
    return run(spec, [data], workers=workers, arrival=arrival, batch_rows=batch_rows, name=name)


@documented(RowWindowsSpec)
def row_windows(
    data: ArrowData,
    *,
    time: str,
    key: Keys = None,
    rows: int,
    every: int | None = None,
    values: Mapping[str, str],
    forget: Duration | None = None,
    lateness: Latenesses = None,
    name: str | None = None,
    workers: int = 1,
    arrival: str | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Aggregate an Arrow stream over windows of a number of rows in this process, as `braided.row_windows` does.

    Rows arrive in the order of the `arrival` column, or else in the order of the table. A window is returned only if a
    row comes after it.

    {options}

    >>> import pyarrow as pa
    >>> times = pa.array([0, 1_000_000, 2_000_000, 3_000_000], pa.timestamp("us"))
    >>> prices = pa.table({"share": ["x"] * 4, "ts": times, "price": [1, 2, 6, 8]})
    >>> result = row_windows(prices, key="share", time="ts", rows=2, every=1, values={"mean": "avg(price)"})
    >>> result.table["mean"].to_pylist()
    [1.5, 4.0]
    """
    spec = spec_of(RowWindowsSpec, locals())
    return run(spec, [data], workers=workers, arrival=arrival, batch_rows=batch_rows, name=name)


@documented(DetectSpec)
def detect(
    streams: Mapping[str, ArrowData],
    detectors: Sequence[AnyDetector],
    *,
    time: str,
    key: Keys = None,
    types: str | Sequence[str] | None = None,
    lateness: NamedLatenesses = None,
    idle: Duration | None = None,
    name: str | None = None,
    workers: int = 1,
    arrival: str | Mapping[str, str] | None = None,
    batch_rows: int = 100_000,
) -> LocalResult:
    """Run a hierarchy of detectors over Arrow streams in this process, batch by batch, as `braided.detect` does.

    Rows arrive in the order of the `arrival` column. Without it, a single stream arrives in the order of its rows, and
    several streams in the order of their times. At the end, all waiting rows are processed.

    {options}

    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> from braided import Detector, Pattern
    >>> class Hot(Detector):
    ...     subscribes, publishes, schema = "reading", "hot", "ts timestamp, degrees double"
    ...     def on_events(self, events):
    ...         return events.filter(pc.greater(events["degrees"], 30.0)).select(["ts", "degrees"])
    >>> twice = Pattern("twice", subscribes="hot", pattern="A B", within="1 minute", measures={"ts": "B.ts"})
    >>> times = pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us"))
    >>> readings = pa.table({"room": [7, 7, 7], "ts": times, "degrees": [31.5, 20.0, 32.5]})
    >>> detect({"reading": readings}, [Hot(), twice], key="room", time="ts").table["type"].to_pylist()
    ['hot', 'hot', 'twice']
    """
    check_named(streams)
    spec = spec_of(DetectSpec, locals(), streams=tuple(streams))
    columns = None
    if arrival is not None:
        wanted = each_stream(arrival, "arrival", spec.streams)
        columns = [str(wanted[stream]) for stream in spec.streams]
    return run(spec, list(streams.values()), workers=workers, arrival=columns, batch_rows=batch_rows, name=name)


def _aside(spec: OrderSpec, result: LocalResult) -> LocalResult:
    """Separate late rows if the user requested it."""
    if spec.late != "side":
        return result
    marks = result.table.column(LATE)
    rows = result.table.drop_columns([LATE])
    return LocalResult(rows.filter(pc.invert(marks)), result.report, rows.filter(marks))
