"""What a planned move of a job costs, with a rehearsal and without, with little state and much; what idle peers cost.

    python benchmarks/fleet_moves.py rehearsed [--moves 4]      # the gap in the output; `cold` without a rehearsal
    python benchmarks/fleet_moves.py state [--megabytes 500]    # the gap with a large state, and the time to copy it
    python benchmarks/fleet_moves.py idle [--seconds 60]        # CPU and messages of four peers without jobs

Peers are processes with a Spark application on one core each. The job is a braided join with a learned lateness and a
control directory, triggered every half second. A gap is the longest time between two manifests of the output from just
before the order until five seconds after the first one of the other peer. Targets are peers with a fresh Spark
application; `rehearsed` also moves the job back to one that has run it before. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_peer import SCRIPT
from support.fleet_processes import JOIN, SparkPeers, Streams, commits_of, until

from braided.fleet.client import Fleet

NOTE = 1000  # bytes a row
ROWS = 10_000  # a file of a large state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rehearsed", "cold", "state", "idle"))
    parser.add_argument("--moves", type=int, default=4, help="to a fresh peer (%(default)s)")
    parser.add_argument("--rows", type=int, default=400, help="calls a file, four files a second (%(default)s)")
    parser.add_argument("--megabytes", type=int, default=500, help="of state (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="for which idle peers are watched (%(default)s)")
    given = parser.parse_args()
    if given.what == "idle":
        found = _idle(given.seconds)
    elif given.what == "state":
        found = _state(given.megabytes, given.rows)
    else:
        found = _gaps(given.moves, given.rows, is_cold=given.what == "cold")
    print(json.dumps({"benchmark": f"fleet_moves {given.what}", **found}))


@contextlib.contextmanager
def _running(text: str, root: Path) -> Iterator[tuple[SparkPeers, Fleet]]:
    """A fleet of one peer, called north, with a job that has committed a batch."""
    peers = SparkPeers(root)
    try:
        peers.start("north")
        (root / "hits.toml").write_text(text)
        with peers.fleet() as fleet:
            fleet.submit(root / "hits.toml")
            until(lambda: len(commits_of(root / "hits")) > 0, 120, "the first batch")
            yield peers, fleet
    finally:
        peers.close()


def _gaps(moves: int, rows: int, *, is_cold: bool) -> dict[str, object]:
    """Move a job so many times to a peer that was just started; then, unless cold, back again."""
    command = (SCRIPT, "--cold") if is_cold else (SCRIPT,)
    fresh, warm = [], []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        streams = Streams(root, rows)
        with _running(JOIN.format(root), root) as (peers, fleet):
            streams.start()
            at = "north"
            for number in range(moves):
                name = f"peer{number}"
                peers.start(name, command)
                time.sleep(30)  # for what a peer runs before its first job
                fresh.append(_move(fleet, root, name))
                if is_cold:
                    if at != "north":
                        peers.kill(at)
                    at = name
                else:
                    warm.append(_move(fleet, root, "north"))
                    peers.kill(name)
            streams.end()
    return {"fresh": _summary(fresh), "warm": _summary(warm)} if warm else {"fresh": _summary(fresh)}


def _summary(moves: list[dict[str, float]]) -> dict[str, object]:
    return {"median_gap": statistics.median(move["gap"] for move in moves), "moves": moves}


def _move(fleet: Fleet, root: Path, name: str) -> dict[str, float]:
    """Move the job; return the gap, its parts, and the time of the whole order, in seconds."""
    begun = time.time()
    fleet.move("hits", name)
    moved = time.time()
    ordered = moved - begun
    until(lambda: commits_of(root / "hits")[-1] > moved, 120, "a batch at the other peer")
    time.sleep(5)
    commits = commits_of(root / "hits")
    start = max([at for at in commits if at <= begun], default=begun)
    last, first = max(
        itertools.pairwise([start, *(at for at in commits if at > begun)]), key=lambda two: two[1] - two[0]
    )
    told = {event.what.split()[0]: event.at for event in fleet.events()}  # the newest of each kind
    parts = {"to_stop": told["stopped"] - last, "to_start": told["started"] - told["stopped"]}
    parts["to_commit"] = first - told["started"]
    return {name: round(value, 2) for name, value in {"gap": first - last, **parts, "order": ordered}.items()}


def _state(megabytes: int, rows: int) -> dict[str, object]:
    """Move a job with a large state to another peer and back, twice; and copy that state."""
    text = JOIN.replace("10 SECONDS", "10 HOURS").replace("a.id AS alert", "a.id AS alert, c.note")
    text = text.replace('calls"\n', 'calls"\nmax_files = 4\n')
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        streams = Streams(root, rows, phones=1_000_000, note=NOTE)
        for _ in range(3):  # enough for first results
            streams.write(ROWS)
        with _running(text.format(root), root) as (peers, fleet):
            peers.start("south")
            for _ in range(megabytes * 1_000_000 // (NOTE * ROWS) - 3):
                streams.write(ROWS)
            until(lambda: time.time() - commits_of(root / "hits")[-1] > 10, 300, "all rows")
            streams.start()
            time.sleep(5)
            there, back = [], []
            for _ in range(2):
                there.append(_move(fleet, root, "south"))
                time.sleep(15)
                back.append(_move(fleet, root, "north"))
                time.sleep(15)
            streams.end()
            copied = [_copied(root, megabytes) for _ in range(3)]
    found: dict[str, object] = {"state_mb": megabytes, "copy_s": round(statistics.median(copied), 2)}
    return {**found, "there": _summary(there), "back": _summary(back)}


def _copied(root: Path, megabytes: int) -> float:
    """Copy as much as the state has, on the same disk, until it is written; return the seconds."""
    (root / "bytes").write_bytes(os.urandom(1_000_000) * megabytes)
    os.sync()
    begun = time.monotonic()
    subprocess.run(["dd", f"if={root}/bytes", f"of={root}/copy", "bs=1M", "conv=fsync", "status=none"], check=True)
    return time.monotonic() - begun


def _idle(seconds: float) -> dict[str, object]:
    """The cores that four idle peers use, their drivers and their whole process trees; and messages a second."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        peers = SparkPeers(root, lease="30 seconds", period="5 seconds")
        try:
            for number in range(4):
                peers.start(f"peer{number}", (SCRIPT, "--sent", str(root / f"peer{number}.sent")))
            time.sleep(60)  # for what a peer runs before its first job, and what Spark does after it
            sent, before, begun = _sent(peers), _cpu(peers), time.monotonic()
            used = dict(before)
            while (elapsed := time.monotonic() - begun) < seconds:
                time.sleep(1)  # what a process has used before it ends is seen until then
                used.update(_cpu(peers))
            more = _sent(peers)
            drivers = [process.pid for process in peers.processes.values()]
        finally:
            peers.close()
    cores = {pid: (cpu - before.get(pid, 0.0)) / elapsed for pid, cpu in used.items()}
    return {
        "cores_of_drivers": round(sum(cores[pid] for pid in drivers), 4),
        "cores_in_all": round(sum(cores.values()), 4),
        "messages_a_second": round((more - sent) / elapsed, 2),
    }


def _cpu(peers: SparkPeers) -> dict[int, float]:
    """CPU seconds of every process of all peers, by its number."""
    used = {}
    for peer in peers.processes.values():
        driver = psutil.Process(peer.pid)
        for process in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                used[process.pid] = sum(process.cpu_times()[:2])
    return used


def _sent(peers: SparkPeers) -> int:
    """The messages that all peers have sent."""
    files = {peers.root / f"{name}.sent": process for name, process in peers.processes.items()}
    for file, process in files.items():
        file.unlink(missing_ok=True)
        process.send_signal(signal.SIGUSR1)
    for file in files:
        until(file.exists, 10, f"{file.name}")
    return sum(int(file.read_text()) for file in files)


if __name__ == "__main__":
    main()
