"""The guardian of a component: the responsible peer, which starts it if it has no host or its host has failed."""

from __future__ import annotations

from dataclasses import dataclass

from braided.errors import BraidedError, PeerError
from braided.fleet.agent import Agent
from braided.fleet.component_host import Job
from braided.fleet.contact_buckets import key_of
from braided.fleet.discovery import Discovery
from braided.fleet.lease_holder import LeaseHolder
from braided.fleet.leases import Lease, Observer
from braided.fleet.load_watch import Watch
from braided.fleet.messages import Contact, Done, Message
from braided.fleet.operator_names import covers, patterns_of
from braided.fleet.survey import Survey, group_reasons
from braided.fleet.thresholds import LEVELS

_LOOKS = 4  # how often the leases are read in a span
_RELEASED = 1 / 3
"""The part of a span after which a released lease can be taken; doubled by every further failure of the component.

A peer to which the component is being moved takes the lease earlier."""

_OFFERS_NOTHING = "no longer offers it, or its Spark does not answer"


class Revive(Message):
    """Take over a component after its last epoch, -1 if it never ran. A user's retry resets the count of failures."""

    component: str
    epoch: int
    forgives: bool = False


@dataclass(frozen=True)
class Attempt:
    """The peer that has taken a component over, None if no peer has, and why the component does not run."""

    host: Contact | None
    problem: str = ""


