"""`braided cluster`: what may be typed, and a cluster that cannot start says where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from braided.cli import cluster, main
from braided.cli.cluster import LocalCluster
from braided.errors import BraidedError


@pytest.mark.parametrize("typed", [["local", "0"], ["far", "3"], ["local"]])
def test_what_cannot_be_is_refused(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cluster", *typed])
    assert "usage: braided cluster" in capsys.readouterr().err


def test_a_cluster_that_ends_at_once_says_where_its_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    started = LocalCluster(tmp_path / "cluster", 2)
    with pytest.raises(BraidedError, match=rf"the master ended; see {tmp_path}/cluster/master.log"):
        started.start()
    assert not started.workers


def test_the_command_says_why_it_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(cluster, "find_java_problem", lambda: None)
    assert main(["cluster", "local", "1", "--dir", str(tmp_path / "work")]) == 2
    assert "braided cluster: the master ended; see" in capsys.readouterr().err
