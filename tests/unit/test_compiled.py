"""Kernels are compiled once per machine, again when anything compiled into them has changed, and run without a cache."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.profiles import some

import braided
from braided import compiled as module
from braided.compiled import compiled, in_place, private_folder, source_digest

HELPER = """
from braided.compiled import compiled
STEP = 1

@compiled
def inner(x):
    return x + STEP
"""
OUTER = """
from braided.compiled import compiled
from limits import BY
from helper import inner

@compiled
def outer(x):
    return between(x) * BY

@compiled
def between(x):
    return inner(x)

found = outer(1)
print(found, sum(outer.stats.cache_hits.values()), sum(outer.stats.cache_misses.values()))
"""


class Kernels:
    """Three kernels in a folder of their own, run in a new process each time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "code", folder / "cache"
        self.folder.mkdir()
        self.write("helper", HELPER)
        self.write("limits", "BY = 10\n")
        self.write("outer", OUTER)

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def run(self) -> tuple[int, str]:
        """The result of the outermost kernel, and whether it was compiled or loaded."""
        done = python(
            "import outer",
            PYTHONPATH=f"{self.folder}:{os.environ.get('PYTHONPATH', '')}",
            NUMBA_CACHE_DIR=str(self.cache),
        )
        result, hits, misses = map(int, done.stdout.split())
        assert hits + misses == 1
        return result, "loaded" if hits else "compiled"

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cache.glob("*/*"))


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def kernels(tmp_path: Path) -> Kernels:
    return Kernels(tmp_path)


@pytest.mark.long
def test_what_is_compiled_into_a_kernel_decides(kernels: Kernels) -> None:
    assert kernels.run() == (20, "compiled")
    assert kernels.run() == (20, "loaded")
    files = kernels.files()
    kernels.write("helper", HELPER.replace("x + STEP", "x + STEP + 1"))
    assert kernels.run() == (30, "compiled")
    kernels.write("helper", HELPER.replace("STEP = 1", "STEP = 3"))
    assert kernels.run() == (40, "compiled")
    kernels.write("limits", "BY = 100\n")
    assert kernels.run() == (400, "compiled")
    kernels.write("helper", "# Lines move.\n\n" + HELPER.replace("STEP = 1", "OTHER = 9\nSTEP = 3"))
    assert kernels.run() == (400, "loaded")
    assert kernels.files() == files  # what was is overwritten


@pytest.mark.long
def test_damaged_machine_code_is_compiled_anew(kernels: Kernels) -> None:
    kernels.run()
    for ending, content in ((".nbi", b"nonsense"), (".nbc", b"")):
        for path in kernels.cache.glob(f"*/*{ending}"):
            path.write_bytes(content)
        assert kernels.run() == (20, "compiled")
    assert kernels.run() == (20, "loaded")


PARTS = """
from braided.compiled import in_place

@in_place
def one(x):
    return x + 1

@in_place
def two(x):
    return x * 2
"""
MADE = """
import numpy as np
from braided.compiled import in_place
from parts import one, two

def twice(part, times):
    @in_place
    def kernel(x):
        for _ in range(times):
            x = part(x)
        return x
    return kernel

kernels = [twice(one, 2), twice(two, 2), twice(two, 3)]
print(*(kernel(5) for kernel in kernels), *(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
"""


@pytest.mark.long
def test_kernels_made_of_different_parts_are_loaded_each_by_itself(kernels: Kernels) -> None:
    def run() -> str:
        path = f"{kernels.folder}:{os.environ.get('PYTHONPATH', '')}"
        return python("import made", PYTHONPATH=path, NUMBA_CACHE_DIR=str(kernels.cache)).stdout.strip()

    kernels.write("parts", PARTS)
    kernels.write("made", MADE)
    assert run() == "7 20 40 0 0 0"
    assert run() == "7 20 40 1 1 1"
    kernels.write("parts", PARTS.replace("x + 1", "x + 3"))
    assert run() == "11 20 40 0 1 1"
    kernels.write("parts", PARTS)
    assert run() == "7 20 40 1 1 1"  # what it was before is still there
    kernels.write("parts", PARTS.replace("import in_place", "import compiled as in_place"))
    assert run() == "7 20 40 0 0 0"


def test_what_allocates_in_place_is_refused_and_what_it_calls_may() -> None:
    @compiled
    def allocates(n: int) -> float:
        return float(np.zeros(n).sum())

    @in_place
    def calls(n: int) -> float:
        return allocates(n)

    @in_place
    def wrong(n: int) -> float:
        return float(np.zeros(n).sum())

    assert calls(3) == 0.0
    with pytest.raises(Exception, match="Only accept returning of array passed into the function as argument"):
        wrong(3)


