"""The operators of a session on the driver: for reports, for explain, and for their controllers.

A listener receives every query's progress. If an operator has a control directory, its controller turns the reports of
a batch into a new table there. Nothing waits for it: if it is slow or has failed, the routing does not change, and
after a restart it continues from the newest table in the directory.

An operator has its own number, which is part of the names of its metrics, so any number of operators may share a name.
Operators that no running query uses are removed in the order in which they were last used.
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
from braided.durations import show_duration
from braided.operators.physical import Plan
from braided.plan.optimiser import Optimised
from braided.routing.control_directory import ControlDir
from braided.routing.root import ControlRoot
from braided.routing.table import RoutingTable
from braided.runtime.contract import Json
from braided.runtime.report import Report
from braided.spark.catalyst import checkpoint_of, java_listener, observes
from braided.spark.checkpoint_folder import close_run, open_for_run
from braided.spark.control import InCheckpoint
from braided.spark.dataflow import METRIC, Dataflow
from braided.spark.routing import Routing
from braided.spark.sessions import is_connect, slots_of, what_to_install
from braided.spark.ticks import TickRequests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("braided")
# The number of batches that Spark keeps of its own logs (spark.sql.streaming.minBatchesToRetain).
_KEPT_BATCHES = 100
_PRUNE_EVERY = 20
# The most operators to keep that no running query uses: a DataFrame may be started at any time.
_MOST_IDLE = 1000
# The number of queries for which a DataFrame's routing is kept: it may be started many times.
_MOST_QUERIES = 16
_CHECKPOINT = "<checkpoint>/braided/control"
_OUT_OF_REACH = (
    "query %s: the routing is fixed, so hot keys and hot workers stay where they are: cannot write a table to the "
    "checkpoint %s; set spark.braided.control to a path or an fsspec URL that the driver and all executors reach"
)
_numbers = itertools.count(1)
ControllerFactory = Callable[..., Controller]


@dataclass
class Adapting:
    """The routing of an operator in one query: its control directory, and the controller that changes it."""

    control: ControlDir
    controller: Controller | None = None
    last_batch: int = -1


@dataclass
class Watched:
    """One operator on the driver; in every query that has it, it may have a controller."""

    name: str
    number: int
    plan: Plan
    routing: Routing
    slots: int
    make_controller: ControllerFactory = Controller
    notes: Sequence[str] = ()
    """Lines for explain about how its inputs are read."""
    logical: Optimised | None = None
    """The logical plan that it is part of."""
    dataflow: Dataflow | None = None
    """How it runs, if only its result leaves it, so that workers could write the result into files."""
    ticks: TickRequests | None = None
    """Where it requests batches without rows, if a silence is to release waiting rows."""
    adapting: OrderedDict[str, Adapting] = field(default_factory=OrderedDict)
    """By the ids of queries, the latest one last."""
    queries: set[str] = field(default_factory=set)
    """The running queries that have it, by their run's id."""
    warned: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def in_query(self, query: str) -> Adapting | None:
        """Return the operator's routing in a query; None if it is fixed."""
        control = self.routing.directory(query)
        if control is None:
            return None
        with self.lock:
            adapting = self.adapting.get(query)
            # The location differs if the checkpoint is a copy, which has the same id.
            if adapting is None or adapting.control.location != control.location:
                adapting = self.adapting[query] = Adapting(control)
            self.adapting.move_to_end(query)
            while len(self.adapting) > _MOST_QUERIES:
                self.adapting.popitem(last=False)
        return adapting

    def table_of(self, adapting: Adapting | None, report: Json) -> RoutingTable:
        """Return the table that a batch used, according to the report of one of its workers."""
        return self.routing.first(report["workers"]) if adapting is None else adapting.control.table(report["table"][0])

    def on_progress(self, progress: Any, metric: str) -> list[Json]:
        """Take a batch's reports; decide, publish and log. Return the decisions."""
        joined = self.plan.joined
        with self.lock:
            adapting = self.in_query(str(progress.id))
            if adapting is None or joined is None:
                return []
            control = adapting.control
            if control.owner() != str(progress.id) or progress.batchId <= adapting.last_batch:
                return []
            reports = [reports_of(progress, metric, part) for part in ("work", "route")]
            batch_ms = float(progress.durationMs.get("triggerExecution", 0)) or 1.0
            seen = observe(progress.batchId, batch_ms, *reports)
            if seen is None:
                return []
            adapting.last_batch = progress.batchId
            if adapting.controller is None or adapting.controller.table.version < seen.version:
                adapting.controller = self.make_controller(
                    control.newest(),
                    joined.window,
                    slots=self.slots,
                    most_columns=joined.most_columns,
                    home=joined.home,
                )
            before = adapting.controller.table
            decisions = adapting.controller.step(seen, control.wanted())
            after = adapting.controller.table
            if after is not before and not control.publish(after):
                _log.warning("control=%r: table %d already exists; continuing from it", control.location, after.version)
                adapting.controller = None
                return []
            logged = [named(decision.to_json(), adapting.controller, self.routing.redact) for decision in decisions]
            control.log(logged)
            if progress.batchId % _PRUNE_EVERY == 0:
                _prune(control, progress.batchId)
            return logged

    def warn_of_twins(self) -> None:
        """Warn once that operators of one query cannot be distinguished, so that their routing is fixed."""
        if "twins" not in self.warned:
            self.warned.add("twins")
            _log.warning(
                "%s: another operator of this query has the same options and columns, so the routing of both is fixed; "
                "give each a name=, and it adapts", self.name,
            )  # fmt: skip

    def warn_of_late_rows(self, progress: Any, metric: str) -> None:
        """Warn once that rows came later than a default lateness and, if known, how many may have lost pairs."""
        if "late" in self.warned or not self.plan.unchosen:
            return
        streams = Report.of_workers(self.name, None, reports_of(progress, metric, "work")).streams
        late = [streams[at] for at in self.plan.unchosen if streams[at].get("lost", streams[at]["late"])]
        if late:
            self.warned.add("late")
            first = late[0]
            _log.warning(
                "%s: %d rows of the %s stream came later than its lateness, %s, which was learned because none was "
                "given; %s of them may have lost pairs. Give lateness=, or the input a withWatermark.",
                self.name, first["late"], first["name"], show_duration(first["lateness"]), first.get("lost", "all"),
                extra={"query": str(progress.name or "")},
            )  # fmt: skip


