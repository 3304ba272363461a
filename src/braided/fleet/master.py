"""The optimisation master: a peer that improves the placement of all components from time to time (EBS, 4.3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from braided.errors import BraidedError, PeerError
from braided.fleet.component_host import Job
from braided.fleet.contact_buckets import key_of
from braided.fleet.load_watch import Move
from braided.fleet.messages import Contact
from braided.fleet.operator_names import covers
from braided.fleet.placement.cuckoo import SECONDS, search
from braided.fleet.placement.problem import Allocation, Problem
from braided.fleet.placement.worthwhile import worthwhile
from braided.fleet.survey import Description
from braided.fleet.thresholds import FLOOR

if TYPE_CHECKING:
    from braided.fleet.fleet_peer import Peer

NAME = "braided.placement"
"""The peer nearest to the key of this name is the master."""
INTERVAL = 60.0
HEADROOM = FLOOR
"""The part of a peer's cores that a placement may use: with more, the watch may find the peer hot, and move away what
was placed there."""
COST = 100.0
"""The fitness that a move must gain: 50 events per second that no longer cross the network, counted twice."""
LIMIT = 3
"""The most moves after one search."""
REST = 5
"""Intervals for which a moved component stays at its peer: otherwise moves away from a hot peer would be undone."""


class Master:
    """Part of every peer; acts if no other peer is nearer to the key of its name. For its time see `search`."""

    def __init__(
        self,
        peer: Peer,
        *,
        interval: float = INTERVAL,
        seconds: float = SECONDS,
        evaluations: int | None = None,
        cost: float = COST,
        headroom: float = HEADROOM,
    ) -> None:
        self._peer = peer
        self._interval = interval
        self._seconds = seconds
        self._evaluations = evaluations
        self._cost = cost
        self._headroom = headroom
        self._epochs: dict[str, tuple[int, float]] = {}
        """The newest epoch of each component, and since when it has been seen."""

    async def keep(self) -> None:
        """Improve the placement for ever."""
        while True:
            await self._peer.agent.machine.sleep(self._interval)
            if self._peer.discovery.is_nearest(key_of(NAME)):
                try:
                    await self.step()
                except (BraidedError, OSError) as error:
                    self._peer.holding.note("", f"could not improve the placement: {error}")

    async def step(self) -> list[Move]:
        """Look at all components once, search, and carry out the worthwhile moves; return those that succeeded."""
        machine, leases = self._peer.agent.machine, self._peer.holding.leases
        jobs, homes, epochs = [], [], {}
        for name in await machine.blocking(self._peer.holding.jobs.names):
            lease = await machine.blocking(leases.newest, name)
            if lease is not None:
                jobs.append(await machine.blocking(self._peer.holding.jobs.read, name))
                homes.append(lease.holder.node)
                epochs[name] = lease.epoch
        resting = self._resting(epochs)
        described = await self._peer.survey.describe(await self._peer.survey.hosts_of({job.operator for job in jobs}))
        here = [place for place, node in enumerate(homes) if node in described]
        jobs, homes = [jobs[place] for place in here], [homes[place] for place in here]
        hosts = list(described.values())
        if not jobs or len(hosts) < 2:
            return []
        now = np.array([list(described).index(node) for node in homes], dtype=np.int64)
        problem = make_problem(jobs, hosts, now, resting, self._headroom)
        seed = machine.random.getrandbits(32)
        best = await machine.blocking(
            lambda: search(problem, now, seed=seed, seconds=self._seconds, evaluations=self._evaluations)
        )
        moved = []
        for component, source, target in worthwhile(problem, now, best.allocation, cost=self._cost, limit=LIMIT):
            reason = f"placement: fitness {problem.fitness(now[None, :])[0]:.0f}, {best.fitness:.0f} found"
            move = Move(jobs[component].name, hosts[source][0], hosts[target][0], reason)
            if not await self._peer.migrator.order(move):
                break  # the next moves assume this one
            moved.append(move)
        return moved

    def _resting(self, epochs: dict[str, int]) -> set[str]:
        """Take the newest epochs; return the components that must stay because their epoch started recently."""
        now, known = self._peer.agent.machine.now(), self._epochs
        self._epochs = {}
        for name, epoch in epochs.items():
            before, since = known.get(name, (epoch, -np.inf))
            self._epochs[name] = epoch, since if before == epoch else now
        return {name for name, (_, since) in self._epochs.items() if now - since < REST * self._interval}


def make_problem(
    jobs: list[Job],
    hosts: list[tuple[Contact, Description]],
    now: Allocation,
    resting: Collection[str] = (),
    headroom: float = HEADROOM,
) -> Problem:
    """Return the placement problem of components on peers, from their measurements; some components must stay."""
    measured = {part.name: (part, report) for _, report in hosts for part in report.components}
    if not jobs:
        raise PeerError("jobs: none given; give at least one")
    cpu, rate = np.zeros(len(jobs)), np.zeros(len(jobs))
    for place, job in enumerate(jobs):
        if job.name in measured:
            part, report = measured[job.name]
            cpu[place], rate[place] = max(job.cores, part.load * report.cores), part.rate or 0.0
        else:
            cpu[place] = job.cores
    traffic = np.array([
        [rate[i] if i != j and set(one.outputs) & set(other.inputs) else 0.0 for j, other in enumerate(jobs)]
        for i, one in enumerate(jobs)
    ])  # fmt: skip
    limits = np.zeros(len(hosts))
    latency = np.zeros((len(hosts), len(hosts)))
    for place, (_, report) in enumerate(hosts):
        own = sum(part.load for part in report.components)
        limits[place] = report.cores * (headroom - max(0.0, report.load - own))
        # Components that run there now may stay: relieving hot peers is the task of the watch.
        limits[place] = max(0.0, limits[place], float(cpu[now == place].sum()))
        for far, (contact, _) in enumerate(hosts):
            latency[place, far] = report.latency.get(contact.node, 0.0) if far != place else 0.0
    allowed = np.array([
        [any(covers(pattern, job.operator) for pattern in report.offers) for _, report in hosts] for job in jobs
    ])  # fmt: skip
    stays = np.array([job.name in resting for job in jobs])
    allowed[stays] = np.arange(len(hosts)) == now[stays, None]
    return Problem(traffic, np.maximum(latency, latency.T), cpu, limits, allowed)
