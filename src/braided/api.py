"""The public functions on Spark: each makes a spec, which one front end runs. Importing it loads no Spark or numba."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from braided.errors import OptionError
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec, Join, check_named, common_stream_first
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.condition_options import TIME_OR_CONDITION, condition_options, is_condition
from braided.operators.join.spec import JoinSpec
from braided.operators.match.spec import MatchSpec
from braided.operators.multijoin.spec import MultiJoinSpec, check_streams
from braided.operators.order.spec import DEFAULT_IDLE, OrderSpec
from braided.operators.reference import documented
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.spec import spec_of
from braided.typing import (
    AnyDetector,
    AsofHow,
    Control,
    Direction,
    Duration,
    Evict,
    GroupShare,
    How,
    Keys,
    LastRows,
    Late,
    Latenesses,
    LatenessOption,
    LateRowsOption,
    Memory,
    MultiOn,
    NamedLatenesses,
    On,
    Partition,
    RowsPerMatch,
    Share,
    Shed,
    SqlOption,
    StreamingQueryLike,
    Times,
    Within,
)

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

    from braided.fleet.client import Fleet
    from braided.inspection.query_state import QueryState
    from braided.plan.shares import Cost
    from braided.plan.stages import Strategy
    from braided.runtime.report import Report
    from braided.spark.dashboard import Beside, Dashboard
    from braided.spark.deploy import Deployment
    from braided.spark.metrics import MetricsEndpoint
    from braided.spark.query import Query
    from braided.storage.topic import Topic


@overload
def join(
    left: DataFrame,
    right: DataFrame,
    condition: Column | Sequence[Column],
    how: str = "inner",
    *,
    cap: Duration | None = None,
    lateness: Latenesses = None,
    late: Literal["join", "drop"] = "join",
    idle: Duration | None = None,
    name: str | None = None,
    partition: Partition = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> DataFrame: ...


@overload
def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: Times,
    within: Within | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Latenesses = None,
    late: Literal["side"],
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    how: How = "inner",
    name: str | None = None,
    partition: Partition = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> tuple[DataFrame, DataFrame]: ...


@overload
def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: Times,
    within: Within | None = None,
    between: tuple[Duration, Duration] | None = None,
    rows: LastRows | None = None,
    forget: Duration | None = None,
    where: str | None = None,
    lateness: Latenesses = None,
    late: Literal["join", "drop"] = "join",
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    how: How = "inner",
    name: str | None = None,
    partition: Partition = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> DataFrame: ...


@documented(JoinSpec)
def join(
    left: DataFrame,
    right: DataFrame,
    condition: Column | Sequence[Column] | None = None,
    how: str = "inner",
    *,
    on: On = None,
    time: Times | None = None,
    within: Within | None = None,
    between: tuple[Duration, Duration] | None = None,
    rows: LastRows | None = None,
    forget: Duration | None = None,
    where: str | None = None,
    cap: Duration | None = None,
    lateness: Latenesses = None,
    late: LateRowsOption = "join",
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    name: str | None = None,
    partition: Partition = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Join two streaming DataFrames on equal keys, or by any predicate, within a window of time, exactly.

    The result has every pair of rows with equal keys and times within the window once, like a nested loop, as long as
    no row is more than `lateness` behind its stream's largest time. Later rows are joined with the rows that are still
    stored, and counted. Duplicate rows give duplicate pairs; null keys never match; rows with a null time are counted
    and dropped. Two batch DataFrames are joined by Spark's own join with the same columns.

    The result equals Spark's own stream join with watermarks of that lateness, except that Spark drops late rows, as
    ``late="drop"`` does. Without a watermark, Spark's join keeps every row forever and finds every pair. Braided then
    learns a lateness of 10 seconds or more (`Lateness.floor`): a row that is later may lose pairs, and the driver logs
    a warning once.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as on the left), the other left columns, the other right columns. With a condition, all
        columns of both, as in Spark's join: ``calls["ts"]``, ``alerts["ts"]`` and aliases work on it.

    Cost: one shuffle. State: every row that can still match, once. There are as many workers as
    spark.sql.shuffle.partitions. A condition needs a classic session and cannot contain a Python function.

    Examples
    --------
    >>> joined = braided.join(calls, alerts, on="phone", time="ts", within="10 seconds")
    >>> joined.columns
    ['phone', 'ts', 'cell', 'ts_right', 'reason']

    >>> from pyspark.sql import functions as F
    >>> soon = alerts.ts.between(calls.ts, calls.ts + F.expr("INTERVAL 10 SECONDS"))
    >>> braided.join(calls, alerts, (calls.phone == alerts.phone) & soon, "left").select(calls.phone, alerts.ts).columns
    ['phone', 'ts']
    """
    arguments = locals()
    if condition is not None or is_condition(on):
        from braided.spark.condition_join import run_condition_join

        options = condition_options(arguments)
        return run_condition_join(left, right, on if condition is None else condition, how, options)
    if time is None:
        raise OptionError(TIME_OR_CONDITION)
    if cap is not None:
        raise OptionError(f"cap={cap!r}: needs a condition with a bound on one side; use within= or between= instead")
    spec = spec_of(JoinSpec, arguments)
    if late == "side":
        from braided.spark.run_plan import run_join

        return run_join(spec, [left, right], name=name, control=control, redact=redact)
    from braided.spark.joined_frame import run_plain_join

    return run_plain_join(spec, [left, right], name=name, control=control, redact=redact)


