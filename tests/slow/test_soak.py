"""A peer with two jobs runs on: memory, threads, descriptors and files stay level, and its metrics are scraped.

BRAIDED_SOAK says for how many seconds; an hour (3600) before a release. Files that were read are moved away, since Spark
lists the folder of a source again for each batch.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean

import duckdb
import psutil
import pyarrow.parquet as pq
import pytest
from support.fleet_processes import JOIN, SparkPeers, Streams, rows_of, until

from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")
pytestmark = pytest.mark.spark

SECONDS = float(os.environ.get("BRAIDED_SOAK", "900"))
PERIOD = 5.0
ROWS = 500
"""Calls in a file."""
STAY = 240
"""Files of the input that stay after the last one that has results: those of a minute."""
EVEN = """
name = "even"
operator = "filter.even"
checkpoint = "{0}/checkpoints/even"
trigger = "1 second"
[sources.rows]
format = "topic"
path = "{0}/hits"
[[steps]]
name = "even"
sql = "SELECT id, alert FROM rows WHERE phone % 2 = 0"
[sink]
format = "topic"
path = "{0}/even"
"""
ALLOWED = {"bytes": 20e6, "threads": 20, "descriptors": 20, "files": 40, "seconds": 0.2}
"""How much a figure may grow besides a tenth of it."""


class Watch(threading.Thread):
    """Samples the processes below one, the files that should not pile up, and what is scraped."""

    def __init__(self, root: Path, pid: int, url: str) -> None:
        super().__init__(daemon=True)
        self.figures: dict[str, list[float]] = defaultdict(list)
        self._root, self._process, self._url = root, psutil.Process(pid), url
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(PERIOD):
            for kind, processes in self._kinds().items():
                used = [_used(process) for process in processes]
                for name, values in zip(("bytes", "threads", "descriptors"), zip(*used, strict=True), strict=False):
                    self._add(f"{kind} {name}", sum(values))
            for folder in ("storage", "control", "checkpoints", "tmp"):
                self._add(f"{folder} files", sum(len(names) for _, _, names in os.walk(self._root / folder)))
            began = time.monotonic()
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                text = answer.read().decode()
            self._add("scrape seconds", time.monotonic() - began)
            self._add("rows", sum(_values(text, "braided_rows_total")))
            self._add("batch seconds", max(_values(text, "braided_batch_seconds")))
            self._move_away()

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()

    def _add(self, name: str, value: float) -> None:
        self.figures[name].append(value)

    def _kinds(self) -> dict[str, list[psutil.Process]]:
        jvms, workers = [], []
        for child in self._process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                (jvms if child.name() == "java" else workers).append(child)
        return {"driver": [self._process], "jvm": jvms, "workers": workers}

    def _move_away(self) -> None:
        """Move files away that have surely been read, also while the job is behind."""
        results = pq.read_table(Topic(str(self._root / "hits")).files()[-1], columns=["id"])["id"]
        last = max(results.to_pylist(), default=0) // ROWS
        for name in ("calls", "alerts"):
            (self._root / "read" / name).mkdir(parents=True, exist_ok=True)
            for path in (self._root / name).glob("*.parquet"):
                if int(path.stem) < last - STAY:
                    path.rename(self._root / "read" / name / path.name)


def _used(process: psutil.Process) -> tuple[int, int, int]:
    """Return the bytes, threads and descriptors of a process; nothing if it has just ended."""
    try:
        return process.memory_full_info().pss, process.num_threads(), process.num_fds()
    except psutil.NoSuchProcess:
        return 0, 0, 0


def _values(text: str, name: str) -> list[float]:
    """Return the values of a metric in what was scraped."""
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name}{{")] or [0.0]


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[SparkPeers]:
    # Spark keeps the files of 100 batches in a checkpoint, and the log of a folder that it reads for ten minutes. With
    # less the files are level sooner.
    settings = ("minBatchesToRetain=10", "fileSource.log.cleanupDelay=10s")
    more = ("--metrics", "0", *(word for each in settings for word in ("--conf", f"spark.sql.streaming.{each}")))
    made = SparkPeers(tmp_path, more=more)
    try:
        made.start("north")
        yield made
    finally:
        made.close()


def test_a_peer_that_runs_on_stays_level(peers: SparkPeers, tmp_path: Path) -> None:
    streams = Streams(tmp_path, ROWS)
    streams.start()
    for name, text in {"hits": JOIN, "even": EVEN}.items():
        (tmp_path / f"{name}.toml").write_text(text.format(tmp_path))
        with peers.fleet() as fleet:
            fleet.submit(tmp_path / f"{name}.toml")
    until(lambda: rows_of(tmp_path / "even") > 0, 240, "results of both jobs")
    watch = Watch(tmp_path, peers.processes["north"].pid, peers.metrics["north"])
    watch.start()
    time.sleep(SECONDS)
    watch.end()
    streams.end()
    files = [f"{tmp_path}/{folder}calls/*.parquet" for folder in ("", "read/")]
    others = [path.replace("calls", "alerts") for path in files]
    wanted = duckdb.sql(
        f"""SELECT c.phone, c.id, a.id FROM read_parquet({files!r}) c JOIN read_parquet({others!r}) a
        ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECOND AND c.ts + INTERVAL 10 SECOND"""
    ).fetchall()
    until(lambda: rows_of(tmp_path / "hits") >= len(wanted), 120, "all results")
    found = duckdb.sql(f"FROM read_parquet({Topic(str(tmp_path / 'hits')).files()!r})").fetchall()
    assert sorted(found) == sorted(wanted)

    grown = []
    for name, values in watch.figures.items():
        third = len(values) // 3
        before, after = mean(values[third : 2 * third]), mean(values[2 * third :])
        print(f"{name}: {values[0]:,.2f} at first, {before:,.2f} in the second third, {after:,.2f} in the last")
        if name != "rows" and after > 1.1 * before + ALLOWED[name.split()[-1]]:
            grown.append(name)
    assert not grown
    rows = watch.figures["rows"]
    assert all(earlier <= later for earlier, later in pairwise(rows))
    assert rows[-1] > 1000 * SECONDS  # 2,200 rows arrive each second
