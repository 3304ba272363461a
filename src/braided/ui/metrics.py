"""Metrics of queries, operators and fleets for Prometheus, from the events of the dashboard.

Labels have few values: names of queries, operators, streams, workers, phases, peers and jobs, but never values of keys.
Totals of operators are those of the checkpoint, so they continue after a restart of the query.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from braided.runtime.contract import Json
from braided.ui.history_events import rows_of

# The number of ended queries whose metrics are kept.
MOST_ENDED = 100
_MICROS = 1e6
_MILLIS = 1e3

FAMILIES: Mapping[str, tuple[str, str]] = {
    "braided_query_state": ("gauge", "1 for the current state of a query: starting, running, stopped or failed"),
    "braided_query_starts_total": ("counter", "starts of a query"),
    "braided_query_failures_total": ("counter", "failures of a query"),
    "braided_batches_total": ("counter", "finished batches of a query since this endpoint started"),
    "braided_last_active_timestamp_seconds": (
        "gauge",
        "when the last batch began, or when Spark last checked for rows and found none",
    ),
    "braided_batch_seconds": (
        "gauge",
        "how long the last batch took, by Spark's phases; triggerExecution is the whole batch",
    ),
    "braided_batch_seconds_total": ("counter", "how long all batches took, by Spark's phases"),
    "braided_source_rows_total": ("counter", "rows, or files, that Spark has read from a source"),
    "braided_source_offsets_behind": (
        "gauge",
        "offsets by which a Kafka source is behind the newest, maximum and mean",
    ),
    "braided_rows_total": ("counter", "rows of a stream that an operator received"),
    "braided_late_rows_total": ("counter", "rows later than the lateness; they may still have been joined"),
    "braided_lost_rows_total": (
        "counter",
        "late rows of a join that may have lost pairs, because matching rows had expired; absent if this is not known",
    ),
    "braided_null_time_rows_total": ("counter", "rows without an event time"),
    "braided_null_key_rows_total": ("counter", "rows without a key"),
    "braided_quarantined_rows": ("gauge", "rows far ahead of their stream's clock, which do not move a clock yet"),
    "braided_discarded_rows_total": ("counter", "quarantined rows whose time was never confirmed"),
    "braided_waiting_rows": ("gauge", "rows that wait to be put in order"),
    "braided_clock_seconds": ("gauge", "event time of a stream's clock, in seconds since 1970"),
    "braided_lateness_seconds": ("gauge", "the lateness K of a stream, fixed or learned"),
    "braided_results_total": ("counter", "results of an operator"),
    "braided_matches_total": ("counter", "matches of a pattern"),
    "braided_open_matches": ("gauge", "rows at which a match may still begin"),
    "braided_recall_ratio": ("gauge", "share of the exact results that a join with a budget returns, for recent rows"),
    "braided_recall_error_ratio": ("gauge", "standard error of the recall"),
    "braided_state_rows": ("gauge", "stored rows of a worker"),
    "braided_state_bytes": ("gauge", "stored bytes of a worker"),
    "braided_worker_rows_total": ("counter", "rows, including copies, that a worker received"),
    "braided_worker_results_total": ("counter", "results of a worker"),
    "braided_worker_cpu_seconds_total": ("counter", "CPU time of a worker"),
    "braided_worker_share_ratio": ("gauge", "rows and results of a worker in the last batch, divided by the mean"),
    "braided_worker_load_ratio": ("gauge", "load of a worker, 1 is its fair share of the cores, over 1, 5, 15 batches"),
    "braided_copies_ratio": ("gauge", "copies per row in the last batch"),
    "braided_routing_version": ("gauge", "version of the routing table of the last batch"),
    "braided_hot_keys": ("gauge", "keys with their own grid of workers"),
    "braided_decisions_total": ("counter", "decisions of the routing since this endpoint started"),
    "braided_fleet_up": ("gauge", "1 if the fleet answers, 0 if it does not"),
    "braided_fleet_peers": ("gauge", "peers that answer"),
    "braided_peer_load_ratio": ("gauge", "CPU use of a peer, divided by its cores"),
    "braided_peer_cores": ("gauge", "cores of a peer"),
    "braided_job_state": (
        "gauge",
        "1 for the state of a job: starting, running, behind, failing, failed, orphaned, draining or paused",
    ),
    "braided_job_state_since_timestamp_seconds": ("gauge", "when the state of a job began, in seconds since 1970"),
    "braided_job_failures": ("gauge", "how often a job has failed in a row"),
    "braided_job_rows_per_second": ("gauge", "rows that a job writes"),
    "braided_peer_draining": ("gauge", "1 if a peer is moving its jobs to other peers and accepts no more"),
    "braided_job_moves": ("gauge", "how often a job was started or moved: the epoch of its lease"),
    "braided_job_backlog_rows": ("gauge", "rows that wait for a job; absent if a source does not report them"),
    "braided_job_busy_ratio": ("gauge", "batch time of a job divided by its trigger interval; above 1 it falls behind"),
}
"""All metrics: type and help text."""

_OF_STREAMS = {
    "rows": ("braided_rows_total", 1.0),
    "late": ("braided_late_rows_total", 1.0),
    "lost": ("braided_lost_rows_total", 1.0),
    "null_times": ("braided_null_time_rows_total", 1.0),
    "null_keys": ("braided_null_key_rows_total", 1.0),
    "quarantined": ("braided_quarantined_rows", 1.0),
    "discarded": ("braided_discarded_rows_total", 1.0),
    "waiting": ("braided_waiting_rows", 1.0),
    "clock": ("braided_clock_seconds", _MICROS),
    "lateness": ("braided_lateness_seconds", _MICROS),
}
_OF_QUERIES = {
    "results": "braided_results_total",
    "matches": "braided_matches_total",
    "open_matches": "braided_open_matches",
    "recent_recall": "braided_recall_ratio",
    "recent_recall_error": "braided_recall_error_ratio",
}
_OF_WORKERS = {
    ("last", "stored_rows"): ("braided_state_rows", 1.0),
    ("last", "stored_bytes"): ("braided_state_bytes", 1.0),
    ("total", "rows"): ("braided_worker_rows_total", 1.0),
    ("total", "results"): ("braided_worker_results_total", 1.0),
    ("total", "cpu_ms"): ("braided_worker_cpu_seconds_total", _MILLIS),
}
_OF_JOBS = {
    "backlog": "braided_job_backlog_rows",
    "busy": "braided_job_busy_ratio",
    "rate": "braided_job_rows_per_second",
}
_JOB_STATES = ("starting", "running", "behind", "failing", "failed", "orphaned", "draining", "paused")
_OFFSETS_BEHIND = {"maxOffsetsBehindLatest": "max", "avgOffsetsBehindLatest": "mean"}


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class _Query:
    """The metrics of one query, over all its runs."""

    state: str = "starting"
    run: str = ""
    starts: int = 0
    failures: int = 0
    batches: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    source_rows: dict[str, int] = field(default_factory=dict)
    decisions: dict[tuple[str, str], int] = field(default_factory=dict)
    hot_keys: dict[str, int] = field(default_factory=dict)
    last: Json | None = None
    active: float = 0.0


class Metrics:
    """The current metrics. Any thread may add events and read metrics."""

    def __init__(self) -> None:
        self._queries: OrderedDict[str, _Query] = OrderedDict()
        self._names: dict[str, str] = {}
        self._fleet: Json | None = None
        self._lock = threading.Lock()

    def add(self, event: Json, *, is_restarted: bool = False) -> None:
        """Add an event (`history_events`), or an "idle" event of a query.

        is_restarted : whether something else restarts the query, perhaps elsewhere. Then its state after a failure is
            "stopped"; the failure still counts.
        """
        with self._lock:
            if event["event"] == "fleet":
                self._fleet = event
            elif event["event"] == "started":
                self._start(event)
            elif event["query"] in self._names:
                self._take(self._queries[self._names[event["query"]]], event, is_restarted)

    def _start(self, event: Json) -> None:
        self._names[event["query"]] = event["name"]
        query = self._queries.setdefault(event["name"], _Query())
        self._queries.move_to_end(event["name"])
        query.state, query.run = "starting", event["query"]
        query.starts += 1
        ended = [name for name, known in self._queries.items() if known.state in ("stopped", "failed")]
        for name in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._queries[name]
        self._names = {run: name for run, name in self._names.items() if name in self._queries}

    def _take(self, query: _Query, event: Json, is_restarted: bool) -> None:
        kind = event["event"]
        if kind == "batch":
            query.state = "running"
            query.batches += 1
            query.last = event
            query.active = max(query.active, event["time"])
            for phase, millis in event["ms"].items():
                query.seconds[phase] = query.seconds.get(phase, 0.0) + millis / _MILLIS
            for number, source in enumerate(event["sources"]):
                query.source_rows[str(number)] = query.source_rows.get(str(number), 0) + int(source["rows"])
        elif kind == "decision":
            which = _operator_name(event["operator"]), event["action"]
            query.decisions[which] = query.decisions.get(which, 0) + 1
        elif kind == "table":
            query.hot_keys[_operator_name(event["operator"])] = sum(grid["key"] is not None for grid in event["grids"])
        elif kind == "idle":
            query.active = max(query.active, event["time"])
        elif kind == "ended":
            del self._names[event["query"]]
            has_failed = event.get("error") is not None
            if query.run == event["query"]:
                query.state = "failed" if has_failed and not is_restarted else "stopped"
            query.failures += has_failed

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        with self._lock:
            samples = [sample for name, query in self._queries.items() for sample in _of_query(name, query)]
            samples += _of_fleet(self._fleet)
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(sample.name, []).append(sample)
        lines = []
        for name, (kind, help_text) in FAMILIES.items():
            if name in by_name:
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
                lines += _unique(by_name[name])
        return "\n".join([*lines, ""])


def _unique(samples: Iterable[Sample]) -> Iterator[str]:
    """Yield samples as text. Operators with the same name cannot be distinguished, so the last one is used."""
    shown = {}
    for sample in samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        shown[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    for series, value in shown.items():
        yield f"{series} {value:.17g}"


def _escaped(value: str) -> str:
    """Escape the value of a label for the format.

    >>> _escaped('a"b')
    'a\\\\"b'
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _operator_name(metric: str) -> str:
    return metric.partition(":")[2] or metric


