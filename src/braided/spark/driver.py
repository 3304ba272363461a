"""The controller on Spark's driver: listens to a query's progress and publishes tables into its control directory.

Nothing waits for it. If it is slow or dead the routing stays as it is; after a restart it goes on from the newest
table in the directory.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from braided.balance.controller import Controller
from braided.balance.observation import observe
from braided.joins.many.multijoin import MultiJoin
from braided.joins.window_join import WindowJoin
from braided.spark.dataflow import METRIC, Routing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braided.joins.bounded.join_group import JoinGroup

_log = logging.getLogger("braided")
# As many batches as Spark keeps of its own logs (spark.sql.streaming.minBatchesToRetain).
_KEPT_BATCHES = 100
_PRUNE_EVERY = 20


@dataclass
class Watched:
    """One join as the driver knows it; with a control directory it has a controller."""

    name: str
    operator: WindowJoin | MultiJoin | JoinGroup
    routing: Routing
    slots: int
    controller: Controller | None = None
    last_batch: int = -1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_progress(self, progress: Any) -> None:
        """Take a batch's reports; decide, publish, log."""
        control = self.routing.control
        metrics = progress.observedMetrics
        key = f"{METRIC}{self.name}"
        if control is None or f"{key}:work" not in metrics:
            return
        with self.lock:
            if control.owner() != str(progress.id) or progress.batchId <= self.last_batch:
                return
            reports = [[json.loads(text) for text in metrics[f"{key}:{part}"]["reports"]] for part in ("work", "route")]
            batch_ms = float(progress.durationMs.get("triggerExecution", 0)) or 1.0
            seen = observe(progress.batchId, batch_ms, self.routing.workers, *reports)
            if seen is None:
                return
            self.last_batch = progress.batchId
            if self.controller is None or self.controller.table.version < seen.version:
                self.controller = Controller(
                    control.newest(), self.operator.window, slots=self.slots, most_columns=self.operator.most_columns
                )
            before = self.controller.table
            events = self.controller.step(seen, control.wanted())
            after = self.controller.table
            if after is not before and not control.publish(after):
                _log.warning("control=%r: table %d exists already; going on from it", control.location, after.version)
                self.controller = None
                return
            control.log([self._told(event.to_json()) for event in events])
            if progress.batchId % _PRUNE_EVERY == 0:
                self._prune(progress.batchId)

    def _told(self, event: dict[str, Any]) -> dict[str, Any]:
        """Add a key's value to an event that names its hash; there is none where keys are redacted."""
        label = self.controller.labels.get(int(event.get("key", "0"), 16)) if self.controller is not None else None
        return event if label is None or self.routing.redact else {**event, "value": label}

    def _prune(self, batch: int) -> None:
        assert self.routing.control is not None
        oldest = self.routing.control.oldest_pinned(batch - _KEPT_BATCHES)
        if oldest is not None:
            self.routing.control.prune(batch - _KEPT_BATCHES, oldest)


class ControlListener(StreamingQueryListener):  # type: ignore[misc]
    """Hands every query's progress to the joins that have a control directory."""

    def __init__(self) -> None:
        self.joins: dict[str, Watched] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do: the query may start again."""

    def onQueryProgress(self, event: Any) -> None:
        """Let no error out: the query must not depend on its controller."""
        for watched in list(self.joins.values()):
            try:
                watched.on_progress(event.progress)
            except Exception:
                _log.exception("join %r: the controller failed on a batch; the routing stays as it is", watched.name)


_LISTENERS: weakref.WeakKeyDictionary[SparkSession, ControlListener] = weakref.WeakKeyDictionary()
_JOINS: dict[str, Watched] = {}


def watch(session: SparkSession, name: str, operator: WindowJoin | MultiJoin | JoinGroup, routing: Routing) -> None:
    """Remember a join, for reports and explain; listen to it if it has a control directory."""
    slots = int(session.sparkContext.defaultParallelism)
    _JOINS[name] = Watched(name, operator, routing, slots)
    if routing.control is None:
        return
    listener = _LISTENERS.get(session)
    if listener is None:
        listener = _LISTENERS[session] = ControlListener()
        session.streams.addListener(listener)
    listener.joins[name] = _JOINS[name]


def watched_join(name: str) -> Watched | None:
    """Return a join of this process by name."""
    return _JOINS.get(name)