def named(decision: dict[str, Any], controller: Controller, redact: bool) -> dict[str, Any]:
    """Add a key's value to a decision that has its hash, unless keys are redacted."""
    if redact or "key" not in decision:
        return decision
    label = controller.labels.get(int(decision["key"], 16))
    return decision if label is None else {**decision, "value": label}


def _prune(control: ControlDir, batch: int) -> None:
    oldest = control.oldest_pinned(batch - _KEPT_BATCHES)
    if oldest is not None:
        control.prune(batch - _KEPT_BATCHES, oldest)


class Follower(Protocol):
    """Receives a registry's events, after the controllers; see `StreamingQueryListener` for the events."""

    def started(self, event: Any) -> None:
        """Called when a query starts; the query waits until this returns."""

    def progressed(self, progress: Any, decisions: Mapping[str, Sequence[Json]]) -> None:
        """Called after a batch, with the decisions made after it for each operator, by its metric."""

    def idle(self, event: Any) -> None:
        """Called about every ten seconds while a query waits for rows."""

    def ended(self, event: Any) -> None:
        """Called when a query has ended."""


class Registry(StreamingQueryListener):  # type: ignore[misc]
    """The operators of one session, by their metrics. A controller is made by `make_controller`."""

    def __init__(self, session: SparkSession, make_controller: ControllerFactory = Controller) -> None:
        self.make_controller = make_controller
        self.followers: list[Follower] = []
        self._session = weakref.ref(session)
        self._checkpoints: dict[str, str] = {}
        """The checkpoints of running queries, by their run's id."""
        self._operators: OrderedDict[str, Watched] = OrderedDict()
        self._notes: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def _jlistener(self) -> Any:
        """The listener that PySpark registers in the JVM; not used by Spark Connect."""
        if not hasattr(self, "_jlistenerobj"):
            self._jlistenerobj = java_listener(self)
        return self._jlistenerobj

    def add(self, metric: str, watched: Watched) -> None:
        """Add an operator; remove the one that was idle longest if there are too many."""
        with self._lock:
            self._operators[metric] = watched
            idle = [known for known, operator in self._operators.items() if not operator.queries]
            for known in idle[: max(0, len(idle) - _MOST_IDLE)]:
                del self._operators[known]

    def note(self, frame: DataFrame, notes: Sequence[str]) -> None:
        """Store notes about a whole query, by its plan."""
        if notes:
            plan = frame.semanticHash()
            with self._lock:
                self._notes[plan] = tuple(notes)
                if len(self._notes) > _MOST_IDLE:
                    self._notes.popitem(last=False)

    def notes_of(self, frame: DataFrame) -> tuple[str, ...]:
        """Return the notes about a query."""
        return self._notes.get(frame.semanticHash(), ()) if self._notes else ()

    def find(self, metric: str) -> Watched | None:
        """Return an operator by its metric."""
        with self._lock:
            return self._operators.get(metric)

    def controls(self) -> list[ControlDir | ControlRoot | InCheckpoint | None]:
        """Return the control directories of the operators."""
        with self._lock:
            return [watched.routing.control for watched in self._operators.values()]

    def _all(self) -> list[Watched]:
        with self._lock:
            return list(self._operators.values())

    def numbered(self, numbers: Sequence[int]) -> list[Watched]:
        """Return operators by their numbers."""
        with self._lock:
            return [watched for watched in self._operators.values() if watched.number in set(numbers)]

    def onQueryStarted(self, event: Any) -> None:
        """Find the query's checkpoint. Spark waits for this before the first batch, except Spark Connect."""
        roots = {root_of(operator) for operator in self._all()} - {None}
        try:
            session = self._session()
            asked = bool(self._operators) and session is not None and not is_connect(session)
            checkpoint = checkpoint_of(session, str(event.id)) if asked else None
            if checkpoint is not None and session is not None and observes(session, str(event.id), METRIC):
                reached = open_for_run(session, checkpoint, str(event.id), str(event.runId))
                self._checkpoints[str(event.runId)] = checkpoint
                if not reached and any(place_of(each) == _CHECKPOINT for each in self._all()):
                    _log.warning(_OUT_OF_REACH, event.id, checkpoint)
                for location in filter(None, roots):
                    ControlRoot(location).notice_start(str(event.id), str(event.runId), checkpoint)
        except Exception:
            _log.exception("the checkpoint of query %s cannot be used", event.id)
        self._tell(lambda follower: follower.started(event))

    def onQueryIdle(self, event: Any) -> None:
        """Pass the event on: the query waits for rows."""
        self._tell(lambda follower: follower.idle(event))

    def onQueryTerminated(self, event: Any) -> None:
        """Release what belongs to the run; the query may start again later."""
        missing = what_to_install(event.exception)
        if missing is not None:
            _log.error("query %s: %s", event.id, missing)
        with self._lock:
            self._checkpoints.pop(str(event.runId), None)
            close_run(str(event.id), str(event.runId))
            for watched in self._operators.values():
                watched.queries.discard(str(event.runId))
                if watched.ticks is not None:
                    watched.ticks.forget(str(event.runId))
        self._tell(lambda follower: follower.ended(event))

    def onQueryProgress(self, event: Any) -> None:
        """Handle a batch. No error may leave this method: the query must not depend on its controller."""
        progress = event.progress
        decisions: dict[str, list[Json]] = {}
        twins = self._twins(progress)
        for metric in metrics_of(progress):
            with self._lock:
                watched = self._operators.get(metric)
                if watched is None:
                    continue
                self._operators.move_to_end(metric)
                is_new = str(progress.runId) not in watched.queries
                watched.queries.add(str(progress.runId))
            try:
                if watched.ticks is not None:
                    watched.ticks.take(str(progress.runId), reports_of(progress, metric, "work"))
                watched.warn_of_late_rows(progress, metric)
                if is_new:
                    self._note_checkpoint(watched, progress)
                if metric in twins:
                    watched.warn_of_twins()
                else:
                    decisions[metric] = watched.on_progress(progress, metric)
            except Exception:
                _log.exception("join %r: the controller failed on a batch; the routing does not change", watched.name)
        self._tell(lambda follower: follower.progressed(progress, decisions))

    def _tell(self, tell: Callable[[Follower], None]) -> None:
        for follower in tuple(self.followers):
            try:
                tell(follower)
            except Exception:
                _log.exception("%s failed on an event of a query", type(follower).__name__)

    def _note_checkpoint(self, watched: Watched, progress: Any) -> None:
        location, checkpoint = root_of(watched), self._checkpoints.get(str(progress.runId))
        if location is not None and checkpoint is not None:
            ControlRoot(location).note(str(progress.id), checkpoint)

    def _twins(self, progress: Any) -> set[str]:
        """Return the operators of a query that would share one control directory, and so must not use it.

        Every operator of a query is among its metrics in every batch, even if it had no rows.
        """
        places: dict[tuple[str, str], list[str]] = {}
        for metric in all_metrics_of(progress):
            watched = self.find(metric)
            location = None if watched is None else place_of(watched)
            if watched is not None and location is not None:
                places.setdefault((location, watched.routing.operator), []).append(metric)
        return {metric for metrics in places.values() if len(metrics) > 1 for metric in metrics}


