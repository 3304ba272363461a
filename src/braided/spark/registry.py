"""What the driver knows of the operators of a session: for reports, for explain, and for their controllers.

A listener hears of every query's progress. Where an operator has a control directory, its controller turns the reports
of a batch into a new table there. Nothing waits for it: if it is slow or dead the routing stays as it is, and after a
restart it goes on from the newest table in the directory.

An operator is known by a number of its own, which is part of the names of its metrics, so any number of them may share
a name. Operators that no running query uses are forgotten in the order in which they were last heard of.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming import StreamingQueryListener

from braided.balance.controller import Controller
from braided.balance.observation import observe
from braided.compile.plan import Plan
from braided.durations import show_duration
from braided.operator.contract import Json
from braided.operator.report import Report
from braided.spark.dataflow import METRIC
from braided.spark.routing import Routing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("braided")
# As many batches as Spark keeps of its own logs (spark.sql.streaming.minBatchesToRetain).
_KEPT_BATCHES = 100
_PRUNE_EVERY = 20
# So many operators are remembered that no running query uses: a DataFrame may be started at any time.
_MOST_IDLE = 1000
_numbers = itertools.count(1)
ControllerFactory = Callable[..., Controller]


@dataclass
class Watched:
    """One operator as the driver knows it; with a control directory it has a controller."""

    name: str
    number: int
    plan: Plan
    routing: Routing
    slots: int
    make_controller: ControllerFactory = Controller
    notes: Sequence[str] = ()
    """What to explain of how its inputs are read."""
    rebuild: Callable[..., DataFrame] | None = None
    """Makes the operator's DataFrame anew, with workers that write their results into files."""
    controller: Controller | None = None
    queries: set[str] = field(default_factory=set)
    """The running queries that have it, by their run's id."""
    last_batch: int = -1
    warned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_progress(self, progress: Any, metric: str) -> list[Json]:
        """Take a batch's reports; decide, publish, log. Return the decisions."""
        control, joined = self.routing.control, self.plan.joined
        if control is None or joined is None:
            return []
        with self.lock:
            if control.owner() != str(progress.id) or progress.batchId <= self.last_batch:
                return []
            metrics = progress.observedMetrics
            reports = [
                [json.loads(text) for text in metrics[f"{METRIC}{metric}:{part}"]["reports"]]
                for part in ("work", "route")
            ]
            batch_ms = float(progress.durationMs.get("triggerExecution", 0)) or 1.0
            seen = observe(progress.batchId, batch_ms, self.routing.workers, *reports)
            if seen is None:
                return []
            self.last_batch = progress.batchId
            if self.controller is None or self.controller.table.version < seen.version:
                self.controller = self.make_controller(
                    control.newest(), joined.window, slots=self.slots, most_columns=joined.most_columns
                )
            before = self.controller.table
            decisions = self.controller.step(seen, control.wanted())
            after = self.controller.table
            if after is not before and not control.publish(after):
                _log.warning("control=%r: table %d exists already; going on from it", control.location, after.version)
                self.controller = None
                return []
            named = [self._named(decision.to_json()) for decision in decisions]
            control.log(named)
            if progress.batchId % _PRUNE_EVERY == 0:
                self._prune(progress.batchId)
            return named

    def warn_of_late_rows(self, progress: Any, metric: str) -> None:
        """Say once that rows came later than a lateness that nobody chose."""
        if self.warned or not self.plan.unchosen:
            return
        texts = progress.observedMetrics[f"{METRIC}{metric}:work"]["reports"]
        streams = Report.of_workers(self.name, None, map(json.loads, texts)).streams
        late = [streams[at] for at in self.plan.unchosen if streams[at]["late"]]
        if late:
            self.warned = True
            _log.warning(
                "%s: %d rows of the %s stream came later than its lateness, %s, which was learned since none was "
                "given; they may have lost pairs. Give lateness=, or the input a withWatermark.",
                self.name, late[0]["late"], late[0]["name"], show_duration(late[0]["lateness"]),
            )  # fmt: skip

    def _named(self, decision: dict[str, Any]) -> dict[str, Any]:
        """Add a key's value to a decision that names its hash; there is none where keys are redacted."""
        if self.controller is None or self.routing.redact or "key" not in decision:
            return decision
        label = self.controller.labels.get(int(decision["key"], 16))
        return decision if label is None else {**decision, "value": label}

    def _prune(self, batch: int) -> None:
        assert self.routing.control is not None
        oldest = self.routing.control.oldest_pinned(batch - _KEPT_BATCHES)
        if oldest is not None:
            self.routing.control.prune(batch - _KEPT_BATCHES, oldest)


