"""Shared by all tests: their tiers, how many examples each tries, and one tuned Spark session for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))

# What takes longest starts first: the tests of the shared session, then files whose tests start JVMs of their own.
SESSION = "session"
LANES = {name: number for number, name in enumerate((SESSION, "test_kills.py", "test_demo_spark.py"))}

import profiles  # noqa: E402, F401  (registers the hypothesis profiles before any test asks for its examples)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that needs a JVM, and those of the tier with large numbers."""
    for item in items:
        folders = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else ()
        if "spark" in folders or "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if "slow" in folders:
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LANES.get(_lane(item.nodeid), len(LANES)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Spread files over processes: kernels of a file are compiled once, and only one process has a Spark session."""
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _lane(nodeid)

    config.option.loadscopereorder = False
    return Lanes(config, log)


def _lane(nodeid: str) -> str:
    """Return which tests must run in one process: those of a file; those of all files that share the Spark session."""
    path = nodeid.partition("::")[0]
    return SESSION if "spark" in path and Path(path).name not in LANES else Path(path).name


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The run cache of this test session, away from the user's own."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory, cache_dir: str) -> Iterator[SparkSession]:
    """One local session for all tests. `local[2,4]` retries failed tasks, which plain `local[2]` never does."""
    from pyspark.sql import SparkSession

    from braided.spark.conf import SPARK_CONF

    os.environ["BRAIDED_CACHE_DIR"] = cache_dir
    os.environ["PYSPARK_PYTHON"] = sys.executable
    only_for_tests = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "5g",
        # Half the CPU of a whole run: most of the JVM's time goes into code that runs too seldom to be worth the
        # second compiler, and into garbage collectors that are made for more cores than two.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Saves 200 ms of CPU a batch: the default forks readlink and chmod for every file of a local checkpoint. Not for
        # users: where the file system's rename replaces files, two queries on one checkpoint are noticed less surely.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Tests that lose shuffle files make Spark forget its only executor's block manager, which in local mode cannot
        # register again (there is no CoarseGrainedScheduler to ask). Every heartbeat fails from then on, and after 60
        # failures, ten minutes, the executor ends the JVM.
        "spark.executor.heartbeat.maxFailures": "1000000",
        # Many queries run in one JVM; Spark need not remember ended ones for its UI.
        "spark.sql.ui.retainedExecutions": "5",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
    }
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("braided-tests")
        .config(map={**SPARK_CONF, **only_for_tests})
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session, with nothing left of the test before: no running query, no temporary view, no changed setting."""
    before = spark_session.conf.getAll
    yield spark_session
    for query in spark_session.streams.active:
        query.stop()
    for table in spark_session.catalog.listTables():
        if table.isTemporary:
            spark_session.catalog.dropTempView(table.name)
    after = spark_session.conf.getAll
    for name in after.keys() - before.keys():
        spark_session.conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value:
            spark_session.conf.set(name, value)
