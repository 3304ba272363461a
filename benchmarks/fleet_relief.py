"""A peer becomes hot since a job's rate rises tenfold: how soon it is relieved, and what rows wait, against no relief.

    python benchmarks/fleet_relief.py [--rising 0.85] [--calm 0.35] [--seconds 300] [--pairs 1]

Two peers, each on a core of its own, a period of 5 s. Both jobs, joins of their own files, run at one of them; the
other is idle. A file of calls a second is written for each, made before; after a minute those of the second job become
ten times as large. Then the same again in a fleet whose watch finds nothing hot.

What is measured is a rise: no peer may be hot before it (0.5 of its core), both jobs must be too much for a core after
it, and the second one alone must not be. How many rows that takes differs from hour to hour on a shared machine. So the
job is run alone first, with few rows and with many, and rows are chosen by the CPU that batches took: `--rising` and
`--calm` are the parts of a core that the jobs shall take after the rise. A batch costs about half a second whatever its
rows; a trigger of 8 s keeps that small enough for loads to exist that meet all three.

A batch has 8 files of a stream, and 10 where a job is behind: as jobs have that must not take more at once than fits
into memory, it catches up by a quarter more than comes, not by ever larger batches. A row's delay is the time from when
its file was there until its result was committed. Prints one line of JSON for a pair.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_peer import SCRIPT
from support.fleet_processes import SparkPeers, commits_of, until
from support.streams import SECOND, UTC

from braided.fleet.client import Fleet
from braided.fleet.hosting.cpu import tree_seconds
from braided.storage.topic import Topic

JOBS = ("calm", "rising")
JOB = """
name = "{1}"
operator = "join.window.{1}"
checkpoint = "{0}/checkpoints/{1}"
trigger = "{2}"
[sources.calls]
path = "{0}/{1}/calls"
max_files = {3}
[sources.alerts]
path = "{0}/{1}/alerts"
max_files = {3}
[[steps]]
name = "hits"
sql = '''SELECT c.phone, c.file, a.file AS other FROM calls c JOIN alerts a ON c.phone = a.phone
AND a.ts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS'''
options = {{ lateness = "5 seconds" }}
[sink]
format = "topic"
path = "{0}/{1}/hits"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""
TRIAL = "trial"
STEP = 1.0  # seconds between files
FILES, MOST = 8, 10  # in a batch of a job that keeps up, and at most
TRIGGER = FILES * STEP
QUIET = 60  # seconds before the rise
PERIOD = 5
FEW, MANY = 10_000, 300_000  # rows a file of a trial


