"""The machine of an agent: a monotonic clock, timers, tasks, storage calls and a way to send; real or virtual.

An agent uses nothing else, so the same agent runs over TLS and, in thousands, on a virtual clock
in tests. Clocks of two machines are never compared: messages have durations, not points in time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, TypeVarTuple

from braided.fleet.messages import Contact

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_log = logging.getLogger("braided")


class Machine(Protocol):
    """A machine with one agent."""

    random: random.Random

    def now(self) -> float:
        """Return the seconds of this machine's monotonic clock."""

    def time(self) -> float:
        """Return the seconds since 1970 by this machine's calendar, which may be wrong: only for display."""

    async def sleep(self, seconds: float) -> None:
        """Wait by this machine's clock."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function after some seconds; return a function that cancels this."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the agent until it ends or the machine does."""

    async def blocking(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Return the result of a storage call, without blocking the agent's other tasks."""

    def send(self, to: Contact, frame: bytes) -> None:
        """Send a message, which may be lost; the receiver knows for certain which node sent it."""


class RealMachine:
    """The machine that this process runs on; `transport` sends."""

    def __init__(self, send: Callable[[Contact, bytes], None], *, seed: int | None = None) -> None:
        self.random = random.Random(seed)
        self.send = send
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds, call).cancel

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the agent has failed", exc_info=task.exception())

    async def blocking(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await asyncio.to_thread(call, *arguments)

    async def close(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
