"""Peers on hosts of their own, with latency between them: splits, losses, wrong clocks and stopped peers, by seed.

Nothing is lost or there twice, and an epoch has one owner: `covered` looks all the time. BRAIDED_FAULTS and
BRAIDED_SEEDS say how many faults there are in a run, and the seeds of the runs; a seed repeats the faults and their times.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fleet_model import covered
from support.hosts import Hosts, why_not

from braided.errors import BraidedError
from braided.fleet.component_host import Job, Jobs
from braided.fleet.leases import Leases
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.identity import new_token

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
SCRIPT = Path(__file__).parents[1] / "support" / "peer_process.py"
PEERS, JOBS = ("north", "south", "west", "east"), ("one", "two", "three")
CLOCKS = {"north": 0.0, "south": 60.0, "west": -60.0, "east": 3600.0}
"""Seconds by which the calendars of the hosts are wrong."""
LEASE, DELAY, PORT = 4.0, 0.02, 7401
PATIENCE = 120.0
FAULTS = int(os.environ.get("BRAIDED_FAULTS", "12"))
SEEDS = [int(seed) for seed in os.environ.get("BRAIDED_SEEDS", "1,2,3").split(",")]


class Numbers(threading.Thread):
    """Sends 0, 1, 2, ...: writes into a file how many have come, ten times a second, until it is ended."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self._file, self._ended = file, threading.Event()
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(self.count))
        new.replace(self._file)

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self.count += 20
            self._write()

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.count


