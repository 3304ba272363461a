"""Faults done to drivers, each a process of its own: it goes on, or stops with a message, and a restart goes on."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil
import pytest
from support.chaos import Driver, SmallDisk, can_mount, is_python_worker
from support.crashes import expected, write_streams

FILES, ROWS = 14, 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_streams(tmp_path, files=FILES, rows=ROWS, seed=21)
    return tmp_path


def test_python_workers_die_and_a_restart_goes_on(root: Path) -> None:
    """Local mode tries no task again: the query stops. A cluster does (test_chaos_cluster.py)."""
    with Driver(root) as driver:
        driver.after(4)
        while driver.process.poll() is None:  # until one of them is at work
            for process in driver.descendants(is_python_worker):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        said = driver.failure()
        # While it worked, or just before Spark would hand it a task.
        assert "Python worker exited unexpectedly" in said or "PythonWorkerFactory" in said, said[-3000:]
    assert Driver(root).result() == expected(root)


@pytest.mark.parametrize("direct", [False, True])
def test_two_drivers_on_one_checkpoint(root: Path, direct: bool) -> None:
    """One of them stops, or both do, and nothing is lost or doubled by either."""
    if direct:
        (root / "direct").mkdir()
    with Driver(root) as one:
        one.after(2)
        one.signal(signal.SIGSTOP)  # else it may be done before the other has begun
        with Driver(root) as other:
            other.after(3)
            one.signal(signal.SIGCONT)
            ends = [one.process.wait(), other.process.wait()]
            words = one.said() + other.said()
    assert any(ends), "both went on to the end"
    # Spark has several messages: "Multiple streaming jobs detected for ...", "Multiple streaming queries are ...".
    assert any(said in words for said in ("Multiple streaming", "another writer")), words[-3000:]
    assert Driver(root).result() == expected(root)


def test_the_clock_is_set_back_by_days_before_a_restart(root: Path) -> None:
    """Only operators with `idle` look at the clock."""
    join = {"idle": "1 minute"}
    with Driver(root, join=join, ahead="3 days") as driver:
        driver.after(5)
    assert Driver(root, join=join).result() == expected(root)


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")
def test_no_room_for_the_hosts_cache(root: Path) -> None:
    with SmallDisk(root / "disk", 4) as disk:
        cache = disk.place / "cache"
        cache.mkdir()
        disk.fill()
        assert Driver(root, BRAIDED_CACHE_DIR=str(cache)).result() == expected(root)
        assert not [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size]
