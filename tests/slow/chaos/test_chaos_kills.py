"""Fifty random kills of a query on a cluster of processes, whose blocks and state are files of the checkpoint.

Executors, Python processes and drivers die at random moments. Every other kill of an executor waits until routers have
written blocks of a batch: their shuffle output is lost before the workers have read it, and the routers run again.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))

from cluster import LocalCluster
from support.chaos import QUICK, Driver, below, is_executor, is_python_worker
from support.crashes import expected, write_streams

import braided

KILLS = 50
VICTIMS = ("executor between the stages", "executor", "python", "driver")
SHARES = (15, 17, 12, 6)
FILES = 160
SEED = 1
# What Spark says of its own parts that died, or of a driver that still runs. None is of state or blocks.
NOT_OURS = ("Multiple streaming", "another writer", "Job aborted")
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.05",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.locality.wait": "0s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, cores=1, memory="1g") as running:
        yield running


def settings(cluster: LocalCluster, root: Path, speculation: bool) -> dict[str, str]:
    """Every block is a file of the checkpoint; what stages run again is in the log of events."""
    (root / "events").mkdir(exist_ok=True)
    return {
        "spark.master": cluster.url,
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "3",
        "spark.executor.extraJavaOptions": QUICK["SPARK_SUBMIT_OPTS"],
        "spark.braided.blocks.least": "1",
        "spark.task.maxFailures": "20",
        "spark.stage.maxConsecutiveAttempts": "20",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{root}/events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **(EAGER if speculation else {}),
    }


class Killing:
    """One query, its drivers one after the other, and what is killed of them."""

    def __init__(self, cluster: LocalCluster, root: Path, rng: random.Random) -> None:
        self.cluster, self.root, self.rng = cluster, root, rng
        self.driver: Driver | None = None
        self.started = 0

    def running(self) -> Driver:
        """Return a driver that runs: a new one, if the last was killed or stopped."""
        if self.driver is not None and self.driver.process.poll() is not None:
            self.stopped()
        if self.driver is None:
            self.started += 1
            self.driver = Driver(self.root, spark=settings(self.cluster, self.root, self.started % 2 == 0))
        return self.driver

    def stopped(self) -> None:
        """Note why a driver ended by itself. That of a state or a block is never right."""
        assert self.driver is not None
        assert not (self.root / "committed.json").exists(), "the query ended before all kills"
        said = self.driver.said()
        assert any(words in said for words in NOT_OURS), said[-4000:]
        assert "StateError" not in said, said[-4000:]
        self.driver = None

    def kill(self, what: str) -> bool:
        """Kill one, after at least one more batch; return whether there was one to kill."""
        driver = self.running()
        try:
            driver.after(0)
        except AssertionError:  # it stopped
            driver.process.wait()
            return False
        if what == "executor between the stages":
            self._await_blocks()
        else:
            time.sleep(self.rng.uniform(0, 1))
        if what == "driver":
            driver.kill()
            self.driver = None
            return True
        has = is_python_worker if what == "python" else is_executor
        found = [process for worker in self.cluster.workers for process in below(worker.pid, has)]
        for process in self.rng.sample(found, min(1, len(found))):
            with contextlib.suppress(psutil.Error):
                process.kill()
                return True
        return False

    def _await_blocks(self) -> None:
        """Wait until there is a block that was not there before, and a moment more."""
        blocks, until = self.root / "check" / "braided" / "blocks", time.monotonic() + 20
        before = set(blocks.rglob("*-*-*"))
        while time.monotonic() < until and not set(blocks.rglob("*-*-*")) - before:
            time.sleep(0.005)
        time.sleep(self.rng.uniform(0, 0.1))


def stages_that_ran_again(root: Path) -> tuple[int, int]:
    """Return how many stages ran anew because their output was lost, and how many tasks could not fetch some."""
    again = fetches = 0
    for log in (root / "events").iterdir():
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                again += event["Event"] == "SparkListenerStageSubmitted" and event["Stage Info"]["Stage Attempt ID"] > 0
                fetches += event.get("Task End Reason", {}).get("Reason") == "FetchFailed"
    return again, fetches


def test_fifty_kills_on_a_cluster_lose_and_double_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    write_streams(tmp_path, files=FILES, rows=300, seed=SEED)
    for folder in ("direct", "control"):
        (tmp_path / folder).mkdir()
    rng = random.Random(SEED)
    killing, killed = Killing(cluster, tmp_path, rng), Counter[str]()
    while killed.total() < KILLS:
        what = rng.choices(VICTIMS, SHARES)[0]
        killed[what] += killing.kill(what)
    while True:  # one may still die of the last kill
        driver = killing.running()
        driver.process.communicate()
        if (tmp_path / "committed.json").exists():
            break
        killing.stopped()
    pairs = Counter((left, right) for left, right in json.loads((tmp_path / "committed.json").read_text()))
    assert pairs == expected(tmp_path)
    again, fetches = stages_that_ran_again(tmp_path)
    assert again >= 2, f"{again} stages ran again, {fetches} fetches failed"
    topic = braided.topic(str(tmp_path / "out"))
    assert {path.name for path in Path(topic.data).rglob("*.parquet")} == {Path(name).name for name in topic.files()}
    assert not list((tmp_path / "check" / "braided" / "blocks").rglob("*-*-*")), "blocks of ended runs are left"
