"""PySpark's daemon, which forks the Python workers, with all our modules loaded before it forks.

    spark.python.daemon.module = braided.daemon

Otherwise every Python process of Spark imports pandas, Arrow and numba and loads or compiles the kernels, which takes
seconds per process in the first batch. Here this happens once, and the forked processes share the memory. Other code
in the session's Python workers runs as before.
"""

from __future__ import annotations

import contextlib
import sys
import traceback

from braided.spark.tasks import freeze_loaded

_ROWS = 8
_TASKS = "pyspark.worker"


def warm() -> None:
    """Run a small join, which loads everything; then freeze it, so that the garbage collector skips it."""
    import pandas  # noqa: F401  (PySpark imports it in every stateful task)
    import pyarrow as pa

    import braided.local

    second = 1_000_000
    times = pa.array([at * second for at in range(_ROWS)], pa.timestamp("us", "UTC"))
    for keys in (pa.array(range(_ROWS)), pa.array([str(at) for at in range(_ROWS)])):
        rows = pa.table({"k": keys, "t": times, "v": keys})
        braided.local.join(rows, rows, on="k", time="t", within="2 seconds", batch_rows=_ROWS // 2)
    freeze_loaded()


def load_source() -> None:
    """Load what is needed by processes that call a Python source for its schema, offsets and commits; no joins."""
    import braided.spark.source
    import braided.spark.topic_sink  # noqa: F401


def main() -> None:
    """Load, then run PySpark's own daemon. An error here happens again in a worker, where it is reported."""
    from pyspark.daemon import manager

    # Spark reads the daemon's port from its standard output.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            # Spark has one daemon for each kind of process, and passes the module that its processes run.
            if sys.argv[1:] in ([], [_TASKS]):
                warm()
            else:
                load_source()
        except Exception:
            traceback.print_exc()
    manager()


if __name__ == "__main__":
    main()
