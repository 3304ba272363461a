"""Faults done to a query on one machine: it goes on, or stops with a message and goes on when that is mended."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import psutil
import pytest
from chaos import Driver, SmallDisk, can_mount, is_python_worker
from crashes import expected, write_streams

import braided

FILES, ROWS = 14, 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_streams(tmp_path, files=FILES, rows=ROWS, seed=21)
    return tmp_path


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")
@pytest.mark.parametrize(
    ("part", "flags", "said"),
    [
        ("check", [], "No space left on device"),
        ("check", ["direct"], "No space left on device"),
        ("out", [], "No space left on device"),
        ("out", ["direct"], "out/_data: cannot be written: "),
        ("control", ["control"], "control/pins/"),
    ],
)
def test_a_full_disk_stops_the_query_and_room_lets_it_go_on(
    root: Path, tmp_path: Path, part: str, flags: list[str], said: str
) -> None:
    for flag in flags:
        (root / flag).mkdir()
    with SmallDisk(tmp_path / "disk", 64) as disk:
        shutil.rmtree(root / part, ignore_errors=True)
        (disk.place / part).mkdir()
        (root / part).symlink_to(disk.place / part)
        with Driver(root) as driver:
            driver.after(4)
            disk.fill()
            assert said in driver.failure()
        disk.empty()
        assert Driver(root).result() == expected(root)
        if "direct" in flags:
            topic = braided.topic(str(root / "out"))
            there = {path.name for path in Path(topic.data).rglob("*.parquet")}
            assert there == {Path(name).name for name in topic.files()}, "files of failed attempts are left"


@pytest.mark.parametrize("how", ["damaged", "removed"])
@pytest.mark.parametrize("file", ["owner.json", "tables", "pins", "wanted.json", "decisions.jsonl"])
def test_a_control_file_is_damaged_or_removed(root: Path, file: str, how: str) -> None:
    rng = random.Random(f"{file} {how}")
    control = root / "control"
    control.mkdir()
    with Driver(root) as driver:
        driver.after(5)
        driver.kill()
    braided.scale(str(control), 3)
    shutil.copytree(control, root / "copy")
    found = control / file
    if found.is_dir():
        found = max(found.iterdir(), key=lambda path: int(path.stem))
    if how == "removed":
        found.unlink()
    else:
        content = bytearray(found.read_bytes())
        for at in rng.sample(range(len(content)), min(5, len(content))):
            content[at] ^= 0x15
        found.write_bytes(content)
    with Driver(root) as driver:
        stopped = driver.process.wait() != 0
        words = driver.said()
    if stopped:
        assert "ControlError: control=" in words or "StateError: the routing went back" in words, words[-3000:]
        shutil.rmtree(control)
        shutil.copytree(root / "copy", control)
    assert Driver(root).result() == expected(root)
    # What docs/faults.md says.
    assert stopped == (
        (file, how) in {("owner.json", "damaged"), ("tables", "damaged"), ("tables", "removed"), ("pins", "damaged")}
    )


def test_python_workers_die_and_a_restart_goes_on(root: Path) -> None:
    """Local mode tries no task again: the query stops. A cluster does (test_chaos_cluster.py)."""
    with Driver(root) as driver:
        driver.after(4)
        while driver.process.poll() is None:  # until one of them is at work
            for process in driver.descendants(is_python_worker):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        assert "Python worker exited unexpectedly" in driver.failure()
    assert Driver(root).result() == expected(root)


@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime")
@pytest.mark.parametrize("idle", [None, "3 seconds"])
def test_the_clock_is_set_back_before_a_restart(root: Path, idle: str | None) -> None:
    (root / "direct").mkdir()
    with Driver(root, join={"idle": idle}) as driver:
        driver.after(5)
        driver.kill()
    library = next(Path("/usr/lib").rglob("libfaketime.so.1"))
    back = {
        "LD_PRELOAD": str(library),
        "FAKETIME": "-3d",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    assert Driver(root, join={"idle": idle}, **back).result() == expected(root)


def test_a_batch_is_ten_times_larger_than_the_last(tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=400, seed=22)
    write_streams(tmp_path / "more", files=5, rows=4000, seed=23)
    for side in ("left", "right"):
        (tmp_path / "more" / side / "00004.parquet").rename(tmp_path / side / "00004.parquet")
    assert Driver(tmp_path).result() == expected(tmp_path)


def test_a_source_repeats_rows(root: Path) -> None:
    for side in ("left", "right"):
        for number in (2, 5):
            shutil.copy2(root / side / f"{number:05d}.parquet", root / side / f"{number:05d}-again.parquet")
    right = expected(root)
    assert max(right.values()) == 4
    assert Driver(root).result() == right


@pytest.mark.parametrize("direct", [False, True])
def test_two_drivers_on_one_checkpoint(root: Path, direct: bool) -> None:
    """One of them stops, or both do, and nothing is lost or doubled by either."""
    if direct:
        (root / "direct").mkdir()
    with Driver(root) as one:
        one.after(2)
        with Driver(root) as other:
            ends = [one.process.wait(), other.process.wait()]
            words = one.said() + other.said()
    assert any(ends), "both went on to the end"
    assert any(said in words for said in ("CONCURRENT_STREAM_LOG_UPDATE", "has taken the topic", "another writer")), (
        words[-3000:]
    )
    assert Driver(root).result() == expected(root)
