"""The demo as a user starts it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from braided.cli.demo_run import Run
from braided.runtime.contract import Json
from braided.ui.history_files import HistoryReader
from support.jvm import JAVA_OPTIONS


def read_demo(out: Path) -> dict[str, tuple[Run, Json]]:
    """Return the runs that a demo left behind, by the names of its parts, each with its note."""
    events = list(HistoryReader(out).read())
    found: dict[str, tuple[Run, Json]] = {}
    for note in [event for event in events if event["event"] == "note"]:
        run = Run(note["query"])
        mine = [event for event in events if event.get("query") == run.id]
        for event in mine:
            run.take(event)
        name = next(event["operators"][0]["name"] for event in mine if event["event"] == "batch")
        found[name] = run, note
    return found


def start_demo(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """Start the demo; its temporary files are in ``tmp``, what it leaves in ``out``."""
    (tmp_path / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "braided", "demo", "--out", str(tmp_path / "out"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path / "tmp"),
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        },
    )
