"""Tables of Delta and Iceberg as their own libraries read and write them, who know nothing of Braided."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

BATCHES = 100
KILLS = 20
"""How often a driver of Spark is killed for each format."""


def read_delta(location: str, **options: Any) -> pa.Table:
    """Return all rows."""
    from deltalake import DeltaTable

    return DeltaTable(location, **options).to_pyarrow_table()


class ForeignWriter:
    """Appends one row again and again, in a thread, until its block ends; `done` counts its commits."""

    def __init__(self, append: Callable[[int], None]) -> None:
        self._append = append
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        while not self._over.wait(0.2):
            try:
                self._append(self.done)
            except Exception as error:
                # The other was first; a writer of this kind tries again. One library says so in the error's type alone.
                if "commit" in f"{type(error).__name__}: {error}".lower():
                    continue
                self.error = error
                return
            self.done += 1

    def __enter__(self) -> ForeignWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self.error is not None:
            raise self.error


def kill_drivers(root: Path, table: str, options: dict[str, str], kills: int, seed: int) -> None:
    """Run `table_driver.py`, killed so many times at every moment of a batch, then to its end."""
    rng = random.Random(seed)
    for kill in range(kills + 1):
        # One of the next batches: a driver that was killed at any moment may have done several since.
        batch = len(list(root.glob("commit-*"))) + rng.randint(0, 1)
        assert batch < BATCHES
        moment = rng.choice(("files", "table", "done", "any")) if kill < kills else ""
        die = [moment, str(batch)] if moment not in ("", "any") else []
        script = str(Path(__file__).parent / "table_driver.py")
        command = [sys.executable, script, str(root), table, json.dumps(options), str(BATCHES), *die]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            if moment == "any":
                assert any(line == f"done {batch}\n" for line in iter(child.stdout.readline, ""))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=rng.uniform(0, 0.05))
                child.kill()
            said, errors = child.communicate(timeout=240)
            assert child.returncode == (-signal.SIGKILL if moment else 0), errors[-2000:]
            assert moment or said.endswith("finished\n")
