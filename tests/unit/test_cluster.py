"""`scripts/cluster.py`: what may be typed, and a cluster that cannot start says where to look."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

import cluster

from braided.errors import BraidedError


@pytest.mark.parametrize("typed", [["0"], ["many"], ["3", "--cores", "0"], []])
def test_what_cannot_be_is_refused(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cluster.main(typed)
    assert capsys.readouterr().err.startswith("usage: ")


def test_a_cluster_that_ends_at_once_says_where_its_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    started = cluster.LocalCluster(tmp_path / "cluster", 2)
    with pytest.raises(BraidedError, match=rf"the master ended; see {tmp_path}/cluster/master.log"):
        started.start()
    assert not started.workers


def test_the_command_says_why_it_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(cluster, "find_java_problem", lambda: None)
    assert cluster.main(["1", "--dir", str(tmp_path / "work")]) == 2
    assert "cluster.py: the master ended; see" in capsys.readouterr().err
