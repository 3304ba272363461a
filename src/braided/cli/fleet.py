"""`braided fleet`: submits jobs to a fleet, and shows and changes their states, peers, events and logs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from braided.cli.exits import CANNOT_START, FAILED, STOPPED, first_line, refuse
from braided.cli.spinner import waiting
from braided.errors import BraidedError, PeerError
from braided.fleet.applications import is_application
from braided.fleet.client import Fleet, Status
from braided.fleet.event_log import Event
from braided.fleet.requests import ComponentRow
from braided.jobs.toml_file import read_text


def ask_fleet(arguments: argparse.Namespace) -> int:
    begun = False
    try:
        with Fleet(arguments.peer, token_file=arguments.token_file) as fleet:
            begun = True
            _ANSWERS[arguments.command](fleet, arguments)
    except (BraidedError, OSError) as error:
        return refuse("fleet", first_line(error), FAILED if begun else CANNOT_START, as_json=arguments.json)
    except KeyboardInterrupt:
        return STOPPED
    return 0


def _submit(fleet: Fleet, arguments: argparse.Namespace) -> None:
    if is_application(read_text(arguments.job)):
        with waiting("the peers rehearse the application"):
            launched = fleet.launch(arguments.job, dry_run=arguments.dry_run)
        rows = [(row.job, row.peer, f"{row.arrives:.2f} s", row.shared) for row in launched.rows]
        _print(arguments, asdict(launched), table(("job", "peer", "seconds to an event", "shared with"), rows))
        problems = [
            f"{row.job}: {row.problem}; its guardian looks for another peer" for row in launched.rows if row.problem
        ]
        if problems:
            raise PeerError("; ".join(problems))
        return
    with waiting("a peer rehearses the job"):
        placed = fleet.submit(arguments.job, dry_run=arguments.dry_run)
    verb = "would run" if arguments.dry_run else "runs"
    _print(arguments, asdict(placed), f"{placed.component}: {verb} at {placed.peer}; {placed.reason}")


def _status(fleet: Fleet, arguments: argparse.Namespace) -> None:
    status = fleet.status()
    _print(arguments, asdict(status), describe(status))


def _watch(fleet: Fleet, arguments: argparse.Namespace) -> None:
    while True:
        _status(fleet, arguments)
        if not arguments.json:
            print(flush=True)
        time.sleep(arguments.every)


def _move(fleet: Fleet, arguments: argparse.Namespace) -> None:
    begun = time.monotonic()
    with waiting(f"{arguments.to} rehearses the job, then takes it over"):
        moved = fleet.move(arguments.component, arguments.to)
    seconds = time.monotonic() - begun
    answer = {"component": arguments.component, "peer": arguments.to, "moved": moved, "seconds": round(seconds, 3)}
    how = f"moved in {seconds:.1f} s, with its rehearsal" if moved else "as before"
    _print(arguments, answer, f"{arguments.component}: runs at {arguments.to}, {how}")


def _drain(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting(f"{arguments.to} moves its jobs to other peers"):
        stay = fleet.drain(arguments.to)
    text = f"{arguments.to}: has no more jobs, and accepts none"
    _print(arguments, {"stay": stay}, text if not stay else f"{arguments.to}: no peer took over {', '.join(stay)}")


def _remove(fleet: Fleet, arguments: argparse.Namespace) -> None:
    fleet.remove(arguments.component)
    answer = {"removed": arguments.component}
    _print(arguments, answer, f"{arguments.component}: removed; its peer stops it after the current batch")


def _retry(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting("a peer starts the job"):
        placed = fleet.retry(arguments.component)
    _print(arguments, asdict(placed), f"{placed.component}: runs at {placed.peer} again")


def _pause(fleet: Fleet, arguments: argparse.Namespace) -> None:
    fleet.pause(arguments.component)
    answer = {"paused": arguments.component}
    _print(arguments, answer, f"{arguments.component}: paused; its peer stops it after the current batch")


def _resume(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting("a peer starts the job"):
        placed = fleet.resume(arguments.component)
    _print(arguments, asdict(placed), f"{placed.component}: runs at {placed.peer}; {placed.reason}")


def _restart(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting("its peer stops the job after a batch, and starts it again"):
        placed = fleet.restart(arguments.component)
    _print(arguments, asdict(placed), f"{placed.component}: runs at {placed.peer}; {placed.reason}")


def _undrain(fleet: Fleet, arguments: argparse.Namespace) -> None:
    fleet.undrain(arguments.to)
    _print(arguments, {"peer": arguments.to}, f"{arguments.to}: accepts jobs again")


def _logs(fleet: Fleet, arguments: argparse.Namespace) -> None:
    log = fleet.log(arguments.component)
    text = log.text or f"{arguments.component}: the driver at {log.peer} has no log lines about it"
    _print(arguments, asdict(log), text)


def _events(fleet: Fleet, arguments: argparse.Namespace) -> None:
    since = 0.0 if arguments.since is None else time.time() - arguments.since
    if arguments.follow:
        for event in fleet.follow(since=since or time.time() - _LATELY, component=arguments.job):
            _print(arguments, asdict(event), "  ".join(_event_row(event)))
        return
    events = fleet.events(since=since, component=arguments.job)
    if arguments.since is None:
        events = events[-_NEWEST:]
    rows = [_event_row(event) for event in events]
    _print(arguments, [asdict(event) for event in events], table(("when (UTC)", "peer", "job", "what"), rows))


def _event_row(event: Event) -> tuple[str, ...]:
    return moment(event.at), event.peer, event.component, event.what


def moment(at: float) -> str:
    """Return a point in time as text.

    >>> moment(1718000000.4)
    '2024-06-10 06:13:20'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


