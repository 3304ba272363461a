"""The demo's queries, and how they are followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import braided
from braided.cli.batches import Run
from braided.cli.streams import LEG_LATENESS, LEG_WHERE, LEG_WITHIN, WITHIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CALLS_DDL = "caller long, callee long, start timestamp, duration int, cell int"
_NUMBERS_DDL = "phone long, seen_at timestamp, reason string"


def join_calls(spark: SparkSession, folder: Path, name: str, options: Mapping[str, Any]) -> Any:
    """Start the join of calls and suspicious numbers."""
    joined = braided.join(
        _read(spark, folder / "calls", _CALLS_DDL),
        _read(spark, folder / "numbers", _NUMBERS_DDL),
        on=[("caller", "phone")],
        time=("start", "seen_at"),
        within=WITHIN,
        name=name,
        **options,
    )
    return _start(joined, folder / "joined")


def join_legs(spark: SparkSession, folder: Path) -> Any:
    """Start the join of incoming and outgoing calls, which have no key in common."""
    joined = braided.join(
        _read(spark, folder / "incoming", _CALLS_DDL),
        _read(spark, folder / "outgoing", _CALLS_DDL),
        on=None,
        time="start",
        within=LEG_WITHIN,
        where=LEG_WHERE,
        lateness=LEG_LATENESS,
        name="legs",
    )
    return _start(joined, folder / "joined")


def _read(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return braided.files(spark, folder, schema=schema, max_files=1)


def _start(joined: DataFrame, folder: Path) -> Any:
    return braided.write_files(joined, folder, checkpoint=f"{folder}-checkpoint", trigger="available now")


def follow(start: Callable[[], Any], show: Callable[[Run], None], interrupted: threading.Event) -> Run:
    """Start a query, show it until it ends, and return what was seen; an interrupt stops the query first."""
    run = Run()
    started = time.monotonic()
    query = start()
    seen = -1
    ended = False
    while not ended:
        ended = query.awaitTermination(0.2)
        run.elapsed = time.monotonic() - started
        if interrupted.is_set():
            query.stop()
            raise KeyboardInterrupt
        newest = query.lastProgress
        if newest is not None and newest.batchId > seen:
            fresh = [progress for progress in query.recentProgress if progress.batchId > seen]
            for progress in fresh:
                if progress.numInputRows:
                    run.add(query, progress)
            seen = fresh[-1].batchId
        elif newest is not None and newest.numInputRows:
            run.add_decisions(query, newest)
        show(run)
    return run
