"""A fleet of real peers: processes with a Spark application each, streams that are written meanwhile, and faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from braided.errors import BraidedError
from braided.fleet.client import Fleet
from braided.storage.topic import Topic
from support.jvm import JAVA_OPTIONS
from support.streams import SECOND, UTC, write_batch

TESTS = Path(__file__).parents[1]
JOIN = """
name = "hits"
operator = "join.window.phone"
checkpoint = "{0}/checkpoints/hits"
trigger = "500 milliseconds"
[sources.calls]
path = "{0}/calls"
[sources.alerts]
path = "{0}/alerts"
[[steps]]
name = "hits"
sql = '''SELECT c.phone, c.id, a.id AS alert FROM calls c JOIN alerts a ON c.phone = a.phone
AND a.ts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS'''
options = {{ control = "{0}/control" }}
[sink]
format = "topic"
path = "{0}/hits"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""
COUNTS = """
name = "counts"
operator = "window.calls"
checkpoint = "{0}/checkpoints/counts"
trigger = "500 milliseconds"
[sources.calls]
path = "{0}/calls"
time = "ts"
watermark = "5 seconds"
[[steps]]
name = "counts"
python = "support.fleet_steps:count_calls"
inputs = ["calls"]
[sink]
format = "topic"
path = "{0}/counts"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds; fail if it takes too long."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"{what}: not after {seconds} seconds"
        time.sleep(0.05)


class Streams(threading.Thread):
    """Calls and alerts, up to two seconds out of order, four files a second each until it is ended.

    phones : of how many one in ten alerts is. note : bytes of one more column of calls, if there is one.
    """

    def __init__(self, root: Path, rows: int, *, phones: int = 500, note: int = 0) -> None:
        super().__init__(daemon=True)
        self._root, self._rows = root, rows
        self._phones, self._note = phones, note
        self._random = np.random.default_rng(3)
        self._ended = threading.Event()
        self.number = 0
        self.write(rows)

    def run(self) -> None:
        while not self._ended.wait(0.25):
            self.write(self._rows)

    def end(self, last: int = 1800) -> None:
        """End; the last row is so many seconds later than the others, and closes their windows."""
        self._ended.set()
        if self.is_alive():
            self.join()
        self.write(1, ahead=last)

    def write(self, rows: int, ahead: int = 0) -> None:
        """Write a file of calls, and one with a tenth as many alerts."""
        now = time.time_ns() // 1000 + ahead * SECOND
        for name in ("calls", "alerts"):
            count = rows if name == "calls" else max(1, rows // 10)
            table = pa.table({
                "phone": self._random.integers(0, self._phones, count),
                "ts": pa.array(now - self._random.integers(0, 2 * SECOND, count), UTC),
                "id": np.arange(count) + self.number * self._rows,
            })  # fmt: skip
            if self._note and name == "calls":
                letters = self._random.integers(33, 127, count * self._note, dtype=np.uint8).tobytes().decode()
                notes = [letters[at : at + self._note] for at in range(0, len(letters), self._note)]
                table = table.append_column("note", pa.array(notes))
            write_batch(self._root / name, self.number, table)
        self.number += 1


class SparkPeers:
    """Peers as processes, one core each where `taskset` can do that."""

    def __init__(
        self,
        root: Path,
        *,
        lease: str = "12 seconds",
        period: str = "2 seconds",
        more: tuple[str, ...] = (),
        command: tuple[str, ...] = ("-m", "braided", "peer"),
    ) -> None:
        self.root = root
        self._command = command
        self.token = root / "token"
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        self.metrics: dict[str, str] = {}
        """Where a peer serves metrics, if it does."""
        self._cores: dict[str, int] = {}
        self._times = ["--lease", lease, "--period", period, *more]

    def start(self, name: str, command: tuple[str, ...] | None = None) -> None:
        """Start a peer, which joins by one that is there."""
        line = [
            sys.executable,
            *(command or self._command),
            "--name",
            name,
            "--listen",
            "127.0.0.1:0",
            "--token-file",
            str(self.token),
        ]
        line += ["--storage", str(self.root / "storage"), "--allow", "support.fleet_steps", *self._times]
        for other, process in self.processes.items():
            if other != name and process.poll() is None:
                line += ["--join", self.addresses[other]]
                break
        if shutil.which("taskset"):
            line = ["taskset", "-c", str(self._core(name)), *line]
        (self.root / "tmp").mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "TMPDIR": str(self.root / "tmp"),  # what is left of peers that were killed
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{TESTS}",
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        }
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
        self.processes[name] = process
        assert process.stdout is not None
        for said in process.stdout:
            if "listening at" in said:
                self.addresses[name] = said.split("listening at ")[1].split(",")[0]
            if "metrics at " in said:
                self.metrics[name] = said.split("metrics at ")[1].strip()
            if "Ctrl-C" in said:
                return
        raise AssertionError(f"{name} did not start")

    def _core(self, name: str) -> int:
        """The core that fewest peers have."""
        running = [other for other, process in self.processes.items() if other != name and process.poll() is None]
        taken = [self._cores[other] for other in running]
        self._cores[name] = min(sorted(os.sched_getaffinity(0)), key=taken.count)
        return self._cores[name]

    def fleet(self, *, but: str = "") -> Fleet:
        """A user's connection, to a peer that runs."""
        alive = [name for name, process in self.processes.items() if process.poll() is None and name != but]
        return Fleet(self.addresses[alive[0]], token_file=self.token)

    def jvm(self, name: str) -> psutil.Process:
        """The JVM of a peer."""
        children = psutil.Process(self.processes[name].pid).children(recursive=True)
        return next(child for child in children if child.name() == "java")

    def targets(self, name: str, which: str) -> list[psutil.Process]:
        """The JVM of a peer, its driver, or both."""
        driver = psutil.Process(self.processes[name].pid)
        return {"jvm": [self.jvm(name)], "driver": [driver], "both": [driver, self.jvm(name)]}[which]

    def kill(self, name: str, which: str = "both") -> None:
        """Kill a peer, and wait until it is gone."""
        for process in self.targets(name, which):
            process.send_signal(signal.SIGKILL)
        self.processes[name].wait(60)

    def close(self) -> None:
        """End all."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def rows_of(topic: Path) -> int:
    """How many rows a topic has."""
    try:
        return sum(entry.rows for entry in Topic(str(topic)).manifests())
    except BraidedError:
        return 0


def commits_of(topic: Path) -> list[float]:
    """When the batches of a topic were committed, by the times of their manifests."""
    try:
        entries = list(Topic(str(topic)).manifests())
    except BraidedError:
        return []
    batches = [entry.slot for entry in entries if entry.kind == "batch"]
    return [(topic / "_manifests" / f"{slot:012d}.json").stat().st_mtime for slot in batches]


@contextlib.contextmanager
def two_peers(made: SparkPeers) -> Iterator[SparkPeers]:
    """Start north and south, and stop whatever runs in the end."""
    try:
        for name in ("north", "south"):
            made.start(name)
        yield made
    finally:
        made.close()
