"""The service of a peer: answers what users ask, from storage and from what peers say of themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from braided.errors import BraidedError, PeerError
from braided.fleet import requests
from braided.fleet.applications import ApplicationFile
from braided.fleet.component_host import Job
from braided.fleet.definition import component_of
from braided.fleet.leases import Lease
from braided.fleet.load_watch import Move
from braided.fleet.messages import Contact, Done, Message, Ping, expect
from braided.fleet.peer_names import find_peer
from braided.fleet.survey import Description, group_reasons

if TYPE_CHECKING:
    from braided.fleet.fleet_peer import Peer

_TRIED = 3
"""Peers that are asked to rehearse a new component before it is refused."""
_KNOWN = 1000

Described = tuple[Contact, Description]


class Service:
    """Part of every peer. Whoever has the fleet's token may ask.

    patience : seconds that a peer may take to build a new component, and to start it.
    """

    def __init__(self, peer: Peer, storage: str, patience: float) -> None:
        self._peer = peer
        self._agent, self._holding, self._survey = peer.agent, peer.holding, peer.survey
        self._patience = patience
        agent = peer.agent
        agent.on(requests.WhichStorage, lambda sender, asked: requests.Storage(storage))
        agent.on(requests.Submit, self._submit)
        agent.on(requests.Launch, self._launch)
        agent.on(requests.Rehearse, self._rehearse)
        agent.on(requests.Start, self._start)
        agent.on(requests.ListPeers, self._peers)
        agent.on(requests.ListComponents, self._components)
        agent.on(requests.MoveTo, self._move)
        agent.on(requests.Remove, self._remove)
        agent.on(requests.Retry, lambda sender, wanted: self._retry(wanted.component))
        agent.on(requests.Drain, self._drain)
        agent.on(requests.ListEvents, lambda sender, asked: self._events())

    # Jobs.

    async def _submit(self, sender: Contact, wanted: requests.Submit) -> Message:
        job = component_of(wanted.text, wanted.file)
        if await self._agent.machine.blocking(self._is_failed, job) and not wanted.is_trial:
            return await self._retry(job.name)
        await self._agent.machine.blocking(self._check_new, job)
        hosts = await self._survey.describe(await self._survey.hosts_of([job.operator]))
        offering = [host for host in hosts.values() if host[1].offers]  # one whose JVM hangs offers nothing
        if not offering:
            raise PeerError(f"operator={job.operator!r}: no peer offers it; start one that does")
        ranked = sorted(offering, key=lambda host: (host[1].load, host[0].node))
        if wanted.is_trial:
            return requests.Submitted(job.name, ranked[0][0].name, _why(ranked))
        refused: dict[str, list[str]] = {}
        for at, (host, _) in enumerate(ranked[:_TRIED]):
            ready = expect(await self._agent.ask(host, requests.Rehearse(job), self._patience), Done)
            if ready is not None and ready.ok:
                problem = await self._place(job, host)
                if not problem:
                    why = filter(None, (_why(ranked[at:]), group_reasons(refused)))
                    return requests.Submitted(job.name, host.name, "; ".join(why))
            else:
                problem = ready.reason if ready is not None else "does not answer"
            refused.setdefault(problem, []).append(host.name)
        raise PeerError(f"component={job.name!r}: {group_reasons(refused)}")

    async def _place(self, job: Job, host: Contact) -> str:
        started = expect(await self._agent.ask(host, requests.Start(job), self._patience), Done)
        if started is None:  # another must not start it as well: this one may still
            raise PeerError(
                f"component={job.name!r}: peer {host.name} has not answered for {self._patience:.0f} seconds; "
                "braided fleet status lists it if it runs, else submit it again"
            )
        return started.reason.removeprefix(f"component={job.name!r}: ")

    async def _start(self, sender: Contact, wanted: requests.Start) -> Message:
        """Start a new component, and only then add it to the fleet: one that cannot start leaves its name free."""
        machine, holding, job = self._agent.machine, self._holding, wanted.job
        holding.check_open()
        holding.host.check(job)
        lease = await machine.blocking(holding.leases.newest, job.name)
        if lease is not None and await self._is_held(lease):
            raise PeerError(f"component={job.name!r}: peer {lease.holder.name} has just begun to start it")
        await holding.take(job, 0 if lease is None else lease.epoch + 1, forgives=True)
        try:
            await machine.blocking(holding.jobs.add, job)
        except (BraidedError, OSError) as error:
            await holding.give(job.name)
            raise PeerError(f"component={job.name!r}: the fleet cannot keep it: {error}") from error
        return Done()

    async def _is_held(self, lease: Lease) -> bool:
        """Whether a peer that answers has a lease, of a component that the fleet does not have yet."""
        beat = await self._agent.machine.blocking(self._holding.leases.beat_of, lease)
        return beat.released is None and await self._agent.ask(lease.holder, Ping()) is not None

    async def _retry(self, name: str) -> Message:
        machine, jobs = self._agent.machine, self._holding.jobs
        job = await machine.blocking(jobs.read, name)
        if await machine.blocking(jobs.is_removed, name):
            raise PeerError(f"component={name!r}: was removed")
        host = await self._peer.guardian.retry(job, self._patience)
        return requests.Submitted(name, host.name, "tried again")

    def _is_failed(self, job: Job) -> bool:
        """Whether the fleet has this very component, and it has failed: to submit it again is to retry it."""
        jobs, leases = self._holding.jobs, self._holding.leases
        if job.name not in jobs.names() or jobs.read(job.name) != job:
            return False
        lease = leases.newest(job.name)
        return lease is not None and leases.beat_of(lease).is_failed

    def _check_new(self, job: Job) -> None:
        jobs = self._holding.jobs
        if jobs.is_removed(job.name):
            raise PeerError(f"component={job.name!r}: one of this name was removed; choose another")
        for name in jobs.names():
            other = jobs.read(name)
            if name == job.name:
                raise PeerError(f"component={name!r}: the fleet has one of this name; choose another")
            if other.checkpoint == job.checkpoint:
                raise PeerError(f"checkpoint={job.checkpoint!r}: is that of component {name!r}; give a new one")
            if set(other.outputs) & set(job.outputs):
                raise PeerError(f"sink.path={job.outputs[0]!r}: component {name!r} writes there; give another")

    async def _launch(self, sender: Contact, wanted: requests.Launch) -> Message:
        application = ApplicationFile(wanted.name, wanted.latency, wanted.steps).application()
        composition, contacts = await self._peer.launcher.composed(application)
        problems: dict[str, str] = {}
        if not wanted.is_trial:
            problems = await self._peer.launcher.start(application, composition, contacts)
        rows = [
            requests.PlacedRow(
                f"{wanted.name}.{one.step.name}",
                contacts[one.node].name,
                one.arrives,
                one.shared.component if one.shared else "",
                requests.shortened(problems.get(f"{wanted.name}.{one.step.name}", "")),
            )
            for one in composition.placed
        ]
        return requests.Launched(tuple(rows), composition.latency)

    async def _rehearse(self, sender: Contact, wanted: requests.Rehearse) -> Message:
        self._holding.check_open()
        await self._holding.host.rehearse(wanted.job)
        return Done()

    # Lists.

    async def _peers(self, sender: Contact, request: requests.ListPeers) -> Message:
        peers = [peer for node, peer in sorted((await self._everybody()).items()) if node > request.after]
        rows = [requests.PeerRow(contact, report.load, report.cores) for contact, report in peers[: requests.PAGE]]
        return requests.Peers(tuple(rows))

    async def _components(self, sender: Contact, request: requests.ListComponents) -> Message:
        everything = await self._agent.machine.blocking(self._holding.jobs.names)
        names = [name for name in everything if name > request.after][: requests.PAGE]
        rows = await self._agent.machine.blocking(lambda: [self._row(name) for name in names])
        holders = {contact.node: contact for _, contact in rows if contact is not None}
        described = await self._survey.describe(holders.values())
        measured = {(node, part.name): part for node, (_, report) in described.items() for part in report.components}
        return requests.Components(
            tuple(
                row if contact is None else replace(row, measured=measured.get((contact.node, row.name)))
                for row, contact in rows
            )
        )

    def _row(self, name: str) -> tuple[requests.ComponentRow, Contact | None]:
        job = self._holding.jobs.read(name)
        output = requests.shortened(job.outputs[0]) if job.outputs else ""
        lease = self._holding.leases.newest(name)
        if lease is None:
            return requests.ComponentRow(name, job.operator, output), None
        beat = self._holding.leases.beat_of(lease)
        row = requests.ComponentRow(
            name,
            job.operator,
            output,
            lease.epoch,
            lease.holder.name,
            is_released=beat.released is not None,
            failures=beat.failures,
            problem=requests.shortened(beat.problem),
            is_failed=beat.is_failed,
        )
        return row, lease.holder

    def _events(self) -> Message:
        now = self._agent.machine.now()
        rows = [
            requests.EventRow(now - event.at, event.component, requests.shortened(event.what))
            for event in list(self._holding.events)[-requests.PAGE :]
        ]
        return requests.Events(tuple(rows))

    async def _everybody(self) -> dict[str, Described]:
        """Return all peers that answer: those that host something, and those that this one has met."""
        machine, holding = self._agent.machine, self._holding
        names = await machine.blocking(holding.jobs.names)
        operators = await machine.blocking(lambda: {holding.jobs.read(name).operator for name in names})
        hosts = await self._survey.hosts_of(operators or {"any"})
        met = self._peer.discovery.buckets.closest(self._agent.contact.number, _KNOWN)
        known = {contact.node: contact for contact in (self._agent.contact, *met, *hosts)}
        return await self._survey.describe(known.values())

    # Moves.

    async def _move(self, sender: Contact, wanted: requests.MoveTo) -> Message:
        leases = self._holding.leases
        await self._agent.machine.blocking(self._holding.jobs.read, wanted.component)
        lease = await self._agent.machine.blocking(leases.newest, wanted.component)
        if lease is None:
            raise PeerError(f"component={wanted.component!r}: does not run yet")
        target = find_peer(wanted.peer, [contact for contact, _ in (await self._everybody()).values()])
        end = await self._peer.migrator.carry_out(Move(wanted.component, lease.holder, target, "ordered by a user"))
        return Done(end.ok, end.reason)

    async def _remove(self, sender: Contact, wanted: requests.Remove) -> Message:
        await self._agent.machine.blocking(self._holding.jobs.remove, wanted.component)
        return Done()

    async def _drain(self, sender: Contact, wanted: requests.Drain) -> Message:
        return requests.Drained(tuple(await self._peer.drain()))


def _why(ranked: list[Described]) -> str:
    (first, report), *others = ranked
    beside = "".join(f"; {contact.name} {other.load:.2f}" for contact, other in others[:10])
    return f"peer {first.name} is the least loaded, {report.load:.2f} of its {report.cores:g} cores{beside}"
