"""A peer: an agent with discovery, load reports, the watch, leases, migration and the guardian, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.agent_machine import Machine
from braided.fleet.component_host import Host, Job, Jobs
from braided.fleet.discovery import Discovery
from braided.fleet.event_log import EventLog
from braided.fleet.guardian import Guardian
from braided.fleet.launch import Launcher
from braided.fleet.lease_holder import LeaseHolder
from braided.fleet.leases import SPAN, Leases
from braided.fleet.load_watch import Move, Watch
from braided.fleet.master import HEADROOM, INTERVAL, Master
from braided.fleet.messages import Contact
from braided.fleet.migration import REHEARSAL, START, Migrator
from braided.fleet.operator_names import check_pattern
from braided.fleet.peer_loads import PERIOD, LoadReporter
from braided.fleet.peer_names import PeerNames
from braided.fleet.service import Service
from braided.fleet.survey import Survey
from braided.fleet.thresholds import Thresholds
from braided.storage.files import STORAGE, files_at


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Times in seconds, and limits of searches.

    period : between two measurements of the load.
    ttl : after which a host that does not register again is no longer found.
    span : T of a lease: a component of a failed peer is taken over after this time.
    rehearsal : the time that a target may take to prepare, while the source continues.
    start : the time that it may take to start, while the component does not run.
    placement : between two searches for a better placement.
    evaluations : after which a search ends, instead of after half a second; reproducible on every machine.
    thresholds : when a peer is a hot spot, and when loads are reported.
    """

    period: float = PERIOD
    ttl: float = 60.0
    span: float = SPAN
    rehearsal: float = REHEARSAL
    start: float = START
    placement: float = INTERVAL
    evaluations: int | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        for name in ("period", "ttl", "span", "rehearsal", "start", "placement"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise PeerError(f"{name}={value}: write a number of seconds above 0")
        if self.evaluations is not None and self.evaluations < 1:
            raise PeerError(f"evaluations={self.evaluations}: write at least 1, or None for half a second")


class Peer:
    """One peer of a fleet.

    storage : the fleet's directory, which all peers can reach.
    """

    def __init__(
        self, contact: Contact, machine: Machine, host: Host, storage: str, settings: Settings | None = None
    ) -> None:
        files = files_at(storage, STORAGE)
        self.log: Callable[[str], str] = lambda component: ""
        """A function that returns the last lines that the driver has logged about a component."""
        settings = settings or Settings()
        self.host = host
        self.agent = Agent(contact, machine)
        self.names = PeerNames(self.agent, files)
        self.discovery = Discovery(self.agent, ttl=settings.ttl)
        self.events = EventLog(self.agent, files)
        self.holding = LeaseHolder(
            self.agent, host, Leases(files), Jobs(files), span=settings.span, log=self.events.add
        )
        self.migrator = Migrator(self.agent, self.holding, rehearsal=settings.rehearsal, start=settings.start)
        thresholds, period = settings.thresholds, settings.period
        self.watch = Watch(self.discovery, self.migrator.order, period=period, thresholds=thresholds)
        self.watch.note = self.holding.note
        measure = lambda: self.holding.watched(host.measure())  # noqa: E731
        self.reporter = LoadReporter(self.discovery, measure, period=period, thresholds=thresholds)
        self.survey = Survey(self.agent, self.discovery, host, self.holding)
        self.guardian = Guardian(self.agent, self.discovery, self.watch, self.holding, self.survey)
        self.launcher = Launcher(self.agent, self.holding, self.survey, storage, patience=settings.start)
        self.service = Service(self, storage, settings.start, files)
        headroom = min(HEADROOM, thresholds.busy)
        self.master = Master(self, interval=settings.placement, evaluations=settings.evaluations, headroom=headroom)

    async def start(self, others: Iterable[Contact] = ()) -> None:
        """Join the fleet through known peers, and take part in everything from now on.

        `PeerError` if another peer has this one's name.
        """
        await self.names.claim()
        await self.discovery.join(others)
        await self.register()
        self.holding.note("", f"peer {self.agent.contact.name} has joined at {self.agent.contact.address}")
        for part in (self.discovery, self.reporter, self.watch, self.guardian, self.master):
            self.agent.machine.spawn(part.keep())

    async def submit(self, job: Job) -> None:
        """Add a component to the fleet; its guardian finds a host for it."""
        await self.agent.machine.blocking(self.holding.jobs.add, job)

    async def move(self, component: str, target: Contact) -> bool:
        """Move a component from its current peer to another one; return whether it has moved."""
        lease = await self.agent.machine.blocking(self.holding.leases.newest, component)
        if lease is None:
            raise PeerError(f"component={component!r}: is not running yet")
        return await self.migrator.order(Move(component, lease.holder, target, "ordered"))

    async def drain(self) -> list[str]:
        """Accept no more components, and move this peer's to others, the least loaded first; return those that stay."""
        await self.holding.close()
        self.holding.note(
            "", f"peer {self.agent.contact.name} is draining: it moves its jobs to other peers and accepts no more"
        )
        for pattern in self.discovery.registered:
            await self.discovery.unregister(pattern)
        for name in self.holding.names:
            held = self.holding.held(name)
            if held is None:
                continue
            hosts = await self.survey.describe(await self.survey.hosts_of([held.job.operator]))
            for target, _ in sorted(hosts.values(), key=lambda host: (host[1].load, host[0].node)):
                move = Move(name, self.agent.contact, target, "its peer is about to leave")
                if target.node != self.agent.contact.node and await self.migrator.order(move):
                    break
        return self.holding.names

    async def undrain(self) -> None:
        """Accept components again after `drain`; no error if this peer already does."""
        if self.holding.is_closing:
            await self.holding.reopen()
            await self.register()
            self.holding.note("", f"peer {self.agent.contact.name} accepts jobs again")

    async def register(self) -> None:
        """Register with the responsible peers what this peer can host."""
        for pattern in self.host.offers():
            await self.discovery.register(check_pattern(pattern))

    async def leave(self) -> None:
        """Write the last events, before the process ends."""
        self.holding.note("", f"peer {self.agent.contact.name} has left")
        await self.events.flush()
