"""Peers as processes that are stopped, continued and killed: what the virtual network shows, with real clocks and signals."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fleet_model import covered

from braided.fleet.component_host import Job, Jobs
from braided.fleet.leases import Leases
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.identity import new_token

SCRIPT = Path(__file__).parents[1] / "support" / "peer_process.py"


class Fleet:
    """Three peers and where they meet."""

    def __init__(self, root: Path) -> None:
        self.storage = root / "storage"
        self.storage.mkdir()
        self.token = root / "token"
        new_token().write(self.token)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}

    def start(self, name: str) -> None:
        """Start a peer, which joins by any that is there."""
        others = [address for other, address in self.addresses.items() if other != name][:2]
        command = [sys.executable, str(SCRIPT), name, str(self.storage), str(self.token), *others]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes[name] = process
        assert process.stdout is not None
        self.addresses[name] = process.stdout.readline().strip()
        assert self.addresses[name], f"{name} did not start"

    def close(self) -> None:
        """End all."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"{what}: not after {seconds} seconds"
        time.sleep(0.05)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        for name in ("north", "south", "west"):
            made.start(name)
        yield made
    finally:
        made.close()


def test_stopped_continued_and_killed_peers_lose_and_double_nothing(fleet: Fleet) -> None:
    files = LocalFiles(fleet.storage)
    output = str(fleet.storage / "topics" / "one")
    Jobs(files).add(Job("one", "sum.numbers", (), (output,), str(fleet.storage / "checkpoints" / "one")))
    leases = Leases(files)
    generator = random.Random(1)

    def batches() -> int:
        return sum(entry.kind == "batch" for entry in Topic(output).manifests())

    _until(lambda: leases.newest("one") is not None, 60, "the first lease")
    for turn in range(8):
        lease = leases.newest("one")
        assert lease is not None
        before = batches() if os.path.exists(output) else 0
        _until(lambda: os.path.exists(output) and batches() >= before + 2, 60, "two more batches")  # noqa: B023
        lease = leases.newest("one")
        assert lease is not None
        victim = fleet.processes[lease.holder.name]
        if turn % 3 == 2:
            victim.kill()
            victim.wait()
        else:
            victim.send_signal(signal.SIGSTOP)
        epoch = lease.epoch
        _until(lambda: (leases.newest("one") or lease).epoch > epoch, 60, "another owner")  # noqa: B023
        if turn % 3 == 2:
            fleet.start(lease.holder.name)
        else:
            time.sleep(generator.uniform(0.0, 1.0))
            victim.send_signal(signal.SIGCONT)
    done = covered(Topic(output))
    _until(lambda: covered(Topic(output)) > done, 60, "results after the last")
    newest = leases.newest("one")
    assert newest is not None
    assert newest.epoch >= 8
