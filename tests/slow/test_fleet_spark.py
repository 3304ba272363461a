"""A fleet on real Spark: jobs that are moved, and peers that are killed and stopped under load, give DuckDB's rows."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from support.fleet_processes import COUNTS, JOIN, SparkPeers, Streams, commits_of, rows_of, until

from braided.errors import PeerError
from braided.fleet.leases import Leases
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")
pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
FAULTS = (("kill", "both"), ("stop", "jvm"), ("stop", "driver"), ("stop", "both"), ("kill", "jvm"), ("kill", "driver"))
NAMES = ("north", "south", "west")


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[SparkPeers]:
    made = SparkPeers(tmp_path)
    try:
        for name in NAMES:
            made.start(name)
        yield made
    finally:
        made.close()


def _holder(root: Path, job: str) -> tuple[str, int]:
    """Who holds a job, and its epoch, by the lease in storage."""
    lease = Leases(LocalFiles(root / "storage")).newest(job)
    return ("", -1) if lease is None else (lease.holder.name, lease.epoch)


def _fault(peers: SparkPeers, job: str, fault: str, which: str) -> None:
    """Kill or stop what runs a job; see it go on elsewhere; let the other wake up, or start it anew."""
    name, epoch = _holder(peers.root, job)
    stopped = []
    if fault == "kill":
        peers.kill(name, which)
    else:
        stopped = peers.targets(name, which)
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
    until(lambda: _holder(peers.root, job)[1] > epoch, 600, f"another owner after {fault} of {which}")
    before = rows_of(peers.root / job)
    until(lambda: rows_of(peers.root / job) > before, 600, f"results after {fault} of {which}")
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    if fault == "kill":
        peers.start(name)


def _move(peers: SparkPeers, job: str, turn: int, refusals: list[str]) -> bool:
    """Move a job. A refusal is no fault: the source runs on, or has taken it back."""
    name, _ = _holder(peers.root, job)
    others = [other for other in NAMES if other != name]
    with peers.fleet() as fleet:
        try:
            fleet.move(job, others[turn % len(others)])
        except PeerError as error:
            refusals.append(str(error))
            return False
    return True


@pytest.mark.parametrize(("moves", "faults"), [(3, 2), (12, 6)])
def test_jobs_lose_and_double_nothing_while_they_move_and_peers_die(peers: SparkPeers, moves: int, faults: int) -> None:
    root = peers.root
    streams = Streams(root, 400)
    streams.start()
    for name, text in (("hits", JOIN), ("counts", COUNTS)):
        (root / f"{name}.toml").write_text(text.format(root))
        with peers.fleet() as fleet:
            fleet.submit(root / f"{name}.toml")
    for name in ("hits", "counts"):
        until(lambda: rows_of(root / name) > 0, 600, f"results of {name}")  # noqa: B023
    jobs, done, turn = itertools.cycle(("hits", "counts")), 0, 0
    kinds, refusals = itertools.cycle(FAULTS), list[str]()
    while done < moves:
        turn += 1
        assert turn < 3 * moves, refusals
        if not _move(peers, next(jobs), turn, refusals):
            continue
        done += 1
        if done * faults // moves > (done - 1) * faults // moves:
            _fault(peers, "hits" if done % 2 else "counts", *next(kinds))
    streams.end()
    wanted = duckdb.sql(
        f"""SELECT c.phone, c.id, a.id FROM '{root}/calls/*.parquet' c JOIN '{root}/alerts/*.parquet' a
            ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECOND AND c.ts + INTERVAL 10 SECOND"""
    ).fetchall()
    counted = duckdb.sql(
        f"""SELECT epoch_us(time_bucket(INTERVAL 5 SECOND, ts)) AS start, count(*) FROM '{root}/calls/*.parquet'
            GROUP BY start ORDER BY start"""
    ).fetchall()[:-1]
    until(lambda: rows_of(root / "hits") >= len(wanted), 600, "all pairs")
    until(lambda: rows_of(root / "counts") >= len(counted), 600, "all windows")
    hits = duckdb.sql(f"SELECT phone, id, alert FROM read_parquet({Topic(str(root / 'hits')).files()!r})").fetchall()
    windows = duckdb.sql(
        f"SELECT epoch_us(start), count FROM read_parquet({Topic(str(root / 'counts')).files()!r}) ORDER BY 1"
    ).fetchall()
    assert sorted(hits) == sorted(wanted)
    assert windows == counted
    assert len(wanted) > 1000
    assert _holder(root, "hits")[1] + _holder(root, "counts")[1] >= done + faults


def test_every_snapshot_of_state_is_uploaded(tmp_path: Path) -> None:
    # Spark makes one of every tenth batch. After one that it skips it uploads the whole state again, and a move waits.
    made = SparkPeers(tmp_path)
    try:
        made.start("north")
        streams = Streams(tmp_path, 400)
        streams.start()
        (tmp_path / "hits.toml").write_text(JOIN.format(tmp_path))
        with made.fleet() as fleet:
            fleet.submit(tmp_path / "hits.toml")
        until(lambda: len(commits_of(tmp_path / "hits")) > 52, 600, "52 batches")
        streams.end()
    finally:
        made.close()
    partitions = list((tmp_path / "checkpoints" / "hits" / "000000000000" / "state" / "0").glob("[0-9]"))
    assert len(partitions) == 2
    for state in partitions:
        versions = sorted(int(file.stem) for file in state.glob("*.zip"))
        assert versions[:5] == [1, 11, 21, 31, 41]


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "fleet" / "run.py"), "--rows", "500"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal to DuckDB's" in done.stdout
