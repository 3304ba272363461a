"""Requests of users to a peer, and the answers; lists come in pages, since a message has a size limit."""

from __future__ import annotations

import json

from braided.fleet.applications import StepFile
from braided.fleet.component_host import Job
from braided.fleet.event_log import Event
from braided.fleet.json_records import Record
from braided.fleet.messages import Contact, Message, Request
from braided.fleet.peer_loads import ComponentLoad

PAGE = 40
"""The number of rows in one answer: even the longest rows fit into a message."""
_LONGEST = 300


class WhichStorage(Request):
    """Request the location of the fleet's storage."""


class Storage(Message):
    """The location of the fleet's storage."""

    location: str


class Submit(Request):
    """Run a job file. With `is_trial`, only return where it would run."""

    text: str
    file: str
    is_trial: bool


class Submitted(Message):
    """The peer at which a component runs, or would run, and the reason."""

    component: str
    peer: str
    reason: str


class Launch(Request):
    """Run an application. With `is_trial`, only return where its jobs would run."""

    name: str
    latency: float
    steps: tuple[StepFile, ...]
    is_trial: bool


class PlacedRow(Record):
    """A job of an application, its peer, when an event arrives there, and the component that it shares, if any.

    problem : why the peer has not started it; its guardian then looks for another peer.
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
    """Peer to peer: ask whether the receiver can run this new component."""

    job: Job


class Start(Message):
    """Peer to peer: start this new component; once it runs, the fleet has it."""

    job: Job


class ListPeers(Request):
    """Request the peers with ids after this one."""

    after: str = ""


class PeerRow(Record):
    """A peer and its report about itself."""

    contact: Contact
    load: float
    cores: float
    drains: bool = False


class Peers(Message):
    """A page of peers, by their ids."""

    rows: tuple[PeerRow, ...]


class ListComponents(Request):
    """Request the components with names after this one."""

    after: str = ""


class ComponentRow(Record):
    """A component, its holder by the leases in storage, and this peer's measurements of it, if the peer answers.

    state : a `JobState`, and since when, in seconds since 1970 by the calendar of the peer that set it; 0 if unknown.
    failures, problem : how often it has failed in a row, and the cause of the last failure.
    is_failed : whether it has failed so often that it is not restarted automatically.
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
    """A page of components, by name."""

    rows: tuple[ComponentRow, ...]


class MoveTo(Request):
    """Move a component to the peer with a name."""

    component: str
    peer: str


class Remove(Request):
    """Remove a component from the fleet."""

    component: str


class Retry(Request):
    """Start a failed component again; the answer is `Submitted`."""

    component: str


class Pause(Request):
    """Pause a component until it is resumed."""

    component: str


class Resume(Request):
    """Resume a paused component; the answer is `Submitted`."""

    component: str


class Restart(Request):
    """Stop a component between two batches and start it again; the answer is `Submitted`."""

    component: str


class RestartHere(Message):
    """Peer to peer: restart a component that the receiver runs."""

    component: str


class Drain(Request):
    """Move the receiver's components to other peers; it accepts no more."""


class Undrain(Request):
    """Let the receiver accept components again."""


class Drained(Message):
    """The drain is done, except for these components."""

    stay: tuple[str, ...]


class ListEvents(Request):
    """Request events of the fleet.

    after : the number of the last event received; numbers are those of the receiver.
    since : seconds since 1970.
    component : only events of this one.
    newest : only this number of the newest events; a page has at most `PAGE`.
    """

    after: int = 0
    since: float = 0.0
    component: str = ""
    newest: int = 0


class Events(Message):
    """A page of events, in the order of reading; the number of the last one, and whether there are more."""

    rows: tuple[Event, ...]
    last: int
    more: bool = False


class ReadLog(Request):
    """Request the last lines that the driver of a component has logged about it; the answer is `Log`."""

    component: str


class LogHere(Message):
    """Peer to peer: request the last log lines of the receiver's driver about a component."""

    component: str


class Log(Message):
    """The last lines that a driver has logged about a component."""

    peer: str
    text: str


def shortened(text: str) -> str:
    """Return a text cut so that other rows fit into a page; letters that are not ASCII take six bytes each."""
    if len(json.dumps(text)) <= _LONGEST + 2:
        return text
    end = _LONGEST - 3
    while len(json.dumps(text[:end])) > _LONGEST - 1:
        end = end * 9 // 10
    return text[:end] + "..."