def _of_query(name: str, query: _Query) -> Iterator[Sample]:
    own = {"query": name}
    for state in ("starting", "running", "stopped", "failed"):
        yield Sample("braided_query_state", {**own, "state": state}, float(query.state == state))
    yield Sample("braided_query_starts_total", own, query.starts)
    yield Sample("braided_query_failures_total", own, query.failures)
    yield Sample("braided_batches_total", own, query.batches)
    for phase, seconds in query.seconds.items():
        yield Sample("braided_batch_seconds_total", {**own, "phase": phase}, seconds)
    for number, rows in query.source_rows.items():
        yield Sample("braided_source_rows_total", {**own, "source": number}, rows)
    for (operator, action), count in query.decisions.items():
        yield Sample("braided_decisions_total", {**own, "operator": operator, "action": action}, count)
    for operator, count in query.hot_keys.items():
        yield Sample("braided_hot_keys", {**own, "operator": operator}, count)
    if query.last is None or query.state in ("stopped", "failed"):
        return
    yield Sample("braided_last_active_timestamp_seconds", own, query.active / _MILLIS)
    for phase, millis in query.last["ms"].items():
        yield Sample("braided_batch_seconds", {**own, "phase": phase}, millis / _MILLIS)
    for at, source in enumerate(query.last["sources"]):
        for figure, which in _OFFSETS_BEHIND.items():
            behind = _number(source.get("lag", {}).get(figure))
            if behind is not None:
                labels = {**own, "source": str(at), "of": which}
                yield Sample("braided_source_offsets_behind", labels, behind)
    for operator in query.last["operators"]:
        yield from _of_operator({**own, "operator": operator["name"]}, operator)


