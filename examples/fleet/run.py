"""Three peers on this machine, a stream of calls, and one job that is moved, loses its peer, and loses no row.

    python examples/fleet/run.py            # about a minute and a half; needs braided[demo,peers] and Java 17

Calls and alerts are written as files while it runs. The job joins them. It is submitted to the fleet, moved to another
peer, then the peer that runs it is killed. At the end its results are compared with DuckDB's over the same files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import braided

HERE = Path(__file__).parent
NAMES = ("north", "south", "west")
SECOND = 1_000_000
ORACLE = """
SELECT c.phone, c.ts, a.ts AS seen, c.cell, a.reason FROM '{0}/calls/*.parquet' c JOIN '{0}/alerts/*.parquet' a
ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECONDS AND c.ts + INTERVAL 10 SECONDS
"""


class Streams(threading.Thread):
    """Writes a file of calls and one of alerts twice a second, up to two seconds out of order, until it is ended."""

    def __init__(self, root: Path, rows: int) -> None:
        super().__init__(daemon=True)
        self._root, self._rows = root, rows
        self._random = np.random.default_rng(7)
        self._ended = threading.Event()
        self._write(0)  # Spark takes the columns of a stream from files that are there

    def run(self) -> None:
        number = 1
        while not self._ended.wait(0.5):
            self._write(number)
            number += 1

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _write(self, number: int) -> None:
        for name, rows, column, values in (
            ("calls", self._rows, "cell", ["A1", "B2", "C3"]),
            ("alerts", self._rows // 20, "reason", ["fraud", "stolen"]),
        ):
            now = time.time_ns() // 1000
            times = now - self._random.integers(0, 2 * SECOND, rows)
            table = pa.table({
                "phone": [f"555-{phone:04d}" for phone in self._random.integers(0, 5000, rows)],
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                column: self._random.choice(values, rows),
            })  # fmt: skip
            folder = self._root / name
            folder.mkdir(exist_ok=True)
            pq.write_table(table, folder / f".{number}")
            (folder / f".{number}").rename(folder / f"{number:06d}.parquet")  # a file appears whole


class Peers:
    """Peers as processes, one core each where `taskset` can do that."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.token = root / "fleet.token"
        self.address = ""
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "braided", "peer", "--name", name, "--listen", "127.0.0.1:0"]
        command += ["--storage", str(self._root / "storage"), "--token-file", str(self.token), "--lease", "10 seconds"]
        if self.address:
            command += ["--join", self.address]
        if shutil.which("taskset"):
            core = sorted(os.sched_getaffinity(0))[len(self.processes) % len(os.sched_getaffinity(0))]
            command = ["taskset", "-c", str(core), *command]
        # Three applications on few cores start in half the time if the JVM compiles less.
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.processes[name] = process
        assert process.stdout is not None
        for line in process.stdout:
            if "listening at" in line:
                self.address = self.address or line.split("listening at ")[1].split(",")[0]
            if "Ctrl-C" in line:
                return
        raise SystemExit(f"{name} did not start")

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="calls a file, two files a second (%(default)s)")
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="braided-fleet-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        peers = Peers(root)
        try:
            return run(root, peers, rows)
        finally:
            peers.close()


def run(root: Path, peers: Peers, rows: int) -> int:
    """Do what the text at the top says."""
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True)

    for name in NAMES:
        peers.start(name)
        say(f"peer {name} takes part")
    streams = Streams(root, rows)
    streams.start()
    job = root / "fraud.toml"
    job.write_text((HERE / "fraud.toml").read_text().replace("/shared/example", str(root)))
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        placed = fleet.submit(job)
        say(f"job fraud runs at {placed.peer}: {placed.reason}")
        wait_for(lambda: results(root) > 0, "first results")
        say(f"{results(root):,} results")

        holder = fleet.status().components[0].peer
        target = next(name for name in NAMES[1:] if name != holder)
        fleet.move("fraud", target)
        say(f"moved to {target}; {results(root):,} results")

        time.sleep(3)
        peers.processes[target].kill()
        say(f"peer {target} was killed")
        wait_for(lambda: fleet.status().components[0].peer not in ("", target), "a new peer for the job")
        say(f"revived at {fleet.status().components[0].peer}; {results(root):,} results")

        time.sleep(3)
        streams.end()
        wanted = duckdb.sql(ORACLE.format(root)).fetchall()
        wait_for(lambda: results(root) >= len(wanted), "the last results")
        files = braided.topic(root / "hits").files()
        found = duckdb.sql(f"SELECT phone, ts, seen, cell, reason FROM read_parquet({files!r})").fetchall()
        is_equal = sorted(found) == sorted(wanted)
        say(f"{len(found):,} results, {'equal to' if is_equal else 'NOT THE SAME AS'} DuckDB's {len(wanted):,}")
        for event in fleet.events():
            print(f"         {event.peer}: {event.component} {event.what}")
    return 0 if is_equal else 1


def results(root: Path) -> int:
    """How many rows the job has written."""
    try:
        return sum(entry.rows for entry in braided.topic(root / "hits").manifests())
    except braided.TopicError:  # not yet
        return 0


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit(f"no {what} after {seconds:.0f} seconds")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
