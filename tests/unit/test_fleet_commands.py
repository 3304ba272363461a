"""What `braided peer`, `braided fleet` and `braided check` refuse before anything has started, and how."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from braided.cli import main

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.identity import new_token

JOB = """
name = "{1}"
checkpoint = "{0}/c/{1}"
[sources.calls]
path = "{0}/{2}"
[sink]
format = "topic"
path = "{0}/{1}"
"""
APPLICATION = """
application = "fraud"
latency = "5 seconds"
[[jobs]]
file = "hits.toml"
seconds = 0.4
[[jobs]]
file = "scores.toml"
"""


@pytest.mark.parametrize("every", ["0", "-1", "0.49", "nan", "inf", "soon"])
def test_watch_does_not_ask_all_the_time(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "watch", f"--every={every}"])
    assert ended.value.code == 2
    assert f"argument --every: {every!r}: write a number of seconds, at least 0.5" in capsys.readouterr().err


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("braided.fleet.hosting.spark_session.peer_session", refuse)
    monkeypatch.setattr("braided.cli.peer_command.find_java_problem", lambda: None)


@pytest.fixture
def used() -> Iterator[str]:
    """An address where something listens that is no peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.usefixtures("no_spark")
def test_what_a_peer_cannot_do_is_noticed_before_spark_starts(
    tmp_path: Path, used: str, capsys: pytest.CaptureFixture[str]
) -> None:
    new_token().write(tmp_path / "token")
    line = ["peer", "--name", "north", "--token-file", str(tmp_path / "token"), "--storage", str(tmp_path / "storage")]
    for words, message in (
        (["--listen", used], f"listen='{used}': address already in use; give another port, or 0 for a free one"),
        (
            ["--listen", "0.0.0.0:0"],
            "listen='0.0.0.0:0': can be reached from other machines; allow this with --beyond-loopback",
        ),
        (["--listen", "127.0.0.1:0", "--join", "127.0.0.1:1"], "address='127.0.0.1:1': no peer of this fleet answers"),
        (["--listen", "127.0.0.1"], "address='127.0.0.1': write host:port"),
        (["--cores", "0"], "cores=0: write 1 or more"),
        (["--master", "mesos://x"], "master='mesos://x': write local[n], spark://HOST:PORT, yarn or k8s://ADDRESS"),
        (["--master", "spark://far:7077"], "listen='127.0.0.1': executors of spark://far:7077 cannot reach the driver"),
        (["--listen", "0.0.0.0:0", "--beyond-loopback"], "listen='0.0.0.0:0': other peers cannot reach this one by"),
        (
            ["--master", "local[2]", "--cores", "3"],
            "master='local[2]', cores=3: give the cores only once, such as local[2]",
        ),
    ):
        assert main([*line, *words]) == 2
        assert f"braided peer: {message}" in capsys.readouterr().err


def _write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_an_application_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, "hits.toml", JOB.format(tmp_path, "hits", "calls"))
    _write(tmp_path, "scores.toml", JOB.format(tmp_path, "scores", "hits"))
    app = _write(tmp_path, "app.toml", APPLICATION)
    assert main(["check", str(app)]) == 0
    assert capsys.readouterr().out == f"{app}: application 'fraud' with hits, scores; 5 seconds\n"
    assert main(["check", "--json", str(app)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(app), "accepted": True, "application": "fraud", "latency": 5.0, "jobs": ["hits", "scores"],
    }  # fmt: skip
    for changed, text, message in (
        ("app.toml", APPLICATION.replace("seconds = 0.4", "second = 0.4"), "line 6: jobs.0.second: unknown key"),
        ("app.toml", APPLICATION.replace("scores.toml", "none.toml"), "none.toml: No such file"),
        ("scores.toml", JOB.format(tmp_path, "scores", "hits").replace("format", "form"), "scores.toml, line 7: sink"),
        ("scores.toml", JOB.format(tmp_path, "scores", "hits").replace('"topic"', '"parquet"'), "steps of an applicat"),
        ("hits.toml", JOB.format(tmp_path, "hits", "scores"), "['hits', 'scores'] read from each other in a cycle"),
    ):
        before = (tmp_path / changed).read_text()
        _write(tmp_path, changed, text)
        assert main(["check", str(app)]) == 1, message
        shown = capsys.readouterr().err
        assert shown.startswith("braided check: ")
        assert message in shown
        assert main(["check", "--json", str(app)]) == 1
        assert message in json.loads(capsys.readouterr().out)["error"]
        _write(tmp_path, changed, before)
