"""The service of a peer: answers requests of users, from storage and from the reports of peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from braided.errors import BraidedError, PeerError
from braided.fleet import requests
from braided.fleet.applications import ApplicationFile
from braided.fleet.component_host import Job
from braided.fleet.definition import component_of
from braided.fleet.event_log import EventReader
from braided.fleet.job_states import state_of
from braided.fleet.leases import Beat, Lease
from braided.fleet.load_watch import Move
from braided.fleet.messages import Contact, Done, Message, Ping, expect
from braided.fleet.peer_names import find_peer
from braided.fleet.survey import Description, group_reasons
from braided.storage.files import Files

if TYPE_CHECKING:
    from braided.fleet.fleet_peer import Peer

_TRIED = 3
"""The number of peers that are asked to rehearse a new component before it is refused."""
_KNOWN = 1000

Described = tuple[Contact, Description]


class Service:
    """Part of every peer. Everybody who has the fleet's token may send requests.

    patience : seconds that a peer may take to build a new component, and to start it.
    """

    def __init__(self, peer: Peer, storage: str, patience: float, files: Files) -> None:
        self._peer = peer
        self._reader = EventReader(files)
        self._reading = asyncio.Lock()
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
        agent.on(requests.Pause, self._pause)
        agent.on(requests.Resume, lambda sender, wanted: self._resume(wanted.component))
        agent.on(requests.Restart, lambda sender, wanted: self._restart(wanted.component))
        agent.on(requests.RestartHere, self._restart_here)
        agent.on(requests.Drain, self._drain)
        agent.on(requests.Undrain, self._undrain)
        agent.on(requests.ListEvents, self._events)
        agent.on(requests.ReadLog, lambda sender, asked: self._log(asked.component))
        agent.on(requests.LogHere, self._log_here)

    # Jobs.

    async def _submit(self, sender: Contact, wanted: requests.Submit) -> Message:
        job = component_of(wanted.text, wanted.file)
        if await self._agent.machine.blocking(self._is_failed, job) and not wanted.is_trial:
            return await self._retry(job.name)
        await self._agent.machine.blocking(self._check_new, job)
        hosts = await self._survey.describe(await self._survey.hosts_of([job.operator]))
        offering = [host for host in hosts.values() if host[1].offers]  # a host whose JVM hangs offers nothing
        if not offering:
            raise PeerError(f"operator={job.operator!r}: no peer offers it; start a peer that does")
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
        if started is None:  # no other peer must start it as well: this one may still start it
            raise PeerError(
                f"component={job.name!r}: peer {host.name} has not answered for {self._patience:.0f} seconds; "
                "braided fleet status lists it if it runs, else submit it again"
            )
        return started.reason.removeprefix(f"component={job.name!r}: ")

    async def _start(self, sender: Contact, wanted: requests.Start) -> Message:
        """Start a new component, and only then add it to the fleet: if it cannot start, its name remains free."""
        machine, holding, job = self._agent.machine, self._holding, wanted.job
        holding.check_open()
        holding.host.check(job)
        lease = await machine.blocking(holding.leases.newest, job.name)
        if lease is not None and await self._is_held(lease):
            raise PeerError(
                f"component={job.name!r}: peer {lease.holder.name} has just started to start it; wait a moment"
            )
        await holding.take(job, 0 if lease is None else lease.epoch + 1, forgives=True)
        try:
            await machine.blocking(holding.jobs.add, job)
        except (BraidedError, OSError) as error:
            await holding.give(job.name)
            raise PeerError(f"component={job.name!r}: the fleet's storage cannot store it: {error}") from error
        return Done()

    async def _is_held(self, lease: Lease) -> bool:
        """Whether an answering peer has a lease of a component that the fleet does not have yet."""
        beat = await self._agent.machine.blocking(self._holding.leases.beat_of, lease)
        return beat.released is None and await self._agent.ask(lease.holder, Ping()) is not None

    async def _retry(self, name: str) -> Message:
        host = await self._peer.guardian.retry(await self._job(name), self._patience)
        return requests.Submitted(name, host.name, "tried again")

    async def _job(self, name: str, *, may_be_paused: bool = False) -> Job:
        """Return a component that may run; `PeerError` if it was removed or paused."""
        machine, jobs = self._agent.machine, self._holding.jobs
        job = await machine.blocking(jobs.read, name)
        if await machine.blocking(jobs.is_removed, name):
            raise PeerError(f"component={name!r}: was removed")
        if not may_be_paused and await machine.blocking(jobs.pause_of, name) is not None:
            raise PeerError(f"component={name!r}: is paused; run braided fleet resume {name} first")
        return job

    async def _pause(self, sender: Contact, wanted: requests.Pause) -> Message:
        await self._job(wanted.component, may_be_paused=True)
        await self._agent.machine.blocking(self._holding.jobs.pause, wanted.component, self._agent.machine.time())
        return Done()

    async def _resume(self, name: str) -> Message:
        machine, holding = self._agent.machine, self._holding
        job = await self._job(name, may_be_paused=True)
        await machine.blocking(holding.jobs.resume, name)
        lease = await machine.blocking(holding.leases.newest, name)
        if lease is not None and (await machine.blocking(holding.leases.beat_of, lease)).released is None:
            return requests.Submitted(name, lease.holder.name, "it had not stopped yet")
        host = await self._peer.guardian.retry(job, self._patience, forgives=False)
        return requests.Submitted(name, host.name, "resumed")

    async def _restart(self, name: str) -> Message:
        machine, leases = self._agent.machine, self._holding.leases
        job = await self._job(name)
        lease = await machine.blocking(leases.newest, name)
        if lease is None or (await machine.blocking(leases.beat_of, lease)).released is not None:
            host = await self._peer.guardian.retry(job, self._patience)
            return requests.Submitted(name, host.name, "nobody ran it")
        reply = expect(await self._agent.ask(lease.holder, requests.RestartHere(name), 2 * self._patience), Done)
        if reply is None:
            raise PeerError(
                f"component={name!r}: peer {lease.holder.name} does not answer; if it has failed, another peer takes "
                "over the component when the lease has expired"
            )
        if not reply.ok:
            raise PeerError(reply.reason)
        return requests.Submitted(name, lease.holder.name, "restarted")

    async def _restart_here(self, sender: Contact, wanted: requests.RestartHere) -> Message:
        await self._holding.restart(wanted.component)
        return Done()

    def _is_failed(self, job: Job) -> bool:
        """Whether the fleet has exactly this component, and it has failed: then submitting it again retries it."""
        jobs, leases = self._holding.jobs, self._holding.leases
        if job.name not in jobs.names() or jobs.read(job.name) != job:
            return False
        lease = leases.newest(job.name)
        return lease is not None and leases.beat_of(lease).is_failed

    def _check_new(self, job: Job) -> None:
        jobs = self._holding.jobs
        if jobs.is_removed(job.name):
            raise PeerError(f"component={job.name!r}: a component of this name was removed; choose another name")
        for name in jobs.names():
            other = jobs.read(name)
            if name == job.name:
                raise PeerError(f"component={name!r}: the fleet has a component of this name; choose another name")
            if other.checkpoint == job.checkpoint:
                raise PeerError(f"checkpoint={job.checkpoint!r}: belongs to component {name!r}; give a new one")
            if set(other.outputs) & set(job.outputs):
                raise PeerError(f"sink.path={job.outputs[0]!r}: component {name!r} writes there; give another path")

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
        rows = [
            requests.PeerRow(contact, report.load, report.cores, report.drains)
            for contact, report in peers[: requests.PAGE]
        ]
        return requests.Peers(tuple(rows))

    async def _components(self, sender: Contact, request: requests.ListComponents) -> Message:
        everything = await self._agent.machine.blocking(self._holding.jobs.names)
        names = [name for name in everything if name > request.after][: requests.PAGE]
        rows = await self._agent.machine.blocking(lambda: [self._row(name) for name in names])
        holders = {contact.node: contact for _, contact, _ in rows if contact is not None}
        described = await self._survey.describe(holders.values())
        measured = {(node, part.name): part for node, (_, report) in described.items() for part in report.components}
        answered: list[requests.ComponentRow] = []
        for row, contact, state in rows:
            node = "" if contact is None else contact.node
            name, since = state(node in described)
            answered.append(replace(row, state=name, since=since, measured=measured.get((node, row.name))))
        return requests.Components(tuple(answered))

    def _row(self, name: str) -> tuple[requests.ComponentRow, Contact | None, Callable[[bool], tuple[str, float]]]:
        """Return a component's row from storage, its holder, and a function of whether this answers to its state."""
        pause = self._holding.jobs.pause_of(name)
        job = self._holding.jobs.read(name)
        output = requests.shortened(job.outputs[0]) if job.outputs else ""
        lease = self._holding.leases.newest(name)
        if lease is None:
            row = requests.ComponentRow(name, job.operator, output)
            return row, None, lambda answers: state_of(None, Beat(0), pause, answers=answers)
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
        return row, lease.holder, lambda answers: state_of(lease, beat, pause, answers=answers)

    async def _events(self, sender: Contact, asked: requests.ListEvents) -> Message:
        await self._peer.events.flush()
        async with self._reading:
            read = await self._agent.machine.blocking(self._reader.read)
        wanted = [
            one
            for one in read
            if one.number > asked.after and one.event.at >= asked.since and asked.component in ("", one.event.component)
        ]
        if asked.newest:
            wanted = sorted(wanted, key=lambda one: one.event.at)[-min(asked.newest, requests.PAGE) :]
        page = wanted[: requests.PAGE]
        more = len(page) < len(wanted)
        rows = tuple(replace(one.event, what=requests.shortened(one.event.what)) for one in page)
        last = page[-1].number if more else max([asked.after, *(one.number for one in read[-1:])])
        return requests.Events(rows, last, more)

    async def _log(self, name: str) -> Message:
        machine = self._agent.machine
        await machine.blocking(self._holding.jobs.read, name)
        lease = await machine.blocking(self._holding.leases.newest, name)
        if lease is None:
            raise PeerError(f"component={name!r}: has not run yet; braided fleet events --job {name} shows why")
        reply = await self._agent.ask(lease.holder, requests.LogHere(name))
        if reply is None:
            raise PeerError(f"component={name!r}: peer {lease.holder.name}, which ran it last, does not answer")
        return reply

    async def _log_here(self, sender: Contact, asked: requests.LogHere) -> Message:
        lines = await self._agent.machine.blocking(self._peer.log, asked.component)
        return requests.Log(self._agent.contact.name, lines)

    async def _everybody(self) -> dict[str, Described]:
        """Return all answering peers: hosts of components, and contacts of this peer."""
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
        await self._job(wanted.component)
        lease = await self._agent.machine.blocking(leases.newest, wanted.component)
        if lease is None:
            raise PeerError(f"component={wanted.component!r}: is not running yet")
        target = find_peer(wanted.peer, [contact for contact, _ in (await self._everybody()).values()])
        beat = await self._agent.machine.blocking(leases.beat_of, lease)
        if lease.holder.node == target.node and beat.released is None:
            return Done(True, "already runs there")
        end = await self._peer.migrator.carry_out(Move(wanted.component, lease.holder, target, "ordered by a user"))
        return Done(end.ok, end.reason)

    async def _remove(self, sender: Contact, wanted: requests.Remove) -> Message:
        await self._agent.machine.blocking(self._holding.jobs.remove, wanted.component)
        return Done()

    async def _drain(self, sender: Contact, wanted: requests.Drain) -> Message:
        return requests.Drained(tuple(await self._peer.drain()))

    async def _undrain(self, sender: Contact, wanted: requests.Undrain) -> Message:
        await self._peer.undrain()
        return Done()


def _why(ranked: list[Described]) -> str:
    (first, report), *others = ranked
    beside = "".join(f"; {contact.name} {other.load:.2f}" for contact, other in others[:10])
    return f"peer {first.name} is the least loaded, {report.load:.2f} of its {report.cores:g} cores{beside}"
