"""Drivers killed often: each kill at a random moment of another part of the input."""

from __future__ import annotations

from pathlib import Path

import pytest
from crashes import expected, run_with_kills, write_streams


@pytest.mark.parametrize("control", [False, True])
def test_drivers_killed_ten_times_lose_and_double_nothing(tmp_path: Path, control: bool) -> None:
    write_streams(tmp_path, files=40, rows=400, seed=5)
    if control:
        (tmp_path / "control").mkdir()
    assert run_with_kills(tmp_path, kills=10, seed=6) == expected(tmp_path)
