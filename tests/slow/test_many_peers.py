"""A hundred peers as processes without Spark on loopback: they join, die and move jobs; messages and memory stay small.

BRAIDED_PEERS and BRAIDED_SECONDS say how many, and for how long they are watched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from support.fleet_model import covered

from braided.errors import PeerError
from braided.fleet.component_host import Job, Jobs
from braided.storage.files import STORAGE, LocalFiles
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.client import Fleet
from braided.fleet.identity import new_token

SCRIPT = Path(__file__).parents[1] / "support" / "many_peers.py"
PEERS = int(os.environ.get("BRAIDED_PEERS", "100"))
SECONDS = float(os.environ.get("BRAIDED_SECONDS", "120"))
JOBS, MOVES, DEATHS = 20, 5, 5


class Peers:
    """Processes, and the last figures that each has printed."""

    def __init__(self, root: Path) -> None:
        self.storage, self.token = root / "storage", root / "token"
        self.storage.mkdir()
        new_token().write(self.token)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        self.figures: dict[str, list[list[float]]] = {}

    def start(self, name: str) -> None:
        others = list(self.addresses.values())[-2:]
        command = [sys.executable, str(SCRIPT), name, str(self.storage), str(self.token), *others]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes[name] = process
        assert process.stdout is not None
        self.addresses[name] = process.stdout.readline().strip()
        assert self.addresses[name], f"{name} did not start"
        self.figures[name] = []
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.figures[name].append(json.loads(line))

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes.pop(name).wait()
        del self.addresses[name]

    def fleet(self) -> Fleet:
        return Fleet(next(iter(self.addresses.values())), token_file=self.token)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    made = Peers(tmp_path)
    try:
        for number in range(PEERS):
            made.start(f"p{number:03d}")
        yield made
    finally:
        made.close()


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"{what}: not after {seconds} seconds"
        time.sleep(0.5)


def test_many_peers_stay_small(peers: Peers, tmp_path: Path) -> None:
    jobs = Jobs(LocalFiles(peers.storage, STORAGE))
    names = [f"job{number:02d}" for number in range(JOBS)]
    for name in names:
        jobs.add(Job(name, "sum.numbers", (), (str(tmp_path / name),), str(tmp_path / "checkpoints" / name)))
    with peers.fleet() as fleet:

        def all_run() -> bool:
            return [row.name for row in fleet.status().components if row.state == "running"] == names

        _until(all_run, 180, "the start of all jobs")
        assert len(fleet.status().peers) == PEERS
        moved = 0
        for name in names:
            holder = next(row.peer for row in fleet.status().components if row.name == name)
            target = next(peer for peer in sorted(peers.processes, reverse=True) if peer != holder)
            try:
                moved += fleet.move(name, target)
            except PeerError as error:
                print(name, error)
            if moved == MOVES:
                break
        assert moved == MOVES
        holders = {row.peer for row in fleet.status().components}
        asked = next(iter(peers.addresses))
    for name in [name for name in sorted(holders) if name != asked][:DEATHS]:
        peers.kill(name)
    with peers.fleet() as fleet:
        _until(lambda: all(row.state == "running" for row in fleet.status().components), 120, "the revival of all jobs")
    before = {name: peers.figures[name][-1] for name in peers.processes}
    time.sleep(SECONDS)
    after = {name: peers.figures[name][-1] for name in peers.processes}
    rates = sorted((after[name][1] - sent) / (after[name][0] - at) for name, (at, sent, *_) in before.items())
    growth = [after[name][2] - figures[2] for name, figures in before.items()]
    descriptors = max(figures[3] for figures in after.values())
    print(
        f"{len(rates)} peers: {median(rates):.2f} messages a second each, {rates[-1]:.2f} at most; "
        f"{median(figures[2] for figures in after.values()) / 1e6:.0f} MB each, which grew by {median(growth) / 1e6:.2f} MB "
        f"in {SECONDS:.0f} s; {descriptors} descriptors at most"
    )
    assert median(rates) < 10
    assert median(growth) < 2e6 + 5e3 * SECONDS  # 18 MB an hour would be seen in ten minutes
    assert descriptors < 1000
    for name in names:
        assert covered(Topic(str(tmp_path / name))) > 0
