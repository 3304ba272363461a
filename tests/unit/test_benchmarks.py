"""`benchmarks/run.py`: benchmarks are listed, run, shown as tables, and stopped."""

from __future__ import annotations

import doctest
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "run.py"


def load(path: Path) -> Any:
    """Benchmarks are no package."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = load(SCRIPT)


def test_benchmarks_run_and_their_figures_become_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "workloads.py").write_text('"""Shared."""\n')
    (tmp_path / "quick.py").write_text(
        '"""A quick one.\n\nMore."""\nimport json, sys\nif __name__ == "__main__":\n'
        '    print("half way", file=sys.stderr)\n    print(json.dumps({"engines": {"a": {"s": 1.5}}, "words": sys.argv[1:]}))\n'
        "    sys.exit(3)\n"
    )
    assert run.main([], tmp_path) == 0
    assert capfd.readouterr().out == "quick            A quick one.\n"
    assert run.main(["none"], tmp_path) == 2
    assert "'none': no such benchmark; there are quick" in capfd.readouterr().err
    assert run.main(["quick", "--", "--small"], tmp_path) == 3
    printed = capfd.readouterr()
    assert printed.out == "words  --small\nengines    s\n  a      1.5\n"
    assert printed.err == "half way\n"
    assert run.main(["--json", "quick"], tmp_path) == 3
    assert json.loads(capfd.readouterr().out) == {"engines": {"a": {"s": 1.5}}, "words": []}


def test_objects_of_numbers_become_tables() -> None:
    assert run.table_of({"a": {"b": {"c": {"d": 1234}}}}) == ["a", "  b        d", "    c  1,234"]


def test_examples_in_docstrings_hold() -> None:
    failed, tried = doctest.testmod(run)
    assert tried
    assert not failed


def test_all_benchmarks_say_what_they_are() -> None:
    known = run.find_benchmarks(SCRIPT.parent)
    assert "join" in known
    assert "run" not in known
    assert all(known.values())


def test_a_benchmark_is_stopped_by_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        'import sys, time\nif __name__ == "__main__":\n    print("begun", file=sys.stderr, flush=True)\n    time.sleep(600)\n'
    )
    command = [sys.executable, shutil.copy(SCRIPT, tmp_path), "long"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        assert running.stderr.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=60)[1] == "run.py: stopped\n"
        assert running.returncode == 130
    finally:
        running.kill()
