"""Checkpoints of a component: one for each epoch, which starts as a clone of the previous one.

```
 ROOT/000000000003/             the checkpoint of epoch 3
 ROOT/000000000003.whole        only on object stores: the clone is complete (elsewhere the folder appears atomically)
 ROOT/.000000000004-1f3a.../    a clone in progress, or left by a peer that failed
 ROOT/.rehearsal-77c0.../       a clone to try a batch on
```

With hard links, a clone has its own names for the files of the last epoch: no byte is copied, files that the former
owner deletes still exist here, and a rehearsal writes and deletes only in its clone. Files are replaced by renaming and
never rewritten, as Spark and Braided do on every file system. Logs that are appended to are copied. On an object store
(`s3a://`, by fsspec) the store copies the objects itself: their content does not pass through a peer.

A clone for an epoch must be created after the epoch has claimed the component's topics.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from braided.errors import BraidedError, PeerError
from braided.fleet.leases import Position
from braided.storage.files import CHECKPOINT, Files, RemoteFiles, files_at, is_remote, python_url
from braided.storage.topic import plan_digest

_EPOCH = re.compile(r"[0-9]{12}")
_WHOLE = ".whole"
_REHEARSAL = re.compile(r"\.rehearsal-([0-9]+)-[0-9a-f]+")
# Written last in a batch, so cloned first: every batch recorded as committed has its state and its plan in the clone.
_FIRST = "commits"
# Written first in a batch, so cloned last.
_LAST = "offsets"
_CONTROL = "braided/control"
_ADDED_TO = ".jsonl"
_ABANDONED = 24 * 3600


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint of a query: its location in Spark's form, and what it records about the query's batches."""

    location: str

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.location.rpartition("/")[2]

    @property
    def _files(self) -> Files:
        return files_at(python_url(self.location), CHECKPOINT)

    def plan(self, batch: int) -> str:
        """Return the input that a batch covers."""
        plan = self._files.read(f"{_LAST}/{batch}")
        if plan is None:
            raise PeerError(f"checkpoint={self.location!r}: has no plan of batch {batch}; restore it from a copy")
        return plan.decode()

    def is_committed(self, batch: int) -> bool:
        """Whether a batch is recorded as committed."""
        return self._files.read(f"{_FIRST}/{batch}") is not None

    def position(self) -> Position:
        """Return the position of a query: the last batch that its checkpoint records as committed."""
        last = self._last()
        return Position() if last is None else Position(last, plan_digest(self.plan(last)))

    def go_back(self) -> int | None:
        """Remove the commit of a clone's last batch, so that it runs again; return its number, None if there is none.

        Plans and pins of later batches are removed too, because the original query continues in the meantime.
        """
        last = self._last()
        if last is None:
            return None
        pins = [f"{_CONTROL}/{operator}/pins" for operator in self._files.names(_CONTROL)]
        for log in (_FIRST, _LAST, *pins):
            for name in self._files.names(log):
                stem = name.removesuffix(".json")
                if stem.isdigit() and int(stem) >= last + (log != _FIRST):
                    self._files.delete(f"{log}/{name}")
                    self._files.delete(f"{log}/.{name}.crc")
        return last

    def _last(self) -> int | None:
        return max((int(name) for name in self._files.names(_FIRST) if name.isdigit()), default=None)


