"""The events of a session's queries for a dashboard, as events of a history.

It follows the session's registry, which already listens to Spark's progress, so that an event is converted from the JVM
once. Batches that ran before are read from the recent progress that Spark keeps of running queries.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from braided.runtime.contract import Json
from braided.runtime.report import Report
from braided.spark.dataflow import METRIC
from braided.spark.pictures import lay_out_query
from braided.spark.session_operators import Watched, metrics_of, name_of, registry_of
from braided.ui.history_events import columns_of
from braided.ui.routing_tables import describe_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("braided")
_HOT_KEYS = 10
_LETTERS = 200
_ON_ITS_WAY = 10.0
# The fields of a stream in a report that only the operator uses.
_INNER = ("trust", "learned", "learner")


class Watch:
    """Turns the events of one session into events of a history, and passes them to `add`."""

    def __init__(
        self, spark: SparkSession, add: Callable[[Json], None], *, redact: bool, for_page: bool = True
    ) -> None:
        """`for_page`: with pictures of queries; else with an event every ten seconds while a query waits for rows."""
        self._spark = spark
        self._registry = registry_of(spark)
        self._add = add
        self._redact = redact
        self._for_page = for_page
        self._names: dict[str, str] = {}
        self._batches: dict[str, int] = {}
        self._tables: dict[tuple[str, str], int] = {}
        self._queries: dict[str, Any] = {}
        self._lock = threading.Condition()

    def begin(self) -> None:
        """Start to follow, and catch up with the running queries."""
        with self._lock:  # new events wait until the earlier ones are passed on
            self._registry.followers.append(self)
            for query in self._spark.streams.active:
                for progress in query.recentProgress:
                    self.progressed(progress, {})

    def end(self, *, wait: bool = True) -> None:
        """Stop following. Wait for pending events: Spark reports the last batch and the end a little later."""
        with contextlib.suppress(Exception):  # the session may have ended
            active = {str(query.runId) for query in self._spark.streams.active}
            with self._lock:
                self._lock.wait_for(lambda: self._names.keys() <= active, _ON_ITS_WAY if wait else 0)
        if self in self._registry.followers:
            self._registry.followers.remove(self)

    def started(self, event: Any) -> None:
        """See `Follower`. The query is looked up while it certainly runs; its first batch names its operators."""
        run = str(event.runId)
        self._queries[run] = self._spark.streams.get(str(event.id))
        self._start(run, str(event.id), event.name, event.timestamp)

    def _start(self, run: str, query: str, name: str | None, timestamp: str) -> None:
        self._names[run] = name or f"query {query[:8]}"
        self._add({"event": "started", "query": run, "id": query, "name": self._names[run], "time": _millis(timestamp)})

    def progressed(self, progress: Any, decisions: Mapping[str, Sequence[Json]]) -> None:
        """See `Follower`."""
        run = str(progress.runId)
        with self._lock:
            if progress.batchId <= self._batches.get(run, -1):
                return
            if run not in self._names:
                self._start(run, str(progress.id), progress.name, progress.timestamp)
            if run not in self._batches and self._for_page:
                threading.Thread(target=self._draw, args=(run, str(progress.id)), daemon=True).start()
            self._batches[run] = progress.batchId
            metrics = metrics_of(progress)
            operators = [self._operator(progress, metric, decisions.get(metric, ())) for metric in metrics]
            self._add(
                {
                    "event": "batch",
                    "query": run,
                    "batch": progress.batchId,
                    "time": _millis(progress.timestamp),
                    "ms": dict(progress.durationMs),
                    "sources": [
                        {"name": str(source.description)[:_LETTERS], "rows": source.numInputRows, "lag": _lag(source)}
                        for source in progress.sources
                    ],
                    "state_bytes": sum(operator.memoryUsedBytes for operator in progress.stateOperators),
                    "operators": operators,
                }
            )

    def idle(self, event: Any) -> None:
        """See `Follower`."""
        if not self._for_page:
            self._add({"event": "idle", "query": str(event.runId), "time": _millis(event.timestamp)})

    def ended(self, event: Any) -> None:
        """See `Follower`."""
        run = str(event.runId)
        error = event.exception
        if error is not None:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            error = "failed" if self._redact or not lines else lines[0][:_LETTERS]
        self._add({"event": "ended", "query": run, "time": round(1000 * time.time()), "error": error})
        with self._lock:
            for known in (self._names, self._batches, self._queries):
                known.pop(run, None)
            for key in [key for key in self._tables if key[0] == run]:
                del self._tables[key]
            self._lock.notify_all()

    def _operator(self, progress: Any, metric: str, decisions: Sequence[Json]) -> Json:
        """Return the report of an operator, in the form of `Report`; add its new table and decisions before it."""
        run = str(progress.runId)
        work, routed = (
            [json.loads(text) for text in progress.observedMetrics[f"{METRIC}{metric}:{part}"]["reports"]]
            for part in ("work", "route")
        )
        report = Report.of_workers(name_of(metric), progress.batchId, work)
        watched = self._registry.find(metric)
        table = work[0].get("table")
        if watched is not None and watched.plan.joined is not None and table is not None:
            decisions = self._change(progress, metric, watched, work[0], decisions)
        for decision in decisions:
            fields = {name: value for name, value in decision.items() if not (self._redact and name == "value")}
            self._add({"event": "decision", "query": run, "operator": metric, **fields})
        rows = sum(part["rows"] for part in routed)
        adapting = None if watched is None else watched.in_query(str(progress.id))
        loads = adapting.controller.loads() if adapting is not None and adapting.controller is not None else []
        return {
            "operator": metric,
            "name": name_of(metric),
            "query": _without_histories(report.query),
            "streams": [{name: stream[name] for name in stream if name not in _INNER} for stream in report.streams],
            "workers": columns_of(report.workers),
            "table": None if table is None else table[0],
            "copies": round(sum(part["copies"] for part in routed) / rows, 3) if rows else None,
            "loads": [load["load"] for load in loads],
            "keys": self._hot_keys(work, routed),
        }

    def _change(
        self, progress: Any, metric: str, watched: Watched, report: Json, decisions: Sequence[Json]
    ) -> Sequence[Json]:
        """Add a new table; with the first one, also the decisions that led to it."""
        run, adapting = str(progress.runId), watched.in_query(str(progress.id))
        known, version = self._tables.get((run, metric)), int(report["table"][0])
        if known != version:
            self._tables[run, metric] = version
            table = watched.table_of(adapting, report)
            controller = None if adapting is None or self._redact or watched.routing.redact else adapting.controller
            fields = describe_table(table, {} if controller is None else controller.labels)
            self._add({"event": "table", "query": run, "operator": metric, **fields})
        return adapting.control.decisions() if known is None and adapting is not None else decisions

    def _hot_keys(self, work: Sequence[Json], routed: Sequence[Json]) -> list[Json]:
        """Return the heaviest keys of a batch: rows of the first stream, of the others, and results."""
        counts: dict[str, list[float]] = {}
        labels: dict[str, str] = {}
        for report in routed:
            for key, weight in report.get("keys") or ():
                counts.setdefault(key, [0, 0, 0])[min(report["side"], 1)] += weight
            labels |= report.get("labels") or {}
        for report in work:
            for key, weight in (report.get("load") or {}).get("keys", ()):
                counts.setdefault(key, [0, 0, 0])[2] += weight
        heaviest = sorted(counts, key=lambda key: -sum(counts[key]))[:_HOT_KEYS]
        shown = {} if self._redact else labels
        return [{"key": key, "label": shown.get(key), "counts": counts[key]} for key in heaviest]

    def _draw(self, run: str, query: str) -> None:
        """Add the picture of a query; it walks the plan in the JVM, so it runs in a separate thread."""
        try:
            handle = self._queries.get(run) or self._spark.streams.get(query)
            if handle is not None:
                self._add({"event": "graph", "query": run, **lay_out_query(handle, self._spark, self._registry)})
        except Exception as error:
            _log.info("no picture of query %s: %s", query, error)


def _without_histories(query: Json) -> Json:
    """Return the description of a query without its detectors' reports of earlier batches: the history has those."""
    detectors = [
        {name: value for name, value in one.items() if not name.endswith("history")}
        for one in query.get("detectors", ())
    ]
    return {**query, "detectors": detectors} if detectors else query


def _lag(source: Any) -> Json:
    """Return the lag that a source itself reports, as Kafka's does."""
    return {str(name): str(value) for name, value in (source.metrics or {}).items() if "Behind" in str(name)}


def _millis(timestamp: str) -> int:
    """Return the milliseconds since 1970 of a timestamp in Spark's format."""
    return round(1000 * datetime.fromisoformat(timestamp).timestamp())
