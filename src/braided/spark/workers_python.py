"""The Python that Spark's workers run in local mode: without PYSPARK_PYTHON, whatever `python3` is on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from braided.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_workers_python(session: SparkSession) -> None:
    """Refuse a local session whose workers cannot import braided, before the JVM says so in the middle of a batch."""
    context = session.sparkContext
    if not str(context.master).startswith("local"):
        return
    chosen = str(context.pythonExec)
    found = shutil.which(chosen)
    if found is None:
        raise OptionError(f"Spark's workers run {chosen!r}, which is not on the path; {_todo()}")
    beside = os.path.dirname(found) == os.path.dirname(sys.executable)
    if not beside and not _imports_braided(found):
        raise OptionError(f"Spark's workers run {found}, which cannot import braided; {_todo()}")


def _todo() -> str:
    return f"set PYSPARK_PYTHON={sys.executable} in the environment before the session starts"


@lru_cache(maxsize=8)
def _imports_braided(python: str) -> bool:
    code = "import braided.version"
    return subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0
