"""The guardian of a component: the responsible peer, which gives it to a host when it has none or its host has died."""

from __future__ import annotations

from dataclasses import dataclass

from braided.errors import BraidedError, PeerError
from braided.peers.agent import Agent
from braided.peers.buckets import key_of
from braided.peers.discovery import Discovery
from braided.peers.holding import Holding
from braided.peers.host import Job
from braided.peers.leases import Lease, Observer
from braided.peers.messages import Contact, Done, Message, message
from braided.peers.names import covers
from braided.peers.watch import Watch

_LOOKS = 4  # at the leases, in a span
_LET_GO = 1 / 3
"""The part of a span after which a lease that was let go of is free: whoever takes the component over takes less."""


@message
@dataclass(frozen=True)
class Revive(Message):
    """Take over a component whose last epoch is over; -1 if it never ran."""

    component: str
    epoch: int


class Guardian:
    """Part of every peer; acts for the components to whose operator's key no other peer is nearer.

    What it believes may be wrong, and two peers may believe that they are the guardian: only one of those whom they ask
    can create the next epoch.
    """

    def __init__(self, agent: Agent, discovery: Discovery, watch: Watch, holding: Holding) -> None:
        self._agent = agent
        self._discovery = discovery
        self._watch = watch
        self._holding = holding
        self._observer = Observer(holding.span)
        self._tried: dict[str, list[str]] = {}
        self._moved: dict[str, int] = {}
        agent.on(Revive, self._revive)

    async def keep(self) -> None:
        """Look after the components for ever."""
        while True:
            await self._agent.machine.sleep(self._holding.span / _LOOKS)
            try:
                await self.step()
            except (BraidedError, OSError) as error:
                self._holding.note("", f"the guardian could not look: {error}")

    async def step(self) -> None:
        """Look once at the leases of all components that this peer guards."""
        machine, leases = self._agent.machine, self._holding.leases
        for name in await machine.blocking(self._holding.jobs.names):
            job = await machine.blocking(lambda: self._holding.jobs.read(name))  # noqa: B023
            if not self._discovery.is_nearest(key_of(job.operator)):
                continue
            lease = await machine.blocking(lambda: leases.newest(name))  # noqa: B023
            if lease is None:
                await self._give(job, -1)
                continue
            await self._note_move(lease)
            beat = await machine.blocking(lambda: leases.beat_of(lease))  # noqa: B023
            part = 1.0 if beat.released is None else _LET_GO
            if self._observer.expired(name, lease.epoch, beat.counter, machine.now(), part):
                await self._give(job, lease.epoch)
            else:
                self._tried.pop(name, None)

    async def _note_move(self, lease: Lease) -> None:
        """Tell the watch where a component was before, so that it does not bounce; whoever had it moved."""
        name = lease.component
        if lease.epoch > max(0, self._moved.get(name, 0)):
            self._moved[name] = lease.epoch
            leases = self._holding.leases
            before = await self._agent.machine.blocking(lambda: leases.read(name, lease.epoch - 1))
            if before.holder.node != lease.holder.node:
                self._watch.moved(name, before.holder.node, lease.holder.node)

    async def _give(self, job: Job, epoch: int) -> None:
        """Ask the least loaded host that has not been asked yet to take a component over."""
        tried = self._tried.setdefault(job.name, [])
        hosts = self._candidates(job)
        untried = [host for host in hosts if host.node not in tried]
        if not untried:
            self._tried[job.name] = []
            untried = hosts
        if untried:
            tried = self._tried[job.name]
            tried.append(untried[0].node)
            await self._agent.ask(untried[0], Revive(job.name, epoch), self._holding.span)

    def _candidates(self, job: Job) -> list[Contact]:
        loads = self._watch.loads
        hosts = [
            contact
            for contact, report in loads.reports().values()
            if any(covers(pattern, job.operator) for pattern in report.hosts)
        ]
        return sorted(hosts, key=lambda host: (loads.load(host.node), host.node))

    async def _revive(self, sender: Contact, wanted: Revive) -> Message:
        self._holding.check_open()
        jobs = self._holding.jobs
        job = await self._agent.machine.blocking(lambda: jobs.read(wanted.component))
        if await self._agent.machine.blocking(lambda: jobs.is_removed(wanted.component)):
            raise PeerError(f"component={wanted.component!r}: was removed")
        if not any(covers(pattern, job.operator) for pattern in self._holding.host.offers()):
            raise PeerError(f"operator={job.operator!r}: cannot run here")
        await self._holding.take(job, wanted.epoch + 1)
        return Done()
