"""Jobs of the local runtime that are coupled by topics, as jobs of a fleet are: each can stop and go on elsewhere."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braided.local.runtime import LocalRuntime
from braided.operators.physical import EngineFeatures, InputColumn
from braided.operators.registry import build
from braided.operators.spec import Spec
from braided.operators.stream import Stream
from braided.storage.topic import Topic, create_topic, digest
from braided.storage.topic_progress import Progress, combine, read_progress
from braided.storage.writing import FileTarget, batch_folder
from braided.time.clocks import MIN_TIME

Tasks = Sequence[tuple[int, Sequence[pa.RecordBatch]]]


class TopicJob:
    """An operator that reads batches and topics, and writes a topic.

    topics : the inputs that are topics, by number. The others are given with every batch.
    """

    def __init__(
        self, spec: Spec, schemas: Sequence[pa.Schema], path: str, workers: int, topics: Mapping[int, Topic]
    ) -> None:
        self._spec, self._schemas, self._topics = spec, schemas, topics
        self._workers = workers
        self._slots = dict.fromkeys(topics, 0)
        self.topic = create_topic(path, "{}")
        self._batch = 0
        self._stores: Any = None
        self.restart()

    def restart(self) -> None:
        """Go on as another peer would: from state as it is stored, with the next epoch of the topic."""
        streams = [Stream(label, schema) for label, schema in zip(self._spec.labels, self._schemas, strict=True)]
        self.plan = build(self._spec, streams, EngineFeatures(adaptive=False))
        stores = None if self._stores is None else pickle.loads(pickle.dumps(self._stores))
        self.runtime = LocalRuntime(self.plan.operator, self._workers, stores)
        self._stores = self.runtime.stores
        self._writer = self.topic.claim("job", self._batch)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its topic."""
        return self.plan.operator.output

    def run(self, tasks: Tasks = (), *, final: bool = False) -> list[dict[str, Any]]:
        """Run a batch of what is given and of what is new in its topics; commit and return its results."""
        todo, promises = [*tasks], {}
        for side, topic in self._topics.items():
            stop = topic.latest() + 1
            files = topic.files(self._slots[side], stop)
            operator = self.plan.operator
            todo.append((side, [batch for file in files for batch in pq.read_table(file).to_batches()]))
            progress = topic.progress(self._slots[side], stop).get(operator.times[side])
            if progress is not None:
                promises[side] = progress
            self._slots[side] = stop
        writer = FileTarget(self.topic.data).writer(batch_folder(self._batch), 0, self.schema)
        rows: list[dict[str, Any]] = []
        for piece in self.runtime.run_batch(todo, final=final, promises=promises):
            writer.write(piece)
            rows += piece.to_pylist()
        self._writer.commit(self._batch, digest(str(self._batch)), writer.close(), self.progress())
        self._batch += 1
        return rows

    def progress(self) -> Mapping[str, Progress]:
        """Return what the workers promised with the last batch."""
        times = {c.name: c.stream for c in self.plan.columns if isinstance(c, InputColumn) and c.marks is not None}
        return combine(
            {name: read_progress(report["progress"][stream]) for name, stream in times.items()}
            for report in self.runtime.reports
            if "progress" in report
        )

    def counts(self) -> bool:
        """Return whether the clocks of its streams count, so that its topic has progress."""
        return any(progress.until > MIN_TIME for progress in self.progress().values())

    def late(self) -> int:
        """Return how many rows came too late so far."""
        return sum(
            count
            for report in self.runtime.reports
            for name, count in report["total"].items()
            if name.startswith("late:")
        )
