"""How long the tasks of one query have run: its use of the cores that it shares with other queries.

The time of its batches does not show this: if two queries share a core and are both behind, each has a running batch
all the time, no matter to which of them the tasks belong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braided.spark.catalyst import StageTimes

_MOST = 50
"""The most jobs that are read at once, and the most tasks of a stage; of more jobs the oldest are left out."""
_KEPT = 500
"""The number of stages whose counted seconds are kept."""


class TaskTime:
    """Counts the seconds of a query's tasks from Spark's data about its last jobs.

    A running task counts with the time that it has run so far: a batch may take many periods, and already in the first
    one its query keeps the peer busy.
    """

    def __init__(self, times: StageTimes, clock: Callable[[], float] = time.time) -> None:
        self._times = times
        self._clock = clock
        self._job = -1
        self._running: set[int] = set()
        self._counted: dict[int, float] = {}
        """Seconds by stage: a running stage is counted again, and a later job may reuse a stage."""

    def since_last(self) -> float:
        """Return the seconds since the last call."""
        numbers = sorted(job for job in self._times.jobs() if job > self._job or job in self._running)[-_MOST:]
        jobs = {number: self._times.job(number) for number in numbers}
        self._job = max([self._job, *jobs])
        self._running = {number for number, (is_running, _) in jobs.items() if is_running}
        stages = {stage for _, listed in jobs.values() for stage in listed}
        before = sum(self._counted.values())
        for stage in stages:
            self._counted[stage] = max(self._seconds_of(stage), self._counted.get(stage, 0.0))
        seconds = sum(self._counted.values()) - before
        self._counted = dict(sorted(self._counted.items())[-_KEPT:])
        return seconds

    def _seconds_of(self, stage: int) -> float:
        times = self._times.task_times(stage, _MOST)
        if times is None:
            return 0.0
        seconds, launched = times
        now = self._clock()
        return seconds + sum(max(0.0, now - at) for at in launched)
