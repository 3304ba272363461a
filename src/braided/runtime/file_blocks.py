"""Blocks of state as immutable files in the checkpoint: written once, mapped into memory, without another cache.

```
 <checkpoint>/braided/state/<operator>/<worker>/<batch>-<number>-<checksum>
```

The bookkeeping is in Spark's state store, which has a version of it for every batch. It lists the live files (`blocks`)
and the dropped files, each with the batch that dropped it (`dropped`). A file is complete before a bookkeeping names
it, and a task that runs again writes the same bytes under the same name.

**What may be deleted in batch N.** Spark retains the logs of R batches. So the oldest batch that may run again during
batch N is N - 1 - R, and it loads the version that batch L = N - 2 - R wrote. Therefore batch N may delete

* a file that was dropped in a batch before L: no version from L on has it among its live files;
* a file that was written before L and is neither live nor dropped: it is from an attempt that never committed. (A file
  from before L that a version from L on names is live, or was dropped since.)

Both are decided by the *loaded* bookkeeping, never by the one that is being written, and never by the age of a file. So
the rule is correct for retries, for a task that runs twice at the same time, for a rollback to any version that Spark
retains, and for an old driver that still runs: it can delete only files that no version needed before its own batch.

**Adopted files.** If a router's block is stored unchanged (`braided.runtime.shuffle_files`), its file gets a second
name here, by a hard link, so that its bytes are written only once. Its indexes are in a separate file `<name>.index`.
The rules above are about names, and are still valid:

* The link has a name in this folder, with the batch, number and checksum that a written file would have. When the
  router's name is deleted (by the next batch, the end of the run or another driver), the bytes stay.
* No file is ever changed in place: a router or a worker that runs again writes another file and renames it to the same
  name. So a link always has the bytes that the worker verified.
* The link exists before a bookkeeping names it. A task that runs again links again under the same name. If the router's
  file is lost meanwhile, or the file system has no links, the content is written: same name, same bytes.
* An index is derived from the verified content, and its checksum contains the name of its file. A missing or damaged
  index is computed again, so no version needs it. It is deleted with its file, or later by the sweep.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from braided.runtime.buffer_file import checksum_in, link_file, map_file, seal, write_file
from braided.runtime.store import Derive, UnusableBlockError
from braided.typing import Json

SWEEP_EVERY = 32
"""After how many batches a folder is searched for files of attempts that never committed."""

INDEX = ".index"
"""The suffix of the index files of adopted files."""
_NAME = re.compile(r"\.?(\d{1,19})-\d{1,19}-[0-9a-f]{16}(\.index)?(\.[0-9a-f]+)?")


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

    def __init__(self, folder: StateFolder, bookkeeping: Json) -> None:
        """`bookkeeping` is the loaded bookkeeping; its list `dropped` is updated here."""
        self._folder = folder
        self._path = folder.root / str(bookkeeping.setdefault("home", folder.home)) / str(folder.worker)
        self._live = {str(name) for number, name in bookkeeping["blocks"].items() if number != "next"}
        self._dropped: list[list[str | int]] = bookkeeping.setdefault("dropped", [])
        self._is_made = False
        self._clean()

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str, file: Path | None = None) -> str:
        """See `BlockStore`."""
        content = buffers if file is None else buffers[:1]
        header = seal(content)
        name = f"{self._folder.batch}-{number}-{checksum_in(header):016x}"
        if not self._is_made:
            self._path.mkdir(parents=True, exist_ok=True)
            self._is_made = True
        if file is None or not link_file(file, self._path / name):
            write_file(self._path / name, header, content)
        if len(content) < len(buffers):
            _write_index(self._path / name, buffers[1:])
        return name

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """See `BlockStore`."""
        path = self._path / name
        return _with_index(path, *map_block(path), derive, keep=True)

    def delete(self, number: int, name: str) -> None:
        """See `BlockStore`. The file is kept as long as Spark may go back to a version that has it."""
        self._dropped.append([name, self._folder.batch])

    def finish(self) -> None:
        """See `BlockStore`. Every file is complete when it has its name."""

    def _clean(self) -> None:
        """Delete files that no version retained by Spark has."""
        limit = self._folder.batch - self._folder.retained - 2
        known = self._live | {str(name) for name, _ in self._dropped}
        for name in [str(name) for name, batch in self._dropped if int(batch) < limit]:
            self._remove(name)
        self._dropped[:] = [entry for entry in self._dropped if int(entry[1]) >= limit]
        if self._folder.batch % SWEEP_EVERY == 0:
            for name, born in block_files(self._path):
                if born < limit and name.removesuffix(INDEX) not in known:
                    self._remove(name)

    def _remove(self, name: str) -> None:
        for file in (name, f"{name}{INDEX}"):
            with contextlib.suppress(FileNotFoundError):
                (self._path / file).unlink()


class FolderReader:
    """The blocks in a folder, read-only. See `BlockStore`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, number: int, buffers: Sequence[pa.Buffer], kind: str, file: Path | None = None) -> str:
        """Not supported."""
        raise NotImplementedError

    def get(self, number: int, name: str, derive: Derive) -> tuple[list[pa.Buffer], bool]:
        """See `BlockStore`."""
        path = self._path / name
        return _with_index(path, *map_block(path), derive, keep=False)

    def delete(self, number: int, name: str) -> None:
        """Not supported."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do nothing, because nothing was stored."""


def block_files(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the files of a worker's folder, each with the batch that wrote it; skip other files."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path):
            ours = _NAME.fullmatch(entry.name)
            if ours is not None:
                yield entry.name, int(ours[1])


def map_block(path: Path) -> tuple[list[pa.Buffer], bool]:
    """Return the verified content of a file (and its indexes unless it was adopted), and if it was verified before.

    Raises `UnusableBlockError`.
    """
    try:
        mapped = map_file(path)
    except FileNotFoundError as error:
        raise UnusableBlockError(f"the file {path} is missing") from error
    if mapped is None or f"{checksum_in(mapped[1]):016x}" != path.name.rpartition("-")[2]:
        raise UnusableBlockError(f"the file {path} is damaged")
    return mapped[0], mapped[2]


def _with_index(
    path: Path, buffers: list[pa.Buffer], known: bool, derive: Derive, *, keep: bool
) -> tuple[list[pa.Buffer], bool]:
    """Return a content with its indexes; for an adopted file, compute them again if the index file is not usable."""
    if len(buffers) > 1:
        return buffers, known
    with contextlib.suppress(FileNotFoundError):
        mapped = map_file(path.with_name(f"{path.name}{INDEX}"), path.name)
        if mapped is not None:
            return [*buffers, *mapped[0]], known and mapped[2]
    indexes = derive(buffers[0])
    if indexes and keep:
        _write_index(path, indexes)
    return [*buffers, *indexes], known and not indexes


def _write_index(path: Path, indexes: Sequence[pa.Buffer]) -> None:
    write_file(path.with_name(f"{path.name}{INDEX}"), seal(indexes, path.name), indexes)
