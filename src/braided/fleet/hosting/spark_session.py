"""The Spark application of a peer: with the peer's cores on this machine, or with executors of a cluster."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from braided.fleet.hosting.driver_log import log_options
from braided.fleet.hosting.spark_master import Master
from braided.spark.conf import FAST_START, SPARK_CONF, quick_checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Without it a JVM wakes up twenty times per second to sample for jstat: a sixth of the CPU of an idle peer.
_QUIET = "-XX:PerfDataSamplingInterval=5000 -XX:+IgnoreUnrecognizedVMOptions"


def peer_session(
    name: str,
    *,
    master: Master,
    listen: str,
    memory: str,
    scratch: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Start the Spark application of a peer; its own files are below `scratch`. `settings` override the defaults.

    listen : the host at which others reach the peer.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = {
        **SPARK_CONF,
        **FAST_START,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{_QUIET} {log_options(scratch)}",
        **master.settings(listen),
        **({"spark.local.dir": str(scratch)} if master.is_local else {}),  # executors have their own folders
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # How often snapshots of state are uploaded, which Spark makes of every tenth batch. A job that moves replays
        # the changes after the last one. If a snapshot is not uploaded before the next one is made, Spark skips it and
        # uploads all of the next one: 500 MB of state every few seconds, just when the target reads as much.
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        # In a fleet every epoch has its own checkpoint.
        **quick_checkpoints(),
    }
    builder = SparkSession.builder.master(master.url).appName(f"braided peer {name}")
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = builder.config(map={**own, **settings}).getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own handler raises in the middle of a call to the JVM
    return session
