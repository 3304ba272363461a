"""Shared by all tests: their tiers, and one tuned Spark session for the tests of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))

# Mutations only need to be noticed, not explained: shrinking a failure takes minutes.
settings.register_profile("mutations", phases=[Phase.explicit, Phase.generate], database=None)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs a JVM, and those of the tier with large numbers."""
    for item in items:
        folders = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else ()
        if "spark" in folders or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if "slow" in folders:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The run cache of this test session, away from the user's own."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, cache_dir: str) -> Iterator[SparkSession]:
    """A local session. `local[2,4]` retries failed tasks, which plain `local[2]` never does."""
    from pyspark.sql import SparkSession

    os.environ["BRAIDED_CACHE_DIR"] = cache_dir
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("braided-tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "5g")
        # Many queries run in one JVM; Spark need not remember ended ones for its UI.
        .config("spark.sql.ui.retainedExecutions", "5")
        .config("spark.ui.retainedJobs", "20")
        .config("spark.ui.retainedStages", "20")
        .config("spark.ui.retainedTasks", "200")
        .config("spark.sql.streaming.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    _end_jvm()


def _end_jvm() -> None:
    """End the JVM, so that the next module starts its own: one for all tests, with a heap of 2 GB, once ended itself."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
