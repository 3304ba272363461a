"""`braided fleet`: jobs handed to a fleet, where they run, moves, drains and events."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from braided.cli.exits import FAILED, STOPPED, first_line
from braided.cli.spinner import waiting
from braided.errors import BraidedError, PeerError
from braided.fleet.applications import is_application
from braided.fleet.client import Fleet, Status
from braided.fleet.requests import ComponentRow
from braided.jobs.toml_file import read_text


def ask_fleet(arguments: argparse.Namespace) -> int:
    try:
        with Fleet(arguments.peer, token_file=arguments.token_file) as fleet:
            _ANSWERS[arguments.command](fleet, arguments)
    except (BraidedError, OSError) as error:
        print(f"braided fleet: {first_line(error)}", file=sys.stderr, flush=True)
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    return 0


def _submit(fleet: Fleet, arguments: argparse.Namespace) -> None:
    if is_application(read_text(arguments.job)):
        with waiting("the peers rehearse it"):
            launched = fleet.launch(arguments.job, dry_run=arguments.dry_run)
        rows = [(row.job, row.peer, f"{row.arrives:.2f} s", row.shared) for row in launched.rows]
        _print(arguments, asdict(launched), table(("job", "peer", "an event after", "shared with"), rows))
        problems = [
            f"{row.job}: {row.problem}; its guardian looks for another peer" for row in launched.rows if row.problem
        ]
        if problems:
            raise PeerError("; ".join(problems))
        return
    with waiting("a peer rehearses it"):
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
    with waiting(f"{arguments.to} rehearses it, then takes it"):
        fleet.move(arguments.component, arguments.to)
    seconds = time.monotonic() - begun
    said = {"component": arguments.component, "peer": arguments.to, "seconds": round(seconds, 3)}
    _print(arguments, said, f"{arguments.component}: runs at {arguments.to}, after {seconds:.1f} s with its rehearsal")


def _drain(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting(f"{arguments.to} gives its jobs to others"):
        stay = fleet.drain(arguments.to)
    text = f"{arguments.to}: has no jobs any more, and takes none"
    _print(arguments, {"stay": stay}, text if not stay else f"{arguments.to}: nobody took {', '.join(stay)}")


def _remove(fleet: Fleet, arguments: argparse.Namespace) -> None:
    fleet.remove(arguments.component)
    said = {"removed": arguments.component}
    _print(arguments, said, f"{arguments.component}: removed; its peer stops it after the batch that runs")


def _retry(fleet: Fleet, arguments: argparse.Namespace) -> None:
    with waiting("a peer starts it"):
        placed = fleet.retry(arguments.component)
    _print(arguments, asdict(placed), f"{placed.component}: runs at {placed.peer} again")


def _events(fleet: Fleet, arguments: argparse.Namespace) -> None:
    events = fleet.events()
    rows = [(f"{event.ago:.0f} s ago", event.peer, event.component, event.what) for event in events]
    _print(arguments, [asdict(event) for event in events], table(("when", "peer", "job", "what"), rows))


_ANSWERS: dict[str, Callable[[Fleet, argparse.Namespace], None]] = {
    "submit": _submit,
    "status": _status,
    "watch": _watch,
    "move": _move,
    "remove": _remove,
    "retry": _retry,
    "drain": _drain,
    "events": _events,
}


def describe(status: Status) -> str:
    """Return a fleet as two tables, and a line for every job that fails."""
    peers = [(row.contact.name, row.contact.address, f"{row.load:.2f}", f"{row.cores:g}") for row in status.peers]
    jobs = []
    for row in status.components:
        peer = "failed" if row.is_failed else row.peer if row.peer and not row.is_released else "nobody yet"
        part = row.measured
        figures = (
            (f"{part.load:.2f}", f"{part.busy:.2f}", f"{part.backlog:,}", f"{part.rate:,.0f}") if part else ("",) * 4
        )
        jobs.append((row.name, row.operator, peer, str(row.epoch) if row.epoch >= 0 else "", *figures, row.output))
    headers = ("job", "operator", "peer", "epoch", "load", "busy", "backlog", "rows/s", "output")
    problems = "".join(f"\n\n{_problem(row)}" for row in status.components if row.failures)
    return f"{table(('peer', 'address', 'load', 'cores'), peers)}\n\n{table(headers, jobs)}{problems}"


def _problem(row: ComponentRow) -> str:
    times = "once" if row.failures == 1 else f"{row.failures} times in a row"
    line = f"{row.name}: failed {times}: {row.problem}"
    return f"{line}\n{row.name}: fix the cause, then type braided fleet retry {row.name}" if row.is_failed else line


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
