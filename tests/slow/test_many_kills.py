"""Drivers killed often: each kill at a random moment of another part of the input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.crashes import expected, run_with_kills, write_streams

import braided


def test_killed_drivers_go_on_from_the_routing_tables_in_the_checkpoint(tmp_path: Path) -> None:
    write_streams(tmp_path, files=8, rows=300, seed=3)
    (tmp_path / "home").mkdir()
    assert run_with_kills(tmp_path, kills=1, seed=4) == expected(tmp_path)
    [control] = (tmp_path / "check" / "braided" / "control").glob("crashed-*")
    pins = [json.loads(pin.read_bytes())["version"] for pin in (control / "pins").iterdir()]
    assert len(set(pins)) >= 3, "the routing hardly changed"


@pytest.mark.parametrize("control", [False, True])
def test_drivers_killed_ten_times_lose_and_double_nothing(tmp_path: Path, control: bool) -> None:
    write_streams(tmp_path, files=40, rows=400, seed=5)
    if control:
        (tmp_path / "control").mkdir()
    assert run_with_kills(tmp_path, kills=10, seed=6) == expected(tmp_path)


def test_fifty_kills_of_the_direct_path_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=300, rows=100, seed=7)
    (tmp_path / "direct").mkdir()
    assert run_with_kills(tmp_path, kills=50, seed=8) == expected(tmp_path)
    named = set(braided.topic(str(tmp_path / "out")).files())
    assert {str(path) for path in (tmp_path / "out" / "_data").rglob("*.parquet")} == named


def test_drivers_of_deployed_stages_killed_ten_times_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=40, rows=300, seed=9)
    (tmp_path / "deployed").mkdir()
    assert run_with_kills(tmp_path, kills=10, seed=10) == expected(tmp_path)


def test_fifty_kills_of_a_left_join_lose_and_double_nothing(tmp_path: Path) -> None:
    """Of the last rows that match nothing some wait at the end: those are left out of both."""
    files, rows = 150, 40
    write_streams(tmp_path, files=files, rows=rows, seed=11)
    settings = {"spark.sql.shuffle.partitions": "4"}
    (tmp_path / "options.json").write_text(json.dumps({"join": {"how": "left", "control": True}, "spark": settings}))

    def decided(found: Counter[Any]) -> Counter[Any]:
        # A file has 4 seconds; a row waits for the window, the lateness and the disorder.
        return Counter({pair: n for pair, n in found.items() if pair[1] is not None or pair[0] < (files - 8) * rows})

    wanted = decided(expected(tmp_path, "left"))
    assert sum(right is None for _, right in wanted) > 500
    assert decided(run_with_kills(tmp_path, kills=50, seed=12)) == wanted
