"""A storm over a fleet on the virtual network: faults of every kind and orders of users, by seed, and what must hold.

Faults are in `FAULTS`. Each begins, lasts for a while and ends; several may hold at once. After the last one has ended
everything must run again within `CALM` seconds, with everything that came, once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from braided.fleet.fleet_peer import Settings
from braided.fleet.messages import Contact, Done, Request
from braided.fleet.requests import Drain, MoveTo, Pause, Restart, Resume, Retry, Undrain
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork, run
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic
from support.fleet_model import ModelFleet, covered
from support.fleets import contact

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
SETTINGS = Settings(period=2.0, ttl=15.0, span=6.0, rehearsal=12.0, start=4.0, placement=20.0, evaluations=300)
PEERS, JOBS = "abcde", ("one", "two", "three")
LENGTH = 150.0
"""Seconds in which faults begin."""
CALM = 180.0
"""Seconds after the last fault within which every job must run: three leases, and what backs off after failures."""

ASKED = 90.0
"""Seconds that an order may take: who ordered it may be dead, or stopped for a while."""


class StormNetwork(VirtualNetwork):
    """Messages that come twice, and that overtake each other by seconds."""

    twice = 0.0
    overtaken = 0.0

    def carry(self, sender: VirtualMachine, to: Contact, frame: bytes) -> None:
        for _ in range(1 + (self.random.random() < self.twice)):
            if self.random.random() < self.overtaken:
                wait = self.random.uniform(0.0, 4.0)
                asyncio.get_running_loop().call_later(wait, super().carry, sender, to, frame)
            else:
                super().carry(sender, to, frame)


class StormMachine(VirtualMachine):
    """A machine whose storage may be slow, and may do what it is asked and then fail, or do it twice.

    fails : the part of writes that are done although their caller gets an error. twice : of those that are repeated.
    """

    slow = fails = twice = 0.0

    async def blocking(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        if self.slow:
            await asyncio.sleep(self.random.uniform(0.0, self.slow))
            await self._gate()
        result = await super().blocking(lambda: self._call(call, *arguments))
        if self.slow:
            await asyncio.sleep(self.random.uniform(0.0, self.slow))
            await self._gate()
        return result

    def _call(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        _writing.append(self)
        try:
            return call(*arguments)
        finally:
            _writing.pop()


_writing: list[StormMachine] = []
"""The machine whose call to storage is under way."""


@contextmanager
def unreliable_storage() -> Iterator[None]:
    """Let writes of files fail as the machine that makes them says."""
    before = {name: getattr(LocalFiles, name) for name in ("create", "replace")}

    def unreliable(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: LocalFiles, name: str, content: bytes) -> Any:
            result = write(self, name, content)
            machine = _writing[-1] if _writing else None
            if machine is not None and machine.random.random() < machine.twice:
                result = write(self, name, content)  # the client has sent it again
            if machine is not None and machine.random.random() < machine.fails:
                raise OSError("the answer of storage is late")
            return result

        return wrapped

    for name, write in before.items():
        setattr(LocalFiles, name, unreliable(write))
    try:
        yield
    finally:
        for name, write in before.items():
            setattr(LocalFiles, name, write)


class Storm:
    """One run. `told` has what happened, to be read when something does not hold."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.fleet = ModelFleet(root, seed=seed, settings=SETTINGS, network=StormNetwork, machine=StormMachine)
        self.told: list[str] = []
        self._dead: set[str] = set()

    def tell(self, what: str) -> None:
        self.told.append(f"{asyncio.get_running_loop().time():7.1f} {what}")

    # Faults: each begins, waits and ends.

    async def crash(self, name: str, seconds: float) -> None:
        self._dead.add(name)
        self.fleet.kill(name)
        await asyncio.sleep(seconds)
        await self.fleet.start(name)
        self._dead.discard(name)

    async def freeze(self, name: str, seconds: float) -> None:
        machines = self._machines(name)
        for machine in machines:
            machine.pause()
        await asyncio.sleep(seconds)
        for machine in machines:
            machine.resume()

    async def hang(self, name: str, seconds: float) -> None:
        host, engine = self.fleet.hosts[name], self.fleet.engines[name]
        self.fleet.hang(name)
        await asyncio.sleep(seconds)
        engine.resume()
        host.offered = ("sum.*",)

    async def slow_disk(self, name: str, seconds: float) -> None:
        await self._with(name, "slow", self.random.uniform(0.2, 3.0), seconds)

    async def late_answers(self, name: str, seconds: float) -> None:
        await self._with(name, "fails", self.random.uniform(0.1, 0.6), seconds)

    async def repeated_writes(self, name: str, seconds: float) -> None:
        await self._with(name, "twice", self.random.uniform(0.3, 1.0), seconds)

    async def no_storage(self, name: str, seconds: float) -> None:
        await self._with(name, "storage_is_cut", True, seconds)

    async def clock_jump(self, name: str, seconds: float) -> None:
        await self._with(name, "calendar_error", self.random.choice((-86_400.0, -60.0, 60.0, 1e7)), seconds)

    async def partition(self, name: str, seconds: float) -> None:
        others = [other for other in PEERS if other != name]
        side = self.random.sample(others, self.random.randrange(len(others)))
        self.fleet.network.partition((name, *side))
        await asyncio.sleep(seconds)
        self.fleet.network.heal()

    async def lossy_network(self, name: str, seconds: float) -> None:
        await self._network("loss", self.random.uniform(0.05, 0.4), seconds)

    async def repeated_messages(self, name: str, seconds: float) -> None:
        await self._network("twice", self.random.uniform(0.2, 1.0), seconds)

    async def overtaking_messages(self, name: str, seconds: float) -> None:
        await self._network("overtaken", self.random.uniform(0.1, 0.7), seconds)

    # What users order meanwhile.

    async def order(self, name: str, seconds: float) -> None:
        job, other = self.random.choice(JOBS), self.random.choice(PEERS)
        kinds: tuple[Request, ...] = (
            MoveTo(job, other),
            MoveTo(job, name),
            Restart(job),
            Retry(job),
            Pause(job),
            Drain(),
        )
        wanted = self.random.choice(kinds)
        self.tell(f"{other} is asked for {wanted}")
        await self._ask(other, wanted)
        await asyncio.sleep(seconds)
        if isinstance(wanted, Pause):
            await self._insist(Resume(job))
        if isinstance(wanted, Drain):
            await self._insist(Undrain(), other)

    async def _ask(self, peer: str, wanted: Request) -> object:
        asking = self.random.choice([name for name in PEERS if name not in self._dead])
        try:
            async with asyncio.timeout(ASKED):
                return await self.fleet.peers[asking].agent.ask(contact(peer), wanted, 30.0)
        except TimeoutError:  # who asked has died meanwhile, and its timers with it
            return None

    async def _insist(self, wanted: Request, peer: str | None = None) -> None:
        for _ in range(40):
            reply = await self._ask(peer or self.random.choice(PEERS), wanted)
            if reply is not None and not (isinstance(reply, Done) and not reply.ok):
                return
            if isinstance(wanted, Resume) and not any(
                (self.fleet.root / "components").glob(f"{wanted.component}.paused")
            ):
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"{wanted}: not within 40 tries: {reply}")

    def _machines(self, name: str) -> list[VirtualMachine]:
        return [self.fleet.machines[name], self.fleet.engines[name]]

    async def _with(self, name: str, what: str, value: object, seconds: float) -> None:
        machines = self._machines(name)
        before = getattr(machines[0], what)
        for machine in machines:
            setattr(machine, what, value)
        await asyncio.sleep(seconds)
        for machine in machines:
            setattr(machine, what, type(before)(0))

    async def _network(self, what: str, value: float, seconds: float) -> None:
        setattr(self.fleet.network, what, value)
        await asyncio.sleep(seconds)
        setattr(self.fleet.network, what, 0.0)

    async def play(self) -> None:
        """Let the storm rage, then check that everything runs again and nothing is lost or there twice."""
        fleet = self.fleet
        for name in PEERS:
            await fleet.start(name)
        for job in JOBS:
            await fleet.peers["a"].submit(fleet.job(job))
        await fleet.wait_for(lambda: all(fleet.holders(job) for job in JOBS), 60, "the start")
        faults = []
        while (now := asyncio.get_running_loop().time()) < LENGTH:
            kind = self.random.choice(FAULTS)
            free = [name for name in PEERS if name not in self._dead]
            # Of five peers three may be gone at once.
            if kind is Storm.crash and len(free) <= 2:
                continue
            holders = [name for job in JOBS for name in fleet.holders(job) if name in free]
            # Most faults befall peers that have something to lose.
            name = self.random.choice(holders if holders and self.random.random() < 0.7 else free)
            seconds = self.random.choice((1.0, 6.0, 14.0, 30.0)) * self.random.uniform(0.5, 1.0)
            self.tell(f"{kind.__name__} at {name} for {seconds:.1f} s")
            faults.append(asyncio.create_task(kind(self, name, seconds)))
            await asyncio.sleep(self.random.uniform(0.2, 8.0))
            self.check()
            assert asyncio.get_running_loop().time() > now
        await asyncio.gather(*faults)
        self.tell("calm")
        fleet.last = fleet.until()
        topics = {job: Topic(str(fleet.root / "topics" / job)) for job in JOBS}
        ends = asyncio.get_running_loop().time() + CALM
        while not all(covered(topics[job]) == fleet.last and len(fleet.holders(job)) == 1 for job in JOBS):
            state = {job: (fleet.holders(job), covered(topics[job]), fleet.last) for job in JOBS}
            assert asyncio.get_running_loop().time() < ends, f"not calm after {CALM} s: {state}"
            for job in JOBS:
                await self._retry_if_failed(job)
            await asyncio.sleep(1.0)
        assert fleet.network.failures == []

    def check(self) -> None:
        """What holds at any time: see `covered`; and of every lease there is one holder, for good."""
        for job in JOBS:
            covered(Topic(str(self.fleet.root / "topics" / job)))

    async def _retry_if_failed(self, job: str) -> None:
        leases = next(peer for name, peer in self.fleet.peers.items() if name not in self._dead).holding.leases
        lease = leases.newest(job)
        if lease is not None and leases.beat_of(lease).is_failed:
            self.tell(f"{job} has failed: {leases.beat_of(lease).problem}")
            await self._ask(self.random.choice(PEERS), Retry(job))


FAULTS = (
    Storm.crash,
    Storm.freeze,
    Storm.hang,
    Storm.slow_disk,
    Storm.late_answers,
    Storm.repeated_writes,
    Storm.no_storage,
    Storm.clock_jump,
    Storm.partition,
    Storm.lossy_network,
    Storm.repeated_messages,
    Storm.overtaking_messages,
    Storm.order,
    Storm.order,
)


def weather(root: Path, seed: int) -> None:
    """Run a storm; if something does not hold, the error says what had happened."""
    storm = Storm(root, seed)
    try:
        with unreliable_storage():
            run(storm.play())
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n" + "\n".join(storm.told)) from error
