"""A model of components that keep to what Spark does: plan, run, commit to the topic, then note that it is committed.

A component adds up the numbers 0, 1, 2, ... as they come with time. Every batch writes a manifest whose file name tells
which numbers it covers, the sum so far and who committed it. Writes to a checkpoint refuse nothing, as Spark's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from braided.errors import BraidedError, PeerError
from braided.fleet.checkpoints import Checkpoints
from braided.fleet.component_host import Job
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.leases import Position
from braided.fleet.peer_loads import ComponentLoad, Measured
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic, create_topic, digest
from braided.storage.writing import DataFile
from support.fleets import contact

RATE = 7.0  # numbers a second
SETTINGS = Settings(period=2.0, ttl=15.0, span=6.0, rehearsal=12.0, start=4.0, evaluations=2000)


class ModelHost:
    """Runs model components on a virtual machine; `load` and `offered` are for the test to set."""

    def __init__(self, machine: VirtualMachine, until: Callable[[], int]) -> None:
        self.machine = machine
        self.ended: Callable[[str, str], None] = lambda name, why: None
        self.lost: Callable[[str, str], None] = lambda name, why: None
        self.until = until
        self.cores = 1.0
        self.rates: dict[str, float] = {}
        self.load: Callable[[], float] = lambda: 0.2
        self.offered: tuple[str, ...] = ("sum.*",)
        self.rehearsed: list[str] = []
        self.refuses = False
        self.may_not_run: set[str] = set()
        self.fails: dict[str, str] = {}
        """Why components fail in their next batch, by name."""
        self.rehearsal: tuple[float, float] = (0.1, 1.6)
        self.part = 0.3
        self._running: dict[str, _Component] = {}

    def offers(self) -> tuple[str, ...]:
        return self.offered

    def measure(self) -> Measured:
        parts = tuple(
            ComponentLoad(name, "sum.numbers", self.part, rate=self.rates.get(name, 0.0))
            for name in sorted(self._running)
        )
        return Measured(self.load(), parts)

    def check(self, job: Job) -> None:
        if job.name in self.may_not_run:
            raise PeerError(f"python={job.name!r}: this peer may not run it; start it with --allow {job.name}")

    async def rehearse(self, job: Job) -> None:
        with Checkpoints(job.checkpoint).rehearsal():
            await self.machine.sleep(self.machine.random.uniform(*self.rehearsal))
        if self.refuses:
            raise PeerError("no room")
        self.rehearsed.append(job.name)

    async def start(self, job: Job, epoch: int, expected: Position | None) -> None:
        self.check(job)
        component = _Component(self, job, epoch)
        await component.open(expected)
        self._running[job.name] = component
        self.machine.spawn(component.run())

    async def stop(self, name: str) -> Position:
        component = self._running.get(name)
        if component is None:
            raise PeerError(f"component={name!r}: does not run")
        position = await component.stop()
        self._running.pop(name, None)
        return position

    def kill(self, name: str) -> None:
        component = self._running.pop(name, None)
        if component is not None:
            component.is_killed = True

    def lose_all(self, why: str) -> None:
        for component in list(self._running.values()):
            self.kill(component.job.name)
            self.lost(component.job.name, why)

    def gone(self, component: _Component, why: str) -> None:
        if self._running.get(component.job.name) is component:
            del self._running[component.job.name]
            self.ended(component.job.name, why)


class _Component:
    def __init__(self, host: ModelHost, job: Job, epoch: int) -> None:
        self.host, self.job, self.epoch = host, job, epoch
        self.is_killed = False
        self._stop: asyncio.Future[Position] | None = None
        self._topic = create_topic(job.outputs[0], "{}")
        self._batch, self._done, self._sum = 0, 0, 0

    async def open(self, expected: Position | None) -> None:
        blocking = self.host.machine.blocking
        self._writer = await blocking(lambda: self._topic.claim(self.job.name, epoch=self.epoch))
        folder = await blocking(lambda: Checkpoints(self.job.checkpoint).open(self.epoch))
        self._files = LocalFiles(Path(folder.location))
        names = await blocking(lambda: self._files.names("commits"))
        self._batch = len(names)
        if names:
            content = await blocking(lambda: self._files.read(f"state/{self._batch - 1}"))
            last = json.loads(content or b"")
            self._done, self._sum = last["done"], last["sum"]
        if expected is not None and self._position() != expected:
            raise PeerError(f"{self.job.name}: is at {self._position()}, not at {expected}")

    def _position(self) -> Position:
        return Position(self._batch - 1, digest(str(self._done)) if self._batch else "")

    async def stop(self) -> Position:
        if self._stop is None:
            self._stop = asyncio.get_running_loop().create_future()
        return await self._stop

    async def run(self) -> None:
        try:
            while not self.is_killed:
                if self._stop is not None:
                    if not self._stop.done():
                        self._stop.set_result(self._position())
                    return
                await self._one_batch()
        except (BraidedError, OSError) as error:
            if self._stop is not None and not self._stop.done():
                self._stop.set_exception(PeerError(str(error)))
            self.host.gone(self, str(error))

    async def _one_batch(self) -> None:
        machine = self.host.machine
        if self.job.name in self.host.fails:
            await machine.sleep(0.3)
            raise PeerError(self.host.fails[self.job.name])
        plan = await machine.blocking(lambda: self._files.read(f"offsets/{self._batch}"))
        if plan is None:
            stop = self.host.until()
            if stop <= self._done:
                await machine.sleep(0.5)
                return
            plan = json.dumps([self._done, stop]).encode()
            written = plan
            await machine.blocking(lambda: self._files.replace(f"offsets/{self._batch}", written))
        start, stop = json.loads(plan)
        await machine.sleep(machine.random.uniform(0.3, 1.5))
        total = self._sum + sum(range(start, stop))
        state = json.dumps({"done": stop, "sum": total}).encode()
        await machine.blocking(lambda: self._files.replace(f"state/{self._batch}", state))
        file = DataFile(f"{self._batch:012d}/{start}-{stop}-{total}-{machine.contact.name}.parquet", stop - start, 1)
        await machine.blocking(lambda: self._writer.commit(self._batch, digest(str(stop)), [file]))
        self._done, self._sum = stop, total
        await machine.blocking(lambda: self._files.replace(f"commits/{self._batch}", b"1"))
        self._batch += 1
        await machine.blocking(lambda: Checkpoints(self.job.checkpoint).clean(self.epoch))


class ModelFleet:
    """Peers with model components on one virtual network and one storage directory."""

    def __init__(
        self,
        root: Path,
        *,
        seed: int,
        loss: float = 0.0,
        settings: Settings = SETTINGS,
        network: type[VirtualNetwork] = VirtualNetwork,
        machine: type[VirtualMachine] = VirtualMachine,
    ) -> None:
        self.network = network(seed=seed, loss=loss, delay=(0.001, 0.05))
        self._machine = machine
        self.root = root
        self.settings = settings
        self.peers: dict[str, Peer] = {}
        self.machines: dict[str, VirtualMachine] = {}
        self.hosts: dict[str, ModelHost] = {}
        self.engines: dict[str, VirtualMachine] = {}
        self.last: int | None = None
        """Where the input ends, once the test says so."""

    def until(self) -> int:
        """How many numbers have come."""
        return int(asyncio.get_running_loop().time() * RATE) if self.last is None else self.last

    async def start(self, name: str, *, offers: tuple[str, ...] = ("sum.*",)) -> Peer:
        """Start a peer, or start it anew after its death."""
        random = self.network.random
        machine = self._machine(self.network, contact(name), rate=random.uniform(0.9, 1.1), storage=(0.0, 0.02))
        # The engine (a JVM) may be stopped, or run on, apart from the agent.
        engine = self._machine(self.network, contact(f"{name}engine"), storage=(0.0, 0.02))
        host = ModelHost(engine, self.until)
        host.offered = offers
        peer = Peer(machine.contact, machine, host, str(self.root), self.settings)
        machine.receive = peer.agent.receive
        others = [other.agent.contact for other in self.peers.values() if other.agent.contact != machine.contact]
        self.peers[name], self.machines[name], self.hosts[name], self.engines[name] = peer, machine, host, engine
        machine.spawn(peer.start(others))  # it may die while it joins
        await asyncio.sleep(0.5)
        return peer

    def job(self, name: str, *inputs: str, operator: str = "sum.numbers") -> Job:
        """A component."""
        topics = self.root / "topics"
        read = tuple(str(topics / other) for other in inputs)
        return Job(name, operator, read, (str(topics / name),), str(self.root / "checkpoints" / name))

    def kill(self, name: str) -> None:
        """End a peer: its agent and its engine."""
        self.machines[name].kill()
        self.engines[name].kill()

    def hang(self, name: str) -> None:
        """Let the engine of a peer hang, as a JVM by SIGSTOP: its agent notices, and releases what ran there."""
        self.engines[name].pause()
        self.hosts[name].offered = ()
        self.hosts[name].lose_all("Spark has not answered for 5 seconds")

    def holders(self, component: str) -> list[str]:
        """Where a component runs, as the peers themselves believe."""
        return [
            name
            for name, peer in self.peers.items()
            if component in peer.holding.names and not self.machines[name].is_dead
        ]

    async def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something holds; fail if it takes too long."""
        for _ in range(int(seconds / 0.25)):
            if condition():
                return
            await asyncio.sleep(0.25)
        raise AssertionError(f"{what}: not after {seconds} seconds")


def covered(topic: Topic) -> int:
    """How many numbers a topic covers. Fails if one is missing or there twice, or an epoch had two owners."""
    done, total, epoch, batch = 0, 0, -1, -1
    owners: dict[int, str] = {}
    for entry in topic.manifests():
        assert entry.epoch >= epoch, "epochs go back"
        if entry.kind == "claim":
            assert entry.epoch > epoch, "two claims of one epoch"
        epoch = entry.epoch
        for file in entry.files:
            start, stop, written, name = file.name.split("/")[1].removesuffix(".parquet").split("-")
            assert entry.batch == batch + 1
            assert int(start) == done, f"batch {entry.batch} starts at {start}, the one before ended at {done}"
            total += sum(range(int(start), int(stop)))
            assert int(written) == total, "the state did not come along"
            assert owners.setdefault(entry.epoch, name) == name, "two owners of one epoch"
            done, batch = int(stop), entry.batch
    return done
