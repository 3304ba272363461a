"""A virtual clock and network: whole fleets in one process, with the same events for the same seed.

The event loop's time jumps to the next timer whenever there is nothing left to do, so hours take seconds. Every machine
has its own clock, which may start anywhere and run fast or slow, and may be paused (as by SIGSTOP) or killed.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from braided.errors import PeerError
from braided.fleet.messages import Contact

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_YEAR_2024 = 1_704_067_200.0


class _Jump(selectors.SelectSelector):
    """A selector that never waits: it advances the clock instead."""

    clock: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise PeerError("the virtual fleet has stopped: no timer and no message is left")
        self.clock.elapsed += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time.

    >>> loop = VirtualLoop()
    >>> loop.run_until_complete(asyncio.sleep(3600))
    >>> loop.time()
    3600.0
    >>> loop.close()
    """

    def __init__(self) -> None:
        self.elapsed = 0.0
        jump = _Jump()
        jump.clock = self
        super().__init__(jump)

    def time(self) -> float:
        """Return the seconds since the start."""
        return self.elapsed


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a separate virtual clock and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class VirtualNetwork:
    """Machines by address, with delays and losses by seed, and partitions on demand.

    delay : the shortest and the longest time of a message, in seconds.
    loss : the part of messages that are lost.
    """

    def __init__(self, *, seed: int = 0, delay: tuple[float, float] = (0.001, 0.02), loss: float = 0.0) -> None:
        if not 0 <= delay[0] <= delay[1] or not 0 <= loss <= 1:
            raise PeerError(f"{delay=}, {loss=}: write the shortest and the longest delay, and a loss from 0 to 1")
        self.random = random.Random(seed)
        self.delay = delay
        self.loss = loss
        self.sent = 0
        self.machines: dict[str, VirtualMachine] = {}
        self.failures: list[BaseException | None] = []
        """Errors that ended tasks of agents unexpectedly."""
        self.watch: Callable[[Contact, Contact, bytes], bool] | None = None
        """Called with sender, receiver and frame of every message; False drops it."""
        self._sides: dict[str, int] = {}

    def partition(self, *sides: tuple[str, ...]) -> None:
        """Let machines reach only those of their own side; machines that are not named form a separate side."""
        self._sides = {name: number for number, names in enumerate(sides, start=1) for name in names}

    def heal(self) -> None:
        """Let all machines reach each other."""
        self._sides = {}

    def carry(self, sender: VirtualMachine, to: Contact, frame: bytes) -> None:
        """Take a message of a machine; it arrives later, or never."""
        self.sent += 1
        lost = self.random.random() < self.loss
        delay = self.random.uniform(*self.delay)
        if self.watch is not None and not self.watch(sender.contact, to, frame):
            return
        if lost or self._sides.get(sender.contact.name, 0) != self._sides.get(to.name, 0):
            return
        asyncio.get_running_loop().call_later(delay, self._arrive, sender.contact.node, to, frame)

    def _arrive(self, node: str, to: Contact, frame: bytes) -> None:
        machine = self.machines.get(to.address)
        # As over TLS, a message for a node is not delivered to another node with its address.
        if machine is not None and machine.contact.node == to.node:
            machine.arrive(node, frame)


class VirtualMachine:
    """A machine on the virtual network; `receive` is that of its agent. See `Machine`.

    rate : seconds of its clock per second of the network's.
    storage : shortest and longest time before and after a call to storage, in which other machines act.
    """

    def __init__(
        self,
        network: VirtualNetwork,
        contact: Contact,
        *,
        rate: float = 1.0,
        storage: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.contact = contact
        self.random = random.Random(network.random.getrandbits(64))
        self.receive: Callable[[str, bytes], None] = lambda node, frame: None
        self.is_dead = False
        self.storage_is_cut = False
        self.calendar_error = 0.0
        """The seconds by which its calendar is ahead."""
        self._network = network
        self._rate = rate
        self._start = self.random.uniform(0, 1e6)
        self._storage = storage
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._resumed: asyncio.Event | None = None
        self._held: list[Callable[[], None]] = []
        network.machines[contact.address] = self

    def now(self) -> float:
        return self._start + asyncio.get_running_loop().time() * self._rate

    def time(self) -> float:
        return _YEAR_2024 + asyncio.get_running_loop().time() * self._rate + self.calendar_error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)
        await self._gate()

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds / self._rate, self._do, call).cancel

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self.is_dead:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._network.failures.append(task.exception())

    async def blocking(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        await self._wait_for_storage()
        if self.storage_is_cut:
            raise OSError("storage cannot be reached")
        result = call(*arguments)
        await self._wait_for_storage()
        return result

    async def _wait_for_storage(self) -> None:
        if self._storage[1]:
            await asyncio.sleep(self.random.uniform(*self._storage))
        await self._gate()

    def send(self, to: Contact, frame: bytes) -> None:
        if not self.is_dead:
            self._network.carry(self, to, frame)

    def arrive(self, node: str, frame: bytes) -> None:
        """Deliver a message to the agent, as soon as the machine runs."""
        self._do(lambda: self.receive(node, frame))

    def _do(self, call: Callable[[], None]) -> None:
        if self.is_dead:
            return
        if self._resumed is not None:
            self._held.append(call)
        else:
            call()

    async def _gate(self) -> None:
        while self._resumed is not None:
            await self._resumed.wait()
        if self.is_dead:
            raise asyncio.CancelledError

    def pause(self) -> None:
        """Stop as by SIGSTOP: nothing happens here until `resume`, while all other clocks go on."""
        if self._resumed is None:
            self._resumed = asyncio.Event()

    def resume(self) -> None:
        """Continue as by SIGCONT: messages and timers of the meantime are processed now, in their order.

        Tasks continue first; half of the time they run until a call to storage is done, before any timer fires.
        """
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None
            held, self._held = self._held, []
            wait = self.random.choice((0.0, 2 * self._storage[1]))
            for call in held:
                asyncio.get_running_loop().call_later(wait, self._do, call)

    def kill(self) -> None:
        """End as by SIGKILL: only what the agent has stored is left."""
        self.is_dead = True
        for task in list(self._tasks):
            task.cancel()
        self._network.machines.pop(self.contact.address, None)
