"""`braided run`, `check` and `explain`: run a single job file, check it, or explain it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from braided.cli.exits import CANNOT_START, FAILED, STOPPED, first_line, refuse
from braided.cli.local_spark import find_java_problem, note_interrupts, quiet_output
from braided.cli.spinner import waiting
from braided.errors import BraidedError
from braided.fleet.applications import is_application, read_application
from braided.jobs.job_file import Job
from braided.jobs.job_reader import read_job
from braided.jobs.toml_file import read_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Watching:
    """How to watch a run: on a page, by a history in a directory, by metrics on a port."""

    page: bool = False
    history: Path | None = None
    redact: bool = False
    metrics: int | None = None

    @contextmanager
    def of(self, spark: SparkSession, words: TextIO) -> Iterator[None]:
        import braided

        with contextlib.ExitStack() as opened:
            if self.page or self.history is not None:
                page = opened.enter_context(braided.dashboard(spark, redact=self.redact, history=self.history))
                if self.page:
                    print(f"dashboard: {page.url}", file=words, flush=True)
            if self.metrics is not None:
                endpoint = opened.enter_context(braided.metrics(spark, port=self.metrics))
                print(f"metrics: {endpoint.url}", file=words, flush=True)
            yield


def run_job(path: Path, *, once: bool, as_json: bool, watching: Watching) -> int:
    """Run a job until it ends, fails or is stopped by Ctrl-C; a second Ctrl-C ends the process at once."""
    job = _read(path, "run", as_json=as_json)
    if job is None:
        return CANNOT_START
    folder = Path(tempfile.mkdtemp(prefix="braided-run-"))
    log = folder / "spark.log"
    try:
        with os.fdopen(os.dup(2), "w") as words, quiet_output(log) as screen, note_interrupts() as interrupted:
            show = partial(_show, as_json=as_json, screen=screen)
            code = _follow(job, once, show, interrupted, words, watching)
    except Exception as error:
        code = CANNOT_START if isinstance(error, BraidedError) else FAILED
        refuse("run", job.hide(first_line(error)), code, as_json=as_json)
        if code == FAILED:
            _say(f"braided run: Spark's log is {log}")
            return FAILED
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _follow(
    job: Job,
    once: bool,
    show: Callable[[Any, int], int],
    interrupted: threading.Event,
    words: TextIO,
    watching: Watching,
) -> int:
    """Start the query and show its batches until it ends or is interrupted."""
    from braided.spark.jobs import start_job

    with contextlib.ExitStack() as opened:
        with waiting("starting Spark", words):
            spark = opened.enter_context(_session(job))
        opened.enter_context(watching.of(spark, words))
        with waiting("starting the query", words):
            query = start_job(spark, job, once=once)
        print(f"{job.name}: running; Ctrl-C stops it", file=words, flush=True)
        seen = -1
        while True:
            ended = query.awaitTermination(0.2)
            seen = show(query, seen)
            if ended:
                return 0
            if interrupted.is_set():
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                print(
                    f"{job.name}: stopping; when it runs again, it continues from its checkpoint",
                    file=words,
                    flush=True,
                )
                query.stop()
                return STOPPED


def check_job(path: Path, *, as_json: bool) -> int:
    """Check whether a job file, or the file of an application, can be accepted, without starting Spark."""
    try:
        if is_application(read_text(path)):
            return _check_application(path, as_json=as_json)
        job = read_job(path)
    except BraidedError as error:
        return refuse("check", str(error), FAILED, as_json=as_json, file=str(path), accepted=False)
    if as_json:
        names = {"sources": list(job.sources), "steps": [step.name for step in job.steps]}
        sink = {"input": job.sink.input, "format": job.sink.format}
        print(json.dumps({"file": str(path), "accepted": True, "name": job.name, **names, "sink": sink}))
        return 0
    steps = ", ".join(step.name for step in job.steps) or "no steps"
    print(f"{path}: job {job.name!r} with {', '.join(job.sources)}; {steps}; {job.sink.input} to {job.sink.format}")
    return 0


def _check_application(path: Path, *, as_json: bool) -> int:
    application = read_application(path).application()
    jobs = [step.name for step in application.in_order()]
    if as_json:
        names = {"application": application.name, "latency": application.latency, "jobs": jobs}
        print(json.dumps({"file": str(path), "accepted": True, **names}))
    else:
        print(f"{path}: application {application.name!r} with {', '.join(jobs)}; {application.latency:g} seconds")
    return 0


def explain_job(path: Path, *, as_json: bool, svg: Path | None) -> int:
    """Build a job's query on a local Spark and print how it would run, without starting it."""
    job = _read(path, "explain", as_json=as_json)
    if job is None:
        return CANNOT_START
    from braided.spark.jobs import build_job
    from braided.spark.pictures import draw_frame, trace_frame
    from braided.spark.progress import explain_frame

    folder = Path(tempfile.mkdtemp(prefix="braided-explain-"))
    try:
        with (
            os.fdopen(os.dup(2), "w") as words,
            quiet_output(folder / "spark.log"),
            waiting("starting Spark to analyse the query", words),
            _session(job) as spark,
        ):
            frame = build_job(spark, job)
            if svg is not None:
                svg.write_text(draw_frame(frame), encoding="utf-8")
            if as_json:
                explained = json.dumps({"file": str(path), "name": job.name, "query": asdict(trace_frame(frame))})
            else:
                explained = explain_frame(frame)
    except Exception as error:
        return refuse("explain", job.hide(first_line(error)), CANNOT_START, as_json=as_json)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(explained)
    return 0


