"""A cache of decoded runs for all Python processes of a host: memory-mapped files that are named by their content.

Spark gives a state partition to different Python processes over time. A dictionary in each process would miss half of
the time, and would store everything twice. A file that exists is complete (`braided.runtime.buffer_file`). Only this
user may have access to the directory; otherwise there is no cache.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from braided.runtime.buffer_file import map_file, seal, size_of, write_file

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
    """A bounded directory of blocks; the least recently used files are deleted first.

    Verifying a file takes 2 ms for 16 MB. A process does it once, and again if the file was changed since.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._written = 0
        self._usable = limit > 0 and _private_directory(root)

    def get(self, name: str) -> list[pa.Buffer] | None:
        """See `Cache`. A damaged file is deleted, and counts as a miss."""
        if not self._usable:
            return None
        path = self._root / name
        try:
            mapped = map_file(path, name)
        except PermissionError:
            mapped = None
        except OSError:  # missing, or the process has too few addresses (`spark.executor.pyspark.memory`) or open files
            return None
        if mapped is None:
            self.drop(name)
            return None
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), path.lstat().st_mtime_ns))
        return mapped[0]

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        """See `Cache`. If the disk is full, the block is not cached."""
        size = size_of(buffers)
        path = self._root / name
        if not self._usable or size > self._limit // 2 or os.path.lexists(path):
            return
        self._written += size
        if self._written > self._limit // 16:
            self.prune()
            self._written = 0
        with contextlib.suppress(OSError):
            write_file(path, seal(buffers, name), buffers)

    def drop(self, name: str) -> None:
        """See `Cache`. Processes that still map the file keep their pages."""
        with contextlib.suppress(OSError):
            try:
                (self._root / name).unlink()
            except (IsADirectoryError, PermissionError):
                (self._root / name).rmdir()

    def prune(self) -> None:
        """Delete stale files, then the least recently used ones until the cache is within its bound."""
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


def _private_directory(root: Path) -> bool:
    """Create the directory for this user only; False if it belongs to another user or is open to others."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077
