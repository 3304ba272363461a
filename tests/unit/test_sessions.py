"""What a session says of itself: which Python its workers run, and what to do where that has no braided."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braided.errors import OptionError
from braided.spark.sessions import check_python, what_to_install


def session(python: str, master: str = "local[2]", files: list[str] | None = None) -> Any:
    context = SimpleNamespace(pythonExec=python, master=master, listFiles=files or [], listArchives=[])
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another Python, which does not find this package."""
    monkeypatch.setenv("PYTHONPATH", "")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_workers_without_the_package_are_refused_with_what_to_set(other: str) -> None:
    with pytest.raises(
        OptionError, match=rf"would run {other}, in which braided is not installed; set PYSPARK_PYTHON={sys.executable}"
    ):
        check_python(session(other))


def test_workers_that_have_it_or_may_get_it_are_not(other: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    for allowed in (
        session(sys.executable),
        session(other, master="spark://host:7077"),
        session(other, files=["spark://host/braided.zip"]),
        session(str(broken)),
        session("no-such-python"),
    ):
        check_python(allowed)


def test_a_failed_query_says_what_to_install() -> None:
    assert what_to_install(None) is None
    assert what_to_install("ZeroDivisionError: division by zero") is None
    said = what_to_install("...\n  ModuleNotFoundError: No module named 'braided'\n at org.apache.spark...")
    assert said is not None
    assert "PYSPARK_PYTHON" in said
