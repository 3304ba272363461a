"""The public functions on Spark, thin enough that `import braided` loads neither Spark nor numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from braided.durations import Duration
    from braided.operator.report import Report
    from braided.specs.group_options import Join
    from braided.specs.join_options import On
    from braided.specs.multi_options import MultiOn


def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Any = None,
    idle: Duration | None = None,
    workers: int | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    how: str = "inner",
    name: str | None = None,
    partition: str = "auto",
    control: str | None = None,
    redact: bool = False,
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
) -> DataFrame:
    """Join two streaming DataFrames on equal keys, or by any predicate, within a window of time, exactly.

    Every pair of rows with equal keys and times within the window comes out once, as a nested loop would
    give them, as long as no row is more than `lateness` behind its stream's largest time. Later rows still
    meet what is stored and are counted. Duplicates multiply; null keys never match; rows with a null time
    are counted and dropped. Two batch DataFrames become Spark's own join with the same columns.

    Parameters
    ----------
    on:
        ``"phone"``, ``["a", "b"]`` or ``[("caller", "phone"), ...]`` (left name, right name). None: a theta join,
        by `where` alone.
    time:
        The event-time column, or a pair of them. TIMESTAMP, or TIMESTAMP_NTZ on both sides.
    within, between:
        One of them. ``within="10 seconds"`` is ``|r.t - l.t| <= 10 s``; ``within=(w_left, w_right)`` keeps a
        left row joinable for w_left after its own time and a right row for w_right;
        ``between=("5 seconds", "10 seconds")`` is ``5 s <= r.t - l.t <= 10 s``. All bounds are closed.
    where:
        A further SQL predicate over ``l.`` and ``r.`` columns. What docs/where.md lists runs vectorised
        inside the join, anything else in Spark after it.
    lateness:
        One duration, or a pair. ``"auto"`` or a `braided.Lateness` learns it from the stream's own delays, and never
        goes below 10 seconds (`Lateness.floor`). Default: the delay of the input's own `withWatermark`, else
        ``"auto"``. The result of another braided join brings its own, to which a given one is added.
    idle:
        A stream that has been silent for so long, judged by the batches' timestamps, no longer keeps the other's rows
        from expiring; should it return with older rows, they are late. Default: it always does.
    workers:
        Must equal spark.sql.shuffle.partitions, the default.
    suffixes:
        Appended to left and right column names that clash.
    name:
        What reports call this join.
    partition:
        ``"auto"`` hashes keys and gives hot ones a grid of workers of their own; a join without keys is one grid.
        ``"hash"``, ``"ssp"`` (split one stream, copy the other) and ``"grid"`` force one scheme.
    control:
        A directory, or an fsspec URL, that the driver and all executors reach, for this join alone. With it the
        routing adapts while the query runs; without it the routing is fixed. Results are the same either way.
    redact:
        Keep the values of hot keys out of reports and of the control directory; their hashes remain.
    memory:
        A budget per worker over both sides: a number of rows, or ``"256 MB"`` (credits and indexes included). The
        join then gives as much of the exact result as the rows it keeps allow. Rows
        are put in order first, so results come later by the lateness.
    evict, share:
        Which row gives way: ``"auto"`` (whichever policy finds most on a sample of keys), ``"gdj"``, ``"recent"``,
        ``"prob"``, ``"age"``, ``"fifo"``, ``"random"``, or a policy with parameters: ``braided.GDJ(initial=0.3)``.
        ``share="unified"`` lets both streams compete for the budget, ``"proportional"`` divides it by their rates.
    shed:
        Drop this share of each stream at random first, so that results are a fair sample; ``"unbiased"`` drops as many
        as make the rest fit the budget for the whole window.

    Returns
    -------
    DataFrame
        Key columns once (as on the left), the other left columns, the other right columns.

    Cost: one shuffle. State: every row that can still match, once, in the RocksDB state store.
    Not supported: outer joins, Spark Connect.
    """
    from braided.spark.join_frames import join_frames

    return join_frames(
        left,
        right,
        on=on,
        time=time,
        within=within,
        between=between,
        where=where,
        lateness=lateness,
        idle=idle,
        workers=workers,
        suffixes=suffixes,
        how=how,
        name=name,
        partition=partition,
        control=control,
        redact=redact,
        memory=memory,
        evict=evict,
        share=share,
        shed=shed,
    )


def order(
    df: DataFrame,
    *,
    time: str,
    key: str | Sequence[str] | None = None,
    lateness: Any = "auto",
    late: str = "flag",
    idle: Duration | None = "30 seconds",
    workers: int | None = None,
    name: str | None = None,
) -> Any:
    """Put a stream in order of event time, with no larger delay than the stream itself shows to be enough.

    Rows leave in event-time order per key. With ``key=None`` the whole stream is put in order, on one worker, and gets
    a gap-free column ``seq``, since sinks keep no order. Ties break by the rows' content. A row leaves once its time is
    more than K behind the largest time seen; what waits when a stream falls silent leaves with its next rows, and
    `braided.report` tells how much it is. Batch DataFrames are sorted by Spark.

    Parameters
    ----------
    lateness:
        K. ``"auto"`` learns it from the delays that the stream shows. ``"5 seconds"`` fixes it. A `braided.Lateness`
        says how to learn it, for example with a target: ``Lateness(recall=0.999, floor="0 seconds")``.
    late:
        What happens to a row that comes after later ones have left: ``"flag"`` sends it on at once with ``late=True``
        in a further column, ``"drop"`` counts and drops it, ``"side"`` makes the result a pair of DataFrames, the
        ordered rows and the late ones. (Two queries over the pair read the source twice; to write both from one
        query, use ``"flag"`` and split in `foreachBatch`.)
    idle:
        With several inputs (`braided.merge`): one that has been silent for so long holds the others back no longer.

    A time more than an hour (`Lateness.ceiling`) ahead of all others is quarantined: its row waits until other rows
    get there, and if the stream goes on for as long without getting there it leaves marked as late.

    Cost: one shuffle, a sort of each batch, one write and read of rows that wait. State: the rows that wait.
    """
    from braided.spark.order_frames import merge_frames

    return merge_frames([df], time=time, key=key, lateness=lateness, late=late, idle=idle, workers=workers, name=name)


def merge(
    inputs: Sequence[DataFrame],
    *,
    time: str,
    key: str | Sequence[str] | None = None,
    lateness: Any = "auto",
    late: str = "flag",
    idle: Duration | None = "30 seconds",
    workers: int | None = None,
    name: str | None = None,
) -> Any:
    """Merge streams of the same columns into one in order of event time: what a single machine would have seen.

    As `braided.order`, over several inputs: a row leaves once its time is more than K behind the largest time of
    *every* input that is not idle, each with a K of its own. Ties break by (time, input, content).
    """
    from braided.spark.order_frames import merge_frames

    return merge_frames(inputs, time=time, key=key, lateness=lateness, late=late, idle=idle, workers=workers, name=name)


def multijoin(
    streams: Sequence[DataFrame],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Any = None,
    workers: int | None = None,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    partition: str = "auto",
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
    control: str | None = None,
    redact: bool = False,
) -> DataFrame:
    """Join 2 to 8 streaming DataFrames on a common key within a window of time, exactly.

    Every combination of one row from each stream with equal keys and ``max(time) - min(time) <= within`` comes out
    once, as a nested loop would give them, as long as no row is more than `lateness` behind its stream's largest time.
    Duplicates multiply; null keys never match; rows with a null time are counted and dropped. Two streams give what
    `braided.join` gives. Batch DataFrames become Spark's own joins with the same columns.

    Parameters
    ----------
    on:
        ``"phone"``, ``["a", "b"]``, or with a name for each stream ``[("caller", "phone", "number"), "b"]``.
    time:
        The event-time column, or one for each stream. TIMESTAMP everywhere, or TIMESTAMP_NTZ everywhere.
    within:
        How far apart the earliest and the latest row of a combination may be, ``"10 seconds"``.
    lateness:
        One for all streams or one for each, as in `braided.join`.
    workers, name:
        As in `braided.join`.
    suffixes:
        Appended to column names that clash, one for each stream. Default: ``("", "_2", "_3", ...)``.
    partition:
        ``"auto"`` hashes keys and, with `control`, splits the first stream of a hot key over workers and copies the
        others to each: put the stream with the most rows first. ``"hash"`` only hashes.
    control, redact:
        As in `braided.join`. While routing changes, rows are stored under the old and the new assignment.
    memory, evict, share, shed:
        A budget per worker over all streams together, which row gives way, and a share of the rows to drop, as in
        `braided.join`. With a budget rows are put in order first, so results come later by the lateness.

    Returns
    -------
    DataFrame
        Key columns once (as in the first stream), then the other columns of each stream in order.

    Cost: one shuffle. State: every row that can still be part of a result, once. The slowest stream decides what that
    is: a row stays until all other streams have passed it. Not supported: outer joins, predicates, Spark Connect.
    """
    from braided.spark.multi_frames import multijoin_frames

    return multijoin_frames(
        streams,
        on=on,
        time=time,
        within=within,
        lateness=lateness,
        workers=workers,
        suffixes=suffixes,
        name=name,
        partition=partition,
        memory=memory,
        evict=evict,
        share=share,
        shed=shed,
        control=control,
        redact=redact,
    )


def join_group(
    joins: Sequence[Join],
    *,
    streams: Mapping[str, DataFrame],
    time: str | Mapping[str, str],
    memory: int | str,
    evict: Any = "gdj",
    shed: float | str | None = None,
    lateness: Any = None,
    workers: int | None = None,
    name: str | None = None,
    control: str | None = None,
    redact: bool = False,
) -> DataFrame:
    """Run several joins, over several attributes, of the same streams under one budget.

    A row is kept once for all joins that it serves, its credit sums over them, and a row of one stream or join can
    displace one of another. Every row that comes out is a row of the exact join, once; only some are missing.

    Parameters
    ----------
    joins:
        A list of ``braided.Join("by_phone", left="calls", right="cells", on="phone", within="10 seconds")``.
    streams:
        The streaming DataFrames by the names that the joins use.
    time, lateness:
        As in `braided.join`: one for all streams, or a dict with one for each.
    memory:
        What a worker keeps at most, of all streams for all joins: a number of rows, or a size such as ``"256 MB"``.
    evict:
        ``"gdj"``, ``"prob"``, ``"fifo"``, ``"random"``, or a policy such as ``braided.GDJ(initial=0.3)``.
    shed:
        A share of each stream to drop at random, or ``"unbiased"``, as in `braided.join`.
    workers, name:
        As in `braided.join`.
    control, redact:
        As in `braided.join`; only where every stream has one key for all its joins, and one stream is in all of them.

    Returns
    -------
    DataFrame
        A column ``join`` that names the join of a row, and for each join a struct of its columns, null in the rows of
        the others: ``df.where("join = 'by_phone'").select("by_phone.*")``. One DataFrame, because two sinks would be
        two queries with a budget each.

    Rows are put in order first, so results come later by the lateness. A budget cannot span workers: where a stream
    has different keys in different joins, one worker does all the work.
    """
    from braided.spark.group_frames import group_frames

    return group_frames(
        joins,
        streams=streams,
        time=time,
        memory=memory,
        evict=evict,
        shed=shed,
        lateness=lateness,
        workers=workers,
        name=name,
        control=control,
        redact=redact,
    )


def explain(df: DataFrame) -> None:
    """Print how the braided joins in a DataFrame lay their rows over workers."""
    from braided.spark.progress import explain_frame

    print(explain_frame(df))


def scale(control: str, workers: int | str) -> None:
    """Ask the join that uses a control directory to use so many workers, or to choose by itself ("auto").

    It changes with the next batches, without a restart and without moving state. At most as many workers as the query
    has shuffle partitions are used.
    """
    from braided.spark.progress import request_scale

    request_scale(control, workers)


def report(query: Any, name: str | None = None) -> Report:
    """Return what a running or ended query reports of its braided join.

    With several joins in one query, `name` chooses one; the default is the last by name. Totals are kept
    in the checkpoint, so they survive a restart. Prints as a small table; ``.to_dict()`` is plain JSON.
    """
    from braided.spark.progress import read_report

    return read_report(query, name)
