"""Drivers killed with SIGKILL lose and double nothing."""

from __future__ import annotations

import json
from pathlib import Path

from crashes import expected, run_with_kills, write_streams


def test_killed_drivers_go_on_from_the_files_of_the_control_directory_that_they_find(tmp_path: Path) -> None:
    write_streams(tmp_path, files=8, rows=300, seed=3)
    (tmp_path / "home").mkdir()
    assert run_with_kills(tmp_path, kills=1, seed=4) == expected(tmp_path)
    query = json.loads((tmp_path / "check" / "metadata").read_bytes())["id"]
    [control] = (tmp_path / "home" / "braided" / "control" / query).glob("crashed-*")
    pins = [json.loads(pin.read_bytes())["version"] for pin in (control / "pins").iterdir()]
    assert len(set(pins)) >= 3, "the routing hardly changed"
