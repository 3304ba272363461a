"""Blocks of state as immutable files in the checkpoint: written once, mapped into memory, and their own cache.

```
 <checkpoint>/braided/state/<operator>/<worker>/<batch>-<number>-<checksum>
```

The bookkeeping is in Spark's state store, which has a version of it for every batch. It lists the live files (`blocks`)
and those that were dropped, each with the batch that dropped it (`dropped`). A file is complete before a bookkeeping
names it, and a task that runs again writes the same bytes under the same name.

**What may be deleted in batch N.** Spark retains the logs of R batches, so the oldest batch that may run again while N
runs is N - 1 - R, and it loads the version that batch L = N - 2 - R left. So in batch N may be deleted

* a file that was dropped in a batch before L: no version from L on has it among its live files;
* a file that was born before L and that is neither live nor dropped: an attempt wrote it that never committed. (A
  file that any version from L on names and that was born before L is live, or was dropped since.)

Both are judged by the bookkeeping that was *loaded*, never by the one that is being written, and nothing is deleted by
its age. So it holds for retries, for a task that runs twice at the same time, for a rollback to any version that Spark
retains, and for a driver that should have ended: it may delete only what was of no use to anybody before its own batch.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from braided.runtime.buffer_file import checksum_in, map_file, seal, write_file
from braided.runtime.store import Derive, UnusableBlockError
from braided.typing import Json

SWEEP_EVERY = 32
"""A folder is searched for files of attempts that never committed once in so many batches."""
_NAME = re.compile(r"\.?(\d{1,19})-\d{1,19}-[0-9a-f]{16}(\.[0-9a-f]+)?")


@dataclass(frozen=True)
class StateFolder:
    """Where the blocks of one worker are in one batch, and how many batches Spark can go back.

    home : the folder of the worker's operator, if the bookkeeping has none yet.
    """

    root: Path
    home: str
    worker: int
    batch: int
    retained: int


class FileBlocks:
    """The blocks of one worker in one batch, as files. See `BlockStore`."""

    def __init__(self, folder: StateFolder, book: Json) -> None:
        """`book` is the bookkeeping as it was loaded; from now on its list `dropped` is kept here."""
        self._folder = folder
        self._path = folder.root / str(book.setdefault("home", folder.home)) / str(folder.worker)
        self._live = {str(name) for number, name in book["blocks"].items() if number != "next"}
        self._dropped: list[list[str | int]] = book.setdefault("dropped", [])
        self._is_made = False
        self._clean()

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str) -> str:
        """See `BlockStore`."""
        header = seal(buffers)
        name = f"{self._folder.batch}-{number}-{checksum_in(header):016x}"
        if not self._is_made:
            self._path.mkdir(parents=True, exist_ok=True)
            self._is_made = True
        write_file(self._path / name, header, buffers)
        return name

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """See `BlockStore`."""
        return map_block(self._path / name)

    def delete(self, number: int, name: str) -> None:
        """See `BlockStore`. The file stays as long as Spark may go back to a version that has it."""
        self._dropped.append([name, self._folder.batch])

    def _clean(self) -> None:
        """Delete what no version that Spark retains has."""
        limit = self._folder.batch - self._folder.retained - 2
        known = self._live | {str(name) for name, _ in self._dropped}
        for name in [str(name) for name, batch in self._dropped if int(batch) < limit]:
            self._remove(name)
        self._dropped[:] = [entry for entry in self._dropped if int(entry[1]) >= limit]
        if self._folder.batch % SWEEP_EVERY == 0:
            for name, born in block_files(self._path):
                if born < limit and name not in known:
                    self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._path / name).unlink()


class FolderReader:
    """The blocks in a folder, read and never changed. See `BlockStore`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str) -> str:
        """Nothing is stored."""
        raise NotImplementedError

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """See `BlockStore`."""
        return map_block(self._path / name)

    def delete(self, number: int, name: str) -> None:
        """Nothing is deleted."""
        raise NotImplementedError


def block_files(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the files of a worker's folder, each with the batch that wrote it. Other files are not ours."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path):
            ours = _NAME.fullmatch(entry.name)
            if ours is not None:
                yield entry.name, int(ours[1])


def map_block(path: Path) -> tuple[list[pa.Buffer], bool]:
    """Return the content and the indexes in a file, verified, and whether they were before.

    Raises `UnusableBlockError`.
    """
    try:
        found = map_file(path)
    except FileNotFoundError as error:
        raise UnusableBlockError(f"the file {path} is missing") from error
    if found is None or f"{checksum_in(found[1]):016x}" != path.name.rpartition("-")[2]:
        raise UnusableBlockError(f"the file {path} is damaged")
    return found[0], found[2]
