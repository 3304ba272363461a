"""`braided demo`: generate streams, join them live on a local Spark, check the results, draw what happened."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path

import braided
from braided.cli.display import BAD, GOOD, Display, open_display
from braided.cli.exits import CANNOT_START, FAILED, STOPPED, first_line
from braided.cli.oracle import Check, check_calls, check_legs
from braided.cli.page import draw_page
from braided.cli.queries import follow, join_calls, join_legs
from braided.cli.session import find_java_problem, local_session, note_interrupts, quiet_output
from braided.cli.streams import LATENESS, LEG_WHERE, LEG_WITHIN, WITHIN, WORKERS, DemoStreams
from braided.cli.summary import describe_run, draw_loads, summarize, summarize_legs
from braided.durations import parse_duration
from braided.workloads.calls import ORIGIN


def run_demo(demo: DemoStreams, out: Path | None, *, color: bool, dashboard: bool = False) -> int:
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
            display = open_display(screen, origin=ORIGIN, color=color)
            with contextlib.ExitStack() as pages:
                checks = _run(demo, folder, out, display, pages if dashboard else None)
    except KeyboardInterrupt:
        print("braided demo: stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        kept = shutil.copy(log, out / "spark.log")
        print(f"braided demo: {first_line(error)}\nbraided demo: Spark's log is {kept}", file=sys.stderr)
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            out.rmdir()  # if nothing was written
    wrong = {name: check for name, check in checks.items() if not check.equal}
    for name, check in wrong.items():
        print(f"braided demo: {name}: the result is {check}; please report this as a bug", file=sys.stderr)
    return FAILED if wrong else 0


def _run(
    demo: DemoStreams, folder: Path, out: Path, display: Display, pages: contextlib.ExitStack | None
) -> dict[str, Check]:
    """Run both joins and check them; with `pages` a dashboard is open until Ctrl-C."""
    legs = demo.legs
    display.say("streams", f"{demo.rows:,} rows: {demo.seconds} s of call records and suspicious numbers")
    demo.write(folder)
    legs.write(folder)
    with local_session(folder, WORKERS) as spark, note_interrupts() as interrupted:
        display.say("spark", f"{spark.version}, local, {WORKERS} workers")
        if pages is not None:
            page = pages.enter_context(braided.dashboard(spark))
            display.say("dashboard", page.url)
        display.say("join", f"calls.caller = numbers.phone, within {WITHIN}, lateness {LATENESS}; adapts as it runs")
        display.begin(demo.batches)
        run = follow(lambda: join_calls(spark, folder), display.show, interrupted)
        for label, text in {**summarize(demo, run), **draw_loads(run)}.items():
            display.say(label, text)
        display.say("theta", f"{legs.rows:,} legs of calls, no key: {LEG_WHERE}, within {LEG_WITHIN}")
        display.begin(legs.batches)
        matched = follow(lambda: join_legs(spark, folder), display.show, interrupted)
        for label, text in summarize_legs(matched).items():
            display.say(label, text)
    within, leg_within = (parse_duration(text, "within") for text in (WITHIN, LEG_WITHIN))
    checks = {
        "joined": check_calls(folder / "calls", folder / "numbers", braided.topic(folder / "joined").files(), within),
        "matched": check_legs(
            folder / "incoming", folder / "outgoing", braided.topic(folder / "matched").files(), leg_within
        ),
    }
    for name, check in checks.items():
        display.say("checked", f"{name}: {check}", GOOD if check.equal else BAD)
    described = describe_run(demo, run, matched, checks)
    (out / "demo.json").write_text(json.dumps(described, indent=1) + "\n")
    (out / "demo.html").write_text(draw_page(described))
    display.say("picture", str(out / "demo.html"))
    if pages is not None:
        display.say("dashboard", f"{page.url} stays; Ctrl-C ends it")
        with note_interrupts() as interrupted:
            interrupted.wait()
    return checks
