"""What metrics cost: the CPU of a scrape, of what feeds it, of `braided fleet metrics`, and of the peers that it asks.

    python benchmarks/scrape_cost.py                 a session and a fleet, a minute for each measurement
    python benchmarks/scrape_cost.py --seconds 10    for trying

CPU seconds are those of processes and threads (user and system), which other work on the machine changes little. The
session runs a join of eight workers with a batch a second. The fleet has four peers without Spark and ten jobs. Both
are scraped every five seconds, as examples/prometheus does. Two lines of JSON go to stdout.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
import pyarrow as pa
from dashboard_cost import timed
from support.streams import SECOND, UTC, file_stream, write_batch

import braided
from braided.cli.local_spark import local_session, quiet_output
from braided.fleet.component_host import Job, Jobs
from braided.fleet.identity import new_token
from braided.spark.watching import Watch
from braided.storage.files import STORAGE, LocalFiles

EVERY = 5.0
"""Seconds between two scrapes."""
SCRAPES = 300
WORKERS, ROWS = 8, 200
PEERS, JOBS = 4, 10
PEER = Path(__file__).parents[1] / "tests" / "support" / "many_peers.py"
SCRAPE = "import sys, urllib.request\nfor _ in range(int(sys.argv[2])): urllib.request.urlopen(sys.argv[1]).read()"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (%(default)s)")
    options = parser.parse_args()
    about = {"date": str(datetime.date.today()), "cpus": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="braided-scrapes-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for what, measure in (("session", of_session), ("fleet", of_fleet)):
            (folder / what).mkdir()
            print(json.dumps({"of": what, **measure(folder / what, options.seconds), **about}), flush=True)
    return 0


def of_session(folder: Path, seconds: float) -> dict[str, float]:
    """CPU of a scrape of an idle query, and of what a batch of a busy one gives to the endpoint."""
    for second in range(4):
        _write(folder, second)
    with (
        quiet_output(folder / "log"),
        local_session(folder, WORKERS) as spark,
        braided.metrics(spark, port=0) as served,
    ):
        query = _join(spark, folder, "idle", "1 hour")  # its first batch, then none
        while "braided_worker_rows_total" not in served.text():
            time.sleep(0.2)
        time.sleep(3)
        length = len(served.text())
        began, before = time.monotonic(), time.process_time()
        time.sleep(10)
        idle = (time.process_time() - before) / (time.monotonic() - began)
        began, before = time.monotonic(), time.process_time()
        subprocess.run([sys.executable, "-c", SCRAPE, served.url, str(SCRAPES)], check=True)
        scrape = (time.process_time() - before - idle * (time.monotonic() - began)) / SCRAPES
        query.stop()
        callbacks = [0.0]
        for name in ("started", "progressed", "idle", "ended"):
            setattr(Watch, name, timed(getattr(Watch, name), callbacks))
        query = _join(spark, folder, "busy", "1 second")
        began = time.monotonic()
        for second in range(int(seconds)):
            _write(folder, 4 + second)
            time.sleep(1)
        batches = int(query.lastProgress["batchId"]) + 1
        query.stop()
        elapsed = time.monotonic() - began
    return {
        "bytes": length,
        "ms_a_scrape": round(1000 * scrape, 3),
        "batches": batches,
        "ms_a_batch": round(1000 * callbacks[0] / batches, 3),
        "cores": round(scrape / EVERY + callbacks[0] / elapsed, 5),
    }


def _write(folder: Path, second: int) -> None:
    """Write a second of events."""
    times = pa.array([second * SECOND + at * SECOND // ROWS for at in range(ROWS)], UTC)
    write_batch(folder / "rows", second, pa.table({"k": list(range(ROWS)), "ts": times}))


def _join(spark: Any, folder: Path, name: str, every: str) -> Any:
    sides = [file_stream(spark, folder / "rows", "k long, ts timestamp") for _ in range(2)]
    joined = braided.join(*sides, on="k", time="ts", within="5 seconds")
    written = joined.writeStream.format("noop").option("checkpointLocation", str(folder / name))
    return written.queryName("watched").trigger(processingTime=every).start()


def of_fleet(folder: Path, seconds: float) -> dict[str, float]:
    """CPU of the exporter of a fleet, and of the peers with it and without."""
    storage, token = folder / "storage", folder / "token"
    storage.mkdir()
    new_token().write(token)
    running: list[subprocess.Popen[str]] = []
    addresses: list[str] = []
    try:
        for number in range(PEERS):
            command = [sys.executable, str(PEER), f"p{number}", str(storage), str(token), *addresses[:1]]
            running.append(_started(command))
            addresses.append(_line(running[-1]))
            subprocess.Popen(["cat"], stdin=running[-1].stdout, stdout=subprocess.DEVNULL)  # its figures, to nobody
        jobs = Jobs(LocalFiles(storage, STORAGE))
        for number in range(JOBS):
            name = f"job{number}"
            jobs.add(Job(name, "sum.numbers", (), (str(folder / name),), str(folder / "checkpoints" / name)))
        with braided.Fleet(addresses[0], token_file=token) as fleet:
            while sum(row.state == "running" for row in fleet.status().components) < JOBS:
                time.sleep(0.5)
        time.sleep(20)
        alone = _cores(running, seconds)
        command = [sys.executable, "-m", "braided", "fleet", "metrics", "--port", "0", "--peer", addresses[0]]
        exporter = _started([*command, "--token-file", str(token)])
        running.append(exporter)
        url = _line(exporter).split()[1].rstrip(";")
        time.sleep(5)
        asked = _cores(running, seconds, url)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return {
        "cores_of_exporter": round(asked[-1], 5),
        "cores_of_peers_more": round(sum(asked[:-1]) - sum(alone), 5),
        "cores_of_asked_peer_more": round(asked[0] - alone[0], 5),
        "cores_of_peers_alone": round(sum(alone), 5),
        "cores": round(asked[-1] + sum(asked[:-1]) - sum(alone), 5),
    }


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{process.args} has ended")
    return line


def _cores(processes: list[subprocess.Popen[str]], seconds: float, url: str = "") -> list[float]:
    """The cores that processes use over a while, in which something may be scraped."""
    before = [_cpu(process.pid) for process in processes]
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if url:
            urllib.request.urlopen(url).read()
        time.sleep(min(EVERY, max(0.0, seconds - elapsed)))
    return [
        (_cpu(process.pid) - cpu) / (time.monotonic() - began) for process, cpu in zip(processes, before, strict=True)
    ]


def _cpu(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
