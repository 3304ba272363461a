"""`braided run` and `explain` as a user types them: to the end with a history, watched until Ctrl-C, for a machine."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.dashboards import write_calls

JOB = """
name = "hits"
checkpoint = "{0}/c"
needs = {{ cores = 2, memory = "1 GB" }}
[sources.calls]
path = "{0}/calls"
[sources.alerts]
path = "{0}/alerts"
[[steps]]
name = "hits"
sql = "SELECT c.phone, c.ts FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"
options = {{ lateness = "1 second" }}
[sink]
format = "topic"
path = "{0}/out"
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    write_calls(tmp_path, batches=range(2), rows=400, hot_from=0)
    (tmp_path / "job.toml").write_text(JOB.format(tmp_path))
    return [sys.executable, "-m", "braided", "run", str(tmp_path / "job.toml")]


def test_a_job_leaves_a_history_that_can_be_reported(command: list[str], tmp_path: Path) -> None:
    history = str(tmp_path / "history")
    subprocess.run([*command, "--once", "--history", history], check=True, cwd=tmp_path)
    answer = subprocess.run(
        [sys.executable, "-m", "braided", "report", history, "--json"], check=True, capture_output=True, text=True
    )
    [run] = json.loads(answer.stdout)
    assert run["error"] is None
    assert run["ended"] is not None
    assert run["rows"] == 880
    assert [stream["rows"] for stream in run["operators"][0]["streams"]] == [800, 80]


def test_a_job_is_watched_until_it_is_stopped(command: list[str], tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*command, "--dashboard"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        assert running.stderr is not None
        told = next(line for line in running.stderr if line.startswith("dashboard: "))
        port = re.search(r":(\d+)/", told)
        assert port is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=300)
        connection.request("GET", "/events")
        stream = connection.getresponse()
        while b'"event":"batch"' not in stream.readline():
            pass
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=300)
        assert running.returncode == 130
        assert "stopping; when it runs again, it continues from its checkpoint" in errors
    finally:
        running.kill()


def test_a_jobs_query_is_explained_to_a_machine(command: list[str], tmp_path: Path) -> None:
    words = [*command[:3], "explain", command[-1], "--json", "--svg", str(tmp_path / "job.svg")]
    answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert answer["name"] == "hits"
    assert answer["query"]["lines"] == ["phone, ts"]
    [join] = [box for box in _boxes(answer["query"]) if box["kind"] == "braided"]
    assert "joins on c.phone = a.phone" in " ".join(join["lines"])
    assert [box["kind"] for box in join["inputs"]] == ["source", "source"]
    assert (tmp_path / "job.svg").read_text().startswith("<svg")


def _boxes(box: dict[str, Any]) -> list[dict[str, Any]]:
    return [box, *(found for below in box["inputs"] for found in _boxes(below))]
