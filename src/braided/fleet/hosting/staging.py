"""A query that is built before its checkpoint exists, so that a move need not wait for this.

A built query does not contain paths below its checkpoint: its routing tables and state are found when it starts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from braided.fleet.component_host import Job
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.migration import START
from braided.spark.jobs import build_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FRESH = 2 * START
"""Seconds within which a start follows its rehearsal."""


class Staged:
    """A component's query in a separate session, not started. Precondition: `checkpoint` is a clone that has run."""

    def __init__(self, setting: JobEnvironment, component: Job, checkpoint: str) -> None:
        self.component = component
        self._made = time.monotonic()
        job = setting.job(component, checkpoint)
        self.session: SparkSession = setting.session(job)
        self.frame: DataFrame = build_job(self.session, job, reader=component.name)

    @property
    def is_fresh(self) -> bool:
        """Whether the facts that it was built from, such as schemas and lists of files, are still recent."""
        return time.monotonic() - self._made < _FRESH
