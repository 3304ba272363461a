"""`braided.write_files`: results as files that WORK writes itself, committed to a topic by one manifest per batch.

```
 WORK -> files, and a row (name, rows, bytes) for each -> driver: one manifest, created exclusively
```

Spark calls the driver with every batch before it marks the batch as done, and calls again with the same batch after a
failure in between. A batch whose manifest exists is not committed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from braided.durations import Duration, parse_duration
from braided.errors import OptionError
from braided.runtime.router import conform
from braided.spark.arrow_types import arrow_of
from braided.spark.catalyst import PlanNode, observed_texts, plan_of, read_text
from braided.spark.dataflow import METRIC, Dataflow, stateful
from braided.spark.place import NAME
from braided.spark.session_operators import registry_of
from braided.spark.sessions import is_connect
from braided.spark.tasks import (
    FILES_DDL,
    REPORT,
    Unpack,
    WrittenResult,
    batch_number,
    file_rows,
    files_of,
    freeze_loaded,
    wire_names,
)
from braided.spark.topic_schema import create_topic_of
from braided.storage.files import is_remote, local_path
from braided.storage.topic import Topic, TopicWriter, is_topic, plan_digest
from braided.storage.topic_progress import Progress, combine, from_text, read_progress
from braided.storage.upkeep import Upkeep
from braided.storage.writing import CODECS, DataFile, FileTarget, Target, batch_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

NOW = "available now"
_QUERY = "sql.streaming.queryId"


def write_files(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str],
    trigger: Duration | None,
    name: str | None,
    compact: bool = False,
    keep: int | None = None,
) -> StreamingQuery:
    """See `braided.write_files`."""
    if not frame.isStreaming:
        raise OptionError("df: not a stream; write a table with df.write.parquet")
    check_trigger(trigger)
    checkpoint = os.fspath(checkpoint)
    if is_connect(frame):
        if compact or keep is not None:
            raise OptionError(
                "compact, keep: on Spark Connect the server writes the topic; call braided.topic(path).compact() and "
                "retain() beside the query"
            )
        writer = (
            frame.writeStream.format(NAME)
            .option("path", os.fspath(path))
            .option("compression", codec_of(frame.sparkSession))
        )
        return start_query(writer, checkpoint, trigger, name)
    new = not is_topic(os.fspath(path))
    topic = make_topic(frame, os.fspath(path))
    upkeep = Upkeep(topic, compact=compact, keep=keep)
    commit = Commit(frame.sparkSession, topic, checkpoint, upkeep, ObservedProgress.of(frame))
    try:
        return start_files(frame, topic.data, commit, checkpoint=checkpoint, trigger=trigger, name=name)
    except Exception:
        if new:
            topic.discard()
        raise


def make_topic(frame: DataFrame, path: str) -> Topic:
    """Return the topic of a stream's rows; create it if it does not exist."""
    return create_topic_of(frame.schema, path)


def start_files(
    frame: DataFrame,
    data: str,
    commit: Callable[[DataFrame, int], None],
    *,
    checkpoint: str,
    trigger: Duration | None,
    name: str | None,
) -> StreamingQuery:
    """Start a query that writes rows as files below `data`; each batch of rows that name them is given to `commit`."""
    target = FileTarget(data, codec_of(frame.sparkSession))
    return start_writing(frame, target, commit, checkpoint=checkpoint, trigger=trigger, name=name)


def codec_of(session: SparkSession) -> str:
    """Return the session's compression of Parquet, if pyarrow knows it too."""
    codec = str(session.conf.get("spark.sql.parquet.compression.codec")).lower()
    return codec if codec in CODECS else "snappy"


def start_writing(
    frame: DataFrame,
    target: Target,
    commit: Callable[[DataFrame, int], None],
    *,
    checkpoint: str,
    trigger: Duration | None,
    name: str | None,
) -> StreamingQuery:
    """Start a query that writes rows to a target; each batch of rows that name its files is given to `commit`."""
    schema = arrow_of(frame.schema, "df")
    files = _by_the_workers(frame, target, schema)
    if files is None:
        wired = frame.toDF(*wire_names(len(frame.columns)))
        files = wired.mapInArrow(WriteTask(target, schema), FILES_DDL)
    return start_query(files.writeStream.foreachBatch(commit), checkpoint, trigger, name)


def check_trigger(trigger: Duration | None) -> int | None:
    """Return the time between batches in microseconds; None if there is none."""
    return None if trigger in (None, NOW) else parse_duration(trigger, "trigger")


def start_query(
    writer: DataStreamWriter, checkpoint: str, trigger: Duration | None, name: str | None
) -> StreamingQuery:
    """Start a query with the options that our sinks have in common."""
    pause = check_trigger(trigger)
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger == NOW:
        writer = writer.trigger(availableNow=True)
    elif pause is not None:
        writer = writer.trigger(processingTime=f"{pause // 1000} milliseconds")
    return writer.start()


