"""Decoded runs shared by the Python processes of a host, as memory-mapped files named by content digest.

Spark hands a state partition now to one Python process, now to another: a dictionary in each would miss
half the time and hold everything twice. Files are written whole and renamed into place, so a name that
exists is complete. The directory belongs to the user alone; if it does not, there is no cache.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

_ALIGN = 64
_LIMIT_BYTES = 4 << 30
_STALE_SECONDS = 24 * 3600


@lru_cache(maxsize=1)
def host_cache() -> FileCache:
    """Return this process's view of the host's cache, pruned when the process starts."""
    root = Path(os.environ.get("BRAIDED_CACHE_DIR") or tempfile.gettempdir()) / f"braided-{os.getuid()}"
    limit = int(os.environ.get("BRAIDED_CACHE_BYTES", _LIMIT_BYTES))
    cache = FileCache(root, limit)
    cache.prune()
    return cache


class FileCache:
    """A bounded directory of blocks; the files used least recently go first."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._written = 0
        self._usable = limit > 0 and _private_directory(root)

    def get(self, digest: str) -> list[pa.Buffer] | None:
        """See `Cache`. A mapping that fails (the address space may be limited) is a miss."""
        if not self._usable:
            return None
        path = self._root / digest
        try:
            with pa.memory_map(str(path)) as source:
                content = source.read_buffer()
            os.utime(path)
        except (OSError, pa.ArrowException):
            return None
        sizes = np.frombuffer(content, np.int64, 1 + int(np.frombuffer(content, np.int64, 1)[0]))[1:]
        at = _aligned(8 * (len(sizes) + 1))
        buffers = []
        for size in sizes.tolist():
            buffers.append(content.slice(at, size))
            at += _aligned(size)
        return buffers if at == content.size else None

    def put(self, digest: str, buffers: list[pa.Buffer]) -> None:
        """See `Cache`. A full disk only means that nothing is kept."""
        size = sum(_aligned(buffer.size) for buffer in buffers)
        if not self._usable or size > self._limit // 2 or (self._root / digest).exists():
            return
        self._written += size
        if self._written > self._limit // 16:
            self.prune()
            self._written = 0
        sizes = np.array([len(buffers), *(buffer.size for buffer in buffers)], np.int64).tobytes()
        temporary = self._root / f".{digest}.{os.getpid()}"
        try:
            with temporary.open("xb") as file:
                for part in (sizes, *buffers):
                    file.write(part)
                    file.write(bytes(-memoryview(part).nbytes % _ALIGN))
            temporary.rename(self._root / digest)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def drop(self, digest: str) -> None:
        """See `Cache`. Processes that still map the file keep their pages."""
        with contextlib.suppress(OSError):
            (self._root / digest).unlink()

    def prune(self) -> None:
        """Delete stale files, then the least recently used until the bound holds."""
        if not self._usable:
            return
        files = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._root):
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    files.append((info.st_mtime, info.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        now = time.time()
        for used, size, path in sorted(files):
            if total <= self._limit and now - used < _STALE_SECONDS:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _aligned(size: int) -> int:
    return size + -size % _ALIGN


def _private_directory(root: Path) -> bool:
    """Create the directory for this user alone; False if it is somebody else's or open to others."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077
