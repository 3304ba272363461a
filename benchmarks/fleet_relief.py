"""A peer becomes hot since a job's rate rises tenfold: how soon it is relieved, and what rows wait, against no relief.

    python benchmarks/fleet_relief.py on | off [--rows 16000] [--calm 40000] [--seconds 120] [--max-files 10]

Two peers, each on a core of its own, a period of 5 s. Both jobs, joins of their own files, run at one of them; the
other is idle. Two files of calls a second are written for each, made before; after a minute those of the second job
become ten times as large. What is measured is a rise: take so few rows that no peer is hot before it (0.5 of its core),
and so many that both jobs are too much for a core after it, and the second one alone is not.

With `--max-files` a batch has at most so many files of a stream, as jobs have that must not take more at once than fits
into memory: a job that is behind then cannot make up for it by larger batches. A row's delay is the time from when its
file was there until its result was committed. `off` is a fleet whose watch finds nothing hot. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_peer import SCRIPT
from fleet_processes import SparkPeers, commits_of, until
from streams import SECOND, UTC

from braided.direct.topic import Topic
from braided.peers.client import Fleet

JOBS = ("calm", "rising")
JOB = """
name = "{1}"
operator = "join.window.{1}"
checkpoint = "{0}/checkpoints/{1}"
trigger = "5 seconds"
[sources.calls]
path = "{0}/{1}/calls"{2}
[sources.alerts]
path = "{0}/{1}/alerts"{2}
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
STEP = 0.5  # seconds between files
QUIET = 60  # seconds before the rise
PERIOD = 5


class Files(threading.Thread):
    """The files of all jobs, made at once, which appear one by one; `at` is when each did."""

    def __init__(self, root: Path, rows: int, calm: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._count = int((QUIET + seconds) / STEP)
        self.at: list[float] = []
        random = np.random.default_rng(11)
        for job in JOBS:
            for side in ("calls", "alerts"):
                (root / job / side).mkdir(parents=True)
            for number in range(self._count):
                tenfold = job == "rising" and number >= QUIET / STEP
                count = calm if job == "calm" else 10 * rows if tenfold else rows
                self._make(job, number, count, 100 * rows, random)
        self._show(0)

    def _make(self, job: str, number: int, rows: int, phones: int, random: np.random.Generator) -> None:
        begins = 1_700_000_000 * SECOND + int(number * STEP * SECOND)
        for side, count in (("calls", rows), ("alerts", max(1, rows // 10))):
            table = pa.table({
                "phone": random.integers(0, phones, count),
                "ts": pa.array(begins + random.integers(0, SECOND, count), UTC),
                "file": np.full(count, number),
            })  # fmt: skip
            pq.write_table(table, self._root / job / side / f".{number:06d}")

    def _show(self, number: int) -> None:
        for job in JOBS:
            for side in ("calls", "alerts"):
                folder = self._root / job / side
                (folder / f".{number:06d}").rename(folder / f"{number:06d}.parquet")
        self.at.append(time.time())

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(1, self._count):
            time.sleep(max(0.0, begun + number * STEP - time.monotonic()))
            self._show(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relief", choices=("on", "off"))
    parser.add_argument("--rows", type=int, default=16_000, help="calls a file before the rise (%(default)s)")
    parser.add_argument("--calm", type=int, default=40_000, help="calls a file of the other job (%(default)s)")
    parser.add_argument("--max-files", type=int, help="of a stream in a batch (as many as there are)")
    parser.add_argument("--seconds", type=float, default=120, help="after the rise (%(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        files = Files(root, given.rows, given.calm, given.seconds)
        peers = SparkPeers(root, lease="30 seconds", period=f"{PERIOD} seconds")
        command = (SCRIPT, "--without-relief") if given.relief == "off" else (SCRIPT,)
        try:
            peers.start("north", command)
            with peers.fleet() as fleet:
                most = "" if given.max_files is None else f"\nmax_files = {given.max_files}"
                for job in JOBS:
                    (root / f"{job}.toml").write_text(JOB.format(root, job, most))
                    fleet.submit(root / f"{job}.toml")
                until(lambda: all(commits_of(root / job / "hits") for job in JOBS), 120, "first batches")
                peers.start("south", command)
                files.start()
                loads = _watch(fleet, files)
                moves = _moves(fleet, files)
                until(lambda: all(_is_quiet(root / job / "hits") for job in JOBS), 300, "the last results")
        finally:
            peers.close()
        waits = {job: _delays(root / job / "hits", files) for job in JOBS}
    every = np.concatenate(list(waits.values()))
    found = {f"median_delay_{job}_s": round(float(np.median(some)), 2) for job, some in waits.items()}
    found |= {"median_delay_s": round(float(np.median(every)), 2)}
    found |= {"p95_delay_s": round(float(np.quantile(every, 0.95)), 2), "results": len(every)}
    print(json.dumps({"benchmark": f"fleet_relief {given.relief}", **found, "moves": moves, "loads": loads}))


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
    rise, now = files.at[int(QUIET / STEP)], time.time()
    decided: dict[str, float] = {}
    moves: list[dict[str, object]] = []
    for event in fleet.events():
        at = now - event.ago - rise
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
