"""Which files a directory has, as Spark's own source of files sees them: those below it, without hidden ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from braided.errors import BraidedError, OptionError
from braided.storage.files import files_at, is_remote, local_path, resolve

_NULL = "__HIVE_DEFAULT_PARTITION__"
# As different file systems of fsspec call the time of the last change.
_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True)
class FoundFile:
    """A file: its name below the directory, its size, and when it was changed last, in seconds."""

    name: str
    bytes: int
    changed: float = 0.0


def list_files(location: str) -> list[FoundFile]:
    """Return the files of a directory, the oldest first; of the same age, by name."""
    found = _list_remote(location) if is_remote(location) else _list_local(local_path(location))
    return sorted(found, key=lambda file: (file.changed, file.name))


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder of this name."""
    return name.startswith((".", "_")) and "=" not in name


def is_directory(location: str) -> bool:
    """Whether there is a directory; on an object store, whether any object is below it."""
    if is_remote(location):
        return bool(files_at(location.rstrip("/"), "path").names(""))
    return os.path.isdir(local_path(location))


def file_bytes(path: str) -> int:
    """Return the size of a file."""
    if not is_remote(path):
        return os.path.getsize(local_path(path))
    system, name = resolve(path, path, BraidedError)
    system.invalidate_cache()
    return int(system.size(name))


def check_no_table(location: str) -> None:
    """Refuse the directory of a table: its log says which of the files there count, and others would come twice."""
    files = files_at(location.rstrip("/"), "path")
    if files.names("_delta_log"):
        raise OptionError(
            f"path={location!r}: is a Delta table, of which not every file counts; read it as 'delta:{location}'"
        )
    if any(name.endswith(".metadata.json") for name in files.names("metadata")):
        raise OptionError(
            f"path={location!r}: is an Iceberg table, of which not every file counts; read it with Iceberg's own source"
        )


def path_values(name: str) -> dict[str, str | None]:
    """Return the values that the folders of a file give, as Spark and Hive name them.

    >>> path_values("day=2024-05-01/cell=a%2Fb/kind=__HIVE_DEFAULT_PARTITION__/x.parquet")
    {'day': '2024-05-01', 'cell': 'a/b', 'kind': None}
    """
    parts = [folder.partition("=") for folder in name.split("/")[:-1] if "=" in folder]
    return {unquote(key): None if value == _NULL else unquote(value) for key, _, value in parts}


def _list_local(root: str) -> Iterator[FoundFile]:
    def stop(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a folder may go while it is looked at
            raise error

    if not os.path.isdir(root):
        raise BraidedError(
            f"path={root!r}: the directory is missing; restore it: the query continues from its checkpoint"
        )
    for place, folders, files in os.walk(root, followlinks=True, onerror=stop):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in files:
            path = os.path.join(place, name)
            if is_hidden(name):
                continue
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            yield FoundFile(os.path.relpath(path, root).replace(os.sep, "/"), status.st_size, status.st_mtime)


def _list_remote(location: str) -> Iterator[FoundFile]:
    system, root = resolve(location.rstrip("/"), f"path={location!r}", BraidedError)
    system.invalidate_cache()
    try:
        found: dict[str, Any] = system.find(root, detail=True)
    except Exception as error:
        raise BraidedError(f"path={location!r}: cannot list files: {type(error).__name__}: {error}") from error
    start = len(root.rstrip("/")) + 1
    for path, entry in found.items():
        name = path[start:]
        # Some stores have an object for a folder, of the folder's name.
        if name and not name.endswith("/") and not any(is_hidden(part) for part in name.split("/")):
            yield FoundFile(name, int(entry.get("size") or 0), _changed(entry))


def _changed(entry: dict[str, Any]) -> float:
    for key in _CHANGED:
        value = entry.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0