@overload
def join_asof(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: Times,
    direction: Direction = "backward",
    tolerance: Duration | None,
    allow_exact_matches: bool = True,
    how: AsofHow = "left",
    lateness: Latenesses = None,
    late: Literal["join", "drop"] = "join",
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    name: str | None = None,
) -> DataFrame: ...


@overload
def join_asof(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: Times,
    direction: Direction = "backward",
    tolerance: Duration | None,
    allow_exact_matches: bool = True,
    how: AsofHow = "left",
    lateness: Latenesses = None,
    late: Literal["side"],
    idle: Duration | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    name: str | None = None,
) -> tuple[DataFrame, DataFrame]: ...


@documented(AsofSpec)
def join_asof(
    left: DataFrame,
    right: DataFrame,
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
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Join each row of a streaming DataFrame with the row of another that has the same key and the closest time.

    The result equals `pandas.merge_asof`, polars' `join_asof` and DuckDB's ASOF JOIN over the complete streams, in any
    order of arrival, as long as no row is more than `lateness` behind its stream's largest time. If several right rows
    have the same key and time, the largest one is taken: the values of its columns are compared in order, nulls first.

    A left row is returned when no row that is not late can be closer: when the right stream has passed its time by the
    right lateness, and for ``forward`` and ``nearest`` by up to the tolerance more. Left rows without a key or a time
    are returned with nulls; such right rows are counted and dropped. A late left row is counted, and is returned only
    if a matching right row is still stored. A late right row can match the left rows that still wait.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as on the left), the other left columns, the other right columns.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, and for every key the right rows
    that future left rows may need, with the last one before them for the length of the tolerance. Keys do not move
    between workers: use more workers than cores to balance the load. Batch DataFrames are joined key by key.

    Examples
    --------
    >>> joined = braided.join_asof(calls, alerts, on="phone", time="ts", tolerance="1 minute")
    >>> joined.columns
    ['phone', 'ts', 'cell', 'ts_right', 'reason']
    """
    from braided.spark.run_plan import run_join

    return run_join(spec_of(AsofSpec, locals()), [left, right], name=name)


@overload
def order(
    df: DataFrame,
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Literal["flag", "drop"] = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> DataFrame: ...


@overload
def order(
    df: DataFrame,
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Literal["side"],
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> tuple[DataFrame, DataFrame]: ...


@documented(OrderSpec)
def order(
    df: DataFrame,
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Late = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Put a streaming DataFrame in order of event time, with a learned delay.

    Rows are returned in event-time order per key. With ``key=None`` the whole stream is ordered, on one worker, and
    gets a gap-free column ``seq``, because sinks do not keep the order. Rows of the same time are ordered by content. A
    row is returned when its time is more than K, the lateness, behind the largest time seen. When a stream becomes
    silent, its last rows wait for the next ones, and `braided.report` counts them. Spark sorts batch DataFrames.

    {options}

    A row more than an hour (`Lateness.ceiling`) ahead of all others is quarantined: it waits until other rows reach its
    time. If its stream continues for more than an hour without reaching it, the row is returned and marked as late.

    Cost: one shuffle, a sort of each batch, one write and read of rows that wait. State: the rows that wait.

    Examples
    --------
    >>> braided.order(calls, time="ts", key="phone").columns
    ['phone', 'ts', 'cell', 'late']
    """
    from braided.spark.run_plan import run_order

    return run_order(spec_of(OrderSpec, locals()), [df], name=name)


