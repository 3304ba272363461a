"""How long the tasks of one query have run: what it takes of the cores that it shares with other queries.

The time of its batches would not tell: of two queries that share a core and are both behind, each has a batch under way
all the time, whichever of them the tasks are of.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNNING = "RUNNING"
_MOST = 50
"""Jobs that are looked at in one go; the oldest of more are left out."""


class TaskTime:
    """Counts the seconds of a query's tasks by what Spark keeps of its last jobs, each job once, when it has ended."""

    def __init__(self, session: SparkSession, run: str) -> None:
        context = session._jsc.sc()
        self._tracker, self._store = context.statusTracker(), context.statusStore()
        self._text_of = getattr(session._jvm, "java.util.Arrays").toString
        self._run = run
        self._job = -1

    def since_last(self) -> float:
        """Return the seconds of jobs that have ended since the last call."""
        jobs: list[int] = json.loads(self._text_of(self._tracker.getJobIdsForGroup(self._run)))
        seconds = 0.0
        for number in sorted(job for job in jobs if job > self._job)[-_MOST:]:
            job = self._store.job(number)
            if job.status().toString() == _RUNNING:
                break
            self._job = number
            seconds += self._seconds_of(job)
        return seconds

    def _seconds_of(self, job: Any) -> float:
        seconds = 0.0
        for stage in str(job.stageIds().mkString(" ")).split():
            try:
                seconds += self._store.lastStageAttempt(int(stage)).executorRunTime() / 1000
            except Py4JJavaError:  # it was skipped, or is no longer kept
                continue
        return seconds
