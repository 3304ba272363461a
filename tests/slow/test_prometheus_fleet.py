"""Alerts of a fleet in a real Prometheus: each is fired by a fault of peers or jobs, and clears again.

Peers are processes without Spark. Needs Debian's package `prometheus`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prometheus import PROGRAM, Prometheus

from braided.fleet.component_host import Job, Jobs
from braided.storage.files import LocalFiles

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.client import Fleet
from braided.fleet.identity import new_token

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no prometheus on the path")
SCRIPT = Path(__file__).parents[1] / "support" / "peer_process.py"
LEASE = "6"
ALL = ("BraidedJobFailed", "BraidedJobNotRunning", "BraidedJobBehind", "BraidedFleetSilent", "BraidedEndpointDown")


class Peers:
    """Three peers, a job, and `braided fleet metrics`."""

    def __init__(self, root: Path) -> None:
        self.storage, self.token = root / "storage", root / "token"
        self.storage.mkdir()
        new_token().write(self.token)
        self.faults()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        for name in ("north", "south", "west"):
            self.start(name)
        job = Job("one", "sum.numbers", (), (str(root / "one"),), str(root / "checkpoints" / "one"))
        Jobs(LocalFiles(self.storage)).add(job)
        self.exporter, line = self._run("-m", "braided", "fleet", "metrics", "--port", "0", *self.reach("north"))
        self.url = line.split()[1].rstrip(";")

    def reach(self, name: str) -> list[str]:
        return ["--peer", self.addresses[name], "--token-file", str(self.token)]

    def start(self, name: str) -> None:
        others = [address for other, address in self.addresses.items() if other != name][:1]
        words = [str(SCRIPT), name, str(self.storage), str(self.token), *others, "--lease", LEASE]
        self.processes[name], self.addresses[name] = self._run(*words)

    def _run(self, *words: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, words
        return process, line

    def faults(self, **kinds: object) -> None:
        """Let jobs fail, or fall behind, from now on."""
        new = self.storage / "faults.new"
        new.write_text(json.dumps(kinds))
        new.replace(self.storage / "faults")

    def fleet(self, name: str) -> Fleet:
        return Fleet(self.addresses[name], token_file=self.token)

    def close(self) -> None:
        for process in (*self.processes.values(), self.exporter):
            process.kill()
            process.wait()


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    made = Peers(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_faults_of_a_fleet_fire_alerts_that_clear_again(peers: Peers, tmp_path: Path) -> None:
    with Prometheus(tmp_path, peers.url) as server:
        runs = 'braided_job_state{fleet_job="one",state="running"} == 1'
        server.until(lambda: server.value(runs) == 1, "the job runs")
        assert server.value("braided_fleet_peers") == 3
        assert not server.firing() & set(ALL)

        peers.faults(behind=["one"])
        server.fires("BraidedJobBehind")
        peers.faults()
        server.clears("BraidedJobBehind")

        peers.faults(fails={"one": "a fault"})
        server.fires("BraidedJobNotRunning")  # it fails, and is tried again
        server.fires("BraidedJobFailed")
        assert server.value('braided_job_failures{fleet_job="one"}') == 6
        server.clears("BraidedJobNotRunning")
        peers.faults()
        with peers.fleet("west") as fleet:
            fleet.retry("one")
        server.clears("BraidedJobFailed")
        server.until(lambda: server.value(runs) == 1, "the job runs again")

        with peers.fleet("north") as fleet:
            if fleet.status().components[0].peer == "north":  # which the exporter asks
                assert fleet.move("one", "south")
            holder = fleet.status().components[0].peer
        peers.processes[holder].kill()
        peers.processes[holder].wait()
        server.fires("BraidedJobNotRunning")
        server.clears("BraidedJobNotRunning")
        server.until(lambda: server.value(runs) == 1, "another peer runs the job")
        assert server.value("braided_fleet_peers") == 2

        alive = [process for process in peers.processes.values() if process.poll() is None]
        for process in alive:
            process.send_signal(signal.SIGSTOP)
        server.fires("BraidedFleetSilent")
        for process in alive:
            process.send_signal(signal.SIGCONT)
        server.clears("BraidedFleetSilent")
        server.until(lambda: server.value(runs) == 1, "the job runs after that")

        peers.exporter.kill()
        server.fires("BraidedEndpointDown")
