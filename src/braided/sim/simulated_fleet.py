"""A simulated fleet: the package's own peers, agents and protocols on a virtual clock, over hosts with a modelled CPU.

A component takes tuples from its topic at the rate that its host's CPU allows, and passes the same number to the next
one. Waiting tuples are in topics, so they still exist after a move. All decisions (discovery, load reports, the watch,
the six phases, leases, the guardian, placement) are those of the package, unchanged; only the hosts are modelled.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from braided.errors import PeerError
from braided.fleet.component_host import Job
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.leases import Position
from braided.fleet.messages import Contact
from braided.fleet.peer_loads import ComponentLoad, Measured
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork

Floats = npt.NDArray[np.float64]
TICK = 1.0
"""The seconds of one step of the model."""
STOPS, STARTS, REHEARSES = (0.2, 1.0), (1.0, 2.0), (4.0, 8.0)
"""The shortest and longest seconds that fleets of Spark applications take on one machine (docs/how-to/peers.md)."""
MIGRATION = (
    "MigrationDecision",
    "MigrationRequest",
    "MigrationReply",
    "MigrationUpdate",
    "MigrationUpdateReply",
    "MigrationEnd",
)


def contact(name: str) -> Contact:
    """Return a peer's contact: its id is the hash of its name (over TLS: of its key)."""
    digest = hashlib.sha1(name.encode()).digest()
    return Contact(digest.hex(), f"10.{digest[0]}.{digest[1]}.{digest[2]}:{7000 + digest[3]}", name)


@dataclass
class Pipelines:
    """The components of a fleet as a fluid model: which waits for tuples of which, and what a tuple costs.

    cost : CPU seconds per tuple. before : the component whose results each reads; -1 for those that read a source.
    rate : the tuples per second, at a time, of components that read a source.
    counts_processes : whether the load of a host is its number of running or waiting processes, as in Synergy, else its
        CPU.
    """

    names: list[str]
    operators: list[str]
    cost: Floats
    before: npt.NDArray[np.int64]
    rate: Callable[[float], Floats]
    hosts: int
    counts_processes: bool = False
    at: npt.NDArray[np.int64] = field(init=False)
    waiting: Floats = field(init=False)
    served: Floats = field(init=False)
    busy: Floats = field(init=False)
    done: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.names)
        self.at = np.full(count, -1)
        """The host of each component; -1 while no host runs it."""
        self.waiting, self.served, self.busy = np.zeros(count), np.zeros(count), np.zeros(count)
        self._measured: dict[int, Measured] = {}
        self._index = {name: number for number, name in enumerate(self.names)}
        self._sums, self._outputs, self._ticks = np.zeros(count), np.zeros(count), np.zeros(self.hosts)
        self._last = np.setdiff1d(np.arange(count), self.before[self.before >= 0])

    def index(self, name: str) -> int:
        return self._index[name]

    def tick(self, now: float) -> None:
        """Advance by one step: CPU is shared evenly among the components of a host that have work."""
        arriving = np.where(self.before < 0, self.rate(now), self.served[self.before]) * TICK
        self.waiting += arriving
        runs = self.at >= 0
        wanted = np.where(runs, self.waiting * self.cost, 0.0)
        given = share(wanted, np.where(runs, self.at, 0), self.hosts, TICK)
        taken = np.minimum(self.waiting, given / self.cost)
        self.waiting -= taken
        self.served = taken / TICK
        self.done += float(taken[self._last].sum())
        # A process that still has work at the end of a step was in the run queue all the time.
        self.busy = np.where(self.waiting * self.cost > 1e-9, runs * 1.0, np.minimum(1.0, given / TICK))
        self._sums += self.busy if self.counts_processes else given / TICK
        self._outputs += self.served
        self._ticks += 1

    def measure(self, host: int) -> Measured:
        """Return a host's load since the last measurement, and the shares of its components."""
        ticks = self._ticks[host]
        if not ticks:  # measured twice at the same time
            return self._measured.get(host, Measured(0.0))
        self._ticks[host] = 0.0
        here = np.flatnonzero(self.at == host)
        parts = tuple(
            ComponentLoad(
                self.names[number],
                self.operators[number],
                float(self._sums[number] / ticks),
                rate=float(self._outputs[number] / ticks),
            )
            for number in here.tolist()
        )
        self._sums[here] = 0.0
        self._outputs[here] = 0.0
        self._measured[host] = Measured(sum(part.load for part in parts), parts)
        return self._measured[host]

    def load(self) -> Floats:
        """Return the number of processes of each host that run or wait now."""
        runs = self.at >= 0
        return np.asarray(np.bincount(self.at[runs], self.busy[runs], self.hosts), np.float64)


def share(wanted: Floats, at: npt.NDArray[np.int64], hosts: int, capacity: float) -> Floats:
    """Return what each component gets if a host's capacity is shared evenly, and none gets more than it needs.

    >>> share(np.array([0.1, 0.8, 0.8]), np.array([0, 0, 0]), 1, 1.0).tolist()
    [0.1, 0.45, 0.45]
    """
    given = np.zeros(len(wanted))
    left = np.full(hosts, capacity)
    open_ = wanted > 0
    while open_.any():
        even = left / np.maximum(1, np.bincount(at[open_], minlength=hosts))
        small = open_ & (wanted <= even[at] + 1e-12)
        if not small.any():
            given[open_] = even[at[open_]]
            break
        given[small] = wanted[small]
        left = np.maximum(0.0, left - np.bincount(at[small], wanted[small], hosts))
        open_ &= ~small
    return given


