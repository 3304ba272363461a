"""The public functions on Spark: each a spec, run by one front end. `import braided` loads neither Spark nor numba."""

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

    Every pair of rows with equal keys and times within the window comes out once, as a nested loop would
    give them, as long as no row is more than `lateness` behind its stream's largest time. Later rows are joined
    with the rows that are still stored, and counted. Duplicates multiply; null keys never match; rows with a null
    time are counted and dropped. Two batch DataFrames become Spark's own join with the same columns.

    These are the rows of Spark's own stream join with watermarks of that lateness, except that Spark's drops late rows,
    as ``late="drop"`` does. Without a watermark Spark's join keeps every row for ever and finds every pair. Braided
    then learns a lateness of 10 seconds or more (`Lateness.floor`): a row that is later may lose pairs, and the driver
    logs a warning once.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as on the left), the other left columns, the other right columns. With a condition, all
        columns of both, as Spark's join has them: ``calls["ts"]``, ``alerts["ts"]`` and aliases are found in it.

    Cost: one shuffle. State: every row that can still match, once. There are as many workers as
    spark.sql.shuffle.partitions. A condition needs a classic session, and no Python function in it.

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
    given = locals()
    if condition is not None or is_condition(on):
        from braided.spark.condition_join import run_condition_join

        options = condition_options(given)
        return run_condition_join(left, right, on if condition is None else condition, how, options)
    if time is None:
        raise OptionError(TIME_OR_CONDITION)
    if cap is not None:
        raise OptionError(f"cap={cap!r}: is for a condition with a bound on one side only; write within= or between=")
    spec = spec_of(JoinSpec, given)
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
    """Give each row of a streaming DataFrame the row of another that has its key and the closest time.

    The rows are those of `pandas.merge_asof`, polars' `join_asof` and DuckDB's ASOF JOIN over the finished streams, as
    long as no row is more than `lateness` behind its stream's largest time, whatever the order of arrival. Of several
    right rows of one key and time the largest answers: its columns' values are compared in order, null is the least.

    A left row comes out when no row that is not late can be closer: when the right stream has passed its time by the
    right lateness, and for ``forward`` and ``nearest`` by up to the tolerance more. Left rows without a key or a time
    come out with nulls; right ones are counted and dropped. A late left row is counted, and comes out only if a
    right row that is still kept answers it. A late right row answers what is still open.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as on the left), the other left columns, the other right columns.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, of every key the right rows that
    left rows to come may need, and the last before them for the tolerance. Keys stay on their workers: use more workers
    than cores for level load. Batch DataFrames are joined key by key.

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
    """Put a streaming DataFrame in order of event time, with a delay that nobody has to choose.

    Rows leave in event-time order per key. With ``key=None`` the whole stream is put in order, on one worker, and gets
    a gap-free column ``seq``, since sinks keep no order. Ties break by the rows' content. A row leaves once its time is
    more than K, the lateness, behind the largest time seen. When a stream falls silent, its last rows wait for the next
    ones, and `braided.report` counts them. Batch DataFrames are sorted by Spark.

    {options}

    A row more than an hour (`Lateness.ceiling`) ahead of all others is quarantined: it waits until other rows come near
    its time. If its stream goes on for more than an hour without coming near, it leaves marked as late.

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
    """Merge streaming DataFrames of one schema into one in order of event time.

    As `braided.order`, over several inputs: a row leaves once its time is more than K behind the largest time of
    *every* input that is not idle, each with a K of its own. Ties break by (time, input, content).

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

    Every combination of one row from each stream with equal keys and ``max(time) - min(time) <= within`` comes out
    once, as a nested loop would give them, as long as no row is more than `lateness` behind its stream's largest time.
    Duplicates multiply; null keys never match; rows with a null time are counted and dropped. Two streams give the rows
    of `braided.join`. Batch DataFrames become Spark's own joins with the same columns. While routing changes, rows
    are stored under the old and the new assignment.

    {options}

    Returns
    -------
    DataFrame
        Key columns once (as in the first stream), then the other columns of each stream in order.

    Cost: one shuffle. State: every row that can still be part of a result, once. The slowest stream decides how long: a
    row stays until all other streams have passed it. Not supported: outer joins, predicates.

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
    """Run several joins over the same streams under one budget.

    A row is kept once for all joins that it serves, its credit sums over them, and a row of one stream or join can
    displace one of another. Every row that comes out is a row of the exact join, once; only some are missing.
    `streams` has the streaming DataFrames by the names that the joins use. `control` is only for groups in which every
    stream has one key for all its joins, and one stream is in all of them.

    {options}

    Returns
    -------
    DataFrame
        A column ``join`` that names the join of a row, and for each join a struct of its columns, null in the rows of
        the others: ``df.where("join = 'by_phone'").select("by_phone.*")``. One DataFrame, because two sinks would be
        two queries with a budget each.

    Rows are put in order first, so results come later by the lateness. A budget cannot span workers: where a stream
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

    The result is that of SQL:2016 over the rows of each key in order of (time, content). A match leaves as soon as no
    alternative that SQL prefers is possible any more: by its rows, or since the stream has gone on for `within`. Rows
    that are late are counted and left out. When a stream falls silent, its last matches wait for the next rows.

    {options}

    Returns
    -------
    DataFrame
        One row per match: the key columns, then the measures. With ``rows='all'``: all columns of the input, then the
        measures.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, and of every key those from the
    first match that is open. Keys stay on their workers: use more workers than cores for level load. Batch DataFrames
    are searched key by key. ``$`` needs `forget` on a stream.

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

    Rows may arrive in any order. Windows begin with the first row of a key, then every `every` rows. A window leaves
    when a row comes that exceeds it, and has the time of its first row (StreamCloud, II.A). The same is a step of
    `braided.stream`: ``aggregate(by="cell", rows=100, every=10, n="count(*)")``. Late rows are counted and left out.

    {options}

    Returns
    -------
    DataFrame
        The key columns, the time, the values. Sums of whole numbers are bigint and fail where they do not fit.

    Cost: one shuffle; a sort of each batch by time and key. State: the rows that wait, and of every key at most a
    window's rows, until `forget`. Keys stay on their workers: use more workers than cores
    for level load. Batch DataFrames are aggregated key by key. A window's time may be of any age: give it no watermark.

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
    """Run a hierarchy of detectors over streaming DataFrames: each sees its events in order, and publishes others.

    `streams` names the event types that come from outside. A detector subscribes to types and publishes one; others may
    subscribe to that. Rows may arrive in any order. A detector sees events in order of time once nothing before them
    can come, given how late rows are, and how much earlier than their triggers the detectors below it date their
    events; both are learned. Events that come too late for a detector are counted and not seen by it.

    {options}

    Returns
    -------
    DataFrame
        One row per published event: ``type``, the key, the time, ``at`` (the time of the event that triggered it) and a
        struct for each type, null but for the row's own. With `types` as one name: the key and that type's columns.

    Cost: one shuffle, whatever the depth; a sort of each batch by time, and by key for each detector. State: rows and
    events that wait, and what detectors save of every key. Keys stay on their workers: use more workers than cores for
    level load. Batch DataFrames are run key by key.

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
    """Run a continuous query in Spark SQL, with its joins of streams and its patterns done by Braided.

    The text is what ``spark.sql`` takes, over streams by name. Spark analyses it first: its names, types and errors
    count. Then every join of two or more streams is taken out and becomes a `braided.join` of its kind, with the
    equalities of its condition as keys, the comparisons of times as bounds and the rest as a predicate; streams are
    filtered first, and columns that nothing reads are neither shuffled nor stored. ``EXISTS`` and ``IN`` become semi
    joins, ``NOT EXISTS`` an anti join, ``ASOF JOIN`` a `braided.join_asof`. A ``MATCH_RECOGNIZE`` clause, which Spark
    does not know, becomes a `braided.match` (docs/reference/match.md). Everything else (projections, aggregates,
    ``HAVING``, ``UNION ALL``, joins with tables) goes to Spark as text. `braided.explain` shows the joins and patterns.

    Parameters
    ----------
    text : a SELECT. Times of two streams must be bounded on both sides, as for Spark's own joins, in any arrangement.
    streams : the streaming DataFrames by the names that the text uses. None: the temporary views of the session that
        are streams.
    args : values for parameter markers, as for ``spark.sql``: by name for ``:name``, a list for ``?``.
    options : of every join: lateness, late, idle, partition, memory, evict, share, shed, name, control, redact; cap,
        how far apart two times are at most that comparisons bound on one side only; of patterns lateness and name. A
        hint sets those of one join, by the alias of its input: ``/*+ BRAIDED('a', 'lateness=1 hour') */``.

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
    """Write a continuous query step by step over a streaming DataFrame; `Query.df` is the DataFrame of its rows.

    Steps are ``where``, ``select``, ``cases``, ``union``, ``join``, ``multijoin``, ``join_asof``, ``order`` and
    ``aggregate``. They make what the functions of these names and `braided.sql` make: a windowed aggregate after a join
    begins in the join's workers, and a condition after a join moves into it.

    Parameters
    ----------
    time : the event-time column.
    lateness : how late rows may be, for the joins, orders and aggregates that the stream comes to.

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
    """Lay a query of `braided.stream` out as one Spark query, or as several that topics couple, under one handle.

    These are StreamCloud's three strategies (III.A, Figure 2). Results go to a topic in every one, exactly once: each
    stage commits its batches by manifests, and the next reads what is committed. Each hop adds a batch to the delay.

    Parameters
    ----------
    topics : a directory for the topics and checkpoints of all stages. A query that was deployed there goes on.
    strategy : ``"query"``: all in one Spark query, with a shuffle for each stateful step. ``"operator"``: a query for
        each step. ``"subquery"``: a query for each stateful step with the stateless ones after it.
    processors : how many shuffle partitions all stages have together; by default those of the session.
    costs : another run of the query: its deployment, its `topics`, or `Deployment.costs`. Partitions are shared out in
        proportion to what its stages took, when the query is first deployed. By default all get the same.
    max_files : a stage reads at most so many files of a topic in a batch, but always a whole batch of the stage before
        it; by default all there are.

    ``start()`` runs all stages until ``stop()``, ``run()`` processes what is there, ``print(deployment)`` shows them.

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

    It is ``spark.readStream`` of that directory, and behaves as it does anywhere. Where an operator of Braided takes
    it, also after ``select`` and ``drop`` of columns and a ``where`` that compiles (docs/reference/where.md), Spark
    hands out the names of new files, keeps the offsets, and the operator's own tasks read the files: only the columns
    that are needed, and only row groups that may have a row for the filters. ``braided.explain`` says which way is
    taken and why. Only local Parquet files are read directly; others, and those with a watermark, are read by Spark.
    What `braided.write_files` wrote is a topic: only committed files are read, and offsets are the numbers of
    manifests.

    Parameters
    ----------
    path : the directory. Files must appear whole, as for Spark's own source (moved there, or renamed); or a topic.
    format : any that Spark's source knows.
    schema : the columns; by default those of the files that are there now.
    max_files : at most so many new files in a batch; by default all there are.
    reader : a name for a reader of a topic; what it has not read yet is kept by `Topic.retain` and `Topic.compact`.
    options : further options of Spark's source, such as ``{"ignoreCorruptFiles": "true"}``.

    In a query's progress, ``numInputRows`` counts files then; ``braided.report`` counts rows.

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

    Where `df` comes straight from a braided operator (columns may be chosen and renamed), its workers write the files
    and no row passes through the JVM; else a task after `df` writes them. Every batch is committed by one manifest,
    which is created whole and exclusively: a batch that runs again, a task that ran twice or a second query on the same
    checkpoint leaves nothing twice. Files that no manifest names are no part of the topic, and are swept.

    Parameters
    ----------
    path : a directory for the topic, new, or of this very query.
    checkpoint : the query's checkpoint.
    trigger : a duration between batches; ``"available now"`` to process what is there and stop; by default a batch
        follows the other.
    name : the query's name.
    compact : True to make few large files of the many small ones of old batches while the query runs, beside its
        batches (`Topic.compact`). Streams that read the topic then need a `reader` name.
    keep : how many of the newest entries to keep; older ones go, beside the batches, once no reader needs them
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
    """Register ``format("braided")`` in a session, where Spark does not find it by itself.

    Spark finds it where the Python that it starts on the driver's machine (``PYSPARK_DRIVER_PYTHON``,
    ``PYSPARK_PYTHON`` or ``python3``) has this package; its workers need the package anyway. See
    docs/how-to/sources.md.

    >>> braided.register(spark)
    >>> spark.range(3).write.format("braided").mode("append").save(numbers_dir)
    >>> spark.read.format("braided").load(numbers_dir).count()
    3
    """
    from braided.spark.source import register as register_in

    register_in(spark)


