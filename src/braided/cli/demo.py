"""`braided demo`: generate two streams, join them live on a local Spark, check the result, draw what happened."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import braided
from braided.cli.batches import Batch, median_rate, read_batch, share_of_rows
from braided.cli.display import BAD, GOOD, Display, format_bytes, open_display
from braided.cli.oracle import Check, check_result
from braided.cli.page import draw_page
from braided.cli.session import find_java_problem, local_session, note_interrupts, quiet_output
from braided.durations import parse_duration
from braided.runtime.operator import Json
from braided.workloads.calls import ORIGIN, call_records, suspicious_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAILED, CANNOT_START, STOPPED = 1, 2, 130
WITHIN, LATENESS = "10 seconds", "5 seconds"
HOT_SHARE = 0.5
WORKERS = 2
_SECOND = 1_000_000
_CALLS_DDL = "caller long, callee long, start timestamp, duration int, cell int"
_NUMBERS_DDL = "phone long, seen_at timestamp, reason string"


@dataclass(frozen=True)
class Plan:
    """The size of the demo: rows of both streams together, over some seconds of event time."""

    rows: int
    seconds: int

    batch_seconds = 4

    @property
    def batches(self) -> int:
        """How many batches the streams are cut into."""
        return -(-self.seconds // self.batch_seconds)

    @property
    def hot_from(self) -> int:
        """The second from which one phone is hot: halfway, on the edge of a batch."""
        return self.batches // 2 * self.batch_seconds

    def generate(self) -> tuple[pa.Table, pa.Table]:
        """Four calls to a sighting; as many phones as make two results a call in streams of two minutes."""
        numbers = max(self.rows // 5, 1)
        calls = self.rows - numbers
        phones = max(self.rows // 60, 2)
        return (
            call_records(
                rows=calls,
                rate=calls / self.seconds,
                phones=phones,
                disorder=LATENESS,
                hot_share=HOT_SHARE,
                hot_from=f"{self.hot_from} seconds",
            ),
            suspicious_numbers(rows=numbers, rate=numbers / self.seconds, phones=phones, disorder=LATENESS),
        )


def run_demo(plan: Plan, out: Path | None, *, color: bool) -> int:
    """Run the demo and return the exit code."""
    problem = find_java_problem()
    if importlib.util.find_spec("duckdb") is None:
        problem = "needs DuckDB to check the result; pip install 'braided[demo]'"
    if problem is not None:
        print(f"braided demo: {problem}", file=sys.stderr)
        return CANNOT_START
    out = Path(tempfile.mkdtemp(prefix="braided-demo-")) if out is None else out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"braided demo: --out {out}: {error.strerror}; name another directory", file=sys.stderr)
        return CANNOT_START
    folder = Path(tempfile.mkdtemp(prefix="braided-demo-run-"))
    log = folder / "spark.log"
    try:
        with quiet_output(log) as screen:
            display = open_display(screen, expected=plan.batches, origin=ORIGIN, color=color)
            check = _run(plan, folder, out, display)
    except KeyboardInterrupt:
        print("braided demo: stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        kept = shutil.copy(log, out / "spark.log")
        print(f"braided demo: {_first_line(error)}\nbraided demo: Spark's log is {kept}", file=sys.stderr)
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            out.rmdir()  # if nothing was written
    if not check.equal:
        print(f"braided demo: the result is {check}; please report this as a bug", file=sys.stderr)
        return FAILED
    return 0


def _run(plan: Plan, folder: Path, out: Path, display: Display) -> Check:
    display.say("streams", f"{plan.rows:,} rows: {plan.seconds} s of call records and suspicious numbers")
    for name, table in zip(("calls", "numbers"), plan.generate(), strict=True):
        write_stream(folder / name, table, plan)
    display.say("join", f"calls.caller = numbers.phone, within {WITHIN}, lateness {LATENESS}, {WORKERS} workers")
    with local_session(folder, WORKERS) as spark, note_interrupts() as interrupted:
        display.say("spark", f"{spark.version}, local, {plan.batches} batches")
        started = time.monotonic()
        query = join_streams(spark, folder)
        batches = follow(query, lambda known: display.show(known, time.monotonic() - started), interrupted)
        elapsed = time.monotonic() - started
        for label, text in summarize(plan, batches, elapsed).items():
            display.say(label, text)
    within = parse_duration(WITHIN, "within")
    check = check_result(folder / "calls", folder / "numbers", folder / "joined", within)
    display.say("checked", str(check), GOOD if check.equal else BAD)
    run = describe_run(plan, batches, elapsed, check)
    (out / "demo.json").write_text(json.dumps(run, indent=1) + "\n")
    (out / "demo.html").write_text(draw_page(run))
    display.say("picture", str(out / "demo.html"))
    return check


def write_stream(folder: Path, table: pa.Table, plan: Plan) -> None:
    """Write a stream as one Parquet file a batch, cut by arrival.

    Spark's file source reads files in order of modification time, which is made to follow the number.
    """
    folder.mkdir()
    edges = ORIGIN + np.arange(plan.batches + 1) * plan.batch_seconds * _SECOND
    cuts = np.searchsorted(table["arrived"].cast(pa.int64()).to_numpy(), edges)
    for number in range(plan.batches):
        start, end = int(cuts[number]), int(cuts[number + 1])
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table.slice(start, end - start).drop_columns("arrived"), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def join_streams(spark: SparkSession, folder: Path) -> Any:
    """Start the query that joins the two folders into a third, a file of each a batch."""
    calls, numbers = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in (("calls", _CALLS_DDL), ("numbers", _NUMBERS_DDL))
    )
    joined: DataFrame = braided.join(
        calls,
        numbers,
        on=[("caller", "phone")],
        time=("start", "seen_at"),
        within=WITHIN,
        lateness=LATENESS,
    )
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    return (
        joined.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "joined"))
    )


def follow(query: Any, show: Callable[[list[Batch]], None], interrupted: threading.Event) -> list[Batch]:
    """Show the batches of a query until it ends, and return them; an interrupt stops the query first."""
    batches: list[Batch] = []
    seen = -1
    ended = False
    while not ended:
        ended = query.awaitTermination(0.2)
        if interrupted.is_set():
            query.stop()
            raise KeyboardInterrupt
        newest = query.lastProgress
        if newest is not None and newest.batchId > seen:
            fresh = [progress for progress in query.recentProgress if progress.batchId > seen]
            batches += [read_batch(query, progress) for progress in fresh if progress.numInputRows]
            seen = fresh[-1].batchId
        show(batches)
    return batches


def summarize(plan: Plan, batches: list[Batch], elapsed: float) -> dict[str, str]:
    """Return the lines that close the demo: rates, state, the hot phone, lateness."""
    rows = sum(batch.rows for batch in batches)
    peak = max(batches, key=lambda batch: batch.stored_rows)
    edge = plan.hot_from // plan.batch_seconds
    before, after = (max(share_of_rows(part), default=0) for part in (batches[:edge], batches[edge:]))
    return {
        "joined": f"{rows:,} rows into {batches[-1].results:,} in {elapsed:.1f} s: "
        f"{rows / elapsed:,.0f} rows/s, {median_rate(batches):,.0f} in the median batch",
        "state": f"at most {peak.stored_rows:,} rows, {format_bytes(peak.stored_bytes)}; "
        f"at the end {batches[-1].stored_rows:,} rows",
        "hot key": f"one phone makes {HOT_SHARE:.0%} of the calls from {plan.hot_from} s on: its worker takes "
        f"{after:.0%} of the rows, {before:.0%} before",
        "lateness": f"{LATENESS} allowed, {batches[-1].late:,} rows later than that",
    }


def describe_run(plan: Plan, batches: list[Batch], elapsed: float, check: Check) -> Json:
    """Return the run as plain JSON, enough to draw it again."""
    import pyspark

    return {
        "versions": {"braided": braided.__version__, "pyspark": pyspark.__version__},
        "join": {"within": WITHIN, "lateness": LATENESS, "workers": WORKERS},
        "plan": {
            "rows": plan.rows,
            "seconds": plan.seconds,
            "batch_seconds": plan.batch_seconds,
            "hot_from": plan.hot_from,
            "hot_share": HOT_SHARE,
        },
        "summary": {**summarize(plan, batches, elapsed), "checked": str(check)},
        "equal": check.equal,
        "elapsed": round(elapsed, 3),
        "batches": [batch.to_dict() for batch in batches],
    }


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
