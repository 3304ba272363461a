"""The public functions on Spark, thin enough that `import braided` loads neither Spark nor numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from braided.join.options import Duration, On
    from braided.runtime.report import Report


def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Duration | tuple[Duration, Duration] | None = None,
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
        One duration, or a pair. Default: the delay of the input's own `withWatermark`, else 10 seconds. The
        result of another braided join brings its own, to which a given one is added.
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
        Which row gives way: ``"auto"`` (whichever policy finds most on a sample of keys), ``"gdj"``, ``"prob"``,
        ``"age"``, ``"fifo"``, ``"random"``, or a policy with parameters such as ``braided.GDJ(initial=0.3)``.
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
    from braided.join.frames import join_frames

    return join_frames(
        left,
        right,
        on=on,
        time=time,
        within=within,
        between=between,
        where=where,
        lateness=lateness,
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


def explain(df: DataFrame) -> None:
    """Print how the braided joins in a DataFrame lay their rows over workers."""
    from braided.runtime.progress import explain_frame

    print(explain_frame(df))


def scale(control: str, workers: int | str) -> None:
    """Ask the join that uses a control directory to use so many workers, or to choose by itself ("auto").

    It changes with the next batches, without a restart and without moving state. At most as many workers as the query
    has shuffle partitions are used.
    """
    from braided.runtime.progress import request_scale

    request_scale(control, workers)


def report(query: Any, name: str | None = None) -> Report:
    """Return what a running or ended query reports of its braided join.

    With several joins in one query, `name` chooses one; the default is the last by name. Totals are kept
    in the checkpoint, so they survive a restart. Prints as a small table; ``.to_dict()`` is plain JSON.
    """
    from braided.runtime.progress import read_report

    return read_report(query, name)
