"""The settings that Braided needs in a Spark session, for ``SparkSession.builder.config(map=braided.SPARK_CONF)``."""

from __future__ import annotations

import importlib.metadata
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# Since this version Spark has the classes of checkpoint files in a separate package.
_MOVED = (4, 1)
REUSE = "spark.sql.exchange.reuse"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SPARK_CONF: dict[str, str] = {
    # The only required setting: operators keep their state in RocksDB.
    PROVIDER: ROCKSDB,
    # A batch then uploads its changes, not a snapshot of all of RocksDB. Costs: a longer replay after a restart.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without it Spark looks up every row of its own aggregates before it writes it to RocksDB, only to count rows.
    # Costs: its progress shows 0 for `numRowsTotal`.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Routers and workers share one pool of Python processes. Spark would use two pools, because one variable of their
    # environment differs. Halves the processes and their memory. Costs: a failed Python function's traceback shows
    # PySpark's own frames too.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # If two of Spark's own stateful operators read one shuffle, the second has no watermark, and its windows never
    # close (a union of two aggregates of one stream shows it, in plain Spark). Costs: equal shuffles are made twice.
    REUSE: "false",
}
if hasattr(socket, "AF_UNIX"):
    # Rows pass to Python over a Unix domain socket: saves 40 ms per Python stage, which TCP spends waiting for an
    # acknowledgement. Read when the session starts, not later; needs a path of at most 108 bytes for java.io.tmpdir
    # (else set spark.python.unix.domain.socket.dir), and Windows has none.
    SPARK_CONF["spark.python.unix.domain.socket.enabled"] = "true"


def is_ansi(session: SparkSession) -> bool:
    """Whether an overflow of arithmetic is an error, as in our own kernels."""
    return str(session.conf.get("spark.sql.ansi.enabled")).lower() == "true"


def quick_checkpoints() -> dict[str, str]:
    """Return the setting with which files of a local checkpoint are written without starting a program for each file.

    Only for checkpoints that no other query uses: on file systems whose rename replaces files, two queries on one
    checkpoint are detected less reliably.
    """
    major, minor, *_ = importlib.metadata.version("pyspark").split(".")
    package = "streaming" if (int(major), int(minor)) < _MOVED else "streaming.checkpointing"
    manager = f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": manager}


FAST_START: dict[str, str] = {
    # Python processes are forked from one that has loaded everything, kernels included, instead of each loading it by
    # itself: the first batch is seconds shorter. Costs: the modules of braided are loaded in sessions that may not need
    # them, and a session can have only one such module.
    "spark.python.daemon.module": "braided.daemon",
}
