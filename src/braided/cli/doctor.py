"""`braided doctor`: what this machine has, what is wrong with it, and what to type."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from braided.cli.exits import FAILED, first_line
from braided.cli.session import find_java_problem
from braided.version import __version__

_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "numba", "protobuf", "sqlglot")
_LEAST_MEMORY = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what is there, and what to do if it will not do."""

    what: str
    found: str
    todo: str | None = None


def run_doctor(*, as_json: bool, join: bool) -> int:
    """Look at everything, print it, and return whether all is well."""
    looks: list[Callable[[], Finding]] = [_braided, _python, _workers, _java, _packages, _memory, _cache]
    if join:
        looks.append(_join)
    findings = []
    for look in looks:
        try:
            findings.append(look())
        except Exception as error:
            findings.append(
                Finding(look.__name__.strip("_"), f"could not be found out: {first_line(error)}", "report this")
            )
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{'ok' if finding.todo is None else '!!'}  {finding.what:<9} {finding.found}")
            if finding.todo is not None:
                print(f"    {'':<9} {finding.todo}")
    return FAILED if any(finding.todo is not None for finding in findings) else 0


def _braided() -> Finding:
    return Finding("braided", f"{__version__}, {Path(__file__).resolve().parents[1]}")


def _python() -> Finding:
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < (3, 11):  # noqa: UP036  (somebody may run it from a copy of the source)
        return Finding("python", found, "braided needs Python 3.11 or later")
    return Finding("python", found)


def _workers() -> Finding:
    """The Python that Spark's workers run: another one has other packages, or no braided."""
    chosen = os.environ.get("PYSPARK_PYTHON") or "python3"
    where = shutil.which(chosen)
    todo = f"set PYSPARK_PYTHON={sys.executable}, or activate the environment"
    if where is None:
        return Finding("workers", f"{chosen} is not on the path", todo)
    code = "import sys, braided.version as v; print(*sys.version_info[:2], v.__version__)"
    answer = subprocess.run([where, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        return Finding("workers", f"{where} cannot import braided", todo)
    *version, braided = answer.stdout.split()
    if tuple(map(int, version)) != sys.version_info[:2] or braided != __version__:
        return Finding("workers", f"{where} is Python {'.'.join(version)} with braided {braided}", todo)
    return Finding("workers", where)


def _java() -> Finding:
    problem = find_java_problem()
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME={home}" if home else str(shutil.which("java"))
    return Finding("java", problem or where, problem and "install it, or set JAVA_HOME to its directory")


def _packages() -> Finding:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            return Finding("packages", f"{name} is missing", f"pip install {name}")
    pandas = importlib.metadata.version("pandas")
    todo = "pip install 'pandas<3': PySpark does not support 3 yet" if int(pandas.split(".")[0]) >= 3 else None
    return Finding("packages", ", ".join(found), todo)


def _memory() -> Finding:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{size / (1 << 30):.1f} GiB, {os.cpu_count()} cores"
    return Finding(
        "memory", found, "Spark and its Python processes need 2 GiB or more" if size < _LEAST_MEMORY else None
    )


def _cache() -> Finding:
    """Where decoded state and the kernels' machine code are kept."""
    root = Path(os.environ.get("BRAIDED_CACHE_DIR") or tempfile.gettempdir())
    try:
        with tempfile.NamedTemporaryFile(dir=root):
            pass
    except OSError as error:
        return Finding("cache", f"{root}: {error.strerror}", "set BRAIDED_CACHE_DIR to a directory that can be written")
    free = shutil.disk_usage(root).free
    todo = "less than 1 GiB is free: set BRAIDED_CACHE_DIR to a larger disk" if free < 1 << 30 else None
    return Finding("cache", f"{root}, {free / (1 << 30):.1f} GiB free", todo)


def _join() -> Finding:
    """Run a small join on a local Spark: what all of the above is for."""
    from braided.cli.session import local_session, quiet_output

    folder = Path(tempfile.mkdtemp(prefix="braided-doctor-"))
    began = time.monotonic()
    try:
        with quiet_output(folder / "spark.log"), local_session(folder, 2) as spark:
            import braided

            numbers = spark.range(100).selectExpr("id AS k", "timestamp_seconds(id) AS t")
            numbers.write.parquet(str(folder / "in"))
            stream = braided.files(spark, folder / "in")
            joined = braided.join(stream, stream, on="k", time="t", within="1 second")
            query = braided.write_files(joined, folder / "out", checkpoint=folder / "c", trigger="available now")
            query.awaitTermination()
            rows = spark.read.parquet(*braided.topic(folder / "out").files()).count()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = f"{rows} of 100 rows in {time.monotonic() - began:.0f} s"
    return Finding("join", found, None if rows == 100 else "please report this as a bug")
