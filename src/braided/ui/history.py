"""The bounded history of a session's queries: the newest batches of the newest runs, as numbered events.

Every event is converted to text once, for any number of readers. A reader remembers the number of its last event, and
requests the events after it. A reader that was away for long misses the events that are no longer kept.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from braided.runtime.contract import Json

KEPT_RUNS = 20
KEPT_BATCHES = 1000
KEPT_DECISIONS = 200
# Batches with hundreds of workers are larger, so a run keeps fewer of them.
KEPT_BYTES = 4 << 20
_FLEET = ""


@dataclass(frozen=True)
class Numbered:
    number: int
    text: str


@dataclass
class _Kept:
    """The kept events of one run: the newest of each kind and operator, and the last batches and decisions."""

    newest: dict[tuple[str, str], Numbered] = field(default_factory=dict)
    batches: deque[Numbered] = field(default_factory=deque)
    decisions: deque[Numbered] = field(default_factory=lambda: deque(maxlen=KEPT_DECISIONS))
    size: int = 0

    def add(self, event: Json, numbered: Numbered) -> None:
        if event["event"] == "decision":
            self.decisions.append(numbered)
        elif event["event"] == "batch":
            self.batches.append(numbered)
            self.size += len(numbered.text)
            while len(self.batches) > KEPT_BATCHES or (self.size > KEPT_BYTES and len(self.batches) > 1):
                self.size -= len(self.batches.popleft().text)
        else:
            self.newest[event["event"], event.get("operator", "")] = numbered

    def all(self) -> list[Numbered]:
        return [*self.newest.values(), *self.batches, *self.decisions]


class History:
    """The events of some queries. Any thread may add, read and wait."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(4)
        """Distinguishes the numbers of this history from those of an earlier one at the same address."""
        self._runs: OrderedDict[str, _Kept] = OrderedDict()
        self._changed = threading.Condition()
        self._number = 0
        self._closed = False

    def add(self, event: Json) -> None:
        """Add an event; see `braided.ui.history_events`."""
        text = json.dumps(event, separators=(",", ":"))
        with self._changed:
            self._number += 1
            run = event.get("query", _FLEET)
            self._runs.setdefault(run, _Kept()).add(event, Numbered(self._number, text))
            if event["event"] != "fleet":
                self._runs.move_to_end(run)
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
            self._changed.notify_all()

    def since(self, number: int) -> list[Numbered]:
        """Return the kept events after a number, in order; 0 returns all."""
        with self._changed:
            events = [event for run in self._runs.values() for event in run.all() if event.number > number]
        return sorted(events, key=lambda event: event.number)

    def wait(self, number: int, seconds: float) -> bool:
        """Wait until there is an event after a number; return False after a timeout, or if the history is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or self._number > number, seconds) and not self._closed

    def events(self) -> list[Json]:
        return [json.loads(event.text) for event in self.since(0)]

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
