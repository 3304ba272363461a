"""What users ask of a peer, and the answers; lists come in pages, since a message has a limit."""

from __future__ import annotations

import json
from dataclasses import dataclass

from braided.peers.applications import StepFile
from braided.peers.host import Job
from braided.peers.loads import ComponentLoad
from braided.peers.messages import Contact, Message, Request, message

PAGE = 40
"""Rows in one answer: the longest fit into a message."""
_LONGEST = 300


@message
@dataclass(frozen=True)
class WhichStorage(Request):
    """Where is the fleet's storage?"""


@message
@dataclass(frozen=True)
class Storage(Message):
    """There."""

    location: str


@message
@dataclass(frozen=True)
class Submit(Request):
    """Run a job file. With `is_trial`, only say where it would go."""

    text: str
    file: str
    is_trial: bool


@message
@dataclass(frozen=True)
class Submitted(Message):
    """The component runs at a peer, or would; and why there."""

    component: str
    peer: str
    reason: str


@message
@dataclass(frozen=True)
class Launch(Request):
    """Run an application. With `is_trial`, only say where its jobs would go."""

    name: str
    latency: float
    steps: tuple[StepFile, ...]
    is_trial: bool


@dataclass(frozen=True)
class PlacedRow:
    """A job of an application, its peer, when an event arrives there, and the component that it shares, if any.

    problem : why the peer has not started it; its guardian looks for another.
    """

    job: str
    peer: str
    arrives: float
    shared: str = ""
    problem: str = ""


@message
@dataclass(frozen=True)
class Launched(Message):
    """Where the jobs of an application run, or would, and the seconds that an event takes."""

    rows: tuple[PlacedRow, ...]
    latency: float


@message
@dataclass(frozen=True)
class Rehearse(Message):
    """Peer to peer: can you run this new component?"""

    job: Job


@message
@dataclass(frozen=True)
class Start(Message):
    """Peer to peer: start this new component; once it runs, the fleet has it."""

    job: Job


@message
@dataclass(frozen=True)
class ListPeers(Request):
    """Which peers are there, with ids after this one?"""

    after: str = ""


@dataclass(frozen=True)
class PeerRow:
    """A peer and what it says of itself."""

    contact: Contact
    load: float
    cores: float


@message
@dataclass(frozen=True)
class Peers(Message):
    """A page of them, by their ids."""

    rows: tuple[PeerRow, ...]


@message
@dataclass(frozen=True)
class ListComponents(Request):
    """Which components are there, with names after this one?"""

    after: str = ""


@dataclass(frozen=True)
class ComponentRow:
    """A component, who holds it by the leases in storage, and what that peer has measured of it, if it answers.

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


@message
@dataclass(frozen=True)
class Components(Message):
    """A page of them, by name."""

    rows: tuple[ComponentRow, ...]


@message
@dataclass(frozen=True)
class MoveTo(Request):
    """Move a component to the peer with a name."""

    component: str
    peer: str


@message
@dataclass(frozen=True)
class Remove(Request):
    """Take a component out of the fleet."""

    component: str


@message
@dataclass(frozen=True)
class Retry(Request):
    """Start a component again that has failed; the answer is `Submitted`."""

    component: str


@message
@dataclass(frozen=True)
class Drain(Request):
    """Give your components to others and take no more."""


@message
@dataclass(frozen=True)
class Drained(Message):
    """Done, but for these."""

    stay: tuple[str, ...]


@message
@dataclass(frozen=True)
class ListEvents(Request):
    """What happened at your place lately?"""


@dataclass(frozen=True)
class EventRow:
    """What happened to a component, so many seconds ago."""

    ago: float
    component: str
    what: str


@message
@dataclass(frozen=True)
class Events(Message):
    """The last of them, oldest first."""

    rows: tuple[EventRow, ...]


def shortened(text: str) -> str:
    """Return a text that leaves room for others in a page; other letters than English ones take six bytes each."""
    if len(json.dumps(text)) <= _LONGEST + 2:
        return text
    end = _LONGEST - 3
    while len(json.dumps(text[:end])) > _LONGEST - 1:
        end = end * 9 // 10
    return text[:end] + "..."
