"""A query that is built before its checkpoint is there, so that a move does not wait for that.

A query names places below its checkpoint, its control directories, and the checkpoint of an epoch is there only after
the former owner has stopped. So it names them by way of a link:

```
 rehearsal   .staged-09d2 -> .rehearsal-77c0     built; the clone has the tables and columns that it looks at
 start       .staged-09d2 -> 000000000004        started
```
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from braided.fleet.checkpoints import Checkpoints, lead
from braided.fleet.component_host import Job
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.migration import START
from braided.spark.jobs import build_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FRESH = 2 * START
"""Seconds within which a start follows a rehearsal, if it does."""


class Staged:
    """A component's query in a session of its own, not started. Precondition: `folder` is a clone that has run."""

    def __init__(self, setting: JobEnvironment, component: Job, folder: Path) -> None:
        self.component = component
        self._made = time.monotonic()
        self._link = Checkpoints(component.checkpoint).stage(folder)
        try:
            job = setting.job(component, self._link)
            self.session: SparkSession = setting.session(job)
            self.frame: DataFrame = build_job(self.session, job, reader=component.name)
        except BaseException:
            self.close()
            raise

    @property
    def is_fresh(self) -> bool:
        """Whether what it was built of, such as schemas and lists of files, is as good as new."""
        return time.monotonic() - self._made < _FRESH

    def open(self, folder: Path) -> None:
        """Let the query have a checkpoint. The link stays, also when it has ended: its controller may still write."""
        lead(self._link, folder)

    def close(self) -> None:
        """Let go of a query that was not started."""
        with contextlib.suppress(OSError):  # a link that is left is cleaned up with old checkpoints
            self._link.unlink(missing_ok=True)
