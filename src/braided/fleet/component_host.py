"""The host of components: the small interface that a peer needs, and the description of a component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from braided.errors import PeerError
from braided.fleet.json_records import Record
from braided.fleet.leases import Position
from braided.fleet.messages import check_name
from braided.fleet.operator_names import check_operator
from braided.fleet.peer_loads import Measured
from braided.storage.files import Files

_FOLDER = "components"
_REMOVED, _PAUSED = ".removed", ".paused"


class Job(Record):
    """A stored component: everything that a peer needs to run it.

    inputs, outputs : the locations of its topics.
    checkpoint : a folder; every epoch has its own folder below it, which starts as a clone of the last.
    definition : only for the host.
    cores : the least number that it needs.
    computes : the signature of what it computes (`composition.py`), if it may be shared.
    """

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    checkpoint: str = ""
    definition: str = ""
    cores: float = 0.0
    computes: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "component")
        check_operator(self.operator)
        if self.cores < 0:
            raise PeerError(f"cores={self.cores}: write the number that it needs, 0 or more")


class Pause(Record):
    """A component is paused: since when, by the calendar of the peer that received the request."""

    at: float


class HostError(PeerError):
    """A component was not started for a reason of this peer only: this does not count as its failure."""


class Host(Protocol):
    """Runs components on one peer.

    Exactly-once results depend on three duties of `start`, in this order: claim every output with the epoch, so that no
    former owner can commit from then on; only then clone the checkpoint of the last epoch, which no other process
    writes to; continue from it, and run a planned batch again over the same input.
    """

    cores: float
    """The resources of this peer."""
    ended: Callable[[str, str], None]
    """Called with the name of a component that ended by itself, and why: a failure, or a new owner of its output."""
    lost: Callable[[str, str], None]
    """Called with the name of a component that this peer can no longer run, and the reason; another peer may run it."""

    def offers(self) -> tuple[str, ...]:
        """Return the operators that can run here, by name or pattern."""

    def check(self, job: Job) -> None:
        """Refuse a component that this peer may not run, without starting anything; the error is a `BraidedError`."""

    def measure(self) -> Measured:
        """Return the load of the last period."""

    async def rehearse(self, job: Job) -> None:
        """Warm up: run a batch on a clone of the checkpoint without a sink; `PeerError` if this peer cannot."""

    async def start(self, job: Job, epoch: int, expected: Position | None) -> None:
        """Continue a component; `PeerError` if this is not possible, or if its position is not the expected one.

        The error is a `HostError` if the cause is the peer, not the component.
        """

    async def stop(self, name: str) -> Position:
        """Stop a component between two batches, and return its position."""

    def kill(self, name: str) -> None:
        """Stop a component at once, because it no longer belongs to this peer; no error if it does not run."""


class Jobs:
    """The components of a fleet, in storage that all peers reach. A component never changes, so each is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, Job] = {}

    def add(self, job: Job) -> None:
        """Add a component; adding the same one twice is not an error."""
        if not self._files.create(f"{_FOLDER}/{job.name}.json", job.to_bytes()) and self.read(job.name) != job:
            raise PeerError(f"component={job.name!r}: the fleet has another component of this name; choose a new name")

    def read(self, name: str) -> Job:
        """Return a component."""
        if name in self._known:
            return self._known[name]
        check_name(name, "component")
        file = f"{_FOLDER}/{name}.json"
        content = self._files.read(file)
        if content is None:
            raise PeerError(f"component={name!r}: unknown component of this fleet")
        job = self._known[name] = Job.from_bytes(content, file)
        return job

    def names(self) -> list[str]:
        """Return the names of all components that were not removed."""
        return self.listed()[0]

    def listed(self) -> tuple[list[str], set[str]]:
        """Return the names of all components that were not removed, and of those among them that are paused."""
        files = set(self._files.names(_FOLDER))
        names = (name.removesuffix(".json") for name in files if name.endswith(".json"))
        there = sorted(name for name in names if name + _REMOVED not in files)
        return there, {name for name in there if name + _PAUSED in files}

    def pause(self, name: str, at: float) -> None:
        """Pause a component until it is resumed; its holder notices this. Pausing it again changes nothing."""
        self.read(name)
        self._files.create(f"{_FOLDER}/{name}{_PAUSED}", Pause(at).to_bytes())

    def resume(self, name: str) -> None:
        """Resume a component; no error if it was not paused."""
        self.read(name)
        self._files.delete(f"{_FOLDER}/{name}{_PAUSED}")

    def pause_of(self, name: str) -> Pause | None:
        """Return the pause of a component; None if it is not paused."""
        file = f"{_FOLDER}/{name}{_PAUSED}"
        content = self._files.read(file)
        return None if content is None else Pause.from_bytes(content, file, "resume the component, or delete the file")

    def remove(self, name: str) -> None:
        """Remove a component from the fleet for ever; its holder notices this. Its name cannot be used again."""
        self.read(name)
        self._files.create(f"{_FOLDER}/{name}{_REMOVED}", b"1")

    def is_removed(self, name: str) -> bool:
        """Whether a component was removed from the fleet."""
        return self._files.read(f"{_FOLDER}/{name}{_REMOVED}") is not None