class WriteTask:
    """Writes the rows of any DataFrame into files, and returns rows that name these files."""

    def __init__(self, target: Target, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        writer = self._target.writer(batch_folder(batch_number()), task, self._schema)
        try:
            for batch in batches:
                writer.write(conform(batch.rename_columns(self._schema.names), self._schema))
            yield file_rows(writer.close())
        except BaseException:
            writer.discard()
            raise
        freeze_loaded()


@dataclass(frozen=True)
class ObservedProgress:
    """The progress of the operator whose result Spark processes further, from its workers' reports of the batch.

    metric : that of the operator. times : the names of time columns in the output, each with its stream.
    """

    session: SparkSession
    metric: str
    times: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, frame: DataFrame) -> ObservedProgress | None:
        """Return the progress of a filtered and projected stream of an operator's results; None for other streams."""
        found = _result(plan_of(frame))
        watched = None if found is None else registry_of(frame.sparkSession).find(found.metric)
        if found is None or watched is None or watched.dataflow is None:
            return None
        return cls(frame.sparkSession, found.metric, _times(watched.dataflow, found.columns, frame.columns))

    def read(self, query: str) -> dict[str, Progress]:
        """Return the progress of the columns as of the batch that has just run."""
        texts = observed_texts(self.session, query, f"{METRIC}{self.metric}:work")
        reports = [json.loads(text).get("progress") for text in texts]
        return combine({} if of is None else {name: read_progress(of[at]) for name, at in self.times} for of in reports)


def run_topic_files(
    files: DataFrame, observed: ObservedProgress | None = None
) -> tuple[list[DataFile], dict[str, Progress]]:
    """Run a batch of a query that writes a topic; return its files, and the progress of their time columns."""
    rows = files.collect()
    progress = combine(from_text(row["progress"]) for row in rows if row["progress"] is not None)
    running = files.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if not progress and observed is not None and running is not None:
        progress = observed.read(running)
    return files_of(rows), progress


def run_files(files: DataFrame) -> list[DataFile]:
    """Run a batch of a query that writes files, and return them."""
    return files_of(files.collect())


class Commit:
    """Runs a batch on the driver, and commits the files that its tasks named."""

    def __init__(
        self,
        session: SparkSession,
        topic: Topic,
        checkpoint: str,
        upkeep: Upkeep,
        observed: ObservedProgress | None = None,
    ) -> None:
        self._session = session
        self._topic = topic
        self._checkpoint = checkpoint
        self._upkeep = upkeep
        self._observed = observed
        self._writer: TopicWriter | None = None

    def __call__(self, files: DataFrame, batch: int) -> None:
        if self._writer is None:
            self._writer = self._topic.claim(query_id(self._session, self._checkpoint), batch)
        plan = batch_plan(self._session, self._checkpoint, batch)
        self._writer.commit(batch, plan, *run_topic_files(files, self._observed))
        self._upkeep.after_batch()


def query_id(session: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint belongs to."""
    return str(json.loads(_read(session, checkpoint, "metadata"))["id"])


def batch_plan(session: SparkSession, checkpoint: str, batch: int) -> str:
    """Return a digest of the input that a batch covers."""
    return plan_digest(_read(session, checkpoint, f"offsets/{batch}"))


def _read(session: SparkSession, checkpoint: str, name: str) -> str:
    """Return a file of the checkpoint."""
    if not is_remote(checkpoint):
        return Path(local_path(checkpoint), name).read_text()
    return read_text(session, f"{checkpoint}/{name}")


def _by_the_workers(frame: DataFrame, target: Target, schema: pa.Schema) -> DataFrame | None:
    """Return the operator that a DataFrame comes directly from, with workers that write; None if it does not."""
    result = _result(plan_of(frame))
    if result is None or result.is_filtered:
        return None
    columns = tuple(at for at in result.columns if at is not None)
    watched = registry_of(frame.sparkSession).find(result.metric)
    if watched is None or watched.dataflow is None or len(columns) < len(result.columns):
        return None
    times = _times(watched.dataflow, columns, schema.names)
    return stateful(watched.dataflow, WrittenResult(target, schema, columns, times))


def _times(dataflow: Dataflow, columns: Sequence[int | None], names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return those of a result's selected columns that are times of a stream: their names, and the stream."""
    of = [None if at is None else dataflow.times.get(dataflow.output.fields[at].name) for at in columns]
    return tuple((name, stream) for name, stream in zip(names, of, strict=True) if stream is not None)


@dataclass(frozen=True)
class _Result:
    """An operator's metric, and which of its result's columns a plan has; None for a computed column."""

    metric: str
    columns: tuple[int | None, ...]
    is_filtered: bool = False


def _result(plan: PlanNode) -> _Result | None:
    """Return the operator's result that a plan only filters and projects; None for other plans."""
    metric = _metric_of(plan)
    if metric is not None:
        return _Result(metric, tuple(range(len(plan.output))))
    below = _result(plan.child) if plan.kind in ("SubqueryAlias", "Project", "Filter") else None
    if below is None or plan.kind == "SubqueryAlias":
        return below
    if plan.kind == "Filter":
        return replace(below, is_filtered=True)
    at = {column.id: below.columns[number] for number, column in enumerate(plan.child.output)}
    chosen = (None if column.source is None else at[column.source] for column in plan.projected)
    return replace(below, columns=tuple(chosen))


def _metric_of(plan: PlanNode) -> str | None:
    """Return the metric of the operator whose result a plan returns: it drops the reports, or unpacks the blocks.

    Only exactly these shapes: a user's own steps must not be mistaken for ours.
    """
    if plan.kind == "MapInArrow" and f"MapInArrow {Unpack.__name__}(" in plan.line():
        if plan.child.kind != "Project":
            return None
        plan = plan.child.child
    if plan.kind != "Filter" or plan.condition != f"({REPORT} IS NULL)":
        return None
    name = plan.child.metric if plan.child.kind == "CollectMetrics" else ""
    return name[len(METRIC) : -len(":work")] if name.startswith(METRIC) and name.endswith(":work") else None
