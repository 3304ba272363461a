"""What the benchmarks against Flink share: its environment, its jars and its settings.

Flink needs a Python environment of its own (its pyarrow and pandas are older than Spark's): it is made with pip on
first use, and the jars that pip does not bring (Parquet, and the Hadoop classes it refers to) are fetched by Maven.
Nothing of it is part of this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment

FLINK = "2.3.0"
JARS = (
    f"org.apache.flink:flink-sql-parquet:{FLINK}",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
)
SAME_FOR_ALL = {
    "parallelism.default": "2",
    # Saves Flink the copies between chained operators.
    "pipeline.object-reuse": "true",
    # Otherwise a bounded job idles at its end until one more checkpoint.
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
    "table.local-time-zone": "UTC",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add where Flink is, and where files go."""
    cache = Path(tempfile.gettempdir()) / "braided-flink"
    parser.add_argument("--venv", type=Path, default=cache / "venv", help="made if it is not there")
    parser.add_argument("--jars", type=Path, default=cache / "jars")
    parser.add_argument("--data", type=Path, help="folder for the files (removed at the end); default: temporary")


def table_environment(settings: dict[str, str]) -> TableEnvironment:
    """Return an environment for streams, in a process of Flink's own Python."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for name, value in (SAME_FOR_ALL | settings).items():
        configuration.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )


def in_flink(script: str, words: list[Any], python: Path, jars: list[Path], log: Path) -> Any:
    """Run a script in Flink's Python and return the JSON of its last line."""
    environment = os.environ | {
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, jars)),
        "JVM_ARGS": "-Xmx6g",
        "TZ": "UTC",
    }
    with log.open("w") as stderr:
        done = subprocess.run(
            [str(word) for word in (python, script, *words)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n" + log.read_text()[-6_000:])
    return json.loads(done.stdout.splitlines()[-1])


class Checkpoints:
    """Counts a job's checkpoints by watching their folder: a job that ends removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.highest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Checkpoints:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            found = [int(p.name[4:]) for p in self.folder.glob("*/chk-*") if (p / "_metadata").exists()]
            self.highest = max([self.highest, *found])


def fetch_jars(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    for coordinates in JARS:
        _, artifact, version = coordinates.split(":")
        jars.append(folder / f"{artifact}-{version}.jar")
        if not jars[-1].exists():
            say(f"fetching {coordinates}")
            fetch = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={coordinates}",
                f"-DoutputDirectory={folder}",
            ]
            subprocess.run(fetch, check=True, stdout=sys.stderr)
    return jars


def environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"installing apache-flink {FLINK} into {folder}")
        subprocess.run(["python3.11", "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"apache-flink=={FLINK}"]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return python


def say(text: str) -> None:
    """Tell the progress."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)
