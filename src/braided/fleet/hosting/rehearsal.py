"""A rehearsal: a component's query runs one batch on a clone of its checkpoint, and writes into no sink.

It warms what a move would else wait for: the session, Python processes, generated code, pages and decoded runs. And it
leaves the query that a start needs, built.
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
# The state of a rehearsal is closed with its batch, and nothing of it is uploaded. Spark would upload and close it when
# the query that follows asks for its own: on the same cores, in the one batch that is waited for.
_STATE = {
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000000",
}


def rehearse(setting: JobEnvironment, component: component_host.Job, seconds: float) -> Staged | None:
    """Build a component's query and run its last committed batch once more; one that has none is only built.

    Returns the query to start; None for one that has no batch.
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
    """What a rehearsal does with batches: it runs the first and refuses the second, which ends the query."""

    def __init__(self, *, is_topic: bool) -> None:
        self.done = threading.Event()
        self._is_topic = is_topic
        self._gate = Gate()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._gate.batch(batch):
            if self._is_topic:
                rows.collect()  # names of files, which are deleted with the clone
            else:
                rows.write.format("noop").mode("overwrite").save()
        self._gate.close()
        self.done.set()
