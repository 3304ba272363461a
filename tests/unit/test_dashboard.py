"""The dashboard without Spark: its history, the files it is kept in, the server, the page, reports and commands."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dashboards import EVIL, HOT_HASH, batch_event, run_events, worker_report

from braided.cli import main
from braided.cli.arguments import make_parser
from braided.cli.completion import write_script
from braided.cli.spinner import waiting
from braided.errors import HistoryError, OptionError, PeerError
from braided.fleet.client import Status
from braided.fleet.event_log import Event
from braided.fleet.following import FleetFollower
from braided.fleet.messages import Contact
from braided.fleet.peer_loads import ComponentLoad
from braided.fleet.requests import ComponentRow, PeerRow
from braided.routing.control_directory import ControlDir
from braided.routing.edit import TableEdit
from braided.routing.grid import Grid
from braided.routing.table import RoutingTable
from braided.runtime.report import Report
from braided.ui import history as histories
from braided.ui import history_files
from braided.ui.dashboard_page import SCRIPTS, asset, whole_page
from braided.ui.history import History
from braided.ui.history_events import check_event, columns_of, report_of, rows_of
from braided.ui.history_files import HistoryReader, HistoryWriter
from braided.ui.history_summary import summarize, write_text
from braided.ui.routing_tables import describe_table
from braided.ui.server import Server


@contextlib.contextmanager
def served(**options: Any) -> Iterator[tuple[Server, History]]:
    history = History()
    server = Server(history, **options)
    try:
        yield server, history
    finally:
        server.close()


def get(server: Server, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def read_events(response: http.client.HTTPResponse, until: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < until:
        line = response.readline().decode()
        assert line, "the stream ended"
        if line.startswith("data: {"):
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_workers_become_columns_and_rows_again() -> None:
    report = Report.of_workers("calls", 2, [worker_report(0, 30), worker_report(1, 10)])
    assert rows_of(columns_of(report.workers)) == report.workers
    assert str(report_of(batch_event(2)["operators"][0], 2)) == str(report)
    with pytest.raises(HistoryError, match="different lengths"):
        rows_of({"worker": [0, 1], "share": [1.0]})


def test_a_history_is_bounded_and_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "KEPT_BATCHES", 5)
    monkeypatch.setattr(histories, "KEPT_RUNS", 2)
    history = History()
    for run in ("a", "b", "c"):
        for event in run_events(9, run):
            history.add(event)
    kept = history.events()
    assert {event["query"] for event in kept} == {"b", "c"}
    assert [event["batch"] for event in kept if event["event"] == "batch" and event["query"] == "c"] == [4, 5, 6, 7, 8]
    assert [event["event"] for event in kept if event["query"] == "b"].count("started") == 1
    newest = history.since(0)[-1].number
    assert history.since(newest) == []
    assert not history.wait(newest, 0)
    history.add(batch_event(9, "c"))
    assert [json.loads(event.text)["batch"] for event in history.since(newest)] == [9]
    monkeypatch.setattr(histories, "KEPT_BYTES", 1)
    history.add(batch_event(10, "c"))
    assert [event["batch"] for event in history.events() if event["event"] == "batch" and event["query"] == "c"] == [10]


def test_a_written_history_is_read_as_it_grows(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "h")
    events = run_events()
    for event in events[:3]:
        writer.add(event)
    reader = HistoryReader(tmp_path / "h")
    assert list(reader.read()) == events[:3]
    assert list(reader.read()) == []
    for event in events[3:]:
        writer.add(event)
    assert list(reader.read()) == events[3:]
    writer.close()
    with (tmp_path / "h" / history_files.NAME).open("ab") as file:
        file.write(b'{"event": "ba')
    assert list(reader.read()) == []
    again = HistoryWriter(tmp_path / "h")
    again.add(batch_event(7))
    again.close()
    assert [event["batch"] for event in reader.read()] == [7]


def test_a_large_history_goes_on_in_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_files, "LARGEST", 20_000)
    writer = HistoryWriter(tmp_path)
    for event in run_events(1):
        writer.add(event)
    reader = HistoryReader(tmp_path)
    seen = [event["batch"] for event in reader.read() if event["event"] == "batch"]
    for number in range(1, 60):
        writer.add(batch_event(number))
        seen += [event["batch"] for event in reader.read() if event["event"] == "batch"]
    writer.close()
    assert seen == list(range(60))
    found = list(HistoryReader(tmp_path).read())
    batches = [event["batch"] for event in found if event["event"] == "batch"]
    assert batches == list(range(batches[0], 60))
    assert batches[0] > 0
    assert {"started", "table"} <= {event["event"] for event in found}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 45_000


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"no json\n", "line 1: not valid JSON; delete the line if it is damaged, or name a file that braided wrote"),
        (b"[" * 100_000 + b"\n", "line 1: not valid JSON; delete the line if it is damaged"),
        (b"[]\n", "line 1: not an event of a braided history"),
        (b'{"event": "exec"}\n', "not an event of a braided history"),
        (b'{"event": "batch", "query": "r"}\n', "batch.batch: the field is missing or damaged"),
        (
            b'{"event": "fleet", "peers": [3], "components": [], "happened": []}\n',
            "fleet.peers.name: the field is missing or damaged",
        ),
        (b'{"event": "fleet", "peers": []}\n', "fleet.components: the field is missing or damaged"),
    ],
)
def test_what_is_no_history_is_told(tmp_path: Path, line: bytes, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / history_files.NAME).write_bytes(line)
    with pytest.raises(HistoryError, match=re.escape(told)):
        list(HistoryReader(tmp_path).read())
    assert main(["report", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err


def test_a_damaged_report_is_told() -> None:
    event = batch_event(1)
    del event["operators"][0]["workers"]["total"]["rows"]
    with pytest.raises(HistoryError, match="the report of 'calls' is damaged"):
        check_event(event, "x")


def test_the_server_sends_what_is_there_and_what_comes() -> None:
    with served() as (server, history):
        assert server.url == f"http://127.0.0.1:{server.port}/"
        for event in run_events():
            history.add(event)
        stream = get(server, "/events")
        assert stream.getheader("Content-Type") == "text/event-stream"
        assert [event["event"] for event in read_events(stream, 6)][:2] == ["started", "table"]
        history.add(batch_event(3))
        assert read_events(stream, 1)[0]["batch"] == 3
        later = get(server, "/events", **{"Last-Event-ID": f"{history.mark}-6"})
        assert [event["batch"] for event in read_events(later, 1)] == [3]
        foreign = get(server, "/events", **{"Last-Event-ID": "00000000-6"})
        assert read_events(foreign, 1)[0]["event"] == "started"


def test_every_answer_forbids_what_is_not_needed() -> None:
    with served() as (server, _):
        for path in ("/", *(f"/{name}" for name in SCRIPTS), "/events", "/nothing"):
            answer = get(server, path)
            policy = answer.getheader("Content-Security-Policy") or ""
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert answer.getheader("X-Content-Type-Options") == "nosniff"
            assert answer.getheader("Cache-Control") == "no-store"
        assert get(server, "/nothing").status == 404
        assert get(server, "/../pyproject.toml").status == 404
        assert get(server, "/", Host="evil.example").status == 403
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/events", b"{}")
        assert connection.getresponse().status == 501


def test_beyond_loopback_a_token_is_asked_for() -> None:
    with served(host="0.0.0.0") as (server, _):
        token = server.url.partition("?token=")[2]
        assert len(token) >= 32
        for path in ("/", "/events", "/dashboard.js", "/?token=wrong"):
            assert get(server, path).status == 401
        assert get(server, "/", Cookie="braided_token=wrong").status == 401
        opened = get(server, f"/?token={token}")
        assert (opened.status, opened.getheader("Location")) == (303, "/")
        cookie = opened.getheader("Set-Cookie") or ""
        assert "HttpOnly" in cookie
        assert get(server, "/", Cookie=cookie.partition(";")[0]).status == 200
    with served(token="a-token-of-one's-own") as (server, _):
        assert get(server).status == 401


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"token": "short"}, "token: write 16 or more printable ASCII characters"),
        ({"host": "192.0.2.1"}, "host='192.0.2.1', port=0"),
        ({"port": 99_999}, "port=99999"),
    ],
)
def test_what_cannot_be_served_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        Server(History(), **options)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OptionError, match="port=0 for a free port"):
        Server(History(), port=taken.getsockname()[1])


def test_readers_are_few_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braided.ui.server.MOST_READERS", 1)
    with served() as (server, history):
        first = get(server, "/events")
        assert get(server, "/events").status == 503
        closing = threading.Thread(target=history.close)
        closing.start()
        assert b"data" in first.read()
        closing.join()


def test_the_page_of_a_file_fetches_nothing_and_runs_nothing_of_its_data() -> None:
    events = run_events()
    page = whole_page(events, write_text(summarize(events)))
    assert "alert(1)</script>" not in page
    assert not re.search(r'(src|href)="(?!#main)', page)
    data = re.search(r'<script type="application/json" id="history">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == events
    assert "<" not in data[1], "a comment in a script element would go on beyond its end"
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert page.count("sha256-") == 2


def test_scripts_put_no_markup_into_the_page() -> None:
    for name in SCRIPTS:
        script = asset(name).decode()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.style\.|fetch\(|://(?!www\.w3\.org/2000/svg)",
            script,
        )


def test_a_summary_says_what_the_reports_say() -> None:
    [run] = summarize(run_events())
    assert (run["batches"], run["rows"], run["rows_per_second"]) == (3, 27, 18)
    assert run["seconds"] == {"median": 0.5, "most": 0.5}
    assert run["phases"] == {"addBatch": 0.8, "walCommit": 0.2}
    text = write_text([run])
    assert "27 rows in 3 batches; the median batch took 0.5 s, with 18 rows/s; the slowest took 0.5 s" in text
    assert "time by phase: addBatch 80.0%, walCommit 20.0%" in text
    assert "calls: 80 results in 3 batches" in text
    assert "routing grid, table 1: 4 of 4 workers in use; all rows on grid 2 x 2" in text
    assert f"batch 1: promote {EVIL} grid 2 x 2; 1.60 of a fair share" in text


def test_reports_are_text_json_or_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    (tmp_path / history_files.NAME).touch()
    assert main(["report", str(tmp_path)]) == 2
    assert "there is no history; run the query with `braided run --history DIR`" in capsys.readouterr().err
    writer = HistoryWriter(tmp_path)
    for event in run_events():
        writer.add(event)
    assert main(["report", str(tmp_path)]) == 0
    assert "running, or killed" in capsys.readouterr().out
    writer.add({"event": "ended", "query": "r", "time": 3, "error": "no space left"})
    writer.close()
    assert main(["report", str(tmp_path / history_files.NAME), "--json", "--html", str(tmp_path / "r.html")]) == 1
    assert json.loads(capsys.readouterr().out)[0]["error"] == "no space left"
    assert "no space left" in (tmp_path / "r.html").read_text()
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "none" / "r.html")]) == 2
    assert "No such file or directory; give another file" in capsys.readouterr().err


def test_a_control_directory_has_a_report_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = ControlDir(str(tmp_path))
    control.claim("q", "j")
    edit = TableEdit(RoutingTable.hashed(4))
    edit.promote(HOT_HASH, Grid(((0, 1), (2,))))
    table = edit.done()
    assert control.publish(table)
    control.log(
        [{"batch": 4, "version": 2, "action": "promote", "reason": "hot", "key": f"{HOT_HASH:016x}", "value": "555"}]
    )
    assert main(["report", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert f"table {table.version}: 4 of 4 workers in use; hot key 555 on grid 2+1" in text
    assert "batch 4: promote 555; hot" in text
    owners = describe_table(table, {})["owners"]
    assert np.bincount(owners).tolist() == [1024] * 4


def test_dash_follows_a_history_until_it_is_stopped(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path)
    for event in run_events(1):
        writer.add(event)
    command = [sys.executable, "-m", "braided", "dash", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        port = re.search(r":(\d+)/", running.stdout.readline())
        assert port is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=20)
        connection.request("GET", "/events")
        stream = connection.getresponse()
        read_events(stream, 4)
        writer.add(batch_event(1))
        assert read_events(stream, 1)[0]["batch"] == 1
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
    finally:
        running.kill()


class QuietFleet:
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.status_now = Status(
            (PeerRow(Contact("ab" * 20, "127.0.0.1:7401", "north"), 0.51, 2.0),),
            (ComponentRow("hits", "join.window", "/out", 3, "north", False, ComponentLoad("hits", "join.window", 0.4, 0.2, 7, 9.0)),
             ComponentRow("new", "sql", "/out2")),
        )  # fmt: skip
        self.happened = [Event(60.0, "north", "hits", "moved to south: it said secret")]
        self.wrong: Exception | None = None
        self.asked = 0

    def status(self) -> Status:
        self.asked += 1
        if self.wrong is not None:
            raise self.wrong
        return self.status_now

    def events(self, *, newest: int) -> list[Event]:
        return self.happened


def test_a_fleet_is_told_again_when_it_changes() -> None:
    fleet, told = QuietFleet(), queue.Queue[dict[str, Any]]()
    follower = FleetFollower(fleet, told.put, every=0.01)
    try:
        first = check_event(told.get(timeout=20), "x")
        assert first["peers"] == [
            {
                "name": "north",
                "address": "127.0.0.1:7401",
                "load": 0.51,
                "cores": 2.0,
                "drains": False,
                "loads": [0.51],
            }
        ]
        hits = {
            "name": "hits",
            "operator": "join.window",
            "peer": "north",
            "epoch": 3,
            "output": "/out",
            "state": "",
            "since": 0,
            "failures": 0,
            "problem": "",
            "load": 0.4,
            "busy": 0.2,
            "rate": 9.0,
            "backlog": 7,
        }
        new = {"name": "new", "operator": "sql", "peer": "", "epoch": -1, "output": "/out2", "state": "", "since": 0}
        new |= {"failures": 0, "problem": ""}
        assert first["components"] == [hits, new]
        asked = fleet.asked
        while fleet.asked < asked + 3:
            time.sleep(0.01)
        assert told.empty(), "nothing has changed"
        fleet.status_now = Status((), fleet.status_now.components)
        assert told.get(timeout=20)["peers"] == []
        fleet.wrong = PeerError("no peer answers any more")
        lost = told.get(timeout=20)
        assert (lost["error"], lost["components"]) == ("no peer answers any more", first["components"])
        fleet.wrong = None
        assert "error" not in told.get(timeout=20)
    finally:
        follower.close()


def test_a_redacted_fleet_tells_no_texts_of_errors() -> None:
    fleet, told = QuietFleet(), queue.Queue[dict[str, Any]]()
    follower = FleetFollower(fleet, told.put, redact=True, every=0.01)
    try:
        assert [one["what"] for one in told.get(timeout=20)["happened"]] == ["moved to south"]
        fleet.wrong = PeerError("a secret")
        assert told.get(timeout=20)["error"] == "no answer"
    finally:
        follower.close()


def test_dash_needs_something_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dash"]) == 2
    assert "give a directory with a history, or a fleet with --fleet HOST:PORT" in capsys.readouterr().err
    assert main(["dash", "--fleet", "127.0.0.1:1", "--token-file", str(tmp_path / "none")]) == 2
    assert "none: No such file or directory; give the file that the first peer wrote" in capsys.readouterr().err


def test_completion_knows_all_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "braided.bash"
    script.write_text(write_script(make_parser(), "bash"))
    ask = 'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _braided; echo "${COMPREPLY[*]}"'

    def complete(*words: str) -> list[str]:
        command = ["bash", "-c", ask, "-", str(script), "braided", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert complete("d") == ["demo", "dash", "doctor"]
    assert complete("run", "--d") == ["--dashboard"]
    assert complete("completion", "") == ["--help", "bash", "zsh", "fish"]
    assert complete("fleet", "s") == ["submit", "status"]
    assert complete("fleet", "submit", "--d") == ["--dry-run"]
    assert complete("demo", "--") == [
        "--help", "--skew", "--disorder", "--memory", "--theta", "--rows", "--seconds", "--out", "--dashboard", "--no-color",
    ]  # fmt: skip
    fish = write_script(make_parser(), "fish")
    assert "-l html" in fish
    assert "-n '__fish_seen_subcommand_from fleet; and __fish_seen_subcommand_from submit' -l dry-run" in fish
    assert write_script(make_parser(), "zsh").startswith("autoload")


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path)
    for event in run_events(200):
        writer.add(event)
    writer.close()
    command = [sys.executable, "-m", "braided", "report", str(tmp_path), "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(60) == 1


def test_what_takes_its_time_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("braided.cli.spinner._FIRST", 0.0)
    drawn = threading.Event()
    screen, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(screen, "flush", drawn.set)
    with waiting("starting Spark", screen), waiting("starting Spark", pipe):
        assert drawn.wait(20)
    assert "starting Spark, 0 s" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K"), "nothing of it stays"
    assert pipe.getvalue() == ""


def test_a_reader_that_waits_hears_at_once() -> None:
    history = History()
    started = time.monotonic()
    threading.Timer(0.05, lambda: history.add(batch_event(0))).start()
    assert history.wait(0, 20)
    assert time.monotonic() - started < 10
