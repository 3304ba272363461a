"""One component at one epoch: a job's query, with a claimed output and its own checkpoint.

The methods block; threads of the host call them. See `Host` (`fleet/component_host.py`) for the order that makes a
start exact: claim the topic, then clone the checkpoint, then continue.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.durations import parse_duration
from braided.errors import PeerError
from braided.fleet.checkpoints import Checkpoints
from braided.fleet.component_host import Job
from braided.fleet.hosting.causes import describe_failure
from braided.fleet.hosting.gate import Gate
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.hosting.pace import Pace, offsets_between
from braided.fleet.hosting.staging import Staged
from braided.fleet.hosting.task_time import TaskTime
from braided.fleet.leases import Position
from braided.jobs.job_file import KAFKA, TOPIC
from braided.spark.catalyst import StageTimes
from braided.spark.jobs import build_job, named, write_sink
from braided.spark.kafka import WriteRecords, sequenced
from braided.spark.sink import ObservedProgress, make_topic, run_topic_files, start_files, start_query
from braided.storage.files import python_url
from braided.storage.topic import Topic, TopicWriter, create_topic, is_topic, plan_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import SourceProgress

BATCH = 60.0
"""Seconds that a stop waits for a batch to end; then the batch is interrupted, and runs again later."""
_NOTED = 10.0
_CLEANED_EVERY = 20  # batches
_COUNTED = 1000  # the most waiting manifests that are counted
_FENCE = "fence"
_WRITTEN = "braided.written"
_KAFKA_SOURCE = "Kafka"
_ANNOUNCED = 100  # batches that a fence keeps


@dataclass(frozen=True)
class Progress:
    """The last batch of a query: its number, the seconds it took, those between triggers, and rows that wait.

    backlog : None if a source does not report it.
    tasks : seconds that tasks of the query have run since the last call.
    is_behind : see `Pace`.
    rows : the number written, if its sink is not a topic.
    """

    batch: int
    seconds: float
    interval: float | None
    backlog: int | None
    tasks: float
    is_behind: bool = False
    rows: int | None = None


class Component:
    """The query of a component at one epoch, from its start to its end."""

    def __init__(self, setting: JobEnvironment, component: Job, epoch: int, staged: Staged | None = None) -> None:
        self.component = component
        self.epoch = epoch
        self.is_stopping = False
        self.rows = 0
        """The number of rows that it has added to its topic."""
        self._setting = setting
        self._staged = staged
        self._gate = Gate()
        self._checkpoints = Checkpoints(component.checkpoint)
        self._query: StreamingQuery | None = None
        self._writer: TopicWriter | None = None
        """The claim of this epoch: its topic, or the fence of a sink without one."""
        self._cleaned = 0
        self._observed: ObservedProgress | None = None
        self._pace = Pace()
        self._unwatch: Callable[[], None] = lambda: None

    def start(self, expected: Position | None) -> None:
        """Continue from the position of the previous epoch; `PeerError` if this is not the expected position."""
        try:
            self._start(expected)
            self._check_held()  # if the lease was lost meanwhile, there was no query to stop yet
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is more informative
                self.kill()
            raise

    def _start(self, expected: Position | None) -> None:
        name = self.component.name
        log = self._log()
        if log is not None:
            self._writer = log.claim(name, epoch=self.epoch)
        self._folder = self._checkpoints.open(self.epoch)
        position = self._folder.position()
        if expected is not None and position != expected:
            raise PeerError(f"component={name!r}: its checkpoint is at {position}, not at {expected}")
        self._job = self._setting.job(self.component, self._folder.location)
        self._session, frame = self._built()
        self._check_held()
        self._unwatch = self._setting.watch(self._session)
        with named(self._job, "sink"):
            self._query = self._started_query(frame)
        self._tasks = TaskTime(StageTimes(self._session, str(self._query.runId)))

    def _check_held(self) -> None:
        if self.is_stopping:
            raise PeerError(f"component={self.component.name!r}: its lease was lost while it started")

    def _built(self) -> tuple[SparkSession, DataFrame]:
        if self._staged is not None:
            return self._staged.session, self._staged.frame
        session = self._setting.session(self._job)
        return session, build_job(session, self._job, reader=self.component.name)

    def _started_query(self, frame: DataFrame) -> StreamingQuery:
        checkpoint, trigger, name = self._folder.location, self._job.trigger, self.component.name
        if self.component.outputs:
            data = self._claimed().topic.data
            self._observed = ObservedProgress.of(frame)
            return start_files(frame, data, self._commit, checkpoint=checkpoint, trigger=trigger, name=name)
        if self._writer is None:
            return write_sink(_counted(frame), self._job, trigger)
        records = sequenced(frame)
        if records is None:
            raise PeerError(
                f"sink: has the columns {', '.join(frame.columns)}; Kafka needs a value, and optionally a key"
            )
        send = partial(self._send, WriteRecords(records, self._job.sink.options))
        writer = _counted(records).writeStream.outputMode(self._job.sink.mode).foreachBatch(send)
        return start_query(writer, checkpoint, trigger, name)

    def _log(self) -> Topic | None:
        """Return the log that fences off former owners: that of the output or, for Kafka, one beside the checkpoint."""
        job = self._setting.job(self.component, self.component.checkpoint)
        if job.sink.format == KAFKA:
            return create_topic(f"{python_url(self.component.checkpoint)}/{_FENCE}", "{}")
        return self._topic(self.component.outputs[0]) if self.component.outputs else None

    def _topic(self, path: str) -> Topic:
        if is_topic(path):
            return Topic(path)
        with self._checkpoints.rehearsal() as folder:
            job = self._setting.job(self.component, folder.location)
            return make_topic(build_job(self._setting.session(job), job), path)

    def _commit(self, files: DataFrame, batch: int) -> None:
        with self._gate.batch(batch):
            written, progress = run_topic_files(files, self._observed)
            if self._claimed().commit(batch, self._plan(batch), written, progress):
                self.rows += sum(file.rows for file in written)
        if batch % _CLEANED_EVERY == 0:
            self._checkpoints.clean(self.epoch)

    def _send(self, write: WriteRecords, records: DataFrame, batch: int) -> None:
        """Announce a batch as the owner of an epoch, and write it; if it is written again, it has the same sequence."""
        with self._gate.batch(batch):
            self._claimed().announce(batch, self._plan(batch))
            write(records, batch)
        if batch % _CLEANED_EVERY == 0:
            self._checkpoints.clean(self.epoch)
            self._claimed().topic.retain(_ANNOUNCED)

    def _plan(self, batch: int) -> str:
        return plan_digest(self._folder.plan(batch))

    def _claimed(self) -> TopicWriter:
        assert self._writer is not None
        return self._writer

    def stop(self) -> Position:
        """Stop between two batches and return the position."""
        query = self._started()
        if self._writer is not None:
            self._gate.close(BATCH)
            self._wait_for(lambda: self._gate.last is None or self._folder.is_committed(self._gate.last), _NOTED)
        else:
            self._wait_for(lambda: not query.status["isTriggerActive"], BATCH)
        query.stop()
        self._unwatch()
        return self._folder.position()

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not condition() and self._started().isActive and time.monotonic() < ends:
            time.sleep(0.01)

    def close(self) -> None:
        """Let no further batch start."""
        self.is_stopping = True
        self._gate.close()

    def kill(self) -> None:
        """Stop at once, even in the middle of a batch."""
        self.close()
        if self._query is not None:
            self._query.stop()
        self._unwatch()

    def problem(self) -> str | None:
        """Return why the query has ended; None while it runs."""
        query = self._started()
        return None if query.isActive else self._job.hide(describe_failure(query))

    def progress(self) -> Progress | None:
        """Return the progress of the last batch; None before the first one."""
        last = self._started().lastProgress
        if last is None:
            return None
        # Without a topic, no commit of ours sees the batches.
        if self._writer is None and last.batchId >= self._cleaned + _CLEANED_EVERY:
            self._cleaned = int(last.batchId)
            self._checkpoints.clean(self.epoch)
        trigger = self._job.trigger
        interval = None if trigger is None else parse_duration(trigger, "trigger") / 1_000_000
        seconds = last.durationMs.get("triggerExecution", 0) / 1000
        backlog = self._backlog(last.sources)
        is_active = bool(self._started().status["isTriggerActive"])
        is_behind = self._pace.look(int(last.batchId), seconds, interval, backlog, is_active)
        written = last.observedMetrics.get(_WRITTEN)
        rows = None if written is None else int(written["rows"])
        return Progress(int(last.batchId), seconds, interval, backlog, self._tasks.since_last(), is_behind, rows)

    def _backlog(self, sources: Sequence[SourceProgress]) -> int | None:
        """Return the rows that wait in its input topics, of at most a thousand batches each, and in Kafka's topics.

        None if it also reads other sources, whose waiting rows are not known.
        """
        waiting = 0
        for source in self._job.sources.values():
            if source.format == TOPIC:
                topic = Topic(str(source.path))
                slot = topic.readers().get(self.component.name)
                waiting += sum(entry.rows for entry in islice(topic.manifests(slot), _COUNTED))
            elif source.format != KAFKA:
                return None
        for read in sources:
            if read.description.startswith(_KAFKA_SOURCE):
                offsets = offsets_between(read.endOffset, read.latestOffset)
                if offsets is None:
                    return None
                waiting += offsets
        return waiting

    def _started(self) -> StreamingQuery:
        if self._query is None:
            raise PeerError(f"component={self.component.name!r}: has not started")
        return self._query


def _counted(frame: DataFrame) -> DataFrame:
    """Let Spark count the rows of each batch, if the sink does not."""
    return frame.observe(_WRITTEN, F.count(F.lit(1)).alias("rows"))
