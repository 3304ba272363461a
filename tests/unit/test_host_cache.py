"""The host's cache of decoded runs: whatever happens to its files costs a read of the state and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.operators import join_operator, ordering_operator
from support.profiles import size

from braided.local.runtime import LocalRuntime
from braided.runtime.cache import FileCache
from braided.runtime.store import MemoryCache
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.timestamp("us")), ("text", pa.string())])
WINDOW = Window(-50, 50, (5, 5))
NAME = "0" * 31 + "1"
PARTS = [bytes(range(200)), b"", b"x" * 5000, np.arange(300, dtype=np.uint64).tobytes()]


def rows(first: int, count: int = 40) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    texts = pa.array([f"row {number}" for number in numbers])
    return pa.record_batch(
        [pa.array(numbers % 5), pa.array(numbers), pa.array(numbers, pa.timestamp("us")), texts], schema=SCHEMA
    )


def results(
    cache: FileCache | MemoryCache, on: str = "k", *, between: Callable[[], None] = lambda: None
) -> list[object]:
    runtime = LocalRuntime(join_operator(SCHEMA, WINDOW, on=on))
    runtime.stores[0].cache = cache
    found: list[object] = []
    for first in (0, 20, 40):
        for piece in runtime.run_batch([(0, [rows(first)]), (1, [rows(first)])]):
            found += map(str, piece.to_pylist())
        between()
    return sorted(found)  # type: ignore[type-var]


def ordered(cache: FileCache | MemoryCache, *, between: Callable[[], None] = lambda: None) -> list[object]:
    runtime = LocalRuntime(ordering_operator([SCHEMA], "t", None, 30))
    runtime.stores[0].cache = cache
    found: list[object] = []
    for first in (0, 20, 40):
        for piece in runtime.run_batch([(0, [rows(first)])]):
            found += piece.to_pylist()
        between()
    for piece in runtime.run_batch([(0, [])], final=True):
        found += piece.to_pylist()
    return found


def single(cache: FileCache | MemoryCache, on: str) -> int:
    """How often a row meets the same row, one batch later."""
    runtime = LocalRuntime(join_operator(SCHEMA, WINDOW, on=on))
    runtime.stores[0].cache = cache
    sides = [(0, [rows(7, 1)]), (1, [rows(7, 1)])]
    return sum(piece.num_rows for side in sides for piece in runtime.run_batch([side]))


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def full_directory(path: Path) -> None:
    directory(path)
    (path / "file").write_text("x")


def link(path: Path) -> None:
    elsewhere = path.parent.parent / f"of {path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def resized(by: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size + by] + bytes(max(0, by)))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"\1"),
    "random bytes": lambda path: path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "ones": lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    "truncated by a byte": resized(-1),
    "truncated by a block": resized(-64),
    "only the header": lambda path: path.write_bytes(path.read_bytes()[:64]),
    "a byte more": resized(1),
    "a block more": resized(64),
    "a directory": directory,
    "a full directory": full_directory,
    "a link": link,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path))[0],
}


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache", 1 << 30)


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], Iterator[Path]]:
    return (tmp_path / "cache").iterdir


def filled(cache: FileCache) -> None:
    cache.put(NAME, [pa.py_buffer(part) for part in PARTS])


def test_what_is_put_is_there(cache: FileCache, tmp_path: Path) -> None:
    filled(cache)
    for reader in (cache, FileCache(tmp_path / "cache", 1 << 30)):
        for _ in range(2):
            found = reader.get(NAME)
            assert found is not None
            assert [buffer.to_pybytes() for buffer in found] == PARTS
            assert all(buffer.address % 64 == 0 for buffer in found)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_a_miss_and_is_gone(damage: str, cache: FileCache, tmp_path: Path) -> None:
    filled(cache)
    path = tmp_path / "cache" / NAME
    os.utime(path, (0, 0))  # written long ago, so that it need not be checked twice
    assert cache.get(NAME) is not None
    DAMAGE[damage](path)
    assert cache.get(NAME) is None
    assert os.path.lexists(path) == (damage == "a full directory")
    filled(cache)
    assert (cache.get(NAME) is None) == (damage == "a full directory")


def test_no_flipped_bit_goes_unseen(cache: FileCache, tmp_path: Path) -> None:
    filled(cache)
    path = tmp_path / "cache" / NAME
    content = path.read_bytes()
    bits = np.random.default_rng(0)
    header, (start, *_), size = 8 * (3 + len(PARTS)), (64, 320, 320), len(content)
    used = [*range(header), *range(start, start + 200), *range(320, 320 + 5000), *range(5376, 5376 + 2400)]
    assert (size, content[320], content[5376 + 8]) == (7808, ord("x"), 1)
    # Every byte of the header, and of those around the ends of words, lanes and buffers; padding is nothing's.
    for at in {*used[:header], *used[::61], *range(230, 264), *range(5300, 5320), *range(7740, 7776)}:
        path.write_bytes(content)
        flip(path, at, int(bits.integers(8)))
        assert FileCache(tmp_path / "cache", 1 << 30).get(NAME) is None, at
        assert not path.exists()


def test_a_file_is_checked_once(cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(cache)
    os.utime(tmp_path / "cache" / NAME, (0, 0))
    assert cache.get(NAME) is not None
    with monkeypatch.context() as patch:
        patch.setattr("braided.runtime.buffer_file.checksum", None)
        assert cache.get(NAME) is not None
    cache.prune()
    assert cache.get(NAME) is not None  # used just now, whenever it was written


def test_a_file_under_another_name_is_a_miss(cache: FileCache, tmp_path: Path) -> None:
    filled(cache)
    (tmp_path / "cache" / NAME).rename(tmp_path / "cache" / ("f" * 32))
    assert cache.get("f" * 32) is None


def test_a_file_that_may_not_be_read_is_a_miss_and_is_gone(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(cache)
    path = tmp_path / "cache" / NAME
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything

        def refuse(_: str) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(pa, "memory_map", refuse)
    assert cache.get(NAME) is None
    assert not path.exists()


def test_a_process_short_of_addresses_leaves_the_file_to_others(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1 << 40)
    cache.put(NAME, [pa.py_buffer(bytes(256 << 20))])
    script = """
