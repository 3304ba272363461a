"""In local mode, a Python without braided is refused with what to set."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braided.errors import OptionError
from braided.spark.workers_python import check_workers_python


def session(python: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python))


def test_a_python_without_braided_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o700)
    todo = f"set PYSPARK_PYTHON={sys.executable} in the environment"
    with pytest.raises(OptionError, match=f"run {python}, which cannot import braided; {todo}"):
        check_workers_python(session(str(python)))
    with pytest.raises(OptionError, match="run 'nowhere3', which is not on the path; set PYSPARK_PYTHON"):
        check_workers_python(session("nowhere3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match="cannot import braided"):
        check_workers_python(session("python3"))
    python.write_text("#!/bin/sh\nexit 0\n")
    other = python.rename(tmp_path / "python4")
    check_workers_python(session(str(other)))
    check_workers_python(session(sys.executable))
    check_workers_python(session("nowhere3", "spark://host:7077"))
