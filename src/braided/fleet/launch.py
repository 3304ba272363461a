"""Launching an application: it is composed from the reports of peers, then started at the chosen peers."""

from __future__ import annotations

from collections.abc import Mapping

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.component_host import Job
from braided.fleet.composition import Application, Candidate, Composition, Placed, Running, compose
from braided.fleet.guardian import Revive
from braided.fleet.lease_holder import LeaseHolder
from braided.fleet.messages import Contact, Done
from braided.fleet.migration import START
from braided.fleet.survey import Survey


class Launcher:
    """Part of every peer: composes applications on request.

    root : the folder for topics and checkpoints of new components, on storage that all peers can reach.
    patience : seconds that a peer may take to start a component: readers of its topic are started after it.
    """

    def __init__(
        self, agent: Agent, holding: LeaseHolder, survey: Survey, root: str, *, patience: float = START
    ) -> None:
        self._agent = agent
        self._holding = holding
        self._survey = survey
        self._root = root.rstrip("/")
        self._patience = patience

    async def start(
        self, application: Application, composition: Composition, contacts: Mapping[str, Contact]
    ) -> dict[str, str]:
        """Start the components that a composition adds to the fleet, at its peers, each after those that it reads from.

        Return the reasons why components were not started there, by their names.
        """
        jobs = self.jobs(application, composition)
        problems: dict[str, str] = {}
        placed = [one for one in composition.placed if one.shared is None]
        for job, one in zip(jobs, placed, strict=True):
            # Its guardian may see it first, and start it at another peer: valid, if not as near.
            await self._agent.machine.blocking(self._holding.jobs.add, job)
            reply = await self._agent.ask(contacts[one.node], Revive(job.name, -1), self._patience)
            if reply != Done() and not await self._runs_elsewhere(job, contacts[one.node]):
                reason = reply.reason if isinstance(reply, Done) else "does not answer"
                problems[job.name] = f"peer {contacts[one.node].name}: {reason}"
                self._holding.note(job.name, f"not started at the chosen peer: {problems[job.name]}")
        return problems

    async def _runs_elsewhere(self, job: Job, host: Contact) -> bool:
        machine, leases = self._agent.machine, self._holding.leases
        lease = await machine.blocking(leases.newest, job.name)
        if lease is None or lease.holder == host:
            return False
        return (await machine.blocking(leases.beat_of, lease)).released is None

    def jobs(self, application: Application, composition: Composition) -> list[Job]:
        """Return the components that a composition adds to a fleet."""
        outputs = {one.step.name: self._output(application, one) for one in composition.placed}
        return [
            Job(
                f"{application.name}.{one.step.name}",
                one.step.operator,
                tuple(outputs.get(name, name) for name in one.step.inputs),
                (outputs[one.step.name],),
                f"{self._root}/checkpoints/{application.name}.{one.step.name}",
                one.step.definition,
                one.step.cores,
                one.signature,
            )
            for one in composition.placed
            if one.shared is None
        ]

    def _output(self, application: Application, placed: Placed) -> str:
        if placed.shared is not None:
            return placed.shared.output
        return f"{self._root}/topics/{application.name}.{placed.step.name}"

    async def composed(self, application: Application) -> tuple[Composition, dict[str, Contact]]:
        """Return where an application would run, and the peers that answered, by their ids."""
        hosts = await self._survey.hosts_of({step.operator for step in application.steps})
        running, holders = await self._running()
        known = {contact.node: contact for contact in (*holders, *hosts)}
        described = await self._survey.describe(known.values())
        if not described:
            raise PeerError("no peer answers; check that this peer is connected")
        candidates = [
            Candidate(node, contact.name, report.offers, report.load, report.cores, report.latency)
            for node, (contact, report) in described.items()
        ]
        return compose(application, candidates, running), known

    async def _running(self) -> tuple[list[Running], list[Contact]]:
        machine, holding = self._agent.machine, self._holding
        running, holders = [], []
        names, paused = await machine.blocking(holding.jobs.listed)
        for name in set(names) - paused:
            job = await machine.blocking(holding.jobs.read, name)
            lease = await machine.blocking(holding.leases.newest, name)
            if lease is None or (await machine.blocking(holding.leases.beat_of, lease)).is_failed:
                continue
            if job.computes and job.outputs:
                running.append(Running(name, job.computes, lease.holder.node, job.outputs[0]))
                holders.append(lease.holder)
        return running, holders
