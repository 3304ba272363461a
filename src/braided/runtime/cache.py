"""Decoded runs shared by the Python processes of a host, as memory-mapped files named by their content.

Spark hands a state partition now to one Python process, now to another: a dictionary in each would miss
half the time and hold everything twice. Files are written whole and renamed into place, so a name that
exists is complete. The directory belongs to the user alone; if it does not, there is no cache.

A disk that was full, a host that lost power and a hand that slipped leave files that are not what was written. Each has
a checksum over all of it and its name, which a process checks before it uses what it finds there:

```
 | magic, checksum, count, size of each buffer | buffer | buffer | ...     each padded to 64 bytes
```
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.compiled import compiled

_ALIGN = 64
_LIMIT_BYTES = 4 << 30
_STALE_SECONDS = 24 * 3600
_MAGIC = int.from_bytes(b"braided2", "little")
_HEADER_WORDS = 3
_SETTLED_NS = 2_000_000_000
_MOST_CHECKED = 100_000

UInt64s = npt.NDArray[np.uint64]


@lru_cache(maxsize=1)
def host_cache() -> FileCache:
    """Return this process's view of the host's cache, pruned when the process starts."""
    root = Path(os.environ.get("BRAIDED_CACHE_DIR") or tempfile.gettempdir()) / f"braided-{os.getuid()}"
    limit = int(os.environ.get("BRAIDED_CACHE_BYTES", _LIMIT_BYTES))
    cache = FileCache(root, limit)
    cache.prune()
    return cache


class FileCache:
    """A bounded directory of blocks; the files used least recently go first.

    Checking a file takes 2 ms for 16 MB. A process does it once, and again if the file was written to since.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._written = 0
        self._usable = limit > 0 and _private_directory(root)
        self._checked: dict[str, tuple[int, ...]] = {}

    def get(self, name: str) -> list[pa.Buffer] | None:
        """See `Cache`. A file that is not what was written is deleted, and a miss."""
        if not self._usable:
            return None
        try:
            info = (self._root / name).lstat()
        except OSError:  # never there, or just deleted
            return None
        try:
            buffers = self._map(name, info)
        except PermissionError:
            buffers = None
        except OSError:  # the process is short of addresses (`spark.executor.pyspark.memory`) or of open files
            return None
        if buffers is None:
            self.drop(name)
        return buffers

    def _map(self, name: str, info: os.stat_result) -> list[pa.Buffer] | None:
        """Return the buffers in a file, None if they are not what was written."""
        if not stat.S_ISREG(info.st_mode) or info.st_size < _ALIGN or info.st_size % _ALIGN:
            return None
        path = self._root / name
        with pa.memory_map(str(path)) as source:
            content = source.read_buffer()
        buffers = _buffers(content)
        if content.size != info.st_size or buffers is None:
            return None
        # The time of access says how recently a file was used, so that the time of writing says whether it changed.
        identity = (info.st_ino, info.st_size, info.st_mtime_ns)
        if self._checked.get(name) != identity:
            if not content.slice(0, 8 * (_HEADER_WORDS + len(buffers))).equals(_header(name, buffers)):
                return None
            # A file system's clock may tick a few times a second: a write in the same tick would not show.
            if time.time_ns() - info.st_mtime_ns > _SETTLED_NS:
                self._remember(name, identity)
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), info.st_mtime_ns))
        return buffers

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        """See `Cache`. A full disk only means that nothing is kept."""
        bounds = _bounds([buffer.size for buffer in buffers])
        size = bounds[-1]
        path = self._root / name
        if not self._usable or size > self._limit // 2 or os.path.lexists(path):
            return
        self._written += size
        if self._written > self._limit // 16:
            self.prune()
            self._written = 0
        temporary = self._root / f".{name}.{os.getpid()}"
        try:
            with temporary.open("xb") as file:
                for part in (_header(name, buffers), *buffers):
                    file.write(part)
                    file.write(bytes(-part.size % _ALIGN))
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def drop(self, name: str) -> None:
        """See `Cache`. Processes that still map the file keep their pages."""
        self._checked.pop(name, None)
        with contextlib.suppress(OSError):
            try:
                (self._root / name).unlink()
            except (IsADirectoryError, PermissionError):
                (self._root / name).rmdir()

    def prune(self) -> None:
        """Delete stale files, then the least recently used until the bound holds."""
        if not self._usable:
            return
        files = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._root):
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    files.append((info.st_atime, info.st_size, entry.name))
        total = sum(size for _, size, _ in files)
        now = time.time()
        for used, size, name in sorted(files):
            if total <= self._limit and now - used < _STALE_SECONDS:
                break
            self.drop(name)
            total -= size

    def _remember(self, name: str, identity: tuple[int, ...]) -> None:
        if len(self._checked) >= _MOST_CHECKED:
            self._checked.clear()
        self._checked[name] = identity