def root_of(watched: Watched) -> str | None:
    """Return the root below which an operator has its control directories."""
    control = watched.routing.control
    return control.location if isinstance(control, ControlRoot) else None


def place_of(watched: Watched) -> str | None:
    """Return the place of a query's control directories, as text for users; None if the operator has its own."""
    return _CHECKPOINT if isinstance(watched.routing.control, InCheckpoint) else root_of(watched)


_REGISTRIES: weakref.WeakKeyDictionary[SparkSession, Registry] = weakref.WeakKeyDictionary()


def registry_of(session: SparkSession) -> Registry:
    """Return the registry of a session, which listens to its queries."""
    registry = _REGISTRIES.get(session)
    if registry is None:
        registry = _REGISTRIES[session] = Registry(session)
        _listen(session, registry)
    return registry


def _listen(session: SparkSession, registry: Registry) -> None:
    """Let a registry listen to the queries of a session, without keeping the process from exiting.

    For the events of a server PySpark starts a thread that waits for them as long as the session lives. A process does
    not exit before its threads, unless they are daemons. A thread is a daemon if the thread that starts it is one.
    """
    if not is_connect(session):
        session.streams.addListener(registry)
        return
    starting = threading.Thread(target=session.streams.addListener, args=(registry,), daemon=True)
    starting.start()
    starting.join()


