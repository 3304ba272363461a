"""A rehearsal: a component's query runs one batch on a clone of its checkpoint, without a sink.

It warms up what a move would otherwise wait for: the session, Python processes, generated code, memory pages and
decoded runs. It also returns the built query for the start.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from braided.errors import PeerError
from braided.fleet import component_host
from braided.fleet.checkpoints import CheckpointFolder, Checkpoints
from braided.fleet.hosting.causes import describe_failure
from braided.fleet.hosting.gate import Gate
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.hosting.staging import Staged
from braided.jobs.job_file import TOPIC, Job
from braided.spark.jobs import build_job, check_sink
from braided.spark.sink import start_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_LOOK = 0.05
# The state of a rehearsal is closed with its batch, without an upload. Otherwise Spark would upload and close it when
# the following query opens its own state: on the same cores, during the batch for which the move waits.
_STATE = {
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000000",
}


def rehearse(setting: JobEnvironment, component: component_host.Job, seconds: float) -> Staged | None:
    """Build a component's query and run its last committed batch once more, if it has one.

    Return the query to start; None if it has no batch.
    """
    with Checkpoints(component.checkpoint).rehearsal() as folder:
        batch = folder.go_back()
        job = setting.job(component, folder.location)
        session = setting.session(job)
        for name, value in _STATE.items():
            session.conf.set(name, value)
        frame = build_job(session, job)
        if batch is None:
            check_sink(frame, job)
            return None
        once = Once(is_topic=job.sink.format == TOPIC)
        query = _start(frame, job, once, folder)
        ends = time.monotonic() + seconds
        try:
            while not once.done.wait(_LOOK):
                if not query.isActive:
                    raise PeerError(f"the rehearsal of batch {batch} failed: {job.hide(describe_failure(query))}")
                if time.monotonic() > ends:
                    raise PeerError(f"the rehearsal of batch {batch} took more than {seconds:.0f} seconds")
        finally:
            query.stop()
        return Staged(setting, component, folder.location)


def _start(frame: DataFrame, job: Job, once: Once, folder: CheckpointFolder) -> StreamingQuery:
    if job.sink.format == TOPIC:
        return start_files(
            frame, f"{folder.location}/data", once, checkpoint=folder.location, trigger=None, name=job.name
        )
    writer = frame.writeStream.foreachBatch(once).outputMode(job.sink.mode).queryName(job.name)
    return writer.option("checkpointLocation", folder.location).start()


class Once:
    """Runs the first batch of a rehearsal and refuses the second one, which ends the query."""

    def __init__(self, *, is_topic: bool) -> None:
        self.done = threading.Event()
        self._is_topic = is_topic
        self._gate = Gate()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._gate.batch(batch):
            if self._is_topic:
                rows.collect()  # the names of files, which are deleted with the clone
            else:
                rows.write.format("noop").mode("overwrite").save()
        self._gate.close()
        self.done.set()
