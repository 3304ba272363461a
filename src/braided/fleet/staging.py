"""A query that is built before its checkpoint is there, so that a move does not wait for that.

A query names places below its checkpoint, its control directories, and the checkpoint of an epoch is there only after
the former owner has stopped. So it names them by way of a link:

```
 rehearsal   .staged-09d2 -> .rehearsal-77c0     built; the clone has the tables and columns that it looks at
 start       .staged-09d2 -> 000000000004        started
```
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from braided.fleet.setting import Setting
from braided.peers.checkpoints import Checkpoints, lead
from braided.peers.host import Job
from braided.spark.jobs import build_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Staged:
    """A component's query in a session of its own, not started. Precondition: `folder` is a clone that has run."""

    def __init__(self, setting: Setting, component: Job, folder: Path) -> None:
        self.component = component
        self._link = Checkpoints(component.checkpoint).stage(folder)
        try:
            job = setting.job(component, self._link)
            self.session: SparkSession = setting.session(job)
            self.frame: DataFrame = build_job(self.session, job, reader=component.name)
        except BaseException:
            self.close()
            raise

    def open(self, folder: Path) -> None:
        """Let the query have a checkpoint, from now on."""
        lead(self._link, folder)

    def close(self) -> None:
        """Let go of the checkpoint; nothing can run by it any more."""
        self._link.unlink(missing_ok=True)
