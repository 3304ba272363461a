"""A driver (`crash_query.py`) that faults are done to: started, followed batch by batch, killed, and asked why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from support.jvm import JAVA_OPTIONS

QUICK = {"SPARK_SUBMIT_OPTS": JAVA_OPTIONS}
# Nothing here takes a tenth of that; a driver that hangs must not stop the whole run.
_SECONDS = 240


class Driver:
    """One run of the query. Its checkpoint and all else is in `root`, unless told, so that another run goes on from it."""

    def __init__(
        self,
        root: Path,
        *,
        spark: dict[str, str] | None = None,
        join: dict[str, Any] | None = None,
        where: bool = False,
        topic: str | None = None,
        checkpoint: str | None = None,
        ahead: str | None = None,
        **env: str,
    ) -> None:
        (root / "cache").mkdir(exist_ok=True)
        places = {"topic": topic or str(root / "out"), "checkpoint": checkpoint or str(root / "check")}
        options = {"spark": spark or {}, "join": join or {}, "where": where, "ahead": ahead, **places}
        (root / "options.json").write_text(json.dumps(options))
        self._root = root
        self._log = root / f"driver-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "crash_query.py"), str(root)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **QUICK, "BRAIDED_CACHE_DIR": str(root / "cache"), **env},
            )

    def after(self, batch: int) -> None:
        """Wait until a batch, or a later one, is done."""
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, ""):
            if line.startswith("batch ") and int(line.split()[1]) >= batch:
                return
        raise AssertionError(f"the query never did batch {batch}: {self.said()[-2000:]}")

    def result(self) -> Counter[Any]:
        """Wait for the end, which must be a good one, and return what was committed."""
        self._end()
        assert (self._root / "committed.json").exists(), self.said()[-3000:]
        rows = json.loads((self._root / "committed.json").read_text())
        return Counter((left, right) for left, right in rows)

    def failure(self) -> str:
        """Wait for the end, which must be a bad one, and return what was said."""
        self._end()
        assert not (self._root / "committed.json").exists(), "the query did not fail"
        return self.said()

    def _end(self) -> None:
        assert self.process.stdout is not None
        with self:
            self.process.communicate(timeout=_SECONDS)

    def said(self) -> str:
        """What it has written to its log."""
        return self._log.read_text(errors="replace")

    def descendants(self, has: Callable[[list[str]], bool]) -> list[psutil.Process]:
        """Return processes below it whose command line is as asked for."""
        return below(self.process.pid, has)

    def signal(self, number: int) -> None:
        """Send a signal to it and all that it started, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def below(pid: int, has: Callable[[list[str]], bool]) -> list[psutil.Process]:
    """Return the processes below one whose command line is as asked for."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if has(process.cmdline()):
                    found.append(process)
    return found


def is_executor(command: list[str]) -> bool:
    """Whether a command is that of an executor's JVM."""
    return any("CoarseGrainedExecutorBackend" in part for part in command)


def is_python_worker(command: list[str]) -> bool:
    """Whether a command is that of a Python process that runs tasks, or of the one that it is forked from."""
    return any(part in ("braided.daemon", "pyspark.daemon") for part in command)


class SmallDisk:
    """A file system of few megabytes, which can be filled and emptied."""

    def __init__(self, place: Path, megabytes: int) -> None:
        self.place = place
        place.mkdir()
        size = f"size={megabytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(place)], check=True, capture_output=True)

    def fill(self, room: int = 0) -> None:
        """Leave no more room than so many bytes."""
        free = shutil.disk_usage(self.place).free
        with contextlib.suppress(OSError):  # somebody else took the last bytes: it is full
            (self.place / "ballast").write_bytes(bytes(max(0, free - room)))

    def empty(self) -> None:
        """Give the room back."""
        (self.place / "ballast").unlink()

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.place)], check=False)


def can_mount() -> bool:
    """Whether this user may make a small disk."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
