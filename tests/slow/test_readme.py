"""The README's example is quick and quiet in a session that has Spark's defaults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.streams import write_first_screen


@pytest.mark.parametrize("settings", ["all", "state store"])
def test_the_example_has_few_workers_a_short_report_and_no_warnings_of_ours(tmp_path: Path, settings: str) -> None:
    write_first_screen(tmp_path)
    script = Path(__file__).parents[1] / "support" / "readme_query.py"
    command = [sys.executable, str(script), str(tmp_path), settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["results"], report["workers"]) == (1, 2)
    assert len(report["text"].splitlines()) < 15
    assert "doesn't contain a value" not in done.stderr