def registries() -> list[Registry]:
    """Return the registries of all sessions: each metric belongs to one operator only."""
    return list(_REGISTRIES.values())


def register(
    session: SparkSession,
    plan: Plan,
    routing: Routing,
    name: str | None,
    notes: Sequence[str] = (),
    logical: Optimised | None = None,
) -> tuple[Watched, str]:
    """Register an operator of a session; return it and the name of its metrics."""
    number = next(_numbers)
    registry = registry_of(session)
    chosen = name or f"{plan.spec.kind}-{number}"
    metric = f"{number}-{uuid.uuid4().hex[:8]}:{chosen}"
    slots = slots_of(session)
    watched = Watched(chosen, number, plan, routing, slots, registry.make_controller, notes, logical)
    registry.add(metric, watched)
    return watched, metric


def metrics_of(progress: Any) -> list[str]:
    """Return the operators that reported in a batch, in the order in which they were made."""
    return [metric for metric in all_metrics_of(progress) if reports_text(progress, metric, "work")]


def all_metrics_of(progress: Any) -> list[str]:
    """Return the operators of a query, in the order in which they were made."""
    metrics = [
        metric[len(METRIC) : -len(":work")]
        for metric in progress.observedMetrics
        if metric.startswith(METRIC) and metric.endswith(":work")
    ]
    return sorted(metrics, key=lambda metric: int(metric.split("-", 1)[0]))


def reports_of(progress: Any, metric: str, part: str) -> list[Json]:
    """Return what the routers ("route") or the workers ("work") of an operator reported in a batch."""
    return [json.loads(text) for text in reports_text(progress, metric, part)]


def reports_text(progress: Any, metric: str, part: str) -> Sequence[str]:
    """Return the same as text, none for an operator that a batch did not run."""
    row = progress.observedMetrics.get(f"{METRIC}{metric}:{part}")
    if row is None:
        return ()
    # Spark Connect passes a row in parts: its values, and a schema.
    report = row.asDict()
    texts: Sequence[str] = report["reports"] if "reports" in report else report["values"][0]
    return texts


def name_of(metric: str) -> str:
    """Return the name that a user gave to the operator of a metric."""
    return metric.split(":", 1)[1]
