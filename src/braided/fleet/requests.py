"""What users ask of a peer, and the answers; lists come in pages, since a message has a limit."""

from __future__ import annotations

import json

from braided.fleet.applications import StepFile
from braided.fleet.component_host import Job
from braided.fleet.event_log import Event
from braided.fleet.json_records import Record
from braided.fleet.messages import Contact, Message, Request
from braided.fleet.peer_loads import ComponentLoad

PAGE = 40
"""Rows in one answer: the longest fit into a message."""
_LONGEST = 300


class WhichStorage(Request):
    """Where is the fleet's storage?"""


class Storage(Message):
    """There."""

    location: str


class Submit(Request):
    """Run a job file. With `is_trial`, only say where it would go."""

    text: str
    file: str
    is_trial: bool


class Submitted(Message):
    """The component runs at a peer, or would; and why there."""

    component: str
    peer: str
    reason: str


class Launch(Request):
    """Run an application. With `is_trial`, only say where its jobs would go."""

    name: str
    latency: float
    steps: tuple[StepFile, ...]
    is_trial: bool


class PlacedRow(Record):
    """A job of an application, its peer, when an event arrives there, and the component that it shares, if any.

    problem : why the peer has not started it; its guardian looks for another.
    """

    job: str
    peer: str
    arrives: float
    shared: str = ""
    problem: str = ""


class Launched(Message):
    """Where the jobs of an application run, or would, and the seconds that an event takes."""

    rows: tuple[PlacedRow, ...]
    latency: float


class Rehearse(Message):
    """Peer to peer: can you run this new component?"""

    job: Job


class Start(Message):
    """Peer to peer: start this new component; once it runs, the fleet has it."""

    job: Job


class ListPeers(Request):
    """Which peers are there, with ids after this one?"""

    after: str = ""


class PeerRow(Record):
    """A peer and what it says of itself."""

    contact: Contact
    load: float
    cores: float
    drains: bool = False


class Peers(Message):
    """A page of them, by their ids."""

    rows: tuple[PeerRow, ...]


class ListComponents(Request):
    """Which components are there, with names after this one?"""

    after: str = ""


class ComponentRow(Record):
    """A component, who holds it by the leases in storage, and what that peer has measured of it, if it answers.

    state : a `JobState`, and since when, in seconds since 1970 by the calendar of the peer that noted it; 0 if unknown.
    failures, problem : how often it has failed in a row, and why the last time.
    is_failed : whether that was so often that it is not started again by itself.
    """

    name: str
    operator: str
    output: str
    epoch: int = -1
    peer: str = ""
    is_released: bool = False
    measured: ComponentLoad | None = None
    failures: int = 0
    problem: str = ""
    is_failed: bool = False
    state: str = ""
    since: float = 0.0


class Components(Message):
    """A page of them, by name."""

    rows: tuple[ComponentRow, ...]


class MoveTo(Request):
    """Move a component to the peer with a name."""

    component: str
    peer: str


class Remove(Request):
    """Take a component out of the fleet."""

    component: str


class Retry(Request):
    """Start a component again that has failed; the answer is `Submitted`."""

    component: str


class Pause(Request):
    """Let a component not run until it is resumed."""

    component: str


class Resume(Request):
    """Let a component run again that was paused; the answer is `Submitted`."""

    component: str


class Restart(Request):
    """Stop a component between two batches and start it again; the answer is `Submitted`."""

    component: str


class RestartHere(Message):
    """Peer to peer: do that with a component that you run."""

    component: str


class Drain(Request):
    """Give your components to others and take no more."""


class Undrain(Request):
    """Take components again."""


class Drained(Message):
    """Done, but for these."""

    stay: tuple[str, ...]


class ListEvents(Request):
    """What happened in the fleet?

    after : the number of the last event that you told; numbers are those of the peer that is asked.
    since : seconds since 1970.
    component : only what happened to this one.
    newest : only so many, the newest; a page has room for `PAGE`.
    """

    after: int = 0
    since: float = 0.0
    component: str = ""
    newest: int = 0


class Events(Message):
    """A page of them, as they were read from storage; the number of the last, and whether there are more."""

    rows: tuple[Event, ...]
    last: int
    more: bool = False


class ReadLog(Request):
    """What has the driver of a component logged about it? The answer is `Log`, the last lines."""

    component: str


class LogHere(Message):
    """Peer to peer: what has your driver logged about a component?"""

    component: str


class Log(Message):
    """The last lines that a driver has logged about a component."""

    peer: str
    text: str


def shortened(text: str) -> str:
    """Return a text that leaves room for others in a page; other letters than English ones take six bytes each."""
    if len(json.dumps(text)) <= _LONGEST + 2:
        return text
    end = _LONGEST - 3
    while len(json.dumps(text[:end])) > _LONGEST - 1:
        end = end * 9 // 10
    return text[:end] + "..."
