"""`braided doctor`: what this machine has, what is wrong with it, and how to fix it."""

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
from braided.cli.local_spark import find_java_problem
from braided.cli.spinner import waiting
from braided.version import __version__

_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "numba", "protobuf", "sqlglot")
_EXTRAS = {"duckdb": "demo", "fsspec": "fsspec", "cryptography": "peers"}
# The settings that change how Spark, its workers and braided run.
_SETTINGS = (
    "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "TMPDIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT",
    "BRAIDED_CACHE_DIR", "BRAIDED_PEER", "BRAIDED_TOKEN_FILE",
)  # fmt: skip
_LEAST_MEMORY = 2 << 30
_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and what to do if it is wrong."""

    what: str
    found: str
    todo: str | None = None


def run_doctor(*, as_json: bool, join: bool) -> int:
    """Run all checks, print their results, and return an exit code."""
    looks: list[Callable[[], Finding]] = [
        _braided, _system, _python, _workers, _java, _packages, _extras, _spark, _store, _memory, _cache, _settings,
    ]  # fmt: skip
    if join:
        looks.append(_join)
    findings = []
    for look in looks:
        try:
            with waiting("joining on a local Spark" if look is _join else "checking"):
                findings.append(look())
        except Exception as error:
            findings.append(
                Finding(
                    look.__name__.strip("_"), f"the check failed: {first_line(error)}", "please report this as a bug"
                )
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


def _system() -> Finding:
    return Finding("system", platform.platform())


def _python() -> Finding:
    interpreter = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < (3, 11):  # noqa: UP036  (somebody may run it from a copy of the source)
        return Finding("python", interpreter, "braided needs Python 3.11 or later")
    return Finding("python", interpreter)


def _workers() -> Finding:
    """The Python that Spark's workers run: another Python may have other packages, or lack braided."""
    chosen = os.environ.get("PYSPARK_PYTHON") or "python3"
    where = shutil.which(chosen)
    todo = f"set PYSPARK_PYTHON={sys.executable}, or activate the environment"
    if where is None:
        return Finding("workers", f"{chosen} is not on the PATH", todo)
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
    if problem is not None:
        return Finding("java", problem, "install it, or set JAVA_HOME to its directory")
    java = str(Path(home, "bin", "java")) if home else str(shutil.which("java"))
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = next((line for line in answer.stderr.splitlines() if "version" in line), "").strip()
    return Finding("java", f"{version}, {java}")


def _packages() -> Finding:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            return Finding("packages", f"{name} is missing", f"pip install {name}")
    pandas = importlib.metadata.version("pandas")
    todo = "pip install 'pandas<3': PySpark does not support 3 yet" if int(pandas.split(".")[0]) >= 3 else None
    return Finding("packages", ", ".join(versions), todo)


def _extras() -> Finding:
    versions = []
    for name, extra in _EXTRAS.items():
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name} (braided[{extra}])")
    return Finding("extras", ", ".join(versions))


def _spark() -> Finding:
    """The place of Spark's jars: with SPARK_HOME, that Spark would start instead of the package's."""
    import pyspark

    own, home = Path(pyspark.__file__).parent, os.environ.get("SPARK_HOME")
    if home and Path(home).resolve() != own.resolve():
        known = sorted(Path(home, "jars").glob("spark-core_*.jar"))
        other = known[0].stem.rpartition("-")[2] if known else "no jars"
        if other != pyspark.__version__:
            todo = "unset SPARK_HOME, or install the pyspark of the same version"
            return Finding("spark", f"SPARK_HOME={home} has {other}, pyspark is {pyspark.__version__}", todo)
        return Finding("spark", f"{other}, {home}")
    return Finding("spark", f"{pyspark.__version__}, {own}")


def _store() -> Finding:
    """RocksDB, which comes with Spark, and in which all operators keep their state."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    jars = sorted(path.stem for path in Path(home, "jars").glob("rocksdbjni-*.jar"))
    if not jars:
        return Finding("store", f"{home} has no rocksdbjni", "install pyspark again: its RocksDB is missing")
    return Finding("store", f"RocksDB, {jars[0]}; sessions need braided.SPARK_CONF")


def _settings() -> Finding:
    settings = [f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ]
    return Finding("settings", ", ".join(settings) or "none")


def _memory() -> Finding:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else "max"
    size = min(size, int(limit)) if limit.isdigit() else size
    description = f"{size / (1 << 30):.1f} GiB, {os.cpu_count()} cores"
    return Finding(
        "memory", description, "Spark and its Python processes need 2 GiB or more" if size < _LEAST_MEMORY else None
    )


def _cache() -> Finding:
    """The folder for decoded state and the kernels' machine code."""
    root = Path(os.environ.get("BRAIDED_CACHE_DIR") or tempfile.gettempdir())
    try:
        with tempfile.NamedTemporaryFile(dir=root):
            pass
    except OSError as error:
        return Finding("cache", f"{root}: {error.strerror}", "set BRAIDED_CACHE_DIR to a writable directory")
    free = shutil.disk_usage(root).free
    todo = "less than 1 GiB is free: set BRAIDED_CACHE_DIR to a directory on a larger disk" if free < 1 << 30 else None
    return Finding("cache", f"{root}, {free / (1 << 30):.1f} GiB free", todo)


def _join() -> Finding:
    """Run a small join on a local Spark, which needs all of the above."""
    from braided.cli.local_spark import local_session, quiet_output

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
    description = f"{rows} of 100 rows in {time.monotonic() - began:.0f} s"
    return Finding("join", description, None if rows == 100 else "please report this as a bug")
