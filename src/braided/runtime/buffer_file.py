"""Files of buffers that are mapped into memory, written atomically and verified before they are used.

After a full disk, a power failure or a mistake, a file may not be what was written. So each file has a checksum over
its content and a label, which a process checks once, and again if the file was changed since:

```
 | magic, checksum, count, size of each buffer | buffer | buffer | ...     each padded to 64 bytes
```
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.compiled import compiled

ALIGN = 64
_MAGIC = int.from_bytes(b"braided2", "little")
_HEADER_WORDS = 3
_SETTLED_NS = 2_000_000_000
_MOST_CHECKED = 100_000
_checked: dict[str, tuple[int, ...]] = {}

UInt64s = npt.NDArray[np.uint64]


def seal(buffers: Sequence[pa.Buffer], label: str = "") -> pa.Buffer:
    """Return the header of a file of these buffers: magic, checksum, count and sizes."""
    sizes = np.array([len(buffers), *(buffer.size for buffer in buffers)], np.uint64).tobytes()
    total = np.uint64(0)
    for part in (pa.py_buffer(hashlib.sha256(label.encode()).digest()), pa.py_buffer(sizes), *buffers):
        whole = part.size - part.size % 8
        rest = part.slice(whole).to_pybytes().ljust(8, b"\0")
        for content in (part.slice(0, whole), pa.py_buffer(rest)):
            # Always read-only and aligned, so that the kernel is compiled for one type.
            words = np.frombuffer(content if content.address % 8 == 0 else content.to_pybytes(), np.uint64)
            total = np.uint64(checksum(words, total))
    return pa.py_buffer(np.array([_MAGIC, total], np.uint64).tobytes() + sizes)


def checksum_in(header: pa.Buffer) -> int:
    """Return the checksum in the header of a file."""
    return int(np.frombuffer(header, np.uint64)[1])


def size_of(buffers: Sequence[pa.Buffer]) -> int:
    """Return the size of a file of these buffers."""
    return _bounds([buffer.size for buffer in buffers])[-1]


def write_file(path: Path, header: pa.Buffer, buffers: Sequence[pa.Buffer]) -> None:
    """Write a file of buffers under another name, and rename it, so that the file at the path is complete."""
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            for part in (header, *buffers):
                file.write(part)
                file.write(bytes(-part.size % ALIGN))
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def link_file(source: Path, path: Path) -> bool:
    """Give a file a second name, and replace any file of that name; False if this fails or the file is missing."""
    temporary = _temporary(path)
    try:
        os.link(source, temporary)
    except OSError:
        return False
    temporary.replace(path)
    with contextlib.suppress(FileNotFoundError):  # if both are names of the same file, renaming does nothing
        temporary.unlink()
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def map_file(path: Path, label: str = "") -> tuple[list[pa.Buffer], pa.Buffer, bool] | None:
    """Return the buffers in a file, its header, and whether it was verified before; None if the file is damaged.

    Raises OSError if there is no such file, or if the process has no addresses or open files left.
    """
    info = path.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_size < ALIGN or info.st_size % ALIGN:
        return None
    with pa.memory_map(str(path)) as source:
        content = source.read_buffer()
    buffers = _buffers(content)
    if content.size != info.st_size or buffers is None:
        return None
    header = content.slice(0, 8 * (_HEADER_WORDS + len(buffers)))
    # The time of access is set when a file is used, so the time of writing shows whether it was changed.
    key, identity = f"{path}\0{label}", (info.st_ino, info.st_size, info.st_mtime_ns)
    known = _checked.get(key) == identity
    if not known:
        if not header.equals(seal(buffers, label)):
            return None
        # The clock of a file system may have only a few ticks per second; a write in the same tick would not be seen.
        if time.time_ns() - info.st_mtime_ns > _SETTLED_NS:
            if len(_checked) >= _MOST_CHECKED:
                _checked.clear()
            _checked[key] = identity
    return buffers, header, known


def _buffers(content: pa.Buffer) -> list[pa.Buffer] | None:
    """Return the buffers of a file by its header; None if the sizes do not add up."""
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
    """Return the start of each buffer of a file, and the end of the file."""
    return list(accumulate(map(_aligned, sizes), initial=_aligned(8 * (_HEADER_WORDS + len(sizes)))))


def _aligned(size: int) -> int:
    return size + -size % ALIGN


@compiled
def checksum(words: UInt64s, seed: np.uint64) -> np.uint64:
    """Mix words into one: each step is a bijection of the word, so every change of a single word is detected.

    With four lanes the processor can multiply while it loads: 11 GB/s; sha256 has 1.7 and crc32 2.3.
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
