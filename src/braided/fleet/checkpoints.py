"""Checkpoints of a component: one for each epoch, begun as a clone of the last by hard links.

```
 ROOT/000000000003/             the checkpoint of epoch 3; its name appears when it is whole
 ROOT/000000000003/control/     control directories of its joins, which go along
 ROOT/.000000000004-1f3a.../    a clone that is being made, or was left by a death
 ROOT/.rehearsal-77c0.../       a clone to try a batch on
 ROOT/.staged-09d2... -> 000000000003    how a query finds its checkpoint that was built before it had one
```

Precondition: files are replaced by renaming, never rewritten, as Spark and Braided do on every file system. Then a
link keeps what it was made of. Logs that lines are added to are copied. A clone for an epoch must be made after the
epoch has claimed the component's topics.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from braided.errors import PeerError
from braided.fleet.leases import Position
from braided.storage.topic import plan_digest

_EPOCH = re.compile(r"[0-9]{12}")
# Written last in a batch, so taken first: whatever is noted as committed has its state and its plan in the clone.
_FIRST = "commits"
# Written first in a batch, so taken last.
_LAST = "offsets"
CONTROL = "control"
_ADDED_TO = ".jsonl"
_ABANDONED = 24 * 3600
_STAGED = ".staged-"


class Checkpoints:
    """The folder of one component's checkpoints, on a file system with hard links that all peers reach."""

    def __init__(self, root: str) -> None:
        if "://" in root:
            raise PeerError(f"checkpoint={root!r}: write a path; clones need a file system with hard links")
        self._root = Path(root)
        if (self._root / "metadata").exists():
            raise PeerError(f"checkpoint={root!r}: is that of a query that ran outside of a fleet; give a new one")

    def open(self, epoch: int) -> Path:
        """Return the checkpoint of a new epoch: a clone of the newest one before it, empty for the first."""
        target = self._root / f"{epoch:012d}"
        if target.exists():
            raise PeerError(f"checkpoint={str(target)!r}: this epoch has begun before; take a new one")
        clone = self._root / f".{epoch:012d}-{secrets.token_hex(8)}"
        before = [known for known in self.epochs() if known < epoch]
        self._clone(self._path(before[-1]) if before else None, clone, target.name)
        try:
            clone.rename(target)
        except OSError as error:
            raise PeerError(f"checkpoint={str(target)!r}: {error.strerror}") from error
        return target

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[Path]:
        """Give a clone of the newest checkpoint, and delete it afterwards, with the folders above that it needed."""
        clone = self._root / f".rehearsal-{secrets.token_hex(8)}"
        missing = [folder for folder in clone.parents if not folder.exists()]
        epochs = self.epochs()
        self._clone(self._path(epochs[-1]) if epochs else None, clone, clone.name)
        try:
            yield clone
        finally:
            shutil.rmtree(clone, ignore_errors=True)
            with contextlib.suppress(OSError):  # something else is in one by now
                for folder in missing:
                    folder.rmdir()

    def stage(self, folder: Path) -> Path:
        """Return a link to a checkpoint or clone, by which a query can be built before its own is there."""
        link = self._root / f"{_STAGED}{secrets.token_hex(8)}"
        link.symlink_to(folder.name)
        return link

    def epochs(self) -> list[int]:
        """Return the epochs that have a checkpoint."""
        try:
            names = os.listdir(self._root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if _EPOCH.fullmatch(name))

    def clean(self, epoch: int, keep: int = 2) -> None:
        """Delete all but the newest checkpoints, for the holder of an epoch once it has committed; of later ones none.

        A former owner that still writes to its own finds it gone, and fails, as its commit would. Links go with what
        they lead to; what deaths left of clones and links goes after a day.
        """
        for old in [known for known in self.epochs() if known <= epoch][: -max(1, keep)]:
            shutil.rmtree(self._path(old), ignore_errors=True)
        for name in os.listdir(self._root):
            path = self._root / name
            with contextlib.suppress(FileNotFoundError):
                if not name.startswith("."):
                    continue
                is_old = time.time() - path.lstat().st_mtime > _ABANDONED
                if path.is_symlink():
                    leads_to = os.readlink(path)
                    is_over = _EPOCH.fullmatch(leads_to) and not path.exists()
                    if (is_old or is_over) and leads_to < self._path(epoch).name:  # not what may run
                        path.unlink()
                elif is_old:
                    shutil.rmtree(path, ignore_errors=True)

    def _path(self, epoch: int) -> Path:
        return self._root / f"{epoch:012d}"

    def _clone(self, source: Path | None, target: Path, name: str) -> None:
        try:
            target.mkdir(parents=True)
        except OSError as error:
            raise PeerError(f"checkpoint={str(self._root)!r}: {error.strerror}; give another") from error
        if source is None:
            return
        for part in sorted(os.listdir(source), key=lambda part: (part == _LAST, part != _FIRST, part)):
            _link(source / part, target / part)
        self._relocate(target, name)

    def _relocate(self, clone: Path, name: str) -> None:
        """Let a clone's metadata of its state name its own files; Spark writes whole paths there.

        The files of schemas are in the clone too. Those that the paths lead to go with the epoch that wrote them.
        """
        place = re.compile(rf"(?<=/{re.escape(self._root.name)}/)[^/\"]+(?=/state/)")
        for file in clone.glob("state/*/_metadata/**/*"):
            if file.is_file() and not file.name.startswith("."):
                content = file.read_text()
                moved = place.sub(name, content)
                if moved != content:
                    new = file.with_name(f".{file.name}.new")
                    new.write_text(moved)
                    new.rename(file)  # the link of the other epoch keeps what it has
                    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Link a file, or all below a folder. What is deleted meanwhile was no longer needed, and is left out."""
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


def lead(link: Path, folder: Path) -> None:
    """Let a link of `Checkpoints.stage` lead to another checkpoint, from one moment to the next."""
    new = link.with_name(f"{link.name}.new")
    new.symlink_to(folder.name)
    new.rename(link)


def position_of(checkpoint: Path) -> Position:
    """Return how far a query has come, by what its checkpoint notes as committed."""
    done = _numbers(checkpoint / _FIRST)
    if not done:
        return Position()
    return Position(done[-1], plan_digest((checkpoint / _LAST / str(done[-1])).read_text()))


def go_back(checkpoint: Path) -> int | None:
    """Make a clone forget that its last batch was committed, so that it runs again; return which one, None if none.

    Whatever was planned or pinned after it goes too: the query that the clone was made of runs on meanwhile.
    """
    done = _numbers(checkpoint / _FIRST)
    if not done:
        return None
    logs = [checkpoint / _FIRST, checkpoint / _LAST, *checkpoint.glob(f"{CONTROL}/**/pins")]
    for log in logs:
        for name in os.listdir(log):
            stem = name.removeprefix(".").removesuffix(".crc").removesuffix(".json")
            if stem.isdigit() and int(stem) >= done[-1] + (log.name != _FIRST):
                (log / name).unlink()
    return done[-1]


def _numbers(log: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(log) if name.isdigit())
    except FileNotFoundError:
        return []