class Folders:
    """The files of jobs, made beforehand, which appear when they are shown."""

    def __init__(self, root: Path, jobs: tuple[str, ...]) -> None:
        self._root, self._jobs = root, jobs
        self._random = np.random.default_rng(11)
        for job in jobs:
            for side in ("calls", "alerts"):
                (root / job / side).mkdir(parents=True)

    def make(self, job: str, number: int, rows: int, phones: int) -> None:
        """Make a file of calls, and one with a tenth as many alerts."""
        begins = 1_700_000_000 * SECOND + int(number * STEP * SECOND)
        for side, count in (("calls", rows), ("alerts", max(1, rows // 10))):
            table = pa.table({
                "phone": self._random.integers(0, phones, count),
                "ts": pa.array(begins + self._random.integers(0, SECOND, count), UTC),
                "file": np.full(count, number),
            })  # fmt: skip
            pq.write_table(table, self._root / job / side / f".{number:06d}")

    def show(self, number: int) -> None:
        """Let the files of a number appear."""
        for job in self._jobs:
            for side in ("calls", "alerts"):
                folder = self._root / job / side
                (folder / f".{number:06d}").rename(folder / f"{number:06d}.parquet")


class Files(threading.Thread):
    """The files of both jobs, which appear one by one; `at` is when each did."""

    def __init__(self, root: Path, rows: dict[str, int], seconds: float) -> None:
        super().__init__(daemon=True)
        self._folders = Folders(root, JOBS)
        self._count = int((QUIET + seconds) / STEP)
        self.at: list[float] = []
        for number in range(self._count):
            is_risen = number >= QUIET / STEP
            self._folders.make("calm", number, rows["calm"], 10 * rows["rising"])
            self._folders.make("rising", number, rows["rising"] // (1 if is_risen else 10), 10 * rows["rising"])
        self._show(0)

    def _show(self, number: int) -> None:
        self._folders.show(number)
        self.at.append(time.time())

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(1, self._count):
            time.sleep(max(0.0, begun + number * STEP - time.monotonic()))
            self._show(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rising", type=float, default=0.85, help="of a core, after the rise (%(default)s)")
    parser.add_argument("--calm", type=float, default=0.35, help="of a core, the other job (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="after the rise (%(default)s)")
    parser.add_argument("--pairs", type=int, default=1, help="how many (%(default)s)")
    given = parser.parse_args()
    for _ in range(given.pairs):
        few, many = _trial()
        each = (many - few) / (MANY - FEW)
        room = {"rising": given.rising, "calm": given.calm}
        rows = {job: int(FEW + (part * TRIGGER - few) / each) for job, part in room.items()}
        runs = {relief: _run(relief, rows, given.seconds) for relief in ("on", "off")}
        ratio = runs["off"]["median_delay_s"] / runs["on"]["median_delay_s"]
        trial = {"batch_cpu_s": [round(few, 2), round(many, 2)], "rows_a_file": rows}
        print(json.dumps({"benchmark": "fleet_relief", **trial, "ratio": round(ratio, 2), **runs}), flush=True)


def _trial() -> tuple[float, float]:
    """Run a job alone; return the seconds of CPU that a batch takes with few rows a file and with many.

    Not the seconds that it takes: of two jobs on one core, one works while the other waits.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        folders, batches = Folders(root, (TRIAL,)), 6
        for number in range(2 * batches * FILES):
            folders.make(TRIAL, number, FEW if number < batches * FILES else MANY, 10 * MANY)
            folders.show(number)
        peers = SparkPeers(root)
        spent: dict[int, float] = {}
        try:
            peers.start("north", (SCRIPT,))
            with peers.fleet() as fleet:
                (root / "trial.toml").write_text(JOB.format(root, TRIAL, "100 milliseconds", FILES))
                fleet.submit(root / "trial.toml")

            def is_done() -> bool:
                done = len(commits_of(root / TRIAL / "hits"))
                spent.setdefault(done, tree_seconds(peers.processes["north"].pid))
                return done == 2 * batches

            until(is_done, 180, "all batches")
        finally:
            peers.close()
    return _a_batch(spent, batches // 2, batches), _a_batch(spent, batches + 1, 2 * batches)


def _a_batch(spent: dict[int, float], first: int, last: int) -> float:
    """Return the seconds that a batch took on average, by what was spent when so many were done."""
    seen = sorted(number for number in spent if first <= number <= last)
    return (spent[seen[-1]] - spent[seen[0]]) / (seen[-1] - seen[0])


def _run(relief: str, rows: dict[str, int], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        files = Files(root, rows, seconds)
        peers = SparkPeers(root, lease="30 seconds", period=f"{PERIOD} seconds")
        command = (SCRIPT, "--without-relief") if relief == "off" else (SCRIPT,)
        try:
            peers.start("north", command)
            with peers.fleet() as fleet:
                for job in JOBS:
                    (root / f"{job}.toml").write_text(JOB.format(root, job, f"{TRIGGER:.0f} seconds", MOST))
                    fleet.submit(root / f"{job}.toml")
                until(lambda: all(commits_of(root / job / "hits") for job in JOBS), 120, "first batches")
                peers.start("south", command)
                time.sleep(20)  # for what a peer runs before its first job
                files.start()
                loads = _watch(fleet, files)
                moves = _moves(fleet, files)
                until(lambda: all(_is_quiet(root / job / "hits") for job in JOBS), 300, "the last results")
        finally:
            peers.close()
        waits = {job: _delays(root / job / "hits", files) for job in JOBS}
    every = np.concatenate(list(waits.values()))
    found: dict[str, Any] = {"median_delay_s": round(float(np.median(every)), 2)}
    found |= {f"median_delay_{job}_s": round(float(np.median(some)), 2) for job, some in waits.items()}
    found |= {"p95_delay_s": round(float(np.quantile(every, 0.95)), 2), "results": len(every)}
    return found | {"moves": moves, "loads": loads}


def _is_quiet(topic: Path) -> bool:
    return time.time() - commits_of(topic)[-1] > 2 * PERIOD


def _watch(fleet: Fleet, files: Files) -> dict[str, list[float]]:
    """Return the load of each peer and of each job in every period, until the files are all there."""
    loads: dict[str, list[float]] = {}
    while files.is_alive():
        status = fleet.status()
        for row in status.peers:
            loads.setdefault(row.contact.name, []).append(round(row.load, 2))
        for job in status.components:
            loads.setdefault(job.name, []).append(round(job.measured.load if job.measured else 0.0, 2))
        time.sleep(PERIOD)
    return loads


def _moves(fleet: Fleet, files: Files) -> list[dict[str, object]]:
    """Return what was moved, and when: seconds after the rise at which it was decided and at which it was done."""
    rise = files.at[int(QUIET / STEP)]
    decided: dict[str, float] = {}
    moves: list[dict[str, object]] = []
    for event in fleet.events():
        at = event.at - rise
        if event.what.startswith("rehearsed, "):
            decided[event.component] = at - float(event.what.split()[1])
        elif event.what.startswith("moved to "):
            begun = decided.get(event.component, at)
            moves.append({
                "job": event.component, "decided": round(begun, 1), "done": round(at, 1), "what": event.what,
            })  # fmt: skip
    return moves


def _delays(topic: Path, files: Files) -> np.ndarray:
    """Return the delay of every result whose later file came after the rise."""
    found = []
    shown = np.array(files.at)
    entries = [entry for entry in Topic(str(topic)).manifests() if entry.kind == "batch"]
    for entry, at in zip(entries, commits_of(topic), strict=True):
        names = [f"{Topic(str(topic)).data}/{file.name}" for file in entry.files]
        if names:
            rows = duckdb.sql(f"SELECT greatest(file, other) AS last FROM read_parquet({names!r})").fetchnumpy()["last"]
            found.append(at - shown[rows[rows >= QUIET / STEP]])
    return np.concatenate(found) if found else np.zeros(0)


if __name__ == "__main__":
    main()
