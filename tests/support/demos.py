"""The demo as a user starts it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.jvm import JAVA_OPTIONS


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
