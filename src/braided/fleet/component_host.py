"""What runs components: the small interface that a peer needs of it, and the description of a component."""

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
    """A component as it is stored: what any peer needs to run it.

    inputs, outputs : the locations of its topics.
    checkpoint : a folder; every epoch has one of its own below it, begun as a clone of the last.
    definition : for the host alone.
    cores : what it needs, at least.
    computes : the signature of what it computes (`composition.py`), where it may be shared.
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
            raise PeerError(f"cores={self.cores}: write how many it needs, not below 0")


class Pause(Record):
    """That a component is not to run: since when, by the calendar of the peer that was asked for it."""

    at: float


class HostError(PeerError):
    """A component was not started for a reason that is this peer's alone: it is no failure of the component."""


class Host(Protocol):
    """Runs components on one peer.

    Exactly once rests on three duties of `start`, in this order: claim every output with the epoch, so that no former
    owner can commit from then on; only then clone the checkpoint of the last epoch, which nobody else writes to; go on
    from it, running a planned batch again over the same input.
    """

    cores: float
    """What this peer was given."""
    ended: Callable[[str, str], None]
    """Called with the name of a component that ended by itself, and why: it failed, or its output has another owner."""
    lost: Callable[[str, str], None]
    """Called with the name of a component that this peer cannot run on with, and why; another peer may."""

    def offers(self) -> tuple[str, ...]:
        """Return the operators that can run here, by name or pattern."""

    def check(self, job: Job) -> None:
        """Refuse a component that this peer may not run, without starting anything; the error is a `BraidedError`."""

    def measure(self) -> Measured:
        """Return the load of the last period."""

    async def rehearse(self, job: Job) -> None:
        """Warm up: run a batch on a clone of the checkpoint into no sink; `PeerError` says why this peer cannot."""

    async def start(self, job: Job, epoch: int, expected: Position | None) -> None:
        """Go on with a component; `PeerError` if it cannot, or if it has not come exactly as far as expected.

        The error is a `HostError` where the peer is at fault, and not the component.
        """

    async def stop(self, name: str) -> Position:
        """Stop a component between two batches, and return how far it has come."""

    def kill(self, name: str) -> None:
        """Stop a component at once, as it is no longer this peer's; no error if it does not run."""


class Jobs:
    """The components of a fleet, in storage that all peers reach. A component never changes, so each is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, Job] = {}

    def add(self, job: Job) -> None:
        """Add a component; the same one twice is no error."""
        if not self._files.create(f"{_FOLDER}/{job.name}.json", job.to_bytes()) and self.read(job.name) != job:
            raise PeerError(f"component={job.name!r}: the fleet has another of this name; choose a new one")

    def read(self, name: str) -> Job:
        """Return a component."""
        if name in self._known:
            return self._known[name]
        check_name(name, "component")
        file = f"{_FOLDER}/{name}.json"
        content = self._files.read(file)
        if content is None:
            raise PeerError(f"component={name!r}: the fleet has no such component")
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
        """Let a component not run until it is resumed; who holds it sees that. Paused again, it stays so since then."""
        self.read(name)
        self._files.create(f"{_FOLDER}/{name}{_PAUSED}", Pause(at).to_bytes())

    def resume(self, name: str) -> None:
        """Let a component run again; no error if it was not paused."""
        self.read(name)
        self._files.delete(f"{_FOLDER}/{name}{_PAUSED}")

    def pause_of(self, name: str) -> Pause | None:
        """Return since when a component is paused, None if it is not."""
        file = f"{_FOLDER}/{name}{_PAUSED}"
        content = self._files.read(file)
        return None if content is None else Pause.from_bytes(content, file, "resume the component, or delete the file")

    def remove(self, name: str) -> None:
        """Take a component out of the fleet, for ever; who holds it sees that. Its name cannot be given again."""
        self.read(name)
        self._files.create(f"{_FOLDER}/{name}{_REMOVED}", b"1")

    def is_removed(self, name: str) -> bool:
        """Whether a component was taken out of the fleet."""
        return self._files.read(f"{_FOLDER}/{name}{_REMOVED}") is not None