class Follower(Protocol):
    """Hears what a registry hears, after the controllers; see `StreamingQueryListener` for the events."""

    def started(self, event: Any) -> None:
        """Hear of a query that starts, which waits until this returns."""

    def progressed(self, progress: Any, decisions: Mapping[str, Sequence[Json]]) -> None:
        """Hear of a batch, and of what was decided after it for each operator, by its metric."""

    def ended(self, event: Any) -> None:
        """Hear of a query that ended."""


class Registry(StreamingQueryListener):  # type: ignore[misc]
    """The operators of one session, by their metrics. A controller is made by `make_controller`."""

    def __init__(self, make_controller: ControllerFactory = Controller) -> None:
        self.make_controller = make_controller
        self.followers: list[Follower] = []
        self._operators: OrderedDict[str, Watched] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, metric: str, watched: Watched) -> None:
        """Remember an operator; forget the one that was idle longest if there are too many."""
        with self._lock:
            self._operators[metric] = watched
            idle = [known for known, operator in self._operators.items() if not operator.queries]
            for known in idle[: max(0, len(idle) - _MOST_IDLE)]:
                del self._operators[known]

    def find(self, metric: str) -> Watched | None:
        """Return an operator by its metric."""
        with self._lock:
            return self._operators.get(metric)

    def numbered(self, numbers: Sequence[int]) -> list[Watched]:
        """Return operators by their numbers."""
        with self._lock:
            return [watched for watched in self._operators.values() if watched.number in set(numbers)]

    def onQueryStarted(self, event: Any) -> None:
        """Pass it on: what a query has shows in its first progress."""
        self._tell(lambda follower: follower.started(event))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Let go: the query may start again, but need not."""
        with self._lock:
            for watched in self._operators.values():
                watched.queries.discard(str(event.runId))
        self._tell(lambda follower: follower.ended(event))

    def onQueryProgress(self, event: Any) -> None:
        """Let no error out: the query must not depend on its controller."""
        progress = event.progress
        decisions: dict[str, list[Json]] = {}
        for metric in metrics_of(progress):
            with self._lock:
                watched = self._operators.get(metric)
                if watched is None:
                    continue
                self._operators.move_to_end(metric)
                watched.queries.add(str(progress.runId))
            try:
                watched.warn_of_late_rows(progress, metric)
                decisions[metric] = watched.on_progress(progress, metric)
            except Exception:
                _log.exception("join %r: the controller failed on a batch; the routing stays as it is", watched.name)
        self._tell(lambda follower: follower.progressed(progress, decisions))

    def _tell(self, tell: Callable[[Follower], None]) -> None:
        for follower in tuple(self.followers):
            try:
                tell(follower)
            except Exception:
                _log.exception("%s failed on an event of a query", type(follower).__name__)


_REGISTRIES: weakref.WeakKeyDictionary[SparkSession, Registry] = weakref.WeakKeyDictionary()


def registry_of(session: SparkSession) -> Registry:
    """Return the registry of a session, which listens to its queries."""
    registry = _REGISTRIES.get(session)
    if registry is None:
        registry = _REGISTRIES[session] = Registry()
        session.streams.addListener(registry)
    return registry


def registries() -> list[Registry]:
    """Return the registries of all sessions: a metric is one operator's alone."""
    return list(_REGISTRIES.values())


def register(
    session: SparkSession, plan: Plan, routing: Routing, name: str | None, notes: Sequence[str] = ()
) -> tuple[Watched, str]:
    """Remember an operator of a session; return it, and what its metrics are called."""
    number = next(_numbers)
    registry = registry_of(session)
    chosen = name or f"{plan.spec.kind}-{number}"
    metric = f"{number}-{uuid.uuid4().hex[:8]}:{chosen}"
    slots = int(session.sparkContext.defaultParallelism)
    watched = Watched(chosen, number, plan, routing, slots, registry.make_controller, notes)
    registry.add(metric, watched)
    return watched, metric


def metrics_of(progress: Any) -> list[str]:
    """Return the operators that reported in a batch, in the order in which they were made."""
    found = [
        metric[len(METRIC) : -len(":work")]
        for metric, row in progress.observedMetrics.items()
        if metric.startswith(METRIC) and metric.endswith(":work") and row["reports"]
    ]
    return sorted(found, key=lambda metric: int(metric.split("-", 1)[0]))


def name_of(metric: str) -> str:
    """Return the name that a user gave to the operator of a metric."""
    return metric.split(":", 1)[1]
