"""Synergy's experiment: 30 peers, an application of five operators each, ten kinds of operators, on simulated hosts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import numpy as np

from braided.balance.levels import EqualLevels
from braided.fleet.agent import Agent
from braided.fleet.component_host import Job
from braided.fleet.discovery import Discovery
from braided.fleet.fleet_peer import Settings
from braided.fleet.load_watch import Move, Watch
from braided.fleet.peer_loads import LoadReporter, Measured
from braided.fleet.thresholds import Thresholds
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork, run
from braided.sim.simulated_fleet import TICK, Floats, Pipelines, Sample, SimulatedFleet, contact

MINUTE = 60.0
NEVER = 1e9
HOP = 0.03
"""The mean seconds of a message on the simulated network."""
_OTHERS, _WOBBLE, _STAYS = 3.0, 1.0, 0.9
"""Other users' processes on a shared host: their mean number, its change per minute, and the part that stays."""


@dataclass(frozen=True)
class Setup:
    """The paper's setting where it gives one; `costs` (CPU seconds per tuple, least and most) and `turn` are ours.

    turn : seconds after which every source draws a new rate.
    """

    hosts: int = 30
    steps: int = 5
    operators: int = 10
    offered: int = 5
    rate: float = 1000.0
    costs: tuple[float, float] = (110e-6, 450e-6)
    turn: float = 1200.0
    seconds: float = 7200.0
    seed: int = 1


def paper_thresholds(overload: float = 2.0, imbalance: float = 0.2, levels: int = 5) -> Thresholds:
    """Return the paper's setting: h, l, a t of one minute, and levels of loads up to 10 that overlap by 0.2."""
    return Thresholds(overload=overload, imbalance=imbalance, lasting=1, levels=EqualLevels(count=levels))


def without_moves(thresholds: Thresholds) -> Thresholds:
    """Return thresholds with which loads are reported as before, but no peer is ever hot."""
    return Thresholds(overload=NEVER, imbalance=NEVER, lasting=thresholds.lasting, levels=thresholds.levels)


@dataclass(frozen=True)
class Outcome:
    """A run: samples, and the messages during the measurement."""

    samples: tuple[Sample, ...]
    delays: tuple[float, ...]
    """The mean end-to-end delay of a tuple at each sample, in seconds."""
    moves: int
    updates: int
    migration_messages: int