@overload
def merge(
    inputs: Sequence[DataFrame],
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Literal["flag", "drop"] = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> DataFrame: ...


@overload
def merge(
    inputs: Sequence[DataFrame],
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Literal["side"],
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> tuple[DataFrame, DataFrame]: ...


@documented(OrderSpec)
def merge(
    inputs: Sequence[DataFrame],
    *,
    time: str,
    key: Keys = None,
    lateness: Latenesses = None,
    late: Late = "flag",
    idle: Duration | None = DEFAULT_IDLE,
    name: str | None = None,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Merge streaming DataFrames of one schema into one stream in order of event time.

    This is `braided.order` over several inputs: a row is returned when its time is more than K behind the largest time
    of *every* input that is not idle. Each input has its own K. The order is by (time, input, content).

    {options}

    Examples
    --------
    >>> braided.merge([calls, calls], time="ts", late="drop").columns
    ['phone', 'ts', 'cell', 'seq']
    """
    from braided.spark.run_plan import run_order

    if not isinstance(inputs, list | tuple) or not inputs:
        raise OptionError("inputs: give a list of one or more DataFrames")
    return run_order(spec_of(OrderSpec, locals(), inputs=len(inputs)), inputs, name=name)


@overload
def multijoin(
    streams: Sequence[DataFrame],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Latenesses = None,
    late: Literal["join", "drop"] = "join",
    idle: Duration | None = None,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    partition: Literal["auto", "hash"] = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> DataFrame: ...


@overload
def multijoin(
    streams: Sequence[DataFrame],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Latenesses = None,
    late: Literal["side"],
    idle: Duration | None = None,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    partition: Literal["auto", "hash"] = "auto",
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> tuple[DataFrame, DataFrame]: ...


@documented(MultiJoinSpec)
def multijoin(
    streams: Sequence[DataFrame],
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
    control: Control = None,
    redact: bool = False,
    memory: Memory | None = None,
    evict: Evict = "auto",
    share: Share = "unified",
    shed: Shed | None = None,
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Join 2 to 8 streaming DataFrames on a common key within a window of time, exactly.

    The result has every combination of one row from each stream with equal keys and
    ``max(time) - min(time) <= within`` once, like a nested loop, as long as no row is more than `lateness` behind its
    stream's largest time. Duplicate rows give duplicate combinations; null keys never match; rows with a null time are
    counted and dropped. For two streams the result equals `braided.join`. Batch DataFrames are joined by Spark's own
    joins with the same columns. While the routing changes, rows are stored under the old and the new assignment.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as in the first stream), then the other columns of each stream in order.

    Cost: one shuffle. State: every row that can still be part of a result, once. The slowest stream decides how long a
    row is stored: until all other streams have passed it. Not supported: outer joins, predicates.

    Examples
    --------
    >>> braided.multijoin([calls, alerts, alerts], on="phone", time="ts", within="1 minute").columns
    ['phone', 'ts', 'cell', 'ts_2', 'reason_2', 'ts_3', 'reason_3']
    """
    from braided.spark.run_plan import run_join

    spec = spec_of(MultiJoinSpec, locals(), streams=check_streams(streams))
    return run_join(spec, streams, name=name, control=control, redact=redact)


@documented(GroupSpec)
def join_group(
    joins: Sequence[Join],
    *,
    streams: Mapping[str, DataFrame],
    time: str | Mapping[str, str],
    memory: Memory,
    evict: Evict = "gdj",
    share: GroupShare = "unified",
    shed: Shed | None = None,
    lateness: NamedLatenesses = None,
    idle: Duration | None = None,
    name: str | None = None,
    control: Control = None,
    redact: bool = False,
) -> DataFrame:
    """Run several joins over the same streams with one memory budget.

    A row is stored once for all joins that use it, and its credit is the sum over these joins. A row of one stream or
    join can evict a row of another. Every result row is a row of the exact join, and comes once; some may be missing.
    `streams` maps the names that the joins use to streaming DataFrames. `control` works only if every stream has the
    same key in all its joins, and one stream is in all joins.

    {options}

    Returns
    -------
    DataFrame
        A column ``join`` with the name of the row's join, and for each join a struct of its columns, which is null in
        the rows of other joins: ``df.where("join = 'by_phone'").select("by_phone.*")``. It is one DataFrame, because
        two sinks would be two queries, each with its own budget.

    Rows are put in order first, which delays results by the lateness. A budget cannot be shared by workers: if a stream
    has different keys in different joins, one worker does all the work.

    Examples
    --------
    >>> by_phone = braided.Join("by_phone", left="calls", right="alerts", on="phone", within="1 minute")
    >>> braided.join_group([by_phone], streams={"calls": calls, "alerts": alerts}, time="ts", memory=1000).columns
    ['join', 'by_phone']
    """
    from braided.spark.run_plan import run_operator

    check_named(streams)
    ordered = common_stream_first(joins, streams)
    spec = spec_of(GroupSpec, locals(), streams=tuple(ordered))
    return run_operator(spec, list(ordered.values()), name=name, control=control, redact=redact)


@documented(MatchSpec)
def match(
    df: DataFrame,
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
) -> DataFrame:
    """Find the matches of a pattern in a streaming DataFrame, as SQL's MATCH_RECOGNIZE does, in any order of arrival.

    The result is that of SQL:2016 over the rows of each key in order of (time, content). A match is returned as soon as
    no match that SQL prefers is possible any more: because of its rows, or because the stream has advanced by `within`.
    Late rows are counted and left out. When a stream becomes silent, its last matches wait for the next rows.

    {options}

    Returns
    -------
    DataFrame
        One row per match: the key columns, then the measures. With ``rows='all'``: all columns of the input, then the
        measures.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, and for every key the rows from
    the start of its first open match. Keys do not move between workers: use more workers than cores to balance the
    load. Batch DataFrames are searched key by key. On a stream, ``$`` needs `forget`.

    Examples
    --------
    >>> moves = braided.match(calls, key="phone", time="ts", pattern="A B", define={"B": "cell <> A.cell"},
    ...     measures={"from": "A.cell", "to": "B.cell"}, within="1 minute")
    >>> moves.columns
    ['phone', 'from', 'to']
    """
    from braided.spark.run_plan import run_operator

    return run_operator(spec_of(MatchSpec, locals()), [df], name=name)


@documented(RowWindowsSpec)
def row_windows(
    df: DataFrame,
    *,
    time: str,
    key: Keys = None,
    rows: int,
    every: int | None = None,
    values: Mapping[str, str],
    forget: Duration | None = None,
    lateness: Latenesses = None,
    name: str | None = None,
) -> DataFrame:
    """Aggregate a streaming DataFrame over windows of a number of rows of each key, in order of event time.

    Rows may arrive in any order. The first window begins with the first row of a key, and a new one begins after every
    `every` rows. A window is returned when the first row after it comes, and has the time of its first row
    (StreamCloud, II.A). It is also a step of `braided.stream`:
    ``aggregate(by="cell", rows=100, every=10, n="count(*)")``. Late rows are counted and left out.

    {options}

    Returns
    -------
    DataFrame
        The key columns, the time, the values. Sums of integers are bigint, and an overflow is an error.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, and for every key at most the
    rows of one window, until `forget`. Keys do not move between workers: use more workers than cores to balance the
    load. Batch DataFrames are aggregated key by key. Do not set a watermark on the result: a window's time can be of
    any age.

    Examples
    --------
    >>> braided.row_windows(calls, key="cell", time="ts", rows=100, every=10, values={"phones": "count(phone)"}).columns
    ['cell', 'ts', 'phones']
    """
    from braided.spark.run_plan import run_operator

    return run_operator(spec_of(RowWindowsSpec, locals()), [df], name=name)


@documented(DetectSpec)
def detect(
    streams: Mapping[str, DataFrame],
    detectors: Sequence[AnyDetector],
    *,
    time: str,
    key: Keys = None,
    types: str | Sequence[str] | None = None,
    lateness: NamedLatenesses = None,
    idle: Duration | None = None,
    name: str | None = None,
) -> DataFrame:
    """Run a hierarchy of detectors over streaming DataFrames: each gets its events in order, and publishes new events.

    `streams` maps the event types that come from outside to DataFrames. A detector subscribes to some types and
    publishes one type, to which other detectors may subscribe. Rows may arrive in any order. A detector gets events in
    order of time, when no earlier event can come any more. This depends on how late rows are, and on how much earlier
    than their triggers other detectors date the events that they publish; Braided learns both. Events that come too
    late for a detector are counted, and the detector does not get them.

    {options}

    Returns
    -------
    DataFrame
        One row per published event: ``type``, the key, the time, ``at`` (the time of the event that triggered it) and a
        struct for each type, which is null unless it is the row's type. If `types` is one name: the key and the columns
        of that type.

    Cost: one shuffle for any depth; a sort of each batch by time, and by key for each detector. State: rows and events
    that wait, and the state that detectors save for every key. Keys do not move between workers: use more workers than
    cores to balance the load. Batch DataFrames are run key by key.

    Examples
    --------
    >>> moved = braided.Pattern("moved", subscribes="call", pattern="A B", define={"B": "cell <> A.cell"},
    ...     measures={"ts": "B.ts", "to": "B.cell"}, within="1 minute")
    >>> braided.detect({"call": calls}, [moved], key="phone", time="ts").columns
    ['type', 'phone', 'ts', 'at', 'moved']
    """
    from braided.spark.run_plan import run_operator

    check_named(streams)
    return run_operator(spec_of(DetectSpec, locals(), streams=tuple(streams)), list(streams.values()), name=name)


def sql(
    spark: SparkSession,
    text: str,
    streams: Mapping[str, DataFrame] | None = None,
    *,
    args: Mapping[str, object] | Sequence[object] | None = None,
    **options: SqlOption,
) -> DataFrame:
    """Run a continuous query in Spark SQL, in which Braided runs the joins of streams and the patterns.

    The text is the same as for ``spark.sql``, with streams by name. Spark analyses it first, so its names, types and
    errors are Spark's. Then every join of two or more streams becomes a `braided.join` of the same kind: the equalities
    in its condition are the keys, the comparisons of times are the bounds, and the rest is the predicate. Streams are
    filtered before the join, and unused columns are neither shuffled nor stored. ``EXISTS`` and ``IN`` become semi
    joins, ``NOT EXISTS`` becomes an anti join, and ``ASOF JOIN`` a `braided.join_asof`. A ``MATCH_RECOGNIZE`` clause,
    which Spark does not support, becomes a `braided.match` (docs/reference/match.md). Spark runs everything else
    (projections, aggregates, ``HAVING``, ``UNION ALL``, joins with tables). `braided.explain` shows the joins and
    patterns.

    Parameters
    ----------
    text : a SELECT. The times of two streams must be bounded on both sides, as for Spark's own joins, in any form.
    streams : maps the names that the text uses to streaming DataFrames. None: all temporary views of the session that
        are streams.
    args : values for parameter markers, as for ``spark.sql``: a dict for ``:name``, a list for ``?``.
    options : for every join: lateness, late, idle, partition, memory, evict, share, shed, name, control, redact; also
        cap, the largest distance of two times if the condition bounds them on one side only. For patterns: lateness and
        name. A hint sets the options of one join, by the alias of its input:
        ``/*+ BRAIDED('a', 'lateness=1 hour') */``.

    Not supported: ``NOT IN`` over a stream, bounds in months, bounds that are columns without a hint.

    >>> hits = braided.sql(spark, '''
    ...     SELECT c.phone, c.cell, a.reason
    ...     FROM calls c JOIN alerts a ON c.phone = a.phone
    ...       AND a.ts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS
    ...     WHERE a.reason <> 'test' ''', {"calls": calls, "alerts": alerts})
    >>> hits.columns
    ['phone', 'cell', 'reason']
    """
    from braided.spark.sql import run_sql

    return run_sql(spark, text, streams, options, args)


def stream(df: DataFrame, *, time: str, lateness: LatenessOption | None = None) -> Query:
    """Write a continuous query step by step over a streaming DataFrame; `Query.df` is the resulting DataFrame.

    Steps are ``where``, ``select``, ``cases``, ``union``, ``join``, ``multijoin``, ``join_asof``, ``order`` and
    ``aggregate``. They are optimised like `braided.sql`: a windowed aggregate after a join begins in the join's
    workers, and a condition after a join moves into it.

    Parameters
    ----------
    time : the event-time column.
    lateness : how late rows may be, for all joins, orders and aggregates of this stream.

    >>> joined = braided.stream(calls, time="ts").join(
    ...     braided.stream(alerts, time="ts"), on="phone", within="10 seconds")
    >>> busy = joined.where("reason <> 'test'").aggregate(by="cell", window="1 minute", n="count(*)")
    >>> busy.df.columns
    ['window', 'cell', 'n']
    """
    from braided.spark.query import make_query

    return make_query(df, time, lateness)


def deploy(
    query: Query,
    *,
    topics: str | PathLike[str],
    strategy: Strategy = "subquery",
    processors: int | None = None,
    costs: Mapping[str, Cost] | Deployment | str | PathLike[str] | None = None,
    max_files: int | None = None,
) -> Deployment:
    """Run a query of `braided.stream` as one Spark query, or as several connected by topics, under one handle.

    These are StreamCloud's three strategies (III.A, Figure 2). In each of them, results go to a topic exactly once:
    each stage commits its batches by manifests, and the next stage reads committed batches only. Each stage adds the
    time of one batch to the delay.

    Parameters
    ----------
    topics : a directory for the topics and checkpoints of all stages. A query that was deployed there continues.
    strategy : ``"query"``: all in one Spark query, with a shuffle for each stateful step. ``"operator"``: a query for
        each step. ``"subquery"``: a query for each stateful step with the stateless ones after it.
    processors : the number of shuffle partitions of all stages together; by default that of the session.
    costs : another run of the query: its deployment, its `topics`, or `Deployment.costs`. When the query is first
        deployed, its stages get partitions in proportion to their time in that run. By default all get the same number.
    max_files : how many files of a topic a stage reads at most in one batch, but always a whole batch of the previous
        stage; by default all files.

    ``start()`` runs all stages until ``stop()``, ``run()`` processes the available input, and ``print(deployment)``
    shows the stages.

    >>> joined = braided.stream(calls, time="ts", lateness="30 seconds").join(
    ...     braided.stream(alerts, time="ts", lateness="30 seconds"), on="phone", within="10 seconds")
    >>> braided.deploy(joined.where("cell <> 'test'"), topics=deploy_dir, processors=2).stages
    ['1-join-where']
    """
    from braided.spark.deploy import deploy_query

    return deploy_query(
        query, topics=topics, strategy=strategy, processors=processors, costs=costs, max_files=max_files
    )


def files(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    format: str = "parquet",
    schema: StructType | str | None = None,
    max_files: int | None = None,
    reader: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a directory of files, or a topic, as a streaming DataFrame that braided operators read without the JVM.

    Everywhere else it behaves like ``spark.readStream`` of that directory. If an operator of Braided reads it, also
    after ``select`` and ``drop`` of columns and a ``where`` that compiles (docs/reference/where.md), Spark only lists
    the new files and keeps the offsets. The operator's own tasks read the files: only the columns that are needed, and
    only row groups that may have rows for the filters. ``braided.explain`` shows whether files are read this way, and
    why. Only local Parquet files are read this way; Spark reads other files, and streams with a watermark. A directory
    that `braided.write_files` wrote is a topic: only committed files are read, and offsets are manifest numbers.

    Parameters
    ----------
    path : the directory, or a topic. As for Spark's own source, files must be moved or renamed into the directory, so
        that they are complete when they appear.
    format : any format of Spark's file source.
    schema : the columns; by default those of the files in the directory now.
    max_files : how many new files a batch has at most; by default all.
    reader : a name for a reader of a topic; `Topic.retain` and `Topic.compact` keep the entries that it has not read.
    options : further options of Spark's source, such as ``{"ignoreCorruptFiles": "true"}``.

    When tasks read the files, ``numInputRows`` in the query's progress counts files; ``braided.report`` counts rows.

    >>> braided.files(spark, calls_dir, max_files=10).columns
    ['phone', 'ts', 'cell']
    """
    from braided.spark.direct import read_files

    return read_files(
        spark, path, format=format, schema=schema, max_files=max_files, reader=reader, options=options or {}
    )


def write_files(
    df: DataFrame,
    path: str | PathLike[str],
    *,
    checkpoint: str | PathLike[str],
    trigger: Duration | Literal["available now"] | None = None,
    name: str | None = None,
    compact: bool = False,
    keep: int | None = None,
) -> StreamingQuery:
    """Start a query that writes a streaming DataFrame as Parquet files into a topic, exactly once.

    If `df` comes directly from a braided operator (columns may be selected and renamed), its workers write the files,
    and no row passes through the JVM; otherwise a task after `df` writes them. Every batch is committed by one
    manifest, which is created atomically and only once. So nothing is written twice if a batch runs again, a task runs
    twice, or a second query runs on the same checkpoint. Files that no manifest names are not part of the topic, and
    are deleted later.

    Parameters
    ----------
    path : a directory for the topic: a new one, or that of this same query.
    checkpoint : the query's checkpoint.
    trigger : a duration between batches; ``"available now"`` to process the available input and stop; by default each
        batch starts when the previous one ends.
    name : the query's name.
    compact : True to rewrite the many small files of old batches as few large ones in the background, while the query
        runs (`Topic.compact`). Streams that read the topic then need a `reader` name.
    keep : how many of the newest entries to keep; older ones are deleted in the background when no reader needs them
        (`Topic.retain`). None keeps all.

    Read it with `braided.files` as a stream, or with any reader of Parquet from the files of `braided.topic`.

    >>> joined = braided.join(calls, alerts, on="phone", time="ts", within="10 seconds")
    >>> query = braided.write_files(joined, hits_dir, checkpoint=checkpoint, trigger="available now")
    >>> query.awaitTermination()
    >>> len(braided.topic(hits_dir).files())
    1
    """
    from braided.spark.sink import write_files as write

    return write(df, path, checkpoint=checkpoint, trigger=trigger, name=name, compact=compact, keep=keep)


def register(spark: SparkSession) -> None:
    """Register ``format("braided")`` in a session, in case Spark does not find it by itself.

    Spark finds it if the Python that it starts on the driver's machine (``PYSPARK_DRIVER_PYTHON``, ``PYSPARK_PYTHON``
    or ``python3``) has this package. The Python workers need the package in any case. See docs/how-to/sources.md.

    >>> braided.register(spark)
    >>> spark.range(3).write.format("braided").mode("append").save(numbers_dir)
    >>> spark.read.format("braided").load(numbers_dir).count()
    3
    """
    from braided.spark.source import register as register_in

    register_in(spark)


def topic(path: str | PathLike[str]) -> Topic:
    """Return a topic that `braided.write_files` wrote: its committed files, retention and compaction.

    ``pandas.read_parquet(braided.topic(path).files())`` reads exactly the committed rows; polars, DuckDB and Spark can
    read the same files. A plain ``spark.read.parquet(path)`` finds no files, because they are in a hidden folder.

    >>> query = braided.write_files(calls, topic_dir, checkpoint=f"{topic_dir}-checkpoint", trigger="available now")
    >>> query.awaitTermination()
    >>> [manifest.rows for manifest in braided.topic(topic_dir).manifests() if manifest.kind == "batch"]
    [1]
    """
    import os

    from braided.storage.topic import Topic

    return Topic(os.fspath(path))


def table(
    spark: SparkSession,
    table: str,
    *,
    max_files: int | None = None,
    add_columns: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a Delta table as a streaming DataFrame that braided operators read without the JVM.

    The stream begins with all rows of the table, and continues with the new files of each version. If an operator of
    Braided reads it, also after ``select`` and ``drop`` of columns and a ``where`` that compiles
    (docs/reference/where.md), Spark only passes the names of files, and the operator's own tasks read them. Compaction
    (``OPTIMIZE``) adds no rows and is skipped. The query stops at a version that deletes or changes rows, at deletion
    vectors, and at columns that are mapped to other names.

    Parameters
    ----------
    table : ``"delta:<path or URL>"``.
    max_files : how many files a batch has at most; by default all.
    add_columns : True to continue without columns that are added to the table while the query runs; they are read after
        a restart. By default the query stops with an error that names the column.
    options : storage options of ``deltalake``. Tasks read with fsspec, which takes credentials from their environment.

    Needs ``braided[delta]``; see docs/how-to/tables.md.
    """
    from braided.spark.delta_source import read_table

    return read_table(spark, table, max_files=max_files, add_columns=add_columns, options=options)


def write_table(
    df: DataFrame,
    table: str,
    *,
    checkpoint: str | PathLike[str],
    trigger: Duration | Literal["available now"] | None = None,
    name: str | None = None,
    partition_by: str | Sequence[str] | None = None,
    file_size: str | int = "128 MB",
    add_columns: bool = False,
    optimize: bool = False,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that appends a streaming DataFrame to a Delta or Iceberg table, exactly once.

    If `df` comes directly from a braided operator (columns may be selected and renamed), its workers write the files,
    and no row passes through the JVM; otherwise a task after `df` writes them. The driver commits their names once per
    batch, together with the number of the batch. A batch that runs again, after a crash or by a second driver on the
    same checkpoint, adds nothing. Other programs may write to the table at the same time.

    Parameters
    ----------
    table : ``"delta:<path or URL>"`` or ``"iceberg:<catalog>.<namespace>.<table>"``; it is created if it is missing.
    checkpoint : the query's checkpoint.
    trigger : a duration between batches; ``"available now"`` to process the available input and stop; by default each
        batch starts when the previous one ends.
    name : the query's name.
    partition_by : the partition columns of a new table; for Iceberg also ``"day(ts)"``, and ``year``, ``month`` and
        ``hour``. An existing table keeps its own. Every batch writes one file for each partition value in it.
    file_size : the approximate size of a file; a batch with less data writes smaller files.
    add_columns : True to add columns that only `df` has to the table, and to write nulls into columns that only the
        table has. By default both stop the query with an error that names the column. Other types always stop it.
    optimize : True to rewrite small files as larger ones every 50 batches, in the background (Delta only).
    options : storage options of ``deltalake``, or properties of the catalog, for the driver. Tasks write with fsspec,
        which takes credentials from their environment.

    Needs ``braided[delta]`` or ``braided[iceberg]``; see docs/how-to/tables.md.
    """
    from braided.spark.table_sink import write_table as write

    return write(
        df,
        table,
        checkpoint=checkpoint,
        trigger=trigger,
        name=name,
        partition_by=partition_by,
        file_size=file_size,
        add_columns=add_columns,
        optimize=optimize,
        options=options,
    )


def explain(df: DataFrame, *, svg: str | PathLike[str] | None = None) -> None:
    """Print what the braided operators of a DataFrame do and how their rows are distributed over workers.

    With `svg`, the whole query is also drawn into a file of that name, from its sources to its result: Braided's
    operators with the printed text, and Spark's operators between them.

    >>> braided.explain(braided.join(calls, alerts, on="phone", time="ts", within="10 seconds", name="hits"))
    hits: joins on phone, -10 seconds <= r.t - l.t <= 10 seconds
      routing auto, table 0: 2 of 2 workers in use, 2 assignments alive
        fixed: spark.braided.control=false
    """
    from braided.spark.progress import explain_frame

    print(explain_frame(df))
    if svg is not None:
        from pathlib import Path

        from braided.spark.pictures import draw_frame

        Path(svg).write_text(draw_frame(df), encoding="utf-8")


def scale(
    control: str | PathLike[str] | StreamingQueryLike, workers: int | Literal["auto"], *, name: str | None = None
) -> None:
    """Change how many workers a join uses while it runs; with ``"auto"`` the number follows the load.

    `control` is the running query (`name` then selects one of several joins) or the join's control directory. The
    change takes effect within the next batches, without a restart and without moving state. The join never uses more
    workers than the query has shuffle partitions.

    >>> braided.scale(control, 2)
    """
    from braided.spark.progress import request_scale

    request_scale(control, workers, name)


def state(checkpoint: str | PathLike[str], *, spark: SparkSession | None = None, redact: bool = False) -> QueryState:
    """Return the content of a query's state, also of a stopped query: rows, sizes, times, heaviest keys, files.

    Spark's own state readers read the state of the last committed batch; the checkpoint is not changed.
    ``state["hits-1"]`` is an operator: ``.rows("left")`` is an Arrow table, memory-mapped from its files,
    ``.batches("left")`` yields it one block at a time, ``.relation("left")`` is a DuckDB relation, ``.summary()`` has
    rows, bytes and times by worker, ``.heaviest("left")`` has the keys with the most rows, and ``.files()`` the files
    of each worker. It prints as a summary; ``.to_dict()`` is plain JSON.

    Parameters
    ----------
    checkpoint : the checkpoint of the query. If a running query deletes files while they are read, read it again.
    spark : the session that reads; by default the active one, or else a new one.
    redact : True to hide the values of keys: the heaviest keys are shown as hashes, and reading rows is refused.

    >>> operator = braided.state(check_dir)[0]
    >>> operator.kind, operator.rows("left").num_rows
    ('join', 1)
    """
    from braided.spark.state_reader import read_state

    return read_state(checkpoint, spark, redact=redact)


def forget_control(query: str | None = None, *, root: str | PathLike[str] | None = None) -> list[str]:
    """Delete control directories that queries left behind; return the ids of those queries.

    Control directories are in the query's checkpoint by default, and are deleted with it. This function is for those
    below a folder that ``spark.braided.control`` names. By default it deletes the directories of all queries whose
    checkpoint was on this machine and does not exist any more.

    Parameters
    ----------
    query : the id of a query; its directories are deleted, even if its checkpoint still exists.
    root : the value of ``spark.braided.control``; by default a folder in the user's cache directory.

    >>> braided.forget_control(root=control)
    []
    """
    from braided.spark.control import forget

    return forget(query, root)


def report(query: StreamingQueryLike, name: str | None = None, *, full: bool = False) -> Report:
    """Return the report of a braided operator in a query: rows, results, lateness, state, load and routing.

    If a query has several operators, `name` selects one; the default is the one that was made last, which is usually
    the last in the flow. Totals are kept in the checkpoint, so they survive a restart. It prints as a small table with
    the busiest workers, or with all workers if ``full=True``. ``.to_dict()`` is plain JSON, and always complete.

    >>> braided.report(query, "hits").query["results"]
    1
    """
    from braided.spark.progress import read_report

    return read_report(query, name, full=full)


def dashboard(
    spark: SparkSession,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    redact: bool = False,
    history: str | PathLike[str] | None = None,
    fleet: Fleet | None = None,
) -> Dashboard:
    """Serve a live page of the session's queries: rates, batch times, workers, hot keys, decisions, time, memory.

    It shows Spark's progress and the operators' reports, also for queries without Braided, and keeps the last batches
    of the last runs. It continues after the queries end, until ``close()``. It costs less than 1 % of the time of a
    batch, on the driver.

    Parameters
    ----------
    host, port : where to listen; by default a free port that only this machine can reach.
    token : the token that the address must contain if other machines can reach it; by default a new one, see ``url``.
    redact : True to hide the values of keys and the texts of errors; keys are shown as hashes.
    history : a directory to which all events are appended, for ``braided report`` and ``braided dash``, at most 128 MB.
    fleet : also show this fleet: its peers, their loads, their components and migrations. Close it after the page.

    >>> with braided.dashboard(spark) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    from braided.spark.dashboard import Dashboard

    beside = None if fleet is None else _follower(fleet, redact=redact)
    return Dashboard(spark, host=host, port=port, token=token, redact=redact, history=history, beside=beside)


def metrics(
    spark: SparkSession,
    *,
    host: str = "127.0.0.1",
    port: int = 9464,
    token: str | None = None,
    fleet: Fleet | None = None,
) -> MetricsEndpoint:
    """Serve the figures of the session's queries for Prometheus: rows, late rows, results, batch times, state, loads.

    docs/how-to/metrics.md lists all names and units. Values of keys are never among them. A scrape reads the report of
    the last batch, and starts no work. ``close()`` ends the endpoint.

    Parameters
    ----------
    host, port : where to listen; by default only this machine can reach it. ``port=0`` takes a free port.
    token : the bearer token that a scrape must send if other machines can reach it; by default a new one, see
        ``token``.
    fleet : also the figures of this fleet: its peers, their loads and the states of its jobs. Close it afterwards.

    >>> with braided.metrics(spark, port=0) as endpoint:
    ...     endpoint.url.endswith("/metrics")
    True
    """
    from braided.spark.metrics import MetricsEndpoint

    beside = None if fleet is None else _follower(fleet, redact=True)
    return MetricsEndpoint(spark, host=host, port=port, token=token, beside=beside)


def _follower(fleet: Fleet, *, redact: bool) -> Beside:
    if not hasattr(fleet, "status"):
        raise OptionError(f"fleet={fleet!r}: give a braided.Fleet(address, token_file=...)")
    from braided.fleet.following import FleetFollower

    return partial(FleetFollower, fleet, redact=redact)
