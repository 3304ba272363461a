"""A fleet for a dashboard: it is asked repeatedly, and each answer becomes an event (`braided.ui.history_events`)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from braided.errors import BraidedError
from braided.fleet.client import Fleet, Status
from braided.fleet.event_log import Event
from braided.fleet.peer_loads import ComponentLoad
from braided.runtime.contract import Json

EVERY = 2.0
"""Seconds between two requests."""
KEPT_LOADS = 60
_PATIENCE = 2.0
# An event is one message to every open page, so the further rows of a large fleet are only counted.
_MOST_PEERS, _MOST_COMPONENTS, _MOST_HAPPENED = 200, 500, 40


class FleetFollower:
    """Asks a fleet in a separate thread until `close`, and passes on changes."""

    def __init__(
        self, fleet: Fleet, add: Callable[[Json], None], *, redact: bool = False, every: float = EVERY
    ) -> None:
        self._fleet = fleet
        self._add = add
        self._redact = redact
        self._every = every
        self._loads: dict[str, deque[float]] = {}
        self._last_event: Json = {"event": "fleet", "peers": [], "components": [], "happened": []}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="braided-fleet-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop asking; wait for the current request, but not for long."""
        self._closed.set()
        self._thread.join(_PATIENCE)

    def _follow(self) -> None:
        while not self._closed.is_set():
            event = self._ask()
            if not self._closed.is_set() and _without_times(event) != _without_times(self._last_event):
                self._add(event)
                self._last_event = event
            self._closed.wait(self._every)

    def _ask(self) -> Json:
        """Return the answer of the fleet; if there is none, the last answer with the reason."""
        try:
            status, happened = self._fleet.status(), self._fleet.events(newest=_MOST_HAPPENED)
        except (BraidedError, OSError, RuntimeError) as error:  # a closed client has no running loop
            return {**self._last_event, "error": "no answer" if self._redact else str(error) or type(error).__name__}
        for row in status.peers:
            self._loads.setdefault(row.contact.name, deque(maxlen=KEPT_LOADS)).append(round(row.load, 2))
        self._loads = {row.contact.name: self._loads[row.contact.name] for row in status.peers}
        return describe_fleet(status, happened, self._loads, redact=self._redact)


def describe_fleet(status: Status, happened: Sequence[Event], loads: dict[str, deque[float]], *, redact: bool) -> Json:
    """Return the event with the current state of a fleet; `loads` are the last ones of each peer."""
    return {
        "event": "fleet",
        "peers": [
            {
                "name": row.contact.name,
                "address": row.contact.address,
                "load": round(row.load, 2),
                "cores": row.cores,
                "drains": row.drains,
                "loads": list(loads.get(row.contact.name, ())),
            }
            for row in status.peers[:_MOST_PEERS]
        ],
        "components": [
            {
                "name": row.name,
                "operator": row.operator,
                "peer": "" if row.is_released else row.peer,
                "epoch": row.epoch,
                "output": row.output,
                "state": row.state,
                "since": round(1000 * row.since),
                "failures": row.failures,
                "problem": "" if redact else row.problem,
                **_measured(row.measured),
            }
            for row in status.components[:_MOST_COMPONENTS]
        ],
        "happened": [
            {
                "time": round(1000 * event.at),
                "peer": event.peer,
                "component": event.component,
                # The rest may be the text of an error.
                "what": event.what.partition(":")[0] if redact else event.what,
            }
            for event in happened[-_MOST_HAPPENED:]
        ],
        "more": max(0, len(status.peers) - _MOST_PEERS) + max(0, len(status.components) - _MOST_COMPONENTS),
    }


def _measured(part: ComponentLoad | None) -> Json:
    if part is None:
        return {}
    figures = {name: getattr(part, name) for name in ("load", "busy", "rate", "backlog")}
    return {name: round(figure, 2) for name, figure in figures.items() if figure is not None}


def _without_times(event: Json) -> Json:
    """Return an event without the fields that change even if nothing happens."""
    return {**event, "peers": [{**one, "loads": []} for one in event["peers"]]}
