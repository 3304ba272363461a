"""Where data files are: a local path, or a URL for fsspec."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from braided.errors import BraidedError, TopicError

_PATTERN = re.compile(r"[][{}*?\\]")


def is_remote(location: str) -> bool:
    """Whether a location is a URL of another file system than the local one."""
    return "://" in location and not location.startswith("file:")


def local_path(location: str) -> str:
    """Return a local path without the scheme that Spark puts before it."""
    for scheme in ("file://", "file:"):
        if location.startswith(scheme):
            return "/" + location[len(scheme) :].lstrip("/")
    return location


def has_glob_characters(name: str) -> bool:
    """Whether Spark takes a name for a pattern. Of a batch with a file of such a name it reads others again.

    SPARK-58518: where one of the files that a stream found looks like a pattern, the whole list is taken once more.
    """
    return _PATTERN.search(name) is not None


def _system(location: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise BraidedError(f"{location}: a URL needs fsspec; install braided[fsspec]") from None
    try:
        system, path = fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        raise BraidedError(f"{location}: {error}") from error
    return system, path


def open_input(location: str) -> Any:
    """Return a file to read: a path, or an open remote file."""
    if not is_remote(location):
        return local_path(location)
    system, path = _system(location)
    return system.open(path, "rb")


def open_output(location: str) -> Any:
    """Return a new file to write; its folder exists."""
    if not is_remote(location):
        return open(local_path(location), "xb")
    system, path = _system(location)
    return system.open(path, "wb")


def check_folder(location: str, option: str) -> None:
    """Refuse a local path that is not, or cannot become, a folder that this user may write to."""
    if is_remote(location):
        return
    path = Path(os.path.abspath(local_path(location)))
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    what = f"{option}={location!r}: {'' if nearest == path else f'{str(nearest)!r} above it '}"
    if not nearest.is_dir():
        raise TopicError(f"{what}is no directory; give another path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TopicError(f"{what}cannot be written to by this user; give another path, or permission")


def make_folder(location: str) -> None:
    """Make a folder and those above it, where the file system has folders."""
    if not is_remote(location):
        Path(local_path(location)).mkdir(parents=True, exist_ok=True)
    else:
        system, path = _system(location)
        system.makedirs(path, exist_ok=True)


def delete_file(location: str) -> None:
    """Delete a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        if not is_remote(location):
            os.unlink(local_path(location))
        else:
            system, path = _system(location)
            system.rm_file(path)


def delete_folder(location: str) -> None:
    """Delete an empty folder, where the file system has folders."""
    if not is_remote(location):
        with contextlib.suppress(OSError):
            os.rmdir(local_path(location))