def _header(name: str, buffers: list[pa.Buffer]) -> pa.Buffer:
    """Return what a file of these buffers begins with: magic, checksum, count and sizes."""
    sizes = np.array([len(buffers), *(buffer.size for buffer in buffers)], np.uint64).tobytes()
    total = np.uint64(0)
    for part in (pa.py_buffer(hashlib.sha256(name.encode()).digest()), pa.py_buffer(sizes), *buffers):
        whole = part.size - part.size % 8
        rest = part.slice(whole).to_pybytes().ljust(8, b"\0")
        for content in (part.slice(0, whole), pa.py_buffer(rest)):
            # Always read-only and aligned, so that the kernel is compiled for one type.
            words = np.frombuffer(content if content.address % 8 == 0 else content.to_pybytes(), np.uint64)
            total = np.uint64(checksum(words, total))
    return pa.py_buffer(np.array([_MAGIC, total], np.uint64).tobytes() + sizes)


def _buffers(content: pa.Buffer) -> list[pa.Buffer] | None:
    """Return the parts of a file that its header names, None if the sizes do not add up."""
    words = np.frombuffer(content, np.uint64)
    if int(words[0]) != _MAGIC:
        return None
    count = int(words[2])
    sizes = words[_HEADER_WORDS : _HEADER_WORDS + count].tolist()
    bounds = _bounds(sizes)
    if len(sizes) != count or bounds[-1] != content.size:
        return None
    return [content.slice(start, size) for start, size in zip(bounds, sizes, strict=False)]


def _bounds(sizes: list[int]) -> list[int]:
    """Return where each buffer of a file starts, and where the file ends."""
    return list(accumulate(map(_aligned, sizes), initial=_aligned(8 * (_HEADER_WORDS + len(sizes)))))


def _aligned(size: int) -> int:
    return size + -size % _ALIGN


@compiled
def checksum(words: UInt64s, seed: np.uint64) -> np.uint64:
    """Fold words into one: each step is a bijection of the word, so that no change of a single one goes unseen.

    Four lanes let the processor multiply while it loads: 11 GB/s, where sha256 reaches 1.7 and crc32 2.3.
    """
    by, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    a, b, c, d = seed, seed ^ np.uint64(1), seed ^ np.uint64(2), seed ^ np.uint64(3)
    whole = len(words) - len(words) % 4
    for i in range(0, whole, 4):
        a = (a ^ words[i]) * by
        b = (b ^ words[i + 1]) * by
        c = (c ^ words[i + 2]) * by
        d = (d ^ words[i + 3]) * by
        a, b, c, d = a ^ (a >> shift), b ^ (b >> shift), c ^ (c >> shift), d ^ (d >> shift)
    for i in range(whole, len(words)):
        a = (a ^ words[i]) * by
        a ^= a >> shift
    for lane in (b, c, d):
        a = (a ^ lane) * by
        a ^= a >> shift
    return a


def _private_directory(root: Path) -> bool:
    """Create the directory for this user alone; False if it is somebody else's or open to others."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077
