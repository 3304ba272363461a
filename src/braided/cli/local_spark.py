"""A local Spark session for the demo: silent on the terminal, and without files left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from braided.spark.conf import FAST_START, SPARK_CONF, quick_checkpoints
from braided.spark.control import CONTROL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17


def find_java_problem() -> str | None:
    """Return the problem with the Java that Spark would start, in one line; None if there is none.

    Spark prefers JAVA_HOME to the PATH, so a stale JAVA_HOME hides a working Java.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    where = f"JAVA_HOME={home}" if home else "the PATH"
    if java is None:
        return f"found no Java in {where}; Spark needs Java {OLDEST_JAVA} or later"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} does not start ({error}); Spark needs Java {OLDEST_JAVA} or later"
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None:
        return f"{java} -version does not show its version; Spark needs Java {OLDEST_JAVA} or later"
    if int(version[1]) < OLDEST_JAVA:
        return f"{java} is Java {version[1]}; Spark needs Java {OLDEST_JAVA} or later"
    return None


@contextmanager
def quiet_output(log: Path) -> Iterator[TextIO]:
    """Redirect the output of this process and its children to a file; yield a stream to the screen.

    The file descriptors are redirected, not `sys.stdout`: the JVM and the Python workers that it starts
    inherit them, and Spark's driver-side worker of transformWithState prints at any log level.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = os.dup(1), os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        with open(out, "w", encoding=sys.stdout.encoding, errors="replace", closefd=False) as screen:
            yield screen
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)


@contextmanager
def note_interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets. An exception during a call to the JVM would leave half of the answer unread."""
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def local_session(folder: Path, workers: int) -> Iterator[SparkSession]:
    """Yield a session on this machine's cores with all its files in `folder`; end its JVM afterwards."""
    from pyspark.sql import SparkSession

    scratch = folder / "scratch"
    scratch.mkdir()
    os.environ["BRAIDED_CACHE_DIR"] = str(folder / "cache")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.sql.shuffle.partitions": str(workers),
        **SPARK_CONF,
        **FAST_START,
        **quick_checkpoints(),
        # DuckDB reads the default type, INT96, as a time without a zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        CONTROL: str(folder / "control"),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.driver.memory": "2g",
        "spark.driver.host": "localhost",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    # A socket's path has at most 107 bytes; its name takes 43 of them, and the JVM adds its own folders to the path.
    if len(str(scratch).encode()) > 50:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    # With more workers than cores, workers take turns: one Python process for each would only make the start slower.
    slots = min(workers, os.cpu_count() or 1)
    builder = SparkSession.builder.master(f"local[{slots}]").appName("braided demo")
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = builder.config(map=settings).getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own handler calls the JVM, even after it has ended
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        # Otherwise the JVM would live until this process ends, and write into a deleted folder.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
