"""Shared by all tests: their tiers, how many examples each tries, and one tuned Spark session for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.jvm import JAVA_OPTIONS
from support.profiles import is_slow  # registers the hypothesis profiles before any test asks for its examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent

# What takes longest starts first, so that both processes end at about the same time.
LONG = (
    "test_join_spark.py",
    "test_control_spark.py",
    "test_contract_spark.py",
    "test_frontend.py",
    "test_demo_spark.py",
    "test_direct_spark.py",
    "test_contract.py",
    "test_controller.py",
)
# Nothing is made for all tests of these.
SPLIT = ("test_contract.py", "test_many_kills.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the slow tier runs; mark every test that needs a JVM, and those of the slow tier."""
    if not is_slow():
        left_out = [item for item in items if item.get_closest_marker("slow") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        folders = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else ()
        if "spark" in folders or "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if "slow" in folders:
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(_file(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Spread files over processes: kernels of a file are compiled once, and fixtures of a module made once."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    config.option.loadscopereorder = False
    return Files(config, log)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _scope(nodeid: str) -> str:
    """Return which tests run in one process: those of a file; of files that are long, those of a function."""
    path = _file(nodeid)
    return nodeid.partition("[")[0] if Path(path).name in SPLIT else path


def _turn(path: str) -> int:
    """Return when a file has its turn: the slow tier's, long ones, the others that need Spark, then the rest."""
    name, folders = Path(path).name, Path(path).parts
    if "slow" in folders:
        return -2 + ("chaos" not in folders)
    return LONG.index(name) if name in LONG else len(LONG) + ("spark" not in path)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The run cache of this test session, away from the user's own."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory, cache_dir: str) -> Iterator[SparkSession]:
    """One local session for all tests of a process. `local[2,2]` tries a failed task again, plain `local[2]` never."""
    from pyspark.sql import SparkSession

    from braided.spark.conf import FAST_START, SPARK_CONF, quick_checkpoints

    os.environ["BRAIDED_CACHE_DIR"] = cache_dir
    os.environ["PYSPARK_PYTHON"] = sys.executable
    only_for_tests = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        # Tests of adaptive routing ask for it.
        "spark.braided.control": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Xmn600m",
        # Saves 200 ms of CPU a batch: the default forks readlink and chmod for every file of a local checkpoint.
        **quick_checkpoints(),
        # Tests that lose shuffle files make Spark forget its only executor's block manager, which in local mode cannot
        # register again (there is no CoarseGrainedScheduler to ask). Every heartbeat fails from then on, and after 60
        # failures, ten minutes, the executor ends the JVM.
        "spark.executor.heartbeat.maxFailures": "1000000",
        # And results above this size, 1 MB by default, would be fetched from that block manager: the task fails.
        "spark.task.maxDirectResultSize": "64m",
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
        SparkSession.builder.master("local[2,2]")
        .appName("braided-tests")
        .config(map={**SPARK_CONF, **FAST_START, **only_for_tests})
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