class Fleet:
    """A peer on every host, and their storage, which all reach."""

    def __init__(self, root: Path, hosts: Hosts) -> None:
        self.storage, self.token, self.hosts = root / "storage", root / "token", hosts
        self.storage.mkdir()
        new_token().write(self.token)
        files = LocalFiles(self.storage)
        self.jobs, self.leases = Jobs(files), Leases(files)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.numbers = Numbers(self.storage / "numbers")

    def address(self, name: str) -> str:
        return f"{self.hosts.addresses[name]}:{PORT}"

    def start(self, name: str) -> None:
        """Start a peer, which joins by those that run; as often as it takes, since a network may be cut."""
        for _ in range(20):
            others = [self.address(other) for other, process in self.processes.items() if process.poll() is None]
            command = [sys.executable, str(SCRIPT), name, str(self.storage), str(self.token), *others[:1]]
            command += ["--listen", self.address(name), "--lease", str(LEASE), f"--clock={CLOCKS[name]}"]
            process = self.hosts.popen(name, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            if process.stdout.readline().strip():
                self.processes[name] = process
                return
            process.wait()
            time.sleep(1)
        raise AssertionError(f"{name} did not start")

    def add(self, job: str) -> None:
        output = str(self.storage / "topics" / job)
        self.jobs.add(Job(job, "sum.numbers", (), (output,), str(self.storage / "checkpoints" / job)))

    def done(self, job: str) -> int:
        """How many numbers a job has covered; it fails if one is lost or there twice, or an epoch had two owners."""
        try:
            return covered(Topic(str(self.storage / "topics" / job)))
        except BraidedError:  # it has not begun
            return 0

    def holder(self, job: str) -> str:
        lease = self.leases.newest(job)
        return PEERS[0] if lease is None else lease.holder.name

    def ask(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """What a user types on a host."""
        command = [sys.executable, "-m", "braided", "fleet", *words, "--json", "--peer", self.address(name)]
        done: subprocess.CompletedProcess[str] = self.hosts.run(
            name, [*command, "--token-file", str(self.token)], timeout=PATIENCE
        )
        return done

    def until(self, condition: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < ends, f"{what}: not after {PATIENCE} seconds"
            time.sleep(0.2)

    def all_go_on(self, what: str) -> None:
        """Wait until every job has covered what has come by now, and more."""
        here = self.numbers.count + 1
        self.until(lambda: all(self.done(job) >= here for job in JOBS), f"all jobs go on after {what}")

    def close(self) -> None:
        if self.numbers.is_alive():
            self.numbers.end()
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(PEERS, delay=DELAY) as made:
        yield made


@pytest.fixture
def fleet(tmp_path: Path, hosts: Hosts) -> Iterator[Fleet]:
    made = Fleet(tmp_path, hosts)
    try:
        for name in PEERS:
            made.start(name)
        made.numbers.start()
        for job in JOBS:
            made.add(job)
        yield made
    finally:
        made.close()


def test_hosts_have_latency_between_them_clocks_of_their_own_and_can_be_cut_off(hosts: Hosts) -> None:
    listen = f"import socket; s = socket.create_server(('{hosts.addresses['south']}', 7000)); print(1, flush=True)\nwhile 1: s.accept()"
    call = f"import socket, time; t = time.monotonic(); socket.create_connection(('{hosts.addresses['south']}', 7000), 2); print(time.monotonic() - t, t)"

    def called() -> list[float]:
        return [float(word) for word in hosts.run("north", [sys.executable, "-c", call], timeout=60).stdout.split()]

    server = hosts.popen("south", [sys.executable, "-c", listen], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        took, clock = called()
        assert 2 * DELAY <= took < 1
        assert abs(clock - time.monotonic()) > 40_000
        hosts.cut("north")
        assert called() == []
        hosts.heal()
        assert len(called()) == 2
    finally:
        server.kill()
        server.wait()


def test_an_owner_that_was_cut_off_and_stopped_commits_no_more(fleet: Fleet) -> None:
    fleet.all_go_on("the start")
    for _ in range(3):
        job = JOBS[0]
        lease = fleet.leases.newest(job)
        assert lease is not None
        owner = fleet.processes[lease.holder.name]
        fleet.hosts.cut(lease.holder.name)
        owner.send_signal(signal.SIGSTOP)
        fleet.until(lambda: (fleet.leases.newest(job) or lease).epoch > lease.epoch, "another owner")  # noqa: B023
        fleet.until(lambda: fleet.holder(job) != lease.holder.name, "another peer")  # noqa: B023
        owner.send_signal(signal.SIGCONT)  # it still believes that it owns the job, and nobody can tell it otherwise
        time.sleep(LEASE / 4)
        fleet.all_go_on("the owner woke up")
        fleet.hosts.heal()
        fleet.all_go_on("the network healed")
    status = fleet.ask("east", "status")
    assert status.returncode == 0, status.stderr
    found = json.loads(status.stdout)
    assert {peer["contact"]["name"] for peer in found["peers"]} == set(PEERS)


class Storm:
    """Faults, one after the other, each of which may last while the next begins."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.random = fleet, random.Random(seed)
        self.told: list[str] = []

    def cut_one_off(self, name: str) -> None:
        self.fleet.hosts.cut(name)

    def cut_in_halves(self, name: str) -> None:
        self.fleet.hosts.cut(name, next(other for other in PEERS if other != name))

    def lose_packets(self, name: str) -> None:
        self.fleet.hosts.loss = self.random.uniform(0.05, 0.3)

    def delay_packets(self, name: str) -> None:
        self.fleet.hosts.delay = self.random.uniform(0.1, 0.6)

    def stop(self, name: str) -> None:
        self.fleet.processes[name].send_signal(signal.SIGSTOP)

    def stop_cut_off(self, name: str) -> None:
        self.fleet.hosts.cut(name)
        self.stop(name)

    def kill(self, name: str) -> None:
        self.fleet.processes[name].kill()
        self.fleet.processes[name].wait()

    def move(self, name: str) -> None:
        job, target = self.random.choice(JOBS), self.random.choice(PEERS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = self.fleet.ask(name, "move", job, target)
            self.told.append(f"move {job} {target}: {done.returncode} {done.stderr.strip()[-200:]}")

    def end(self, name: str) -> None:
        """End a fault at a host, and those of the network."""
        process = self.fleet.processes[name]
        self.fleet.hosts.heal()
        self.fleet.hosts.delay, self.fleet.hosts.loss = DELAY, 0.0
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
        else:
            self.fleet.start(name)

    def rage(self, faults: int) -> None:
        kinds = (
            self.cut_one_off, self.cut_in_halves, self.lose_packets, self.delay_packets,
            self.stop, self.stop_cut_off, self.kill, self.move,
        )  # fmt: skip
        order = [kinds[number % len(kinds)] for number in range(faults)]
        self.random.shuffle(order)
        for kind in order:
            name = self.fleet.holder(self.random.choice(JOBS))
            seconds = self.random.choice((1.0, LEASE, 2.5 * LEASE)) * self.random.uniform(0.8, 1.2)
            self.told.append(f"{kind.__name__} at {name} for {seconds:.1f} s")
            kind(name)
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                for job in JOBS:
                    self.fleet.done(job)
                time.sleep(0.3)
            self.end(name)
            self.fleet.all_go_on(self.told[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_over_several_hosts_loses_and_doubles_nothing(fleet: Fleet, seed: int) -> None:
    fleet.all_go_on("the start")
    storm = Storm(fleet, seed)
    try:
        storm.rage(FAULTS)
        last = fleet.numbers.end()
        fleet.until(lambda: all(fleet.done(job) == last for job in JOBS), "all numbers")
    except BaseException as error:
        told = "\n".join(storm.told)
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{told}") from error
    epochs = sum(lease.epoch for job in JOBS if (lease := fleet.leases.newest(job)) is not None)
    print("\n".join(storm.told))
    print(f"seed {seed}: {FAULTS} faults, {epochs} changes of owner, {last} numbers to each of {len(JOBS)} jobs")
    assert epochs > 0
