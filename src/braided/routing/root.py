"""One folder for the control directories of all queries, so that users need not name one for each query.

```
 root/
   <query id>/
     query.json            where the checkpoint of the query is, and on which machine
     copies/<run id>.json  a start of the query on a copy of that checkpoint: refused
     <operator>/           a control directory (`braided.routing.control_directory`)
```

Router tasks find the directory of their operator by the query's id, which every task of a batch has. So one DataFrame
can be started as several queries, and a query finds its directory again after its checkpoint was moved.
"""

from __future__ import annotations

import json
import os
import re
import socket
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from braided.errors import ControlError
from braided.routing.control_directory import ControlDir
from braided.storage.files import Files, files_at

_NOTE = "query.json"
# Only folders whose name is a query's id are deleted: other folders belong to someone else.
_QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ControlRoot:
    """The control directories of all queries, by path or fsspec URL. Only its location is pickled."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") or location

    def __reduce__(self) -> tuple[Any, ...]:
        return ControlRoot, (self.location,)

    @property
    def _files(self) -> Files:
        return files_at(self.location)

    def check(self) -> None:
        """See `ControlDir.check`."""
        self._files.check()

    def directory(self, query: str, operator: str) -> ControlDir:
        """Return the control directory of an operator of a query."""
        return ControlDir(f"{self.location}/{query}/{operator}")

    def note(self, query: str, checkpoint: str) -> None:
        """Store the location of a query's checkpoint."""
        mine = {"checkpoint": checkpoint, "host": socket.gethostname()}
        if self._note(query) != mine:
            self._files.replace(f"{query}/{_NOTE}", json.dumps(mine).encode())

    def notice_start(self, query: str, run: str, checkpoint: str) -> None:
        """Mark a run on a copy of a checkpoint, which is refused: two queries would change the same routing.

        If this root is in the checkpoint, maybe through a link, it was copied too, and each query has its own.
        """
        note = self._note(query)
        other, mine, here = map(local_folder, (note.get("checkpoint"), checkpoint, self.location))
        if here is not None and mine is not None and here.resolve().is_relative_to(mine.resolve()):
            return
        if note.get("host") != socket.gethostname() or other is None or mine is None or not other.exists():
            return
        if not (mine.exists() and mine.samefile(other)):
            self._files.replace(f"{query}/copies/{run}.json", json.dumps({"of": str(other), "is": str(mine)}).encode())

    def refuse_copy(self, query: str, run: str) -> None:
        """Raise if a run was marked as running on a copy of a checkpoint."""
        copy = _copy(self.location, query, run)
        if copy is not None:
            raise ControlError(
                f"control: the checkpoint {copy.get('is')!r} is a copy of {copy.get('of')!r}, which owns the control "
                f"directories in {self.location}/{query}; copy the directory of the operator too, and set control= to "
                "it; or delete the checkpoint that is not needed any more"
            )

    def queries(self) -> list[str]:
        """Return the ids of the queries that have directories here."""
        return sorted(name for name in self._files.names("") if _QUERY.fullmatch(name))

    def forget(self, query: str) -> None:
        """Delete the directories of a query."""
        if not _QUERY.fullmatch(query):
            raise ControlError(f"query={query!r}: not the id of a query; use the id that reports and checkpoints have")
        self._files.clear(query)

    def forget_deleted(self) -> list[str]:
        """Delete the directories of queries whose checkpoint was deleted; return their ids.

        Only checkpoints on this machine are checked.
        """
        deleted = [query for query in self.queries() if self._is_deleted(query)]
        for query in deleted:
            self.forget(query)
        return deleted

    def _is_deleted(self, query: str) -> bool:
        note = self._note(query)
        checkpoint = local_folder(note.get("checkpoint"))
        return note.get("host") == socket.gethostname() and checkpoint is not None and not checkpoint.exists()

    def _note(self, query: str) -> dict[str, Any]:
        return _plain(self._files.read(f"{query}/{_NOTE}"))


def user_root() -> ControlRoot | None:
    """Return the root in the user's cache directory; None if the user has no home directory."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return ControlRoot(str(cache.absolute() / "braided" / "control"))


def local_folder(location: object) -> Path | None:
    """Return the path of a location on this machine's file system; None for other file systems.

    >>> local_folder("file:/data/check"), local_folder("s3a://bucket/check")
    (PosixPath('/data/check'), None)
    """
    if not isinstance(location, str) or not location:
        return None
    if location.startswith("file:"):
        return Path(unquote(re.sub(r"^file:(//(?=/))?", "", location)))
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location) else Path(location)


@lru_cache(maxsize=256)
def _copy(location: str, query: str, run: str) -> dict[str, Any] | None:
    """Return the mark of a run on a copy. It is written before the first batch, so one read per process is enough."""
    return _plain(files_at(location).read(f"{query}/copies/{run}.json")) or None


def _plain(content: bytes | None) -> dict[str, Any]:
    """Read a note; a damaged one counts as empty, because no row depends on it."""
    try:
        value = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
