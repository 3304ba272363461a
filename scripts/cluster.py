#!/usr/bin/env python3
"""Runs a standalone Spark cluster of processes on this machine, from pip's pyspark, until Ctrl-C.

python scripts/cluster.py 3 --cores 2 --memory 2g
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from braided.cli.exits import CANNOT_START, FAILED, first_line
from braided.cli.local_spark import find_java_problem, note_interrupts
from braided.cli.spinner import waiting
from braided.errors import BraidedError

_HOST = "127.0.0.1"
_REGISTERED = "Successfully registered with master"


class LocalCluster:
    """A master and workers, each a process, on loopback; `url` is for ``SparkSession.builder.master``.

    Every worker is a host of its own to Braided: its executors have a cache of their own. Use it as a context manager.
    """

    def __init__(self, folder: Path, workers: int, *, cores: int = 1, memory: str = "1g") -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._count = workers
        self._size = ("--cores", str(cores), "--memory", memory)

    def start(self, seconds: float = 60) -> None:
        """Start all processes and wait until every worker is registered."""
        until = time.monotonic() + seconds
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port = str(free.getsockname()[1])
        self.url = f"spark://{_HOST}:{port}"
        try:
            self.master = self._spark("master", "org.apache.spark.deploy.master.Master", "--port", port)
            for number in range(self._count):
                home = self.folder / f"worker-{number}"
                home.mkdir(parents=True)
                arguments = (*self._size, "--work-dir", str(home), self.url)
                self.workers.append(self._spark(home.name, "org.apache.spark.deploy.worker.Worker", *arguments))
            while not all(_REGISTERED in self.log(f"worker-{number}").read_text() for number in range(self._count)):
                ended = self.ended()
                if ended or time.monotonic() > until:
                    what = f"the {ended[0]} ended" if ended else f"no cluster after {seconds:.0f} seconds"
                    raise BraidedError(f"{what}; see {self.log(ended[0] if ended else 'master')}")
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes: workers first, which end their executors; by force what does not end in 10 seconds."""
        for processes in (self.workers, [self.master] if self.master is not None else []):
            for process in processes:
                process.terminate()
            until = time.monotonic() + 10
            for process in processes:
                try:
                    process.wait(max(0.1, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.workers, self.master = [], None

    def ended(self) -> list[str]:
        """Return the names of processes that ended by themselves."""
        named = {"master": self.master, **{f"worker-{number}": one for number, one in enumerate(self.workers)}}
        return [name for name, process in named.items() if process is not None and process.poll() is not None]

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self.folder / f"{name}.log"

    def _spark(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST}
        environment |= {"BRAIDED_CACHE_DIR": str(self.folder / name / "cache"), "SPARK_NO_DAEMONIZE": "1"}
        command = [str(home / "bin" / "spark-class"), main, "--host", _HOST, "--webui-port", "0", *arguments]
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            # In a session of its own, so that Ctrl-C reaches this process alone, which then ends them in order.
            return subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line and run a cluster."""
    parser = argparse.ArgumentParser(description="A Spark cluster of processes on this machine, until Ctrl-C.")
    parser.add_argument("workers", type=int, metavar="N", help="how many worker processes")
    parser.add_argument("--cores", type=int, default=1, metavar="C", help="cores of each (%(default)s)")
    parser.add_argument("--memory", default="1g", metavar="M", help="memory of each (%(default)s)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where logs and work go (a new temporary directory)")
    arguments = parser.parse_args(words)
    if min(arguments.workers, arguments.cores) < 1:
        parser.error("write 1 worker and 1 core or more")
    return run_cluster(arguments.workers, cores=arguments.cores, memory=arguments.memory, folder=arguments.dir)


def run_cluster(workers: int, *, cores: int, memory: str, folder: Path | None) -> int:
    """Run a cluster until Ctrl-C or SIGTERM; return 0 then."""
    problem = find_java_problem()
    if problem is not None:
        _say(problem)
        return CANNOT_START
    place = folder or Path(tempfile.mkdtemp(prefix="braided-cluster-"))
    cluster = LocalCluster(place, workers, cores=cores, memory=memory)
    with note_interrupts() as interrupted, contextlib.ExitStack() as undo:
        before = signal.signal(signal.SIGTERM, lambda *_: interrupted.set())
        undo.callback(signal.signal, signal.SIGTERM, before)
        try:
            with waiting("starting the master and its workers"):
                cluster.start()
        except (BraidedError, OSError) as error:
            _say(first_line(error))
            return CANNOT_START
        undo.callback(cluster.stop)
        print(f"{cluster.url}  {workers} workers, {cores} cores and {memory} each", flush=True)
        print(f"logs and work in {place}; Ctrl-C stops it", flush=True)
        told: Sequence[str] = ()
        while not interrupted.wait(0.5):
            ended = cluster.ended()
            for name in sorted(set(ended) - set(told)):
                _say(f"the {name} ended; see {cluster.log(name)}")
            told = ended
            if "master" in ended:
                return FAILED
    if folder is None:
        shutil.rmtree(place, ignore_errors=True)
    return 0


def _say(text: str) -> None:
    print(f"cluster.py: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