class Workload:
    """Applications with their rates, costs and first hosts: the same for all ways of one seed."""

    def __init__(self, setup: Setup) -> None:
        random = np.random.default_rng(setup.seed)
        self.setup = setup
        names = [f"des.key{number}" for number in range(setup.operators)]
        self.offered = [
            tuple(names[at] for at in sorted(random.choice(setup.operators, setup.offered, replace=False).tolist()))
            for _ in range(setup.hosts)
        ]
        hosts_of = [[host for host, own in enumerate(self.offered) if name in own] for name in names]
        common = [number for number, hosts in enumerate(hosts_of) if hosts]
        self._kinds = random.choice(common, setup.hosts * setup.steps)
        self._rates = random.uniform(0, setup.rate, (2 + int(setup.seconds / setup.turn), setup.hosts))
        self.names = [f"app{number // setup.steps}.{number % setup.steps}" for number in range(len(self._kinds))]
        self.operators = [names[kind] for kind in self._kinds]
        # As a composition without known rates: to the host with the fewest components.
        held = np.zeros(setup.hosts, np.int64)
        self.homes = []
        for kind in self._kinds.tolist():
            home = min(random.permutation(hosts_of[kind]).tolist(), key=held.__getitem__)
            held[home] += 1
            self.homes.append(home)

    def rates(self, now: float) -> Floats:
        """Return the tuples per second of every source."""
        return np.asarray(self._rates[int(now // self.setup.turn)])

    def model(self, *, counts_processes: bool) -> Pipelines:
        """Return the model of the hosts, without waiting tuples."""
        setup = self.setup
        count = len(self.names)
        before = np.where(np.arange(count) % setup.steps, np.arange(count) - 1, -1)

        def arriving(now: float) -> Floats:
            rates = np.zeros(count)
            rates[:: setup.steps] = self.rates(now)
            return rates

        costs = np.linspace(*setup.costs, setup.operators)[self._kinds]
        return Pipelines(
            self.names, self.operators, costs, before, arriving, setup.hosts, counts_processes=counts_processes
        )

    def delay(self, sample: Sample) -> float:
        """Return the mean end-to-end delay by Little's law: waiting tuples divided by arriving tuples per second."""
        arriving = float(self.rates(sample.second - TICK).sum())
        work = float(np.mean(np.linspace(*self.setup.costs, self.setup.operators))) * self.setup.steps
        return float(sample.waiting.sum()) / arriving + work + HOP * (self.setup.steps + 1)


def play(setup: Setup, thresholds: Thresholds, *, counts_processes: bool, period: float = MINUTE) -> Outcome:
    """Run the experiment: whole peers, with leases and the six phases."""
    workload = Workload(setup)
    settings = Settings(period=period, ttl=3600.0, span=1800.0, placement=NEVER, thresholds=thresholds)
    fleet = SimulatedFleet(
        workload.model(counts_processes=counts_processes), workload.offered, settings, seed=setup.seed
    )
    jobs = [Job(name, operator) for name, operator in zip(workload.names, workload.operators, strict=True)]
    samples = run(fleet.run(jobs, workload.homes, setup.seconds, every=MINUTE, warm=0.0))
    return Outcome(
        tuple(samples),
        tuple(workload.delay(sample) for sample in samples),
        fleet.moves,
        fleet.sent("LoadUpdate"),
        fleet.migration_messages,
    )


def updates_per_peer(setup: Setup, thresholds: Thresholds) -> float:
    """Return the load updates of a peer per hour, in a fleet of any size: agents without leases and without moves.

    Hosts have a background of other processes, as in PlanetLab, so that loads reach all levels.
    """
    workload = Workload(setup)
    model = workload.model(counts_processes=True)
    model.at[:] = workload.homes
    return run(_report(workload, model, thresholds)) / setup.hosts / (setup.seconds / 3600)


async def _report(workload: Workload, model: Pipelines, thresholds: Thresholds) -> int:
    setup = workload.setup
    network = VirtualNetwork(seed=setup.seed, delay=(0.01, 0.05))
    background = _background(setup)
    minutes = np.zeros(setup.hosts, np.int64)

    def measure(number: int) -> Measured:
        own, minutes[number] = model.measure(number), minutes[number] + 1
        return Measured(own.load + float(background[minutes[number], number]), own.components)

    parts: list[tuple[Discovery, LoadReporter, Watch]] = []
    for number in range(setup.hosts):
        machine = VirtualMachine(network, contact(f"peer{number}"))
        agent = Agent(machine.contact, machine)
        machine.receive = agent.receive
        discovery = Discovery(agent, ttl=3600.0)
        reporter = LoadReporter(discovery, partial(measure, number), period=MINUTE, thresholds=thresholds)
        parts.append((discovery, reporter, Watch(discovery, _stays, period=MINUTE, thresholds=thresholds)))
        await discovery.join([parts[0][0].agent.contact] if number else [])
    for (discovery, *_), offered in zip(parts, workload.offered, strict=True):
        for operator in offered:
            await discovery.register(operator)
    for discovery, reporter, watch in parts:
        for work in (discovery.keep(), reporter.keep(), watch.keep()):
            discovery.agent.machine.spawn(work)
    for tick in range(round(setup.seconds / TICK)):
        model.tick(tick * TICK)
        await asyncio.sleep(TICK)
    for discovery, *_ in parts:
        ended = discovery.agent.machine
        assert isinstance(ended, VirtualMachine)
        ended.kill()
    return sum(reporter.sent for _, reporter, _ in parts)


def _background(setup: Setup) -> Floats:
    """Return the number of other processes on each host, by minute."""
    random = np.random.default_rng([7, setup.seed])
    now = random.uniform(0, 2 * _OTHERS, setup.hosts)
    out = []
    for _ in range(int(setup.seconds / MINUTE) + 2):
        now = np.maximum(0.0, _OTHERS + _STAYS * (now - _OTHERS) + random.normal(0, _WOBBLE, setup.hosts))
        out.append(now)
    return np.array(out)


async def _stays(move: Move) -> bool:
    return False
