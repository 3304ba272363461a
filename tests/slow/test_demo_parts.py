"""Every part of the demo, as a user types it: it runs, says what it found, and DuckDB agrees."""

from __future__ import annotations

import http.client
import re
import signal
from pathlib import Path

import pytest
from support.demos import read_demo, start_demo

from braided.cli import demo

# What a part says after it has run, by its label.
SAID = {
    "skew": ("hot key", r"one phone makes 50% of the calls from 16 s on: its worker takes \d+% of the rows"),
    "disorder": ("lateness", r"(19|2\d)[.\d]* seconds learned, 0 rows were later"),
    "memory": ("recall", r"[\d.]+% \+- [\d.]+% of the exact result, as estimated"),
    "theta": ("matched", r"[\d,]+ rows into [\d,]+ pairs"),
}


@pytest.mark.parametrize("part", SAID)
def test_a_part_runs_and_is_checked(part: str, tmp_path: Path) -> None:
    running = start_demo(tmp_path, f"--{part}", "--rows", "64000", "--seconds", "64")
    printed, errors = running.communicate()
    assert (errors, running.returncode) == ("", 0)
    label, words = SAID[part]
    assert re.search(rf"^{label} +{words}", printed, re.MULTILINE), printed
    [checked] = [line for line in printed.splitlines() if line.startswith("checked ")]
    [(name, (run, note))] = read_demo(tmp_path / "out").items()
    assert name == part
    assert note["right"]
    if part == "memory":
        true = re.search(r"each one of DuckDB's, ([\d.]+)% of them", checked)
        assert true is not None
        assert run.recall is not None
        estimated, error = run.recall
        assert abs(float(true[1]) / 100 - estimated) < max(0.03, 4 * error)
    else:
        assert checked.endswith("equal to DuckDB's")


def test_the_page_of_a_demo_stays_until_it_is_closed(tmp_path: Path) -> None:
    running = start_demo(tmp_path, "--theta", "--dashboard")
    assert running.stdout is not None
    lines = iter(running.stdout)
    port = next(found[1] for line in lines if (found := re.match(r"dashboard +http://127\.0\.0\.1:(\d+)/", line)))
    assert any(line.startswith("dashboard") and line.endswith("stays open; Ctrl-C ends it\n") for line in lines)
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
    connection.request("GET", "/events")
    stream = connection.getresponse()
    while b'"event":"batch"' not in (line := stream.readline()):
        assert line
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0


def test_an_interrupt_stops_the_demo_and_cleans_up(tmp_path: Path) -> None:
    running = start_demo(tmp_path, "--rows", "40000", "--seconds", "400")
    assert running.stdout is not None
    assert any(line.startswith("spark") for line in running.stdout)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == demo.STOPPED
    assert errors == "braided demo: stopped\n"
    assert not list((tmp_path / "tmp").iterdir())
