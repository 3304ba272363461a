"""The load of a peer: CPU of its process tree divided by its cores, and the shares of its components."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from braided.fleet.hosting.component import Component, Progress
from braided.fleet.hosting.cpu import tree_seconds
from braided.fleet.peer_loads import ComponentLoad, Measured


class Meter:
    """Measures a peer once per period.

    Components share one JVM, so each gets a share of the CPU by its tasks' share of the time of all tasks. If tasks run
    in executors elsewhere, the load is the time of all tasks divided by the executors' cores. This includes Python
    processes, which Spark's own CPU times leave out.
    """

    def __init__(self, cores: float, period: float, *, is_local: bool = True) -> None:
        self.cores = cores
        self._is_local = is_local
        self._period = period
        self._taken = time.monotonic(), tree_seconds(os.getpid())
        self._last = Measured(0.0)
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def look(self, running: Sequence[Component]) -> None:
        """Ask the JVM about queries whose last answer is a period old; may block."""
        seen = {}
        for component in running:
            name = component.component.name
            known = self._seen.get(name)
            seen[name] = known if known is not None and known.component is component else _Seen(component)
            seen[name].look(self._period)
        self._seen = seen

    def measured(self) -> Measured:
        """Return the load since the last call; the same value again within half a period."""
        with self._lock:
            at, before = self._taken
            now = time.monotonic()
            if now - at < self._period / 2:
                return self._last
            used = tree_seconds(os.getpid())
            parts = [seen.take(now, self._period) for seen in self._seen.values()]
            spent = sum(part.load for part in parts)
            busy = max(0.0, used - before) / (now - at) if self._is_local else spent
            load = busy / self.cores
            shares = tuple(replace(part, load=load * part.load / spent if spent else 0.0) for part in parts)
            self._taken, self._last = (now, used), Measured(load, shares)
            return self._last


class _Seen:
    """The counts of one query: `span` seconds from one new batch to the next."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self._looked = float("-inf")
        self._progress: Progress | None = None
        self._batch = -1
        self._tasks = 0.0
        self._rows = component.rows
        self._since = time.monotonic()
        self._share = self._span = 0.0
        self._rate: float | None = None

    def look(self, period: float) -> None:
        now = time.monotonic()
        if now - self._looked >= period:
            self._progress = self.component.progress()
            self._tasks += 0.0 if self._progress is None else self._progress.tasks
            self._looked = now

    def take(self, now: float, period: float) -> ComponentLoad:
        """Return the measurements of the query; its load is its share of the tasks' time."""
        job, progress = self.component.component, self._progress
        if progress is None:
            return ComponentLoad(job.name, job.operator, 0.0)
        elapsed = max(now - self._since, 1e-3)
        spent = self._tasks / elapsed
        if progress.batch != self._batch:
            self._share, self._span = spent, elapsed
            self._rate = self._written(progress, elapsed)
            self._batch, self._tasks, self._rows, self._since = progress.batch, 0.0, self.component.rows, now
        elif elapsed > 2 * (progress.seconds + period) or (elapsed >= self._span and spent > self._share):
            # It has no input, or its batch takes longer than the previous one: this may be what makes the peer hot.
            self._share = spent
            self._rate = self._rate if spent or self._rate is None else 0.0
        busy = self._share if progress.interval is None else progress.seconds / progress.interval
        return ComponentLoad(
            job.name, job.operator, self._share, busy, progress.backlog, self._rate, progress.is_behind
        )

    def _written(self, progress: Progress, elapsed: float) -> float | None:
        """Return rows per second: for a topic from all rows, for another sink from the last batch."""
        if self.component.component.outputs:
            return (self.component.rows - self._rows) / elapsed
        return None if progress.rows is None else progress.rows / max(progress.seconds, progress.interval or 0.0, 1e-3)