def _read(path: Path, command: str, *, as_json: bool) -> Job | None:
    try:
        job = read_job(path)
    except BraidedError as error:
        refuse(command, str(error), CANNOT_START, as_json=as_json)
        return None
    problem = find_java_problem()
    if problem is not None:
        refuse(command, problem, CANNOT_START, as_json=as_json)
        return None
    return job


@contextmanager
def _session(job: Job) -> Iterator[SparkSession]:
    """Yield a session with the job's settings: on this machine's cores, unless the job sets a master."""
    from pyspark.sql import SparkSession

    from braided.spark.conf import FAST_START, SPARK_CONF

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": f"local[{job.needs.cores}]",
        "spark.driver.memory": job.needs.memory.replace(" ", "").lower().removesuffix("b").replace("i", ""),
        "spark.sql.shuffle.partitions": str(max(2, job.needs.cores)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **SPARK_CONF,
        **FAST_START,
        **job.spark,
    }
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = SparkSession.builder.appName(job.name).config(map=settings).getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own handler raises in the middle of a call to the JVM
    try:
        yield session
    finally:
        session.stop()


def _show(query: Any, seen: int, as_json: bool, screen: TextIO) -> int:
    """Print a line for every batch since the last one seen, and return the newest."""
    newest = query.lastProgress
    if newest is None or newest.batchId <= seen:
        return seen
    for progress in query.recentProgress:
        if progress.batchId > seen:
            if as_json:
                print(json.dumps(json.loads(progress.json), separators=(",", ":")), file=screen, flush=True)
            else:
                print(_line(progress) + _operators(query, progress.batchId), file=screen, flush=True)
    return int(newest.batchId)


def _line(progress: Any) -> str:
    took = progress.durationMs.get("triggerExecution", 0) / 1000
    line = f"batch {progress.batchId:>5}  {took:7.2f} s"
    if progress.sink is not None and progress.sink.numOutputRows >= 0:
        line += f"  {progress.sink.numOutputRows:,} rows out"
    return line


def _operators(query: Any, batch: int) -> str:
    """Return the numbers of the last operator, if its newest batch is this one; Spark's own counts are of files."""
    import braided

    try:
        report = braided.report(query)
    except BraidedError:
        return ""
    if report.query["batch"] != batch:
        return ""
    rows = sum(stream["last_rows"] for stream in report.streams)
    results = sum(worker["last"]["results"] for worker in report.workers)
    return f"  {report.query['name']}: {rows:,} rows, {results:,} results"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