_ANSWERS: dict[str, Callable[[Fleet, argparse.Namespace], None]] = {
    "submit": _submit,
    "status": _status,
    "watch": _watch,
    "move": _move,
    "remove": _remove,
    "retry": _retry,
    "pause": _pause,
    "resume": _resume,
    "restart": _restart,
    "drain": _drain,
    "undrain": _undrain,
    "events": _events,
    "logs": _logs,
}
_NEWEST = 100
"""The number of events that are listed by default."""
_LATELY = 60.0
"""By default, events are followed from this many seconds before now."""


def describe(status: Status) -> str:
    """Return a fleet as two tables, and a line for every failing job."""
    peers = [
        (
            row.contact.name,
            "draining" if row.drains else "running",
            row.contact.address,
            f"{row.load:.2f}",
            f"{row.cores:g}",
        )
        for row in status.peers
    ]
    jobs = []
    for row in status.components:
        part = row.measured
        figures = [
            f"{part.load:.2f}" if part else "",
            f"{part.busy:.2f}" if part else "",
            f"{part.backlog:,}" if part and part.backlog is not None else "",
            f"{part.rate:,.0f}" if part and part.rate is not None else "",
        ]
        since = moment(row.since) if row.since else ""
        peer = "" if row.is_released else row.peer
        epoch = str(row.epoch) if row.epoch >= 0 else ""
        jobs.append((row.name, row.state, since, peer, epoch, *figures, row.operator, row.output))
    headers = (
        "job", "state", "since (UTC)", "peer", "epoch", "load", "busy", "backlog", "rows/s", "operator", "output"
    )  # fmt: skip
    problems = "".join(f"\n\n{_problem(row)}" for row in status.components if row.failures)
    return f"{table(('peer', 'state', 'address', 'load', 'cores'), peers)}\n\n{table(headers, jobs)}{problems}"


def _problem(row: ComponentRow) -> str:
    times = "once" if row.failures == 1 else f"{row.failures} times in a row"
    line = f"{row.name}: failed {times}: {row.problem}"
    return f"{line}\n{row.name}: fix the cause, then run: braided fleet retry {row.name}" if row.is_failed else line


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below headers, in columns.

    >>> print(table(("a", "bb"), [("ccc", "d")]))
    a    bb
    ccc  d
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (headers, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def _print(arguments: argparse.Namespace, value: Any, text: str) -> None:
    print(json.dumps(value) if arguments.json else text, flush=True)