class Checkpoints:
    """The folder of one component's checkpoints, which all peers can reach: a path on a file system with hard links, or
    the URL of an object store.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._clones: _Clones = _Copies(self._root) if is_remote(root) else _Links(self._root)
        if self._clones.has_query():
            raise PeerError(f"checkpoint={root!r}: belongs to a query that ran outside of a fleet; give a new one")

    def open(self, epoch: int) -> CheckpointFolder:
        """Return the checkpoint of a new epoch: a clone of the newest one before it, empty for the first."""
        name = _name(epoch)
        known = self.epochs()
        if epoch in known or not self._clones.make(max((one for one in known if one < epoch), default=None), epoch):
            raise PeerError(f"checkpoint={f'{self._root}/{name}'!r}: this epoch has started before; take a new one")
        return CheckpointFolder(f"{self._root}/{name}")

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[CheckpointFolder]:
        """Yield a clone of the newest checkpoint, and delete it afterwards, with the parent folders created for it."""
        name = f".rehearsal-{int(time.time())}-{secrets.token_hex(8)}"
        with self._clones.rehearse(max(self.epochs(), default=None), name):
            yield CheckpointFolder(f"{self._root}/{name}")

    def epochs(self) -> list[int]:
        """Return the epochs that have a checkpoint."""
        return self._clones.epochs()

    def clean(self, epoch: int, keep: int = 2) -> None:
        """Delete all but the newest checkpoints, for the holder of an epoch after its commit; never later ones.

        A former owner that still writes to a deleted checkpoint fails, as its commit would. Unfinished clones of failed
        peers are deleted after a day.
        """
        self._clones.delete([known for known in self.epochs() if known <= epoch][: -max(1, keep)])


class _Clones(Protocol):
    """How clones are created below one folder."""

    def has_query(self) -> bool:
        """Whether the folder itself is the checkpoint of a query."""

    def epochs(self) -> list[int]:
        """Return the epochs whose clones are complete, the oldest first."""

    def make(self, source: int | None, epoch: int) -> bool:
        """Start an epoch as a clone of another one, or empty; return False if it exists already."""

    def rehearse(self, source: int | None, name: str) -> contextlib.AbstractContextManager[None]:
        """Create a clone of an epoch, and delete it at the end of the block."""

    def delete(self, epochs: list[int]) -> None:
        """Delete the checkpoints of epochs, and unfinished clones of failed peers."""


class _Links(_Clones):
    """Clones by hard links."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def has_query(self) -> bool:
        return (self._root / "metadata").exists()

    def epochs(self) -> list[int]:
        try:
            names = os.listdir(self._root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if _EPOCH.fullmatch(name))

    def make(self, source: int | None, epoch: int) -> bool:
        target = self._root / _name(epoch)
        clone = self._root / f".{target.name}-{secrets.token_hex(8)}"
        self._clone(source, clone, target.name)
        try:
            clone.rename(target)
        except OSError as error:
            raise PeerError(f"checkpoint={str(target)!r}: {error.strerror}") from error
        return True

    @contextlib.contextmanager
    def rehearse(self, source: int | None, name: str) -> Iterator[None]:
        clone = self._root / name
        missing = [folder for folder in clone.parents if not folder.exists()]
        self._clone(source, clone, name)
        try:
            yield
        finally:
            shutil.rmtree(clone, ignore_errors=True)
            with contextlib.suppress(OSError):  # a folder may have other content by now
                for folder in missing:
                    folder.rmdir()

    def delete(self, epochs: list[int]) -> None:
        for old in epochs:
            shutil.rmtree(self._root / _name(old), ignore_errors=True)
        for path in self._root.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(".") and time.time() - path.lstat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)

    def _clone(self, source: int | None, target: Path, name: str) -> None:
        try:
            target.mkdir(parents=True)
        except OSError as error:
            raise PeerError(f"checkpoint={str(self._root)!r}: {error.strerror}; give another path") from error
        if source is None:
            return
        folder = self._root / _name(source)
        for part in sorted(os.listdir(folder), key=_turn):
            _link(folder / part, target / part)
        for file in target.glob("state/*/_metadata/**/*"):
            if file.is_file() and not file.name.startswith("."):
                content = file.read_text()
                moved = _relocate(content, self._root.name, name)
                if moved != content:
                    new = file.with_name(f".{file.name}.new")
                    new.write_text(moved)
                    new.rename(file)  # the link of the other epoch keeps its content
                    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


class _Copies(_Clones):
    """Clones by copies that an object store makes itself."""

    def __init__(self, root: str) -> None:
        self._root = root
        files = files_at(python_url(root), CHECKPOINT)
        assert isinstance(files, RemoteFiles)
        self._files = files

    def has_query(self) -> bool:
        return self._files.read("metadata") is not None

    def epochs(self) -> list[int]:
        names = [name.removesuffix(_WHOLE) for name in self._files.names("") if name.endswith(_WHOLE)]
        return sorted(int(name) for name in names if _EPOCH.fullmatch(name))

    def make(self, source: int | None, epoch: int) -> bool:
        try:
            self._files.check()
        except BraidedError as error:
            raise PeerError(str(error)) from error
        self._clone(source, _name(epoch))
        return self._files.create(f"{_name(epoch)}{_WHOLE}", b"")

    @contextlib.contextmanager
    def rehearse(self, source: int | None, name: str) -> Iterator[None]:
        self._clone(source, name)
        try:
            yield
        finally:
            self._files.clear(name)

    def delete(self, epochs: list[int]) -> None:
        for old in epochs:
            self._files.delete(f"{_name(old)}{_WHOLE}")
        whole = self.epochs()
        for name in self._files.names(""):
            rehearsal = _REHEARSAL.fullmatch(name)
            # Clones started before the oldest epoch to keep, or still written to by the owner of an earlier epoch.
            if (rehearsal is not None and int(rehearsal[1]) < time.time() - _ABANDONED) or (
                _EPOCH.fullmatch(name) and whole and int(name) < whole[0]
            ):
                self._files.clear(name)

    def _clone(self, source: int | None, name: str) -> None:
        if source is None:
            return
        folder = _name(source)
        for part in sorted({path.split("/")[1] for path in self._files.below(folder)}, key=_turn):
            self._files.copy(f"{folder}/{part}", f"{name}/{part}")
        for file in self._files.below(f"{name}/state"):
            content = self._files.read(file) if "/_metadata/" in file else None
            if content is not None:
                moved = _relocate(content.decode(), self._root.rpartition("/")[2], name).encode()
                if moved != content:
                    self._files.replace(file, moved)


def _name(epoch: int) -> str:
    return f"{epoch:012d}"


def _turn(part: str) -> tuple[bool, bool, str]:
    return part == _LAST, part != _FIRST, part


def _relocate(metadata: str, root: str, name: str) -> str:
    """Replace paths in a clone's state metadata by its own; Spark writes absolute paths there.

    The files of schemas are in the clone too. The files at the old paths are deleted with the epoch that wrote them.
    """
    return re.sub(rf"(?<=/{re.escape(root)}/)[^/\"]+(?=/state/)", name, metadata)


def _link(source: Path, target: Path) -> None:
    """Link a file, or all files below a folder. Files deleted meanwhile were no longer needed, and are left out."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(source)):
                _link(source / name, target / name)
        return
    with contextlib.suppress(FileNotFoundError):
        if source.name.endswith(_ADDED_TO):
            shutil.copy2(source, target)
        else:
            os.link(source, target)
