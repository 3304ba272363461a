"""PySpark's daemon, which forks the Python workers, with all that ours need loaded before it forks.

    spark.python.daemon.module = braided.daemon

Every Python process of Spark otherwise imports pandas, Arrow and numba by itself and loads, or compiles, the kernels:
seconds each, in the first batch. Here it is done once, and forked processes share the memory. Anything else that runs
in Python workers of the session does so as before.
"""

from __future__ import annotations

import contextlib
import sys
import traceback

from braided.spark.tasks import freeze_loaded

_ROWS = 8
_TASKS = "pyspark.worker"


def warm() -> None:
    """Run a small join, by which everything is loaded; then take it out of the garbage collector's sight."""
    import pandas  # noqa: F401  (PySpark asks for it in every stateful task)
    import pyarrow as pa

    import braided.local

    second = 1_000_000
    times = pa.array([at * second for at in range(_ROWS)], pa.timestamp("us", "UTC"))
    for keys in (pa.array(range(_ROWS)), pa.array([str(at) for at in range(_ROWS)])):
        rows = pa.table({"k": keys, "t": times, "v": keys})
        braided.local.join(rows, rows, on="k", time="t", within="2 seconds", batch_rows=_ROWS // 2)
    freeze_loaded()


def load_source() -> None:
    """Load what processes need that ask a Python source for its schema, offsets and commits: they join nothing."""
    import braided.spark.source
    import braided.spark.topic_sink  # noqa: F401


def main() -> None:
    """Load, then do what PySpark's own daemon does. What fails here fails in a worker again, where it is reported."""
    from pyspark.daemon import manager

    # Spark reads the daemon's port from its standard output.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            # Spark has a daemon for each kind of process, and names the module that its processes run.
            if sys.argv[1:] in ([], [_TASKS]):
                warm()
            else:
                load_source()
        except Exception:
            traceback.print_exc()
    manager()


if __name__ == "__main__":
    main()
