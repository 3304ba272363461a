"""Leases: which peer owns a component, decided by storage. An epoch is a file that can be created only once.

```
 leases/NAME/000000000003.json   epoch 3 and who holds it
 leases/NAME/000000000003.beat   a counter that its holder keeps raising
```

No clock is compared with another machine's. An observer takes a lease for expired when its own monotonic clock has seen
the same counter for T; the holder stops itself when it could not raise the counter for T/2. Neither makes anything
exact: that is done by the topics, which accept no commit of an epoch once a higher one has claimed them.
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
"""Failures in a row after which a component is not started again until somebody asks for it."""
_FOLDER = "leases"

R = TypeVar("R", bound=Record)


class Position(Record):
    """How far a component has come: its last committed batch, and the digest of the input that this covered."""

    batch: int = -1
    offsets: str = ""


class Lease(Record):
    """One epoch of a component. `token` tells two attempts of one peer apart."""

    component: str
    epoch: int
    holder: Contact
    token: str


class Beat(Record):
    """The counter of a lease. The last one of a holder that has stopped says where.

    failures : how often the component has failed in a row, at this holder and those before it.
    problem : the cause of the last failure, in one line.
    state : what the holder knows of the component, a `JobState`; the empty string before it has begun.
    since : when that began, and `at` when this was written: seconds since 1970, by the holder's calendar.
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
        """Whether the component has failed so often that it is not started again by itself."""
        return self.released is not None and self.failures >= FAILURES


class Leases:
    """The leases below a directory that all peers reach."""

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
            raise PeerError(f"{_name(component, epoch)}: is missing or of another lease; restore it from a copy")
        return lease

    def take(self, lease: Lease) -> bool:
        """Become the holder of an epoch; False if another peer has it."""
        name = _name(lease.component, lease.epoch)
        if self._files.create(name, lease.to_bytes()):
            return True
        # A store may have created it and lost the answer.
        return self._read(name, Lease) == lease

    def beat(self, lease: Lease, beat: Beat) -> None:
        """Raise the counter; only the holder does that."""
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
    """Says which leases have expired, by one machine's monotonic clock."""

    def __init__(self, span: float = SPAN) -> None:
        if not 0 < span < float("inf"):
            raise PeerError(f"{span=}: write seconds above 0")
        self.span = span
        self._seen: dict[str, tuple[int, int, float]] = {}

    def expired(self, component: str, epoch: int, counter: int, now: float, part: float = 1.0) -> bool:
        """Take what was just read of a lease; whether it has not changed for the whole span, or a part of it."""
        before = self._seen.get(component)
        if before is None or before[:2] != (epoch, counter):
            self._seen[component] = (epoch, counter, now)
            return False
        return now - before[2] >= part * self.span


def _name(component: str, epoch: int) -> str:
    return f"{_FOLDER}/{component}/{epoch:012d}.json"


def _beat_name(component: str, epoch: int) -> str:
    return f"{_FOLDER}/{component}/{epoch:012d}.beat"