def topic(path: str | PathLike[str]) -> Topic:
    """Return a topic that `braided.write_files` made: its committed files, retention and compaction.

    ``pandas.read_parquet(braided.topic(path).files())``, and likewise for polars, DuckDB and Spark, reads what is
    committed, and nothing else. A plain ``spark.read.parquet(path)`` finds no file: data lies in a hidden folder.

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

    The stream begins with all rows that the table has, and goes on with the new files of each version. Where an
    operator of Braided takes it, also after ``select`` and ``drop`` of columns and a ``where`` that compiles
    (docs/reference/where.md), only names of files are handed out, and the operator's own tasks read them. Compaction
    (``OPTIMIZE``) adds no row and is passed over. A version that deletes or changes rows stops the query, and so do
    deletion vectors and columns that are mapped to other names.

    Parameters
    ----------
    table : ``"delta:<path or URL>"``.
    max_files : at most so many files in a batch; by default all there are.
    add_columns : True to go on without columns that are added to the table while the query runs; they are read after a
        restart. By default the query stops, and says which it is.
    options : storage options of ``deltalake``. Tasks read by fsspec, whose credentials come from their environment.

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

    Where `df` comes straight from a braided operator (columns may be chosen and renamed), its workers write the files
    and no row passes through the JVM; else a task after `df` writes them. The driver commits their names, once a batch,
    together with the number of the batch: one that runs again, after a crash or by a second driver on the same
    checkpoint, adds nothing. Other programs may write to the table meanwhile.

    Parameters
    ----------
    table : ``"delta:<path or URL>"`` or ``"iceberg:<catalog>.<namespace>.<table>"``; it is made if there is none.
    checkpoint : the query's checkpoint.
    trigger : a duration between batches; ``"available now"`` to process what is there and stop; by default a batch
        follows the other.
    name : the query's name.
    partition_by : columns by whose values a new table is partitioned; for Iceberg also ``"day(ts)"``, and ``year``,
        ``month`` and ``hour``. A table that is there keeps its own; every partition is a file in every batch.
    file_size : about how large a file is; what is too small for that in one batch stays small.
    add_columns : True to add columns to the table that only `df` has, and to let those be null that only the table has.
        By default both stop the query, as other types always do, with the column's name.
    optimize : True to rewrite small files as larger ones every 50 batches, beside them (Delta only).
    options : storage options of ``deltalake``, or properties of the catalog, for the driver. Tasks write by fsspec,
        whose credentials come from their environment.

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
    """Print what the braided operators of a DataFrame do and how their rows are laid over workers.

    With `svg`, the whole query is drawn into a file of that name too, from its sources to its result: Braided's
    operators with all that is printed, and those of Spark between them.

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
    """Change how many workers a join uses while it runs; ``"auto"`` lets the load decide.

    `control` is the running query, where `name` chooses one of several joins, or the join's control directory. It
    changes with the next batches, without a restart and without moving state. At most as many workers as the query has
    shuffle partitions are used.

    >>> braided.scale(control, 2)
    """
    from braided.spark.progress import request_scale

    request_scale(control, workers, name)


