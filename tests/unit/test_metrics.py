"""Figures for Prometheus without Spark: names, totals over restarts, the endpoint and who may read it."""

from __future__ import annotations

import http.client
import re
from collections import deque
from pathlib import Path

import pytest
from support.dashboards import EVIL, batch_event, run_events

from braided.fleet.client import Status
from braided.fleet.following import describe_fleet
from braided.fleet.messages import Contact
from braided.fleet.peer_loads import ComponentLoad
from braided.fleet.requests import ComponentRow, PeerRow
from braided.ui.metrics import FAMILIES, MOST_ENDED, Metrics
from braided.ui.metrics_server import MetricsServer

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "metrics.md"
EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"
_LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Parse the text format, strictly: each series once, every family with its type."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    typed: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            labels = frozenset(re.findall(r'([a-z_]+)="((?:[^"\\\n]|\\.)*)"', match[2] or ""))
            key = match[1], labels
            assert key not in series, f"twice: {line}"
            assert match[1] in typed, line
            series[key] = float(match[3])
    return series


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """Return the one series that has these labels, maybe among others."""
    wanted = set(labels.items())
    (found,) = [got for (known, own), got in read(metrics.text()).items() if known == name and wanted <= own]
    return found


def fed(*runs: str, batches: int = 3) -> Metrics:
    metrics = Metrics()
    for run in runs:
        for event in run_events(batches, run):
            metrics.add(event)
    return metrics


def test_the_figures_of_a_query_are_those_of_its_last_batch_and_its_totals() -> None:
    metrics = Metrics()
    events = [event for event in run_events(3) if event["event"] != "ended"]
    for event in events:
        metrics.add(event)
    batches = [event for event in events if event["event"] == "batch"]
    last = batches[-1]
    name = last["operators"][0]["name"]
    assert value(metrics, "braided_query_state", state="running") == 1
    assert value(metrics, "braided_batches_total") == len(batches)
    assert value(metrics, "braided_results_total", operator=name) == last["operators"][0]["query"]["results"]
    for stream in last["operators"][0]["streams"]:
        assert value(metrics, "braided_late_rows_total", stream=stream["name"]) == stream["late"]
        if "lateness" in stream:
            assert value(metrics, "braided_lateness_seconds", stream=stream["name"]) == stream["lateness"] / 1e6
    whole = sum(batch["ms"]["triggerExecution"] for batch in batches) / 1000
    assert value(metrics, "braided_batch_seconds_total", phase="triggerExecution") == pytest.approx(whole)
    decisions = [event for event in events if event["event"] == "decision"]
    assert decisions
    counted = [got for (known, _), got in read(metrics.text()).items() if known == "braided_decisions_total"]
    assert sum(counted) == len(decisions)


def test_a_query_that_restarts_is_counted_and_one_that_failed_is_shown() -> None:
    metrics = Metrics()
    for run, error in (("a", "boom"), ("b", None)):
        metrics.add({"event": "started", "query": run, "name": "calls", "time": 1})
        metrics.add(batch_event(0, run))
        metrics.add({"event": "ended", "query": run, "time": 2, "error": error})
        state = "failed" if error else "stopped"
        assert value(metrics, "braided_query_state", state=state) == 1
        assert value(metrics, "braided_query_state", state="running") == 0
    assert value(metrics, "braided_query_starts_total", query="calls") == 2
    assert value(metrics, "braided_query_failures_total", query="calls") == 1
    assert "braided_batch_seconds{" not in metrics.text()  # nothing runs


def test_a_failed_query_that_is_restarted_is_counted_and_has_not_failed() -> None:
    metrics = Metrics()
    metrics.add({"event": "started", "query": "a", "name": "calls", "time": 1})
    metrics.add({"event": "ended", "query": "a", "time": 2, "error": "boom"}, is_restarted=True)
    assert value(metrics, "braided_query_state", state="failed") == 0
    assert value(metrics, "braided_query_state", state="stopped") == 1
    assert value(metrics, "braided_query_failures_total", query="calls") == 1


def test_the_end_of_an_older_run_does_not_end_the_newer_one() -> None:
    metrics = Metrics()
    for run in ("a", "b"):
        metrics.add({"event": "started", "query": run, "name": "calls", "time": 1})
    metrics.add(batch_event(0, "b"))
    metrics.add({"event": "ended", "query": "a", "time": 2, "error": "boom"})
    assert value(metrics, "braided_query_state", state="running") == 1


def test_queries_that_ended_are_forgotten() -> None:
    metrics = Metrics()
    for number in range(3 * MOST_ENDED):
        metrics.add({"event": "started", "query": f"run {number}", "name": f"query {number}", "time": 1})
        metrics.add({"event": "ended", "query": f"run {number}", "time": 2, "error": None})
    assert metrics.text().count("braided_query_starts_total{") <= MOST_ENDED + 1


def test_names_are_escaped_and_no_key_is_shown() -> None:
    metrics = Metrics()
    metrics.add({"event": "started", "query": "a", "name": 'a"b\\c\nd', "time": 1})
    for event in run_events(2, "a")[1:]:
        metrics.add(event)
    text = metrics.text()
    assert 'query="a\\"b\\\\c\\nd"' in text
    assert EVIL not in text
    read(text)


def test_a_kafka_source_tells_how_far_it_is_behind() -> None:
    metrics = Metrics()
    event = batch_event(0, "a")
    event["sources"][0]["lag"] = {"maxOffsetsBehindLatest": "17", "avgOffsetsBehindLatest": "8.5", "odd": "x"}
    metrics.add({"event": "started", "query": "a", "name": "calls", "time": 1})
    metrics.add(event)
    assert value(metrics, "braided_source_offsets_behind", of="max") == 17
    assert value(metrics, "braided_source_offsets_behind", of="mean") == 8.5


def of_fleet() -> Metrics:
    metrics = Metrics()
    contact = Contact("0" * 40, "127.0.0.1:7401", "north")
    rows = (
        ComponentRow(
            "calm",
            "join",
            "out",
            3,
            "north",
            measured=ComponentLoad("calm", "join", 0.5, 0.8, 12, 3.0),
            state="running",
            since=100.0,
        ),
        ComponentRow("broken", "join", "out", 1, "north", is_failed=True, failures=6, state="failed", since=50.0),
    )
    status = Status((PeerRow(contact, 0.75, 2.0),), rows)
    metrics.add(describe_fleet(status, (), {"north": deque([0.7])}, redact=True))
    return metrics


def test_a_fleet_shows_its_peers_and_the_states_of_its_jobs() -> None:
    metrics = of_fleet()
    assert value(metrics, "braided_fleet_peers") == 1
    assert value(metrics, "braided_peer_load_ratio", peer="north") == 0.75
    assert value(metrics, "braided_job_state", fleet_job="calm", state="running") == 1
    assert value(metrics, "braided_job_state", fleet_job="broken", state="failed") == 1
    assert value(metrics, "braided_job_state_since_timestamp_seconds", fleet_job="broken") == 50
    assert value(metrics, "braided_job_failures", fleet_job="broken") == 6
    assert value(metrics, "braided_peer_draining", peer="north") == 0
    assert value(metrics, "braided_job_backlog_rows", fleet_job="calm") == 12
    assert value(metrics, "braided_job_rows_per_second", fleet_job="calm") == 3
    # What nobody has counted is absent, not 0.
    assert not [
        key
        for key in read(metrics.text())
        if key[0] == "braided_job_backlog_rows" and ("fleet_job", "broken") in key[1]
    ]
    metrics.add({"event": "fleet", "peers": [], "components": [], "happened": [], "error": "no answer"})
    assert value(metrics, "braided_fleet_up") == 0


def scrape(server: MetricsServer, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_the_endpoint_answers_on_loopback_and_asks_others_for_a_bearer() -> None:
    server = MetricsServer(fed("a"))
    try:
        answer = scrape(server)
        assert answer.status == 200
        assert answer.getheader("Content-Type", "").startswith("text/plain; version=0.0.4")
        assert read(answer.read().decode())
        assert scrape(server, "/").status == 404
        assert scrape(server, Host="elsewhere.example").status == 403
    finally:
        server.close()
    server = MetricsServer(fed("a"), host="0.0.0.0")
    try:
        assert server.token is not None
        assert scrape(server).status == 401
        assert scrape(server, Authorization="Bearer wrong-wrong-wrong-wrong").status == 401
        assert scrape(server, Authorization=f"Bearer {server.token}").status == 200
    finally:
        server.close()


def test_every_metric_is_documented_and_alerts_name_only_those() -> None:
    documented = set(re.findall(r"`(braided_[a-z_]+)`", DOCS.read_text(encoding="utf-8")))
    assert documented == FAMILIES.keys()
    for name in ("alerts.yml", "grafana.json"):
        used = set(re.findall(r"\bbraided_[a-z_]+", (EXAMPLES / name).read_text(encoding="utf-8")))
        assert used <= FAMILIES.keys()


def test_no_label_is_one_that_prometheus_has_itself() -> None:
    # It would rename ours, `exported_job`, and alerts would name what was scraped.
    labels = re.findall(r"^\| `braided_[a-z_]+` \| [a-z]+ \| ([^|]*)\|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(labels) == len(FAMILIES)
    assert not {"job", "instance"} & {
        name.strip() for named in labels for name in re.sub(r"\(.*\)", "", named).split(",")
    }
    named = {label for metrics in (fed("a"), of_fleet()) for _, of in read(metrics.text()) for label, _ in of}
    assert "fleet_job" in named
    assert not {"job", "instance"} & named


def test_a_closed_endpoint_answers_no_more_on_open_connections() -> None:
    server = MetricsServer(fed("a"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/metrics")
    assert connection.getresponse().read()
    server.close()
    connection.request("GET", "/metrics")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        connection.getresponse()
