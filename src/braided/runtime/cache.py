"""Decoded runs shared by the Python processes of a host, as memory-mapped files named by their content.

Spark hands a state partition now to one Python process, now to another: a dictionary in each would miss
half the time and hold everything twice. A name that exists is complete (`braided.runtime.buffer_file`).
The directory belongs to the user alone; if it does not, there is no cache.
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
    """A bounded directory of blocks; the files used least recently go first.

    Checking a file takes 2 ms for 16 MB. A process does it once, and again if the file was written to since.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._written = 0
        self._usable = limit > 0 and _private_directory(root)

    def get(self, name: str) -> list[pa.Buffer] | None:
        """See `Cache`. A file that is not what was written is deleted, and a miss."""
        if not self._usable:
            return None
        path = self._root / name
        try:
            mapped = map_file(path, name)
        except PermissionError:
            mapped = None
        except OSError:  # not there, or the process is short of addresses (`spark.executor.pyspark.memory`) or files
            return None
        if mapped is None:
            self.drop(name)
            return None
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), path.lstat().st_mtime_ns))
        return mapped[0]

    def put(self, name: str, buffers: list[pa.Buffer]) -> None:
        """See `Cache`. A full disk only means that nothing is kept."""
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


def _private_directory(root: Path) -> bool:
    """Create the directory for this user alone; False if it is somebody else's or open to others."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077
