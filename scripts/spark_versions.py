"""Runs a sample of the Spark tests on every PySpark that the package supports.

    scripts/spark_versions.py                    all of them
    scripts/spark_versions.py 4.0.1 4.2.0        these
    scripts/spark_versions.py --home DIR         keep the environments there, and use them again

Each version gets an environment of its own with PySpark alone; all other packages come from the environment that runs
this script. Prints a line for each version and fails if any did.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("4.0.1", "4.1.0", "4.2.0", "4.3.0")
# One test or more of everything that touches Spark's own interfaces, in a few minutes.
SAMPLE = (
    "tests/spark/test_control_default.py",
    "tests/spark/test_direct_spark.py",
    "tests/spark/test_frontend.py",
    "tests/spark/test_multijoin_spark.py",
    "tests/spark/test_order_spark.py",
    "tests/spark/test_restart.py",
    "tests/spark/test_sql_aggregates.py",
    "tests/slow/test_connect.py",
)


def make_environment(version: str, home: Path) -> Path:
    """Return the Python of an environment with this version of PySpark."""
    folder = home / f"pyspark-{version}"
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        venv.create(folder, with_pip=False, symlinks=True)
        own = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        # Behind its own packages in the search path, so that its PySpark comes first.
        Path(own, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--upgrade",
            "--target",
            own,
            f"pyspark=={version}",
        ]
        subprocess.run(install, check=True, stdout=sys.stderr)
        done.touch()
    return python


def run_sample(version: str, home: Path, sample: list[str]) -> tuple[bool, str]:
    """Return whether the sample passed on a version, and what pytest said at the end."""
    python = make_environment(version, home)
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": str(python)}
    log = home / f"pyspark-{version}.log"
    with log.open("w") as out:
        done = subprocess.run(
            [python, "-m", "pytest", "-p", "no:cacheprovider", *sample],
            cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    lines = log.read_text(errors="replace").strip().splitlines()
    found = [line for line in lines if re.search(r"\d+ (passed|failed|error)", line)]
    return done.returncode == 0, (found or lines or ["nothing was said"])[-1].strip("= ") + f" ({log})"


def main() -> int:
    """Run the sample on each version."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION", help=", ".join(VERSIONS))
    parser.add_argument(
        "--home", type=Path, metavar="DIR", help="where environments and logs are (a new temporary folder)"
    )
    parser.add_argument("--tests", nargs="+", default=list(SAMPLE), metavar="TEST", help="other tests than the sample")
    arguments = parser.parse_args()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="braided-spark-versions-"))
    home.mkdir(parents=True, exist_ok=True)
    fine = True
    for version in arguments.versions:
        began = time.monotonic()
        passed, said = run_sample(version, home.resolve(), arguments.tests)
        fine = fine and passed
        print(
            f"PySpark {version}: {'fine' if passed else 'FAILED'}, {time.monotonic() - began:.0f} s: {said}", flush=True
        )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