class ModelHost:
    """Runs components of the model on one peer; see `Host`."""

    def __init__(self, machine: VirtualMachine, model: Pipelines, number: int, offered: tuple[str, ...]) -> None:
        self.machine, self.model, self.number, self.offered = machine, model, number, offered
        self.cores = 1.0
        self.ended: Callable[[str, str], None] = lambda name, why: None
        self.lost: Callable[[str, str], None] = lambda name, why: None

    def offers(self) -> tuple[str, ...]:
        return self.offered

    def check(self, job: Job) -> None:
        if job.operator not in self.offered:
            raise PeerError(f"operator={job.operator!r}: not offered here")

    def measure(self) -> Measured:
        return self.model.measure(self.number)

    async def rehearse(self, job: Job) -> None:
        await self.machine.sleep(self.machine.random.uniform(*REHEARSES))

    async def start(self, job: Job, epoch: int, expected: Position | None) -> None:
        self.check(job)
        if epoch:
            await self.machine.sleep(self.machine.random.uniform(*STARTS))
        self.model.at[self.model.index(job.name)] = self.number

    async def stop(self, name: str) -> Position:
        await self.machine.sleep(self.machine.random.uniform(*STOPS))
        self.kill(name)
        return Position()

    def kill(self, name: str) -> None:
        number = self.model.index(name)
        if self.model.at[number] == self.number:
            self.model.at[number] = -1


@dataclass(frozen=True)
class Sample:
    """The state of a fleet at a moment."""

    second: float
    at: npt.NDArray[np.int64]
    waiting: Floats
    served: Floats
    load: Floats
    done: float


class SimulatedFleet:
    """Peers on one virtual network, each with a host of the model. `jobs` start on the hosts that `homes` names."""

    def __init__(
        self,
        model: Pipelines,
        offered: list[tuple[str, ...]],
        settings: Settings,
        *,
        seed: int,
        delay: tuple[float, float] = (0.01, 0.05),
    ) -> None:
        self.model, self.settings = model, settings
        self.network = VirtualNetwork(seed=seed, delay=delay)
        self.peers: list[Peer] = []
        self.samples: list[Sample] = []
        self._offered = offered

    async def run(
        self, jobs: list[Job], homes: Iterable[int], seconds: float, *, every: float, warm: float = 0.0
    ) -> list[Sample]:
        """Run for a time, and return samples; messages are counted from `warm` on."""
        with tempfile.TemporaryDirectory(prefix="braided-sim-") as storage:
            await self._join(storage)
            for job, home in zip(jobs, homes, strict=True):
                await self.peers[home].submit(job)
                await self.peers[home].holding.take(job, 0)
            begun = asyncio.get_running_loop().time()
            ticks = round(seconds / TICK)
            for tick in range(ticks):
                if tick * TICK == warm:
                    self.before = self.counts()
                self.model.tick(tick * TICK)
                if (tick + 1) % round(every / TICK) == 0:
                    model = self.model
                    self.samples.append(
                        Sample(
                            (tick + 1) * TICK, model.at.copy(), model.waiting.copy(), model.served.copy(),
                            model.load(), model.done,
                        )
                    )  # fmt: skip
                await asyncio.sleep(begun + (tick + 1) * TICK - asyncio.get_running_loop().time())
            self.after = self.counts()
            for peer in self.peers:
                machine = peer.agent.machine
                assert isinstance(machine, VirtualMachine)
                machine.kill()
        failed = [failure for failure in self.network.failures if failure is not None]
        if failed:
            raise failed[0]
        return self.samples

    async def _join(self, storage: str) -> None:
        for number, offered in enumerate(self._offered):
            machine = VirtualMachine(self.network, contact(f"peer{number}"))
            host = ModelHost(machine, self.model, number, offered)
            peer = Peer(machine.contact, machine, host, str(Path(storage)), self.settings)
            machine.receive = peer.agent.receive
            self.peers.append(peer)
            await peer.start([self.peers[0].agent.contact] if number else [])
        for peer, offered in zip(self.peers, self._offered, strict=True):
            for operator in offered:  # the first peers knew few of the others
                await peer.discovery.register(operator)

    def counts(self) -> Counter[str]:
        """Return the messages that all agents have sent, by kind."""
        total: Counter[str] = Counter()
        for peer in self.peers:
            total.update({kind[5:]: n for kind, n in peer.agent.counts.items() if kind.startswith("sent ")})
        return total

    def sent(self, *kinds: str) -> int:
        """Return how many messages of some kinds were sent during the measurement."""
        return sum(self.after[kind] - self.before[kind] for kind in kinds)

    @property
    def migration_messages(self) -> int:
        """The messages of the six phases, including the answer to each decision."""
        return self.sent(*MIGRATION, "MigrationDecision")

    @property
    def moves(self) -> int:
        """The number of moves."""
        return sum(event.what.startswith("moved to ") for peer in self.peers for event in peer.holding.events)