def state(checkpoint: str | PathLike[str], *, spark: SparkSession | None = None, redact: bool = False) -> QueryState:
    """Return what is in the state of a query, also of one that has stopped: rows, sizes, times, heaviest keys, files.

    It is read by Spark's own state readers, as the last committed batch left it, and nothing in the checkpoint changes.
    ``state["hits-1"]`` is an operator: ``.rows("left")`` is an Arrow table, which stays in the files that it is mapped
    from, ``.batches("left")`` yields it a block at a time, ``.relation("left")`` is a relation of DuckDB,
    ``.summary()`` has rows, bytes and times by worker, ``.heaviest("left")`` keys, ``.files()`` the files of each
    worker. It prints as a summary; ``.to_dict()`` is plain JSON.

    Parameters
    ----------
    checkpoint : the checkpoint of the query. Of a running query it must be read again if its files go meanwhile.
    spark : the session that reads; by default the active one, else a new one.
    redact : no values of keys: the heaviest are shown by their hashes, and rows are refused.

    >>> found = braided.state(check_dir)[0]
    >>> found.kind, found.rows("left").num_rows
    ('join', 1)
    """
    from braided.spark.state_reader import read_state

    return read_state(checkpoint, spark, redact=redact)


def forget_control(query: str | None = None, *, root: str | PathLike[str] | None = None) -> list[str]:
    """Delete control directories that queries left behind; return the ids of those queries.

    By default those of queries whose checkpoint, on this machine, is gone. Those of Spark's own temporary checkpoints,
    and those that nothing has used for 30 days since, go by themselves when a session first makes an adaptive join.

    Parameters
    ----------
    query : the id of a query, whose directories are then deleted wherever its checkpoint is.
    root : what ``spark.braided.control`` names; by default the place in the user's cache directory.

    >>> braided.forget_control(root=control)
    []
    """
    from braided.spark.control import forget

    return forget(query, root)


