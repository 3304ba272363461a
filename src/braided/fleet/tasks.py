"""How long the tasks of one query have run: what it takes of the cores that it shares with other queries.

The time of its batches would not tell: of two queries that share a core and are both behind, each has a batch under way
all the time, whichever of them the tasks are of.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNNING, _ACTIVE = "RUNNING", "ACTIVE"
_MOST = 50
"""Jobs that are looked at in one go, and tasks of a stage; the oldest of more jobs are left out."""
_KEPT = 500
"""Stages of which is known what has been counted."""


class TaskTime:
    """Counts the seconds of a query's tasks by what Spark keeps of its last jobs.

    A task that is under way counts by how long it has run: a batch may take many periods, and in the first of them its
    query already is what keeps the peer busy.
    """

    def __init__(self, session: SparkSession, run: str) -> None:
        context, jvm = session._jsc.sc(), session._jvm
        self._tracker, self._store = context.statusTracker(), context.statusStore()
        self._text_of = getattr(jvm, "java.util.Arrays").toString
        status = getattr(jvm, "org.apache.spark.status.api.v1.TaskStatus")
        self._under_way = getattr(jvm, "java.util.Collections").singletonList(status.RUNNING)
        self._by_id = getattr(jvm, "org.apache.spark.status.api.v1.TaskSorting").ID
        self._run = run
        self._job = -1
        self._running: set[int] = set()
        self._counted: dict[int, float] = {}
        """Seconds by stage: one that is under way counts again, and a later job may name one that it uses."""

    def since_last(self) -> float:
        """Return the seconds since the last call."""
        jobs: list[int] = json.loads(self._text_of(self._tracker.getJobIdsForGroup(self._run)))
        looked_at = {
            number: self._store.job(number)
            for number in sorted(job for job in jobs if job > self._job or job in self._running)[-_MOST:]
        }
        self._job = max([self._job, *looked_at])
        self._running = {number for number, job in looked_at.items() if job.status().toString() == _RUNNING}
        stages = {int(stage) for job in looked_at.values() for stage in str(job.stageIds().mkString(" ")).split()}
        before = sum(self._counted.values())
        for stage in stages:
            self._counted[stage] = max(self._seconds_of(stage), self._counted.get(stage, 0.0))
        seconds = sum(self._counted.values()) - before
        self._counted = dict(sorted(self._counted.items())[-_KEPT:])
        return seconds

    def _seconds_of(self, number: int) -> float:
        try:
            stage = self._store.lastStageAttempt(number)
            under_way = self._seconds_under_way(stage) if stage.status().toString() == _ACTIVE else 0.0
            return float(stage.executorRunTime() / 1000 + under_way)
        except Py4JJavaError:  # it was skipped, or is no longer kept
            return 0.0

    def _seconds_under_way(self, stage: Any) -> float:
        tasks = self._store.taskList(stage.stageId(), stage.attemptId(), 0, _MOST, self._by_id, self._under_way)
        now = time.time()
        launched: list[float] = [tasks.apply(at).launchTime().getTime() / 1000 for at in range(tasks.size())]
        return sum(max(0.0, now - at) for at in launched)
