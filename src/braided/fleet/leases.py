"""Leases: which peer owns a component, decided by storage. An epoch is a file that can be created only once.

```
 leases/NAME/000000000003.json   epoch 3 and its holder
 leases/NAME/000000000003.beat   a counter that its holder keeps raising
```

Clocks of different machines are not compared. For an observer a lease has expired when the counter has not changed for
T by the observer's own monotonic clock. The holder stops the component when it could not raise the counter for T/2.
Exactness does not depend on this: topics accept no commit of an epoch once a higher epoch has claimed them.
"""

from __future__ import annotations

from typing import TypeVar

from braided.errors import PeerError
from braided.fleet.json_records import Record
from braided.fleet.messages import Contact, check_name
from braided.storage.files import Files

SPAN = 30.0
"""T, in seconds."""
FAILURES = 6
"""Failures in a row after which a component is not restarted until a user retries it."""
_FOLDER = "leases"

R = TypeVar("R", bound=Record)


class Position(Record):
    """The position of a component: its last committed batch, and the digest of this batch's input."""

    batch: int = -1
    offsets: str = ""


class Lease(Record):
    """One epoch of a component. `token` distinguishes two attempts of one peer."""

    component: str
    epoch: int
    holder: Contact
    token: str


class Beat(Record):
    """The counter of a lease. The last beat of a holder that has stopped has the position.

    failures : how often the component has failed in a row, at this holder and earlier ones.
    problem : the cause of the last failure, in one line.
    state : the state of the component at the holder, a `JobState`; the empty string before it starts.
    since : the start of this state; at : the time of writing. Seconds since 1970, by the holder's calendar.
    """

    counter: int
    released: Position | None = None
    failures: int = 0
    problem: str = ""
    state: str = ""
    since: float = 0.0
    at: float = 0.0

    @property
    def is_failed(self) -> bool:
        """Whether the component has failed so often that it is not restarted automatically."""
        return self.released is not None and self.failures >= FAILURES


class Leases:
    """The leases below a directory that all peers can reach."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, int] = {}

    def newest(self, component: str) -> Lease | None:
        """Return the newest lease of a component, None if it never had one."""
        check_name(component, "component")
        if component not in self._known:
            names = self._files.names(f"{_FOLDER}/{component}")
            self._known[component] = max((int(name[:12]) for name in names if name.endswith(".json")), default=-1)
        while self._files.read(_name(component, self._known[component] + 1)) is not None:
            self._known[component] += 1
        epoch = self._known[component]
        return None if epoch < 0 else self.read(component, epoch)

    def read(self, component: str, epoch: int) -> Lease:
        """Return the lease of an epoch."""
        lease = self._read(_name(component, epoch), Lease)
        if lease is None or (lease.component, lease.epoch) != (component, epoch):
            raise PeerError(
                f"{_name(component, epoch)}: is missing, or belongs to another lease; restore it from a copy"
            )
        return lease

    def take(self, lease: Lease) -> bool:
        """Become the holder of an epoch; False if another peer has it."""
        name = _name(lease.component, lease.epoch)
        if self._files.create(name, lease.to_bytes()):
            return True
        # A store may have created the file although its answer was lost.
        return self._read(name, Lease) == lease

    def beat(self, lease: Lease, beat: Beat) -> None:
        """Raise the counter; only the holder does this."""
        self._files.replace(_beat_name(lease.component, lease.epoch), beat.to_bytes())

    def beat_of(self, lease: Lease) -> Beat:
        """Return the counter of a lease."""
        return self.beat_at(lease.component, lease.epoch)

    def beat_at(self, component: str, epoch: int) -> Beat:
        """Return the counter of an epoch."""
        return self._read(_beat_name(component, epoch), Beat) or Beat(0)

    def _read(self, name: str, kind: type[R]) -> R | None:
        content = self._files.read(name)
        return None if content is None else kind.from_bytes(content, name)


class Observer:
    """Detects expired leases, by one machine's monotonic clock."""

    def __init__(self, span: float = SPAN) -> None:
        if not 0 < span < float("inf"):
            raise PeerError(f"{span=}: write a number of seconds above 0")
        self.span = span
        self._seen: dict[str, tuple[int, int, float]] = {}

    def expired(self, component: str, epoch: int, counter: int, now: float, part: float = 1.0) -> bool:
        """Take the current counter of a lease; return whether it stayed the same for the span, or a part of it."""
        before = self._seen.get(component)
        if before is None or before[:2] != (epoch, counter):
            self._seen[component] = (epoch, counter, now)
            return False
        return now - before[2] >= part * self.span


def _name(component: str, epoch: int) -> str:
    return f"{_FOLDER}/{component}/{epoch:012d}.json"


def _beat_name(component: str, epoch: int) -> str:
    return f"{_FOLDER}/{component}/{epoch:012d}.beat"
