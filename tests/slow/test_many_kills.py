"""Drivers killed often: each kill at a random moment of another part of the input."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashes import expected, run_with_kills, write_streams

import braided


@pytest.mark.parametrize("control", [False, True])
def test_drivers_killed_ten_times_lose_and_double_nothing(tmp_path: Path, control: bool) -> None:
    write_streams(tmp_path, files=40, rows=400, seed=5)
    if control:
        (tmp_path / "control").mkdir()
    assert run_with_kills(tmp_path, kills=10, seed=6) == expected(tmp_path)


def test_fifty_kills_of_the_direct_path_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=120, rows=300, seed=7)
    (tmp_path / "direct").mkdir()
    assert run_with_kills(tmp_path, kills=50, seed=8) == expected(tmp_path)
    named = set(braided.topic(str(tmp_path / "out")).files())
    assert {str(path) for path in (tmp_path / "out" / "_data").rglob("*.parquet")} == named


def test_drivers_of_deployed_stages_killed_ten_times_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=40, rows=300, seed=9)
    (tmp_path / "deployed").mkdir()
    assert run_with_kills(tmp_path, kills=10, seed=10) == expected(tmp_path)