import resource, sys
from pathlib import Path
from braided.runtime.cache import FileCache
cache = FileCache(Path(sys.argv[1]), 1 << 40)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
print(cache.get(sys.argv[2]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache"), NAME], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("None\n", "")
    assert cache.get(NAME) is not None
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_another_process_deletes_files_all_the_time(cache: FileCache, tmp_path: Path) -> None:
    script = """
import os, sys
print(flush=True)
while os.getppid() == int(sys.argv[2]):
    for entry in os.scandir(sys.argv[1]):
        try:
            os.unlink(entry.path)
        except OSError:
            pass
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "cache"), str(os.getpid())], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        misses = 0
        while misses < 20:
            filled(cache)
            found = cache.get(NAME)
            misses += found is None
            assert found is None or [buffer.to_pybytes() for buffer in found] == PARTS
        joined = results(cache)
        other.kill()
    assert joined == results(MemoryCache())


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_changes_no_result(damage: str, cache: FileCache, files: Callable[[], Iterator[Path]]) -> None:
    def spoil() -> None:
        for path in list(files()):
            if path.is_file() and not path.is_symlink():
                DAMAGE[damage](path)

    assert results(cache, between=spoil) == results(MemoryCache())
    for path in files():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert ordered(cache, between=spoil) == ordered(MemoryCache())


def test_flipped_bits_change_no_result(cache: FileCache, files: Callable[[], Iterator[Path]]) -> None:
    """At every place of every file, in turn."""
    whole, in_order = results(MemoryCache()), ordered(MemoryCache())
    parts = size(quick=8, slow=24)
    for part in range(parts):

        def spoil(part: int = part) -> None:
            for path in files():
                flip(path, path.stat().st_size * part // parts, part % 8)

        assert results(cache, between=spoil) == whole
        assert ordered(cache, between=spoil) == in_order


def test_queries_that_share_rows_do_not_share_what_is_derived_from_them(cache: FileCache) -> None:
    """A run of one row has the same bytes whatever it is joined on, and in a buffer that orders it."""
    assert [single(cache, on) for on in ("k", "j", "text", "k")] == [1, 1, 1, 1]
    runtime = LocalRuntime(ordering_operator([SCHEMA], "t", None, 30))
    runtime.stores[0].cache = cache
    list(runtime.run_batch([(0, [rows(7, 1)])]))
    assert single(cache, "k") == 1
