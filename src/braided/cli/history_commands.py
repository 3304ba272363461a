"""`braided dash` and `braided report`: the history of a running or ended query as a live page, text, JSON or HTML.

A page may also show a fleet, or only a fleet.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from braided.cli.exits import CANNOT_START, FAILED, STOPPED, first_line, refuse
from braided.cli.local_spark import note_interrupts
from braided.cli.spinner import waiting
from braided.errors import BraidedError
from braided.runtime.contract import Json
from braided.ui.dashboard_page import whole_page
from braided.ui.history import History
from braided.ui.history_files import HistoryReader
from braided.ui.history_summary import summarize, write_text
from braided.ui.routing_tables import control_events, is_control
from braided.ui.server import Server

_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class FleetPlace:
    """The way to a fleet: the address of a peer, and the file with the fleet's secret."""

    address: str
    token_file: Path

    @contextlib.contextmanager
    def follow(self, add: Callable[[Json], None]) -> Iterator[None]:
        from braided.fleet.client import Fleet
        from braided.fleet.following import FleetFollower

        with Fleet(self.address, token_file=self.token_file) as fleet:
            follower = FleetFollower(fleet, add)
            try:
                yield
            finally:
                follower.close()


def serve_page(path: Path | None, fleet: FleetPlace | None, *, host: str, port: int, token: str | None) -> int:
    """Serve the page of a history, which may still grow, of a fleet, or of both, until Ctrl-C."""
    if path is None and fleet is None:
        return refuse("dash", "give a directory with a history, or a fleet with --fleet HOST:PORT", CANNOT_START)
    history = History()
    with contextlib.ExitStack() as undo:
        try:
            read = _no_history if path is None else _reader(path)
            with waiting("reading the history"):
                for event in read():
                    history.add(event)
            if fleet is not None:
                undo.enter_context(fleet.follow(history.add))
            server = Server(history, host=host, port=port, token=token)
        except (BraidedError, OSError) as error:
            return refuse("dash", first_line(error), CANNOT_START)
        undo.callback(server.close)
        interrupted = undo.enter_context(note_interrupts())
        print(f"dashboard: {server.url}; Ctrl-C ends it", flush=True)
        return _follow(read, history, interrupted)


def _follow(read: Callable[[], list[Json]], history: History, interrupted: threading.Event) -> int:
    while not interrupted.wait(_LOOK_EVERY):
        try:
            for event in read():
                history.add(event)
        except BraidedError as error:
            return refuse("dash", first_line(error), FAILED)
    return STOPPED


def _no_history() -> list[Json]:
    return []


def report_history(path: Path, *, as_json: bool, html: Path | None) -> int:
    """Write the report of a history, or of a control directory; exit code 1 if a query in it failed."""
    try:
        with waiting("reading the history"):
            events = _reader(path)()
    except BraidedError as error:
        return refuse("report", first_line(error), CANNOT_START, as_json=as_json)
    if not events:
        return refuse("report", f"{path}: no query has written events there yet", CANNOT_START, as_json=as_json)
    runs = summarize(events)
    text = write_text(runs)
    if html is not None:
        history = History()
        for event in events:
            history.add(event)
        try:
            html.write_text(whole_page(history.events(), text), encoding="utf-8")
        except OSError as error:
            return refuse(
                "report", f"--html {html}: {error.strerror}; give another file", CANNOT_START, as_json=as_json
            )
    if as_json:
        print(json.dumps(runs, indent=1))
    elif html is None:
        print(text)
    return FAILED if runs and runs[-1]["error"] else 0


def _reader(path: Path) -> Callable[[], list[Json]]:
    """Return a function that returns new events; for a control directory, the current ones."""
    if is_control(path):
        waiting = control_events(path)

        def read_control() -> list[Json]:
            found = list(waiting)
            waiting.clear()
            return found

        return read_control
    reader = HistoryReader(path)
    return lambda: list(reader.read())