MIX = "import numpy as np; from braided.routing.hash_kernels import mix, salt; print(mix(np.uint64(5))); salt(np.zeros(1, np.uint64), np.ones(1, np.int32))"
WARNING = "set NUMBA_CACHE_DIR to a folder that only this user can write"


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a container: an installed package, a home and a folder for temporary files that nobody writes.

    A file where a folder should be keeps even root from writing.
    """
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(Path(braided.__file__).parent, root / "braided", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "braided" / "__pycache__").write_text("")
    (root / "home").write_text("")
    missing = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "BRAIDED_CACHE_DIR"), str(root / "home"))
    return {**missing, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": ""}


@pytest.mark.long
def test_where_nothing_can_be_written_kernels_run_with_one_warning(read_only: dict[str, str]) -> None:
    done = python(MIX, **read_only)
    assert int(done.stdout) == int(importlib.import_module("braided.routing.hash_kernels").mix(np.uint64(5)))
    assert done.stderr.count("RuntimeWarning") == 1
    assert WARNING in done.stderr
    done = python(MIX, **{**read_only, "NUMBA_CACHE_DIR": "/proc/nowhere"})
    assert done.stderr.count(WARNING) == 1


@pytest.mark.long
@pytest.mark.parametrize("variable", some(["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "BRAIDED_CACHE_DIR"], 1))
def test_a_folder_that_can_be_written_is_used(variable: str, read_only: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2 if variable == "NUMBA_CACHE_DIR" else 1):
        assert python(MIX, **{**read_only, variable: str(tmp_path / "new" / "folder")}).stderr == ""
    (folder,) = (tmp_path / "new" / "folder").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".nbc", ".nbc", ".nbi", ".nbi"]


TOGETHER = """
import pathlib, sys, time
import outer_parts
pathlib.Path(sys.argv[1], sys.argv[2]).touch()
while len(list(pathlib.Path(sys.argv[1]).iterdir())) < 3:
    time.sleep(0.001)
import outer
"""


@pytest.mark.long
def test_of_processes_that_start_together_one_compiles(kernels: Kernels, tmp_path: Path) -> None:
    kernels.write("outer_parts", "import braided.compiled, limits, helper\n")
    (tmp_path / "ready").mkdir()
    path = f"{kernels.folder}:{os.environ.get('PYTHONPATH', '')}"
    given = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(kernels.cache)}
    commands = [[sys.executable, "-c", TOGETHER, str(tmp_path / "ready"), str(number)] for number in range(3)]
    running = [subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) for command in commands]
    found = sorted(process.communicate()[0].split() for process in running)
    assert found == [["20", "0", "1"], ["20", "1", "0"], ["20", "1", "0"]]


@pytest.mark.long
def test_a_process_that_compiles_for_ever_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @compiled
    def one(x: float) -> float:
        return x + 1

    turns = tmp_path / "turns"
    file = os.open(turns, os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(module, "kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "_turns", lambda: file)
    monkeypatch.setattr(module, "_PATIENCE", 1.5)
    take_all = f"import fcntl; f = open('{turns}', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", take_all], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        begun = time.monotonic()
        assert one(1.0) == 2.0
        assert time.monotonic() - begun > 1.5
        other.kill()
    os.close(file)


def test_where_no_turn_can_be_taken_a_process_compiles_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @compiled
    def one(x: float) -> float:
        return x + 1

    def refused() -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "_turns", refused)
    begun = time.monotonic()
    assert one(1.0) == 2.0
    assert time.monotonic() - begun < module._PATIENCE / 2


def test_a_full_disk_costs_a_warning(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    @compiled
    def one(x: float) -> float:
        return x + 1

    monkeypatch.setattr(module, "_warned", [])
    monkeypatch.setattr(module._Files, "save_overload", full)
    with pytest.warns(RuntimeWarning, match=rf"No space left on device; {WARNING}"):
        assert one(1.0) == 2.0
    assert one(np.float32(1)) == 2.0  # no second warning


def test_only_a_folder_of_our_own_is_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not private_folder(link)
    folder.chmod(0o770)
    assert not private_folder(folder)
    (tmp_path / "file").write_text("")
    assert not private_folder(tmp_path / "file")
    if os.getuid() == 0:
        folder.chmod(0o700)
        os.chown(folder, 12345, -1)
        assert not private_folder(folder)


def test_what_nobody_asks_for_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 10)
    for number in range(11):
        (tmp_path / str(number)).write_text("")
        os.utime(tmp_path / str(number), (number, number))
    module._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {str(number) for number in range(5, 11)}


def test_every_kernel_names_only_what_its_digest_covers() -> None:
    found = {}
    for info in pkgutil.walk_packages(braided.__path__, "braided."):
        if not info.name.startswith(("braided.spark", "braided.cli")):
            for value in vars(importlib.import_module(info.name)).values():
                if hasattr(value, "py_func"):
                    found[value.py_func] = source_digest(value.py_func)
    assert len(found) > 100
    assert len(set(found.values())) == len(found)


def test_a_kernel_that_names_something_else_is_refused() -> None:
    @compiled
    def names_a_list() -> int:
        return len(sys.path)

    with pytest.raises(TypeError, match=r"kernel .*names_a_list uses 'sys', a module; use only numbers and kernels"):
        names_a_list()