class Guardian:
    """Part of every peer; acts for the components to whose operator's key no other answering peer is nearer.

    Its view may be wrong, and two peers may both act as the guardian: only one of the hosts that they ask can create
    the next epoch.
    """

    def __init__(self, agent: Agent, discovery: Discovery, watch: Watch, holding: LeaseHolder, survey: Survey) -> None:
        self._agent = agent
        self._discovery = discovery
        self._watch = watch
        self._holding = holding
        self._survey = survey
        self._observer = Observer(holding.span)
        self._reviving: set[str] = set()
        self._problems: dict[str, str] = {}
        """The reason why a component does not run, as in the last event about it."""
        self._moved: dict[str, int] = {}
        self._expired: dict[str, int] = {}
        """The epoch of each component's last lease that has expired."""
        agent.on(Revive, self._revive)

    async def keep(self) -> None:
        """Check the components for ever."""
        while True:
            await self._agent.machine.sleep(self._holding.span / _LOOKS)
            try:
                await self.step()
            except (BraidedError, OSError) as error:
                self._holding.note("", f"the guardian could not read the leases: {error}")

    async def step(self) -> None:
        """Read the leases of all components that this peer guards or watches, once."""
        machine, leases = self._agent.machine, self._holding.leases
        names, paused = await machine.blocking(self._holding.jobs.listed)
        jobs = [await machine.blocking(self._holding.jobs.read, name) for name in names]
        guarded = await self._discovery.nearest_of({job.operator for job in jobs})
        for job in jobs:
            if job.operator not in guarded and not self._is_watched(job):
                continue
            lease = await machine.blocking(leases.newest, job.name)
            if lease is not None:
                await self._note_move(lease)
            if job.operator in guarded and job.name not in self._reviving and job.name not in paused:
                await self._look(job, lease)

    async def _look(self, job: Job, lease: Lease | None) -> None:
        machine, leases = self._agent.machine, self._holding.leases
        if lease is not None:
            beat = await machine.blocking(leases.beat_of, lease)
            part = 1.0 if beat.released is None else _RELEASED * 2 ** max(0, beat.failures - 1)
            if beat.is_failed or not self._observer.expired(job.name, lease.epoch, beat.counter, machine.now(), part):
                self._problems.pop(job.name, None)
                return
            if beat.released is None and self._expired.get(job.name) != lease.epoch:
                self._expired[job.name] = lease.epoch
                self._holding.note(
                    job.name, f"peer {lease.holder.name} has failed or is disconnected: its lease has expired"
                )
        self._reviving.add(job.name)
        machine.spawn(self._give(job, lease))

    def _is_watched(self, job: Job) -> bool:
        """Whether the watch of this peer may move a component; then it must know where the component was before."""
        return any(self._discovery.is_nearest(key_of(pattern)) for pattern in patterns_of(job.operator))

    async def _note_move(self, lease: Lease) -> None:
        """Tell the watch where a component was before, so that it does not move back."""
        name = lease.component
        if lease.epoch > max(0, self._moved.get(name, 0)):
            self._moved[name] = lease.epoch
            leases = self._holding.leases
            before = await self._agent.machine.blocking(leases.read, name, lease.epoch - 1)
            if before.holder.node != lease.holder.node:
                self._watch.moved(name, before.holder.node, lease.holder.node)

    async def _give(self, job: Job, lease: Lease | None) -> None:
        """Ask one host after the other to take over a component; an event reports why none did."""
        try:
            attempt = await self._find_host(job, Revive(job.name, _epoch(lease)), lease, self._holding.span)
        except (BraidedError, OSError) as error:
            attempt = Attempt(None, str(error))
        finally:
            self._reviving.discard(job.name)
        if attempt.host is None and attempt.problem != self._problems.get(job.name):
            self._holding.note(job.name, f"no peer could take it over: {attempt.problem}")
        self._problems[job.name] = attempt.problem

    async def retry(self, job: Job, patience: float, *, forgives: bool = True) -> Contact:
        """Start a component that does not run, at once; return its peer.

        forgives : whether to reset its count of failures.
        """
        machine, leases, name = self._agent.machine, self._holding.leases, job.name
        lease = await machine.blocking(leases.newest, name)
        if lease is not None and (await machine.blocking(leases.beat_of, lease)).released is None:
            raise PeerError(
                f"component={name!r}: has not failed; it runs at {lease.holder.name}, or did until recently"
            )
        attempt = await self._find_host(job, Revive(name, _epoch(lease), forgives=forgives), lease, patience)
        if attempt.host is None:
            raise PeerError(f"component={name!r}: no peer could take it over: {attempt.problem}")
        if attempt.problem:
            raise PeerError(f"peer {attempt.host.name}: {attempt.problem}")
        return attempt.host

    async def _find_host(self, job: Job, revive: Revive, lease: Lease | None, patience: float) -> Attempt:
        refusals: dict[str, list[str]] = {}
        for host in await self._candidates(job, lease, refusals):
            reply = await self._agent.ask(host, revive, patience)
            if reply == Done():
                return Attempt(host)
            reason = reply.reason if isinstance(reply, Done) else "does not answer"
            newest = await self._agent.machine.blocking(self._holding.leases.newest, job.name)
            if newest is not None and newest != lease:  # this host has taken it, or another one
                return Attempt(newest.holder, reason if newest.holder == host else "")
            refusals.setdefault(reason, []).append(host.name)
        return Attempt(None, group_reasons(refusals) or f"no peer offers operator {job.operator!r}")

    async def _candidates(self, job: Job, lease: Lease | None, refusals: dict[str, list[str]]) -> list[Contact]:
        """Return the hosts that offer a component's operator, the best first; add the reasons why others cannot.

        All peers are asked: reports of loads go to the peers responsible for what hosts offer, not to this peer. The
        jobs of a failed peer have many guardians, which all see the same loads. So hosts with the same load level are
        in a different order for every component. The last holder comes last, because it has failed.
        """
        hosts = await self._survey.hosts_of([job.operator])
        described = await self._survey.describe(hosts)
        candidates: list[tuple[bool, int, int, Contact]] = []
        for host in hosts:
            if host.node not in described:
                refusals.setdefault("does not answer", []).append(host.name)
                continue
            report = described[host.node][1]
            if any(covers(pattern, job.operator) for pattern in report.offers):
                is_last = lease is not None and host.node == lease.holder.node
                order = key_of(f"{job.name} {host.node}")
                candidates.append((is_last, LEVELS.level(report.load, None), order, host))
            else:
                refusals.setdefault(_OFFERS_NOTHING, []).append(host.name)
        return [host for *_, host in sorted(candidates, key=lambda candidate: candidate[:3])]

    async def _revive(self, sender: Contact, wanted: Revive) -> Message:
        self._holding.check_open()
        jobs = self._holding.jobs
        job = await self._agent.machine.blocking(jobs.read, wanted.component)
        if await self._agent.machine.blocking(jobs.is_removed, wanted.component):
            raise PeerError(f"component={wanted.component!r}: was removed")
        if await self._agent.machine.blocking(jobs.pause_of, wanted.component) is not None:
            raise PeerError(f"component={wanted.component!r}: is paused")
        if not any(covers(pattern, job.operator) for pattern in self._holding.host.offers()):
            raise PeerError(f"operator={job.operator!r}: cannot run here")
        self._holding.host.check(job)
        await self._holding.take(job, wanted.epoch + 1, forgives=wanted.forgives)
        return Done()


def _epoch(lease: Lease | None) -> int:
    return -1 if lease is None else lease.epoch
