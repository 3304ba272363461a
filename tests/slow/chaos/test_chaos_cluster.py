"""Faults done to a query on a cluster of processes: parts die or stall, and the result is that of the oracle."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))

from cluster import LocalCluster
from support.chaos import QUICK, Driver, below, is_executor, is_python_worker
from support.crashes import expected, write_streams

import braided

SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "3",
    "spark.executor.extraJavaOptions": QUICK["SPARK_SUBMIT_OPTS"],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, cores=1, memory="1g") as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_streams(tmp_path, files=12, rows=300, seed=31)
    return tmp_path


def spark(cluster: LocalCluster, **more: str) -> dict[str, str]:
    return {"spark.master": cluster.url, "spark.sql.shuffle.partitions": "3", **SMALL, **more}


def executors(cluster: LocalCluster) -> list[psutil.Process]:
    return [process for worker in cluster.workers for process in below(worker.pid, is_executor)]


def python_workers(cluster: LocalCluster) -> list[psutil.Process]:
    return [process for worker in cluster.workers for process in below(worker.pid, is_python_worker)]


def assert_no_file_is_left(root: Path) -> None:
    """Files of attempts that failed or lost are gone: those of the manifests are all there are."""
    topic = braided.topic(str(root / "out"))
    assert {path.name for path in Path(topic.data).rglob("*.parquet")} == {Path(name).name for name in topic.files()}


@pytest.mark.parametrize("how", ["plain", "control", "direct"])
def test_executors_are_killed(cluster: LocalCluster, root: Path, how: str) -> None:
    rng = random.Random(f"32 {how}")
    (root / how).mkdir()
    with Driver(root, spark=spark(cluster, **{"spark.sql.shuffle.partitions": "4"})) as driver:
        for batch in sorted(rng.sample(range(1, 9), 2)):
            driver.after(batch)
            running = executors(cluster)
            if running:
                rng.choice(running).kill()
        assert driver.result() == expected(root)
    if how == "direct":
        assert_no_file_is_left(root)


@pytest.mark.parametrize("how", ["plain", "direct"])
def test_python_workers_are_killed_and_their_tasks_run_again(cluster: LocalCluster, root: Path, how: str) -> None:
    rng = random.Random(f"33 {how}")
    (root / how).mkdir()
    with Driver(root, spark=spark(cluster)) as driver:
        for batch in sorted(rng.sample(range(1, 9), 2)):
            driver.after(batch)
            for process in rng.sample(found := python_workers(cluster), min(2, len(found))):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        assert driver.result() == expected(root)
    if how == "direct":
        assert_no_file_is_left(root)


@pytest.mark.parametrize("how", ["plain", "direct"])
def test_a_worker_stalls_and_speculation_runs_its_tasks_elsewhere(cluster: LocalCluster, root: Path, how: str) -> None:
    (root / how).mkdir()
    eager = {
        "spark.speculation": "true",
        "spark.speculation.interval": "20ms",
        "spark.speculation.multiplier": "1.05",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "20ms",
        "spark.locality.wait": "0s",
    }
    rng = random.Random(34)
    with Driver(root, spark=spark(cluster, **eager)) as driver:
        for batch in (2, 5, 8):
            driver.after(batch)
            slow = rng.choice(executors(cluster))
            slow.suspend()
            threading.Timer(4, slow.resume).start()
        assert driver.result() == expected(root)
    if how == "direct":
        assert_no_file_is_left(root)


def test_a_slow_worker_without_speculation_is_waited_for(cluster: LocalCluster, root: Path) -> None:
    with Driver(root, spark=spark(cluster)) as driver:
        driver.after(4)
        slow = executors(cluster)[0]
        slow.suspend()
        time.sleep(5)
        slow.resume()
        assert driver.result() == expected(root)


@pytest.mark.parametrize("way", ["py-files", "archive"])
def test_the_package_reaches_executors_that_lack_it(cluster: LocalCluster, tmp_path: Path, way: str) -> None:
    """Executors have an empty Python path but for what is shipped; where braided was loaded from is checked."""
    write_streams(tmp_path, files=4, rows=200, seed=35)
    source = Path(braided.__file__).parents[1]
    if way == "py-files":
        shipped = shutil.make_archive(str(tmp_path / "braided"), "zip", source, "braided")
        settings = {"spark.submit.pyFiles": shipped}
    else:
        shipped = shutil.make_archive(str(tmp_path / "packages"), "gztar", source, "braided")
        settings = {"spark.archives": f"{shipped}#packages", "spark.executorEnv.PYTHONPATH": "./packages"}
    # The process that others are forked from starts before anything is shipped, so it is Spark's own.
    settings["spark.python.daemon.module"] = "pyspark.daemon"
    assert Driver(tmp_path, spark=spark(cluster, **settings), where=True).result() == expected(tmp_path)
    loaded = json.loads((tmp_path / "loaded.json").read_text())
    assert loaded
    assert all(("braided.zip" if way == "py-files" else "packages") in place for place in loaded), loaded
