"""The host of a peer on Spark: runs components in one Spark application, and detects when this fails or hangs.

```
 agent (event loop) --start, stop, rehearse--> threads --> JVM
        ^                                                   |
        +--- ended(component, why) <--- check, every second--+
```
Calls to the JVM never run on the agent's loop, which must continue to raise leases, nor in the threads for storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from braided.errors import BraidedError, PeerError
from braided.fleet.component_host import HostError, Job
from braided.fleet.hosting.causes import find_cause
from braided.fleet.hosting.component import BATCH, Component
from braided.fleet.hosting.job_environment import JobEnvironment, first_line
from braided.fleet.hosting.meter import Meter
from braided.fleet.hosting.rehearsal import rehearse
from braided.fleet.hosting.staging import Staged
from braided.fleet.hosting.warmup import warm_up
from braided.fleet.leases import SPAN, Position
from braided.fleet.migration import REHEARSAL, START
from braided.fleet.operator_names import check_pattern
from braided.fleet.peer_loads import PERIOD, Measured
from braided.spark.catalyst import executor_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PULSE = 1.0
_FAILURES = 2
_THREADS = 32
T = TypeVar("T")


class SparkHost:
    """Runs components of a peer. Made on the agent's event loop.

    cores : the cores of the peer; its load is the CPU of its process tree divided by them.
    is_local : whether tasks run in this tree. Otherwise the cores are those of Spark's executors, or the given number
        before there are any; and the load is the time of their tasks divided by these cores.
    modules : Python modules that steps may come from.
    offers : operators that it runs, by name or pattern.
    rehearsal, starting : seconds for a rehearsal, and for a start.
    silence : seconds without an answer of the JVM after which its components are released.
    watch : see `JobEnvironment`.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        cores: float,
        is_local: bool = True,
        modules: Sequence[str] = (),
        offers: Sequence[str] = ("*",),
        environment: Mapping[str, str] = os.environ,
        period: float = PERIOD,
        rehearsal: float = REHEARSAL,
        starting: float = START,
        silence: float = SPAN / 2,
        watch: Callable[[SparkSession], Callable[[], None]] = lambda session: lambda: None,
    ) -> None:
        self.cores = cores
        self.ended: Callable[[str, str], None] = lambda name, why: None
        self.lost: Callable[[str, str], None] = lambda name, why: None
        self.died: Callable[[str], None] = lambda why: None
        """Called with the reason once the Spark application has ended."""
        self._setting = JobEnvironment(spark, cores=cores, modules=modules, environment=environment, watch=watch)
        self._offers = tuple(check_pattern(pattern) for pattern in offers)
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, "braided-spark")
        self._running: dict[str, Component] = {}
        self._staged: Staged | None = None
        """The last rehearsed query; another rehearsal before its start is rare."""
        self._rehearsal = rehearsal
        self._starting = starting
        self._silence = silence
        self._meter = Meter(cores, period, is_local=is_local)
        self._is_local = is_local
        self._answered = time.monotonic()
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch, name="braided-pulse", daemon=True).start()
        self._loop.call_later(_PULSE, self._check_silence)

    def offers(self) -> tuple[str, ...]:
        """Return nothing while the JVM does not answer."""
        return () if self._silent() > self._silence else self._offers

    def check(self, job: Job) -> None:
        self._setting.check(job)

    def measure(self) -> Measured:
        return self._meter.measured()

    def warm_up(self, storage: str) -> None:
        """Run a small query once, so that the first job need not wait for Spark. A job reports errors again.

        storage : the fleet's directory, which executors on other machines reach too.
        """
        self._threads.submit(warm_up, self._setting, None if self._is_local else storage)

    async def rehearse(self, job: Job) -> None:
        call = self._call(lambda: rehearse(self._setting, job, self._rehearsal), self._rehearsal, "to rehearse")
        staged = await call
        if staged is not None:
            self._staged = staged

    async def start(self, job: Job, epoch: int, expected: Position | None) -> None:
        component = Component(self._setting, job, epoch, self._take_staged(job))
        try:
            await self._call(lambda: component.start(expected), self._starting, "to start")
        except BraidedError:
            self._end(component)
            raise
        self._running[job.name] = component

    async def stop(self, name: str) -> Position:
        component = self._running.get(name)
        if component is None:
            raise PeerError(f"component={name!r}: does not run")
        component.is_stopping = True
        try:
            position = await self._call(component.stop, 2 * BATCH, "to stop")
        except BraidedError:
            component.is_stopping = False
            raise
        self._running.pop(name, None)
        return position

    def kill(self, name: str) -> None:
        component = self._running.pop(name, None)
        if component is not None:
            self._end(component)

    def close(self) -> None:
        """End all components, and the threads."""
        self._is_closed.set()
        for name in list(self._running):
            self.kill(name)
        self._staged = None
        self._threads.shutdown(wait=False)

    def _take_staged(self, job: Job) -> Staged | None:
        staged = self._staged
        if staged is None or staged.component != job:
            return None
        self._staged = None
        return staged if staged.is_fresh else None

    def _end(self, component: Component) -> None:
        """Let no further batch start, and stop the query as soon as the JVM answers."""
        component.close()
        self._threads.submit(component.kill)

    async def _call(self, call: Callable[[], T], seconds: float, what: str) -> T:
        """Return the result of a call to Spark; every failure is a `PeerError`."""
        if self._silent() > self._silence:
            raise HostError(f"Spark has not answered for {self._silent():.0f} seconds")
        try:
            async with asyncio.timeout(seconds):
                return await self._loop.run_in_executor(self._threads, call)
        except TimeoutError:
            raise PeerError(f"took more than {seconds:.0f} seconds {what}") from None
        except PeerError:
            raise
        except Exception as error:  # Spark raises many kinds, and none may end the agent
            raise PeerError(find_cause(str(error) or type(error).__name__)) from error

    # The periodic check.

    def _watch(self) -> None:
        """In a thread: ask the JVM once per second whether it answers, and for the progress of its queries."""
        failed = 0
        while not self._is_closed.wait(_PULSE):
            try:
                self._setting.spark.conf.get("spark.app.id")
            except Exception as error:
                failed += 1
                if failed == _FAILURES:
                    self._on_loop(self._lose_all, f"Spark has ended: {first_line(error)}", True)
                    return
                continue
            failed, self._answered = 0, time.monotonic()
            running = [component for component in list(self._running.values()) if not component.is_stopping]
            with contextlib.suppress(Exception):  # the query was stopped meanwhile; it is asked again
                for component in running:
                    why = component.problem()
                    if why is not None:
                        self._on_loop(self._end_of, component, why, self.ended)
                self._meter.look(running)
                if not self._is_local:
                    self._count_cores()

    def _count_cores(self) -> None:
        granted = executor_cores(self._setting.spark)
        if granted and granted != self.cores:
            self.cores = self._setting.cores = granted
            self._meter.cores = granted

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)

    def _silent(self) -> float:
        return time.monotonic() - self._answered

    def _check_silence(self) -> None:
        """On the loop: release the components if the JVM does not answer. It may recover: its writes are fenced off."""
        if self._is_closed.is_set():
            return
        if self._silent() > self._silence:
            self._lose_all(f"Spark has not answered for {self._silent():.0f} seconds", False)
        self._loop.call_later(_PULSE, self._check_silence)

    def _lose_all(self, why: str, is_dead: bool) -> None:
        for component in list(self._running.values()):
            component.is_stopping = False  # a pending stop can no longer end
            self._end_of(component, why, self.lost)
        if is_dead and not self._is_closed.is_set():
            self._is_closed.set()
            self.died(why)

    def _end_of(self, component: Component, why: str, report: Callable[[str, str], None]) -> None:
        name = component.component.name
        if self._running.get(name) is component and not component.is_stopping:
            self.kill(name)
            report(name, why)