def _of_operator(own: dict[str, str], operator: Json) -> Iterator[Sample]:
    for field_name, metric in _OF_QUERIES.items():
        if operator["query"].get(field_name) is not None:
            yield Sample(metric, own, operator["query"][field_name])
    for stream in operator["streams"]:
        for field_name, (metric, unit) in _OF_STREAMS.items():
            if stream.get(field_name) is not None:
                yield Sample(metric, {**own, "stream": stream["name"]}, stream[field_name] / unit)
    for worker in rows_of(operator["workers"]):
        labels = {**own, "worker": str(worker["worker"])}
        for (span, column), (metric, unit) in _OF_WORKERS.items():
            yield Sample(metric, labels, worker[span][column] / unit)
        yield Sample("braided_worker_share_ratio", labels, worker["share"])
    for at, loads in enumerate(operator.get("loads") or ()):
        for batches, load in zip(("1", "5", "15"), loads, strict=False):
            yield Sample("braided_worker_load_ratio", {**own, "worker": str(at), "batches": batches}, load)
    if operator.get("copies") is not None:
        yield Sample("braided_copies_ratio", own, operator["copies"])
    if operator.get("table") is not None:
        yield Sample("braided_routing_version", own, operator["table"])


def _of_fleet(fleet: Json | None) -> Iterator[Sample]:
    if fleet is None:
        return
    yield Sample("braided_fleet_up", {}, float("error" not in fleet))
    yield Sample("braided_fleet_peers", {}, 0 if "error" in fleet else len(fleet["peers"]))
    for peer in fleet["peers"]:
        yield Sample("braided_peer_load_ratio", {"peer": peer["name"]}, peer["load"])
        yield Sample("braided_peer_cores", {"peer": peer["name"]}, peer["cores"])
        yield Sample("braided_peer_draining", {"peer": peer["name"]}, float(peer.get("drains", False)))
    for job in fleet["components"]:
        own = {"fleet_job": job["name"]}  # `job` is a label of Prometheus: what it has scraped
        for state in _JOB_STATES:
            yield Sample("braided_job_state", {**own, "state": state}, float(job.get("state") == state))
        if job.get("since"):
            yield Sample("braided_job_state_since_timestamp_seconds", own, job["since"] / _MILLIS)
        yield Sample("braided_job_failures", own, job.get("failures", 0))
        yield Sample("braided_job_moves", own, job["epoch"])
        for name, metric in _OF_JOBS.items():
            if name in job:
                yield Sample(metric, own, job[name])


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None
