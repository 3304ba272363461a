"""Facts about a session: classic or Spark Connect, how many tasks it runs at once, and the Python of its workers."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from braided.errors import OptionError
from braided.spark.catalyst import plan_of
from braided.spark.conf import REUSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

MISSING = "No module named 'braided'"
_STATEFUL = ("Aggregate", "Deduplicate", "Join", "TransformWithState", "FlatMapGroups")
_ASKED = "import importlib.util as u; print(u.find_spec('braided') is not None)"


def is_connect(of_spark: Any) -> bool:
    """Whether a session or a DataFrame is Spark Connect's: on this side there is no JVM, and no plan to read."""
    return type(of_spark).__module__.startswith("pyspark.sql.connect")


def refuse_connect(of_spark: Any, what: str, instead: str = "use a classic SparkSession for it") -> None:
    """Raise if the session is Spark Connect's; the error names what needs a classic session."""
    if is_connect(of_spark):
        raise OptionError(f"{what}: Spark Connect does not show the plan of a query; {instead}")


def check_stateful(frame: DataFrame) -> None:
    """Refuse a client of Spark Connect without stateful operators, as in 4.0."""
    if is_connect(frame) and not hasattr(type(frame.groupBy()), "transformWithStateInPandas"):
        raise OptionError(
            f"Spark Connect {frame.sparkSession.version}: it has no stateful operators in Python; use a newer Spark, "
            "or a classic SparkSession"
        )


def slots_of(session: SparkSession) -> int:
    """Return how many tasks run at once, as far as the session tells."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    parallelism = str(session.conf.get("spark.default.parallelism", "") or "")
    local = re.match(r"local\[(\d+)", str(session.conf.get("spark.master", "") or ""))
    return int(parallelism) if parallelism.isdigit() else int(local[1]) if local else os.cpu_count() or 1


def keep_watermarks(session: SparkSession, frames: Sequence[DataFrame]) -> None:
    """Make sure that Spark's own operators below ours close their windows, if both inputs come from one stream.

    Spark merges two equal shuffles into one, and then looks for the watermark of the second operator below its shuffle,
    where there is none: the operator never returns rows, and no error is reported (Spark 4.3, with batches without
    data, as by default).
    """
    if is_connect(session) or str(session.conf.get(REUSE)).lower() != "true" or not any(map(_waits, frames)):
        return
    session.conf.set(REUSE, "false")
    _log.warning(
        "%s=true: set to false in this session, because Spark loses watermarks of operators that share a shuffle; "
        "start sessions with braided.SPARK_CONF",
        REUSE,
    )


def _waits(frame: DataFrame) -> bool:
    """Whether a DataFrame has operators of Spark's own that wait for a watermark."""
    kinds = {node.kind for node in plan_of(frame).walk()}
    return "EventTimeWatermark" in kinds and any(kind.startswith(_STATEFUL) for kind in kinds)


def check_python(session: SparkSession) -> None:
    """Refuse workers without this package early, with what to set: in the JVM's stack trace it is hard to find.

    Only in local mode, where the workers' Python is on this machine, and only if it is not this Python.
    """
    if is_connect(session):
        return
    context = session.sparkContext
    python = shutil.which(context.pythonExec)
    if not context.master.startswith("local") or python is None or python == sys.executable:
        return
    # Files that are shipped with the session reach workers in other ways.
    if list(context.listFiles) or list(context.listArchives):
        return
    if not _has_braided(python, os.environ.get("PYTHONPATH", "")):
        raise OptionError(
            f"PYSPARK_PYTHON: Spark's workers would run {python}, in which braided is not installed; set "
            f"PYSPARK_PYTHON={sys.executable} before the session starts"
        )


def what_to_install(error: object) -> str | None:
    """Return what to do about a query that failed because its workers lack braided; None for other failures."""
    if MISSING not in str(error):
        return None
    return (
        "braided is not installed in the workers' Python: install the same version on every executor, or name a "
        "Python that has it with PYSPARK_PYTHON or spark.pyspark.python, or ship the package with --py-files"
    )


@cache
def _has_braided(python: str, path: str) -> bool:
    """Whether another Python finds this package; also true if this cannot be tested."""
    try:
        answer = subprocess.run(
            [python, "-c", _ASKED], capture_output=True, text=True, timeout=30, check=False,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return True
    return answer.stdout.strip() != "False"
