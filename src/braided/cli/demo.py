"""`braided demo`: generate streams, join them live on a local Spark, check the results, and write a report page."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from braided.cli.demo_display import BAD, FIGURES, GOOD, Display, open_display
from braided.cli.demo_oracle import Check
from braided.cli.demo_parts import Part, draw_loads
from braided.cli.demo_run import follow
from braided.cli.demo_streams import WORKERS
from braided.cli.exits import CANNOT_START, FAILED, STOPPED, first_line
from braided.cli.local_spark import find_java_problem, local_session, note_interrupts, quiet_output
from braided.cli.spinner import waiting
from braided.spark.watching import Watch
from braided.ui.dashboard_page import whole_page
from braided.ui.history import History
from braided.ui.history_files import NAME
from braided.ui.history_summary import summarize, write_text
from braided.ui.server import Server
from braided.workloads.calls import ORIGIN


def run_demo(parts: Sequence[Part], out: Path | None, *, color: bool, dashboard: bool = False) -> int:
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
            display = open_display(screen, origin=ORIGIN, color=color)
            with contextlib.ExitStack() as pages:
                checks = _run(parts, folder, out, screen, display, pages if dashboard else None)
    except KeyboardInterrupt:
        print("braided demo: stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        log_copy = shutil.copy(log, out / "spark.log")
        print(f"braided demo: {first_line(error)}\nbraided demo: Spark's log is {log_copy}", file=sys.stderr)
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            out.rmdir()  # if nothing was written
    wrong = {name: check for name, check in checks.items() if not check.right}
    for name, check in wrong.items():
        print(f"braided demo: {name}: the result is {check}; please report this as a bug", file=sys.stderr)
    return FAILED if wrong else 0


def _run(
    parts: Sequence[Part],
    folder: Path,
    out: Path,
    screen: TextIO,
    display: Display,
    pages: contextlib.ExitStack | None,
) -> dict[str, Check]:
    """Run the parts and check them; with `pages` a dashboard stays open until Ctrl-C."""
    for part in parts:
        streams = part.streams
        display.say(
            "streams", f"{part.name}: {streams.rows:,} rows, {streams.seconds} s of {' and '.join(streams.names)}"
        )
        with waiting("generating the streams", screen):
            streams.write(folder / part.name)
    checks: dict[str, Check] = {}
    history = History()
    with contextlib.ExitStack() as opened:
        with waiting("starting Spark", screen):
            spark = opened.enter_context(local_session(folder, WORKERS))
        interrupted = opened.enter_context(note_interrupts())
        display.say("spark", f"{spark.version}, local, {WORKERS} workers")
        for label, text in zip(("figures", ""), FIGURES, strict=True):
            display.say(label, text)
        watch = Watch(spark, history.add, redact=False)
        watch.begin()
        opened.callback(watch.end)
        if pages is not None:
            server = Server(history)
            pages.callback(server.close)
            display.say("dashboard", server.url)
        for part in parts:
            display.say(part.name, part.headline)
            display.begin(part.streams.batches)
            run = follow(partial(part.start, spark, folder / part.name), history, display.show, interrupted)
            for label, text in {**part.summarize(run), **draw_loads(run)}.items():
                display.say(label, text)
            with waiting("asking DuckDB", screen):
                check = checks[part.name] = part.check(folder / part.name, run)
            display.say("checked", f"{part.name}: {check}", GOOD if check.right else BAD)
            history.add(part.note(run, check))
    _write(history, out)
    display.say("picture", str(out / "demo.html"))
    if pages is not None:
        display.say("dashboard", f"{server.url} stays open; Ctrl-C ends it")
        with note_interrupts() as interrupted:
            interrupted.wait()
    return checks


def _write(history: History, out: Path) -> None:
    """Write the page, with the first part on top, and the events behind it."""
    events = history.events()
    (out / NAME).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    runs = list(dict.fromkeys(event["query"] for event in events))
    first_last = sorted(events, key=lambda event: -runs.index(event["query"]))
    (out / "demo.html").write_text(whole_page(first_last, write_text(summarize(events))))
