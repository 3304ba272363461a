"""The components that a peer holds: it takes leases, keeps raising their counters, and stops what it has lost."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from braided.errors import BraidedError, PeerError
from braided.fleet.agent import Agent
from braided.fleet.component_host import Host, HostError, Job, Jobs
from braided.fleet.event_log import Event
from braided.fleet.job_states import JobState
from braided.fleet.leases import FAILURES, SPAN, Beat, Lease, Leases, Position
from braided.fleet.peer_loads import Measured

_BEATS = 6  # beats per span
_EVENTS = 1000
_STEADY = 10
"""The number of spans that a component must run until its earlier failures no longer count."""
_LONGEST = 1000  # characters of a cause


@dataclass
class Held:
    """A lease of this peer. `renewed`: the start of the last beat that reached storage; `started`: that of its run.

    failures, problem, state, since : see `Beat`.
    """

    job: Job
    lease: Lease
    renewed: float
    counter: int = 0
    failures: int = 0
    problem: str = ""
    state: JobState = "starting"
    since: float = 0.0
    started: float = 0.0
    is_behind: bool = False
    is_running: bool = False
    is_leaving: bool = False
    is_released: bool = False
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class LeaseHolder:
    """The components that this peer owns. Only storage decides the owner."""

    def __init__(
        self,
        agent: Agent,
        host: Host,
        leases: Leases,
        jobs: Jobs,
        *,
        span: float = SPAN,
        log: Callable[[str, str], Event] | None = None,
    ) -> None:
        self.host = host
        self.jobs = jobs
        self.leases = leases
        self.span = span
        self.is_closing = False
        """Whether this peer accepts no more components, because it is about to leave."""
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        """The last thousand events of components at this peer."""
        self._agent = agent
        self._log = log
        self._held: dict[str, Held] = {}
        host.ended = self._ended
        host.lost = self._lost

    @property
    def names(self) -> list[str]:
        """The components that run here."""
        return sorted(name for name, held in self._held.items() if held.is_running)

    def held(self, name: str) -> Held | None:
        """Return a component that runs here."""
        held = self._held.get(name)
        return held if held is not None and held.is_running else None

    async def take(self, job: Job, epoch: int, expected: Position | None = None, *, forgives: bool = False) -> None:
        """Own a component from an epoch on and start it; `PeerError` if another has that epoch, or it cannot start.

        forgives : whether failures at earlier epochs no longer count.
        """
        machine = self._agent.machine
        if job.name in self._held:
            raise PeerError(f"component={job.name!r}: this peer already has it")
        lease = Lease(job.name, epoch, self._agent.contact, secrets.token_hex(8))
        held = self._held[job.name] = Held(job, lease, machine.now(), since=machine.time())
        try:
            try:
                taken = await machine.blocking(self.leases.take, lease)
            except (BraidedError, OSError) as error:
                raise PeerError(f"component={job.name!r}: {error}") from error
            if not taken:
                raise PeerError(f"component={job.name!r}: another peer has epoch {epoch}")
            if epoch > 0 and not forgives:
                await self._recall(held)
            machine.spawn(self._renew(held))
            try:
                await self.host.start(job, epoch, expected)
            except (BraidedError, OSError) as error:
                what = f"epoch {epoch} could not start"
                if isinstance(error, HostError | OSError):
                    self.note(job.name, f"{what}: {error}")
                else:
                    self._fail(held, what, str(error))
                await self._release(held, None)
                raise PeerError(f"component={job.name!r}: could not start: {error}") from error
        except PeerError:
            self._drop(held)
            raise
        if self._held.get(job.name) is not held:  # its lease was lost while it started
            self.host.kill(job.name)
            raise PeerError(f"component={job.name!r}: epoch {epoch} was lost while it started")
        held.is_running, held.started = True, machine.now()
        self.note(job.name, f"started with epoch {epoch}")
        machine.spawn(self._announce(held))

    async def _recall(self, held: Held) -> None:
        """Take over the count of failures from the previous epoch; start with none if storage has no count."""
        with contextlib.suppress(BraidedError, OSError):
            beat = await self._agent.machine.blocking(self.leases.beat_at, held.job.name, held.lease.epoch - 1)
            held.failures, held.problem = beat.failures, beat.problem
            if beat.failures:
                held.state, held.since = "failing", beat.since

    def _fail(self, held: Held, what: str, why: str) -> None:
        """Count a failure of a component; the count comes before the cause, whose text may be cut off."""
        held.failures, held.problem = held.failures + 1, why[:_LONGEST]
        self._set_state(held, "failed" if held.failures >= FAILURES else "failing")
        name = held.job.name
        last = f", not restarted until `braided fleet retry {name}`" if held.failures >= FAILURES else ""
        self.note(name, f"{what}, failure {held.failures} of {FAILURES}{last}: {why}")

    def check_open(self) -> None:
        """Raise if this peer is about to leave, and so accepts no components."""
        if self.is_closing:
            raise PeerError(f"peer {self._agent.contact.name} is about to leave")

    async def give(self, name: str, *, state: JobState = "orphaned") -> Position:
        """Stop a component between two batches and release its lease; return its position.

        state : its state from then on, until another peer has it.
        """
        held = self.held(name)
        if held is None or held.is_leaving:
            raise PeerError(f"component={name!r}: does not run here")
        held.is_leaving = True
        try:
            position = await self.host.stop(name)
        except (BraidedError, OSError) as error:
            held.is_leaving = False
            raise PeerError(f"component={name!r}: did not stop: {error}") from error
        if not held.failures:
            self._set_state(held, state)
        await self._release(held, position)
        self._drop(held)
        self.note(name, f"stopped after batch {position.batch}")
        return position

    async def restart(self, name: str) -> None:
        """Stop a component between two batches and continue it with the next epoch, unless another peer does."""
        held = self.held(name)
        if held is None:
            raise PeerError(f"component={name!r}: does not run here")
        position = await self.give(name, state="starting")
        await self.take_back(held.job, held.lease.epoch, position)

    async def _leave(self, name: str, why: str) -> None:
        """Stop a component that was removed or paused; a failure is retried with the next beat."""
        with contextlib.suppress(PeerError):
            await self.give(name)
            self.note(name, why)

    async def take_back(self, job: Job, epoch: int, position: Position | None) -> bool:
        """Take back a component that was released at an epoch, unless another peer has taken it."""
        lease = await self._agent.machine.blocking(self.leases.newest, job.name)
        if lease is None or lease.epoch < epoch:
            raise PeerError(f"component={job.name!r}: its lease of epoch {epoch} is missing; restore it from a copy")
        if lease.epoch > epoch:
            beat = await self._agent.machine.blocking(self.leases.beat_of, lease)
            if beat.released is None:
                return False
        await self.take(job, lease.epoch + 1, position if lease.epoch == epoch else None)
        return True

    async def _release(self, held: Held, position: Position | None) -> None:
        """Record in storage that this epoch has ended, so that other peers need not wait until it expires."""
        held.is_released = True
        if position is None and not held.failures:
            self._set_state(held, "orphaned")
        async with held.writing:
            held.counter += 1
            beat = self._beat(held, position or Position())
            try:
                await self._agent.machine.blocking(self.leases.beat, held.lease, beat)
            except (OSError, BraidedError) as error:
                self.note(held.job.name, f"its lease could not be released, and must expire: {error}")

    async def _renew(self, held: Held) -> None:
        """Raise the counter until the component leaves; stop it if another peer owns it or storage does not answer."""
        machine, name = self._agent.machine, held.job.name
        self._guard(held)
        while self._held.get(name) is held:
            begun = machine.now()
            try:
                newest = await machine.blocking(self.leases.newest, name)
                if newest is None or newest.token != held.lease.token:
                    self._lose(held, f"lost: another peer has epoch {newest.epoch if newest else None}")
                    return
                if held.is_running and await machine.blocking(self.jobs.is_removed, name):
                    machine.spawn(self._leave(name, "stopped, because it was removed"))
                elif held.is_running and await machine.blocking(self.jobs.pause_of, name) is not None:
                    machine.spawn(self._leave(name, "paused"))
                if held.is_running and begun - held.started >= _STEADY * self.span:
                    held.failures, held.problem = 0, ""
                if not await self._raise(held, begun):
                    return
            except (OSError, BraidedError) as error:
                self.note(name, f"its lease was not renewed: {error}")
            await machine.sleep(self.span / _BEATS)

    async def _raise(self, held: Held, begun: float) -> bool:
        """Write the next beat of a lease; False if it was released."""
        async with held.writing:
            if held.is_released:
                return False
            if held.is_running:
                self._set_state(held, self._state_of(held))
            held.counter += 1
            await self._agent.machine.blocking(self.leases.beat, held.lease, self._beat(held))
            held.renewed = begun
        return True

    def _state_of(self, held: Held) -> JobState:
        """Return the state of a component that runs here."""
        if held.failures:
            return "failing"
        if self.is_closing:
            return "draining"
        return "behind" if held.is_behind else "running"

    async def _announce(self, held: Held) -> None:
        """Write the state of a component as soon as it changes; if this fails, the next beat writes it."""
        with contextlib.suppress(BraidedError, OSError):
            await self._raise(held, self._agent.machine.now())

    def _beat(self, held: Held, released: Position | None = None) -> Beat:
        now = self._agent.machine.time()
        return Beat(held.counter, released, held.failures, held.problem, held.state, held.since, now)

    def _set_state(self, held: Held, state: JobState) -> None:
        if state != held.state:
            held.state, held.since = state, self._agent.machine.time()

    def watched(self, measured: Measured) -> Measured:
        """Record which components do not keep up with their input; return the measurements."""
        for part in measured.components:
            held = self._held.get(part.name)
            if held is not None and held.is_behind != part.is_behind:
                held.is_behind = part.is_behind
                self.note(part.name, "falls behind" if part.is_behind else "has caught up")
        return measured

    async def close(self) -> None:
        """Accept no more components; those at this peer are draining."""
        self.is_closing = True
        for held in list(self._held.values()):
            await self._announce(held)

    async def reopen(self) -> None:
        """Accept components again."""
        self.is_closing = False
        for held in list(self._held.values()):
            await self._announce(held)

    def _guard(self, held: Held) -> None:
        """Stop the component if its lease has not been renewed for half a span, even while storage does not answer."""
        if self._held.get(held.job.name) is not held:
            return
        if self._agent.machine.now() - held.renewed >= self.span / 2:
            self._lose(held, "stopped: its lease could not be renewed for half its span")
        else:
            self._agent.machine.later(self.span / (2 * _BEATS), lambda: self._guard(held))

    def _lose(self, held: Held, why: str) -> None:
        if self._held.get(held.job.name) is held:
            self._drop(held)
            self.host.kill(held.job.name)
            self.note(held.job.name, why)

    def _drop(self, held: Held) -> None:
        if self._held.get(held.job.name) is held:
            del self._held[held.job.name]

    def _ended(self, name: str, why: str) -> None:
        held = self._held.get(name)
        if held is not None and held.is_running:
            self._drop(held)
            self._agent.machine.spawn(self._count_end(held, why))

    async def _count_end(self, held: Held, why: str) -> None:
        """Count the end of a component as a failure, unless another peer has it by now, and release it."""
        newest = None
        with contextlib.suppress(BraidedError, OSError):
            newest = await self._agent.machine.blocking(self.leases.newest, held.job.name)
        if newest is None or newest.token == held.lease.token:
            self._fail(held, "ended", why)
        else:
            self.note(held.job.name, f"ended: {why}")
        await self._release(held, None)

    def _lost(self, name: str, why: str) -> None:
        held = self._held.get(name)
        if held is not None and held.is_running:
            self._drop(held)
            self.note(name, f"ended: {why}")
            self._agent.machine.spawn(self._release(held, None))

    def note(self, component: str, what: str) -> None:
        """Record an event, also in storage if there is a log."""
        contact, now = self._agent.contact, self._agent.machine.time()
        self.events.append(
            Event(now, contact.name, component, what) if self._log is None else self._log(component, what)
        )