def report(query: StreamingQueryLike, name: str | None = None, *, full: bool = False) -> Report:
    """Return what a braided operator of a query reports: rows, results, lateness, state, load and routing.

    With several operators in one query, `name` chooses one; the default is the one that was made last, which is usually
    the last in the flow. Totals are kept in the checkpoint, so they survive a restart. Prints as a small table with
    the busiest workers; with ``full=True`` it prints all of them. ``.to_dict()`` is plain JSON, and always complete.

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

    It shows what Spark's progress and the operators' reports say, also of queries that are not Braided's, and keeps the
    last batches of the last runs. It outlives the queries; ``close()`` ends it. It costs less than a hundredth of
    a batch, on the driver.

    Parameters
    ----------
    host, port : where to listen; by default only this machine can, on any free port.
    token : what the address must have where others can reach it; by default one is made, and ``url`` has it.
    redact : no values of keys, and no texts of errors; keys are shown by their hashes.
    history : a directory to which all events are appended, for ``braided report`` and ``braided dash``, at most 128 MB.
    fleet : also show this fleet: its peers and their loads, who hosts what, moves. Close it after the page.

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

    docs/how-to/metrics.md lists all names and units. Values of keys are never among them. ``close()`` ends it; a scrape
    reads what the last batch reported, and starts nothing.

    Parameters
    ----------
    host, port : where to listen; by default only this machine can. ``port=0`` takes a free one.
    token : the bearer that a scrape must show where others can reach it; by default one is made, see ``token``.
    fleet : also the figures of this fleet: its peers and their loads, the states of its jobs. Close it afterwards.

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
