"""Files of control directories, topics and fleets, below a local path or an fsspec URL.

A created file appears complete and only once: on a local file system by a hard link, elsewhere by fsspec's exclusive
create. Data files are written directly: they become part of a topic only by a manifest.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from braided.errors import BraidedError, ControlError, StateError, TopicError

STORAGE = "storage"
"""The option that names a fleet's directory, which must exist as long as the fleet."""
CHECKPOINT = "checkpoint"
"""The name of a query's checkpoint in errors."""
_ATTEMPTS = 3
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


def python_url(location: str) -> str:
    """Return the URL that Python's clients use for a URL of Hadoop's file systems; a path is the same for both.

    >>> python_url("s3a://bucket/check/"), python_url("dbfs:/check"), python_url("/check")
    ('s3://bucket/check', 'dbfs:///check', '/check')
    """
    if location.startswith(("/", "file:")):
        return location
    scheme, _, rest = location.rstrip("/").partition(":")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest.removeprefix('//')}"


def has_glob_characters(name: str) -> bool:
    """Whether Spark reads a file name as a glob pattern. It then reads other files of the batch a second time.

    SPARK-58518: if one of the new files of a stream looks like a pattern, Spark expands the whole list again.
    """
    return _PATTERN.search(name) is not None


def check_folder(location: str, option: str) -> None:
    """Raise if a local path is not, and cannot become, a folder that this user may write to."""
    if is_remote(location):
        return
    path = Path(os.path.abspath(local_path(location)))
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    what = f"{option}={location!r}: {'' if nearest == path else f'{str(nearest)!r} above it '}"
    if not nearest.is_dir():
        raise TopicError(f"{what}is not a directory; use another path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TopicError(f"{what}is not writable for this user; use another path, or give this user permission")


def resolve(location: str, what: str, error: type[BraidedError]) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise error(f"{what}: a URL needs fsspec; install braided[fsspec]") from None
    try:
        system, path = fsspec.core.url_to_fs(location)
    except ImportError as cause:
        extra = "as braided[s3] does" if location.startswith("s3") else "in addition to braided[fsspec]"
        raise error(f"{what}: {cause}, {extra}") from cause
    except ValueError as cause:
        raise error(f"{what}: {cause}") from cause
    return system, path


def open_input(location: str) -> Any:
    """Return a file to read: a path, or an open remote file."""
    if not is_remote(location):
        return local_path(location)
    system, path = resolve(location, location, BraidedError)
    return system.open(path, "rb")


class Files(Protocol):
    """The operations on files below a folder; names are relative, with slashes."""

    def check(self) -> None:
        """Raise unless `create` is exclusive here."""

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes | None:
        """Return a file's content, or the bytes from `start` to `stop`; None if there is no such file."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file atomically; if it exists, return False and write nothing."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file atomically, and replace an existing one."""

    def append(self, name: str, content: bytes) -> None:
        """Add lines to a file that only one process writes; if a crash left an incomplete last line, end it first."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; an empty list if it is missing."""

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""

    def clear(self, folder: str) -> None:
        """Delete a folder with its content, if it exists."""

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents, if the file system has folders; permissions follow the umask."""

    def delete_folder(self, folder: str) -> None:
        """Delete an empty folder, if the file system has folders."""

    def open_output(self, name: str) -> Any:
        """Return a new data file to write; its folder exists."""


@lru_cache(maxsize=64)
def files_at(location: str, option: str = "control") -> Files:
    """Return the files below a path or an fsspec URL; errors name `option`, which contains the location."""
    if not is_remote(location):
        return LocalFiles(Path(local_path(location)), option)
    return RemoteFiles(location, *resolve(location, f"{option}={location!r}", _error_of(option)), option)


def _error_of(option: str) -> type[BraidedError]:
    return {"control": ControlError, CHECKPOINT: StateError}.get(option, TopicError)


class LocalFiles(Files):
    """Local files: a complete temporary file is linked to its name, which fails if the name exists.

    The files contain values of keys, which may be private, such as phone numbers. So a directory that is created here
    is readable for this user only, and its files too. If the directory existed before with wider permissions, this is
    on purpose, and its files get the permissions of the umask.
    """

    def __init__(self, root: Path, option: str = "control") -> None:
        self._root = root
        self._where = f"{option}={str(root)!r}"
        self._error = _error_of(option)
        self._stays = option == STORAGE
        self._was_there = False

    def check(self) -> None:
        name = f".check-{secrets.token_hex(8)}"
        try:
            exclusive = self.create(name, b"1") and not self.create(name, b"2")
        except OSError as error:
            raise self._error(
                f"{self._where}: {error.strerror}; use a writable directory in which hard links work"
            ) from error
        finally:
            self.delete(name)
        if not exclusive:
            raise self._error(f"{self._where}: files cannot be created exclusively; use another directory")

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes | None:
        try:
            content = (self._root / name).read_bytes()[start:stop]
        except (FileNotFoundError, NotADirectoryError):
            self._check_there()
            return None
        except PermissionError as error:
            raise self._error(
                f"{self._where}: this user may not read {name}; if driver and executors run as "
                "different users, create the directory before with permissions for both"
            ) from error
        self._was_there = True
        return content

    def create(self, name: str, content: bytes) -> bool:
        path = self._root / name
        temporary = self._write(path, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def replace(self, name: str, content: bytes) -> None:
        path = self._root / name
        self._write(path, content).rename(path)

    def _check_there(self) -> None:
        """Raise if a fleet's storage was lost: it would look like an empty one, from which all jobs were removed."""
        if not self._stays:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._root) as entries:
            if next(entries, None) is not None:
                self._was_there = True
                return
        if self._was_there:
            raise self._error(f"{self._where}: the directory is missing or empty; restore it, or mount it again")

    def _write(self, path: Path, content: bytes) -> Path:
        self._check_there()
        if not self._root.is_dir():
            self._root.parent.mkdir(parents=True, exist_ok=True)
            self._root.mkdir(mode=0o700, exist_ok=True)
        private = self._is_private()
        path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            with open(temporary, "xb", opener=_opener(private)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno not in _FULL:
                raise
            raise self._error(
                f"{self._where}: cannot write {path.relative_to(self._root)}: {error.strerror}; free some space, then "
                "start the query again: it continues from its checkpoint"
            ) from error
        return temporary

    def _is_private(self) -> bool:
        return not self._root.stat().st_mode & 0o077

    def append(self, name: str, content: bytes) -> None:
        with open(self._root / name, "a+b", opener=_opener(self._is_private())) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                content = content if file.read(1) == b"\n" else b"\n" + content
            file.write(content)

    def names(self, folder: str) -> list[str]:
        try:
            entries = os.listdir(self._root / folder)
        except (FileNotFoundError, NotADirectoryError):
            self._check_there()
            return []
        self._was_there = True
        return [name for name in entries if not name.startswith(".")]

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (self._root / name).unlink()

    def clear(self, folder: str) -> None:
        shutil.rmtree(self._root / folder, ignore_errors=True)

    def make_folder(self, folder: str) -> None:
        (self._root / folder).mkdir(parents=True, exist_ok=True)

    def delete_folder(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._root / folder)

    def open_output(self, name: str) -> Any:
        return open(self._root / name, "xb")


def _opener(private: bool) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags, 0o600 if private else 0o666)


class RemoteFiles(Files):
    """Any fsspec file system whose `pipe_file` can create exclusively (mode "create")."""

    def __init__(self, location: str, system: Any, root: str, option: str = "control") -> None:
        self._where = f"{option}={location!r}"
        self._error = _error_of(option)
        self._system = system
        self._root = root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def check(self) -> None:
        name = f"check-{secrets.token_hex(8)}"
        try:
            exclusive = self.create(name, b"1") and not self.create(name, b"2") and self.read(name) == b"1"
        except BraidedError:
            raise
        except (TypeError, ValueError, NotImplementedError):
            exclusive = False
        finally:
            with contextlib.suppress(BraidedError):
                self.delete(name)
        if not exclusive:
            raise self._error(f"{self._where}: this file system cannot create a file exclusively; use another one")

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes | None:
        with self._reached("read", name):
            try:
                return bytes(self._system.cat_file(self._path(name), start=start, end=stop))
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> bool:
        """See `Files`. Object stores report an existing file in many ways: some return 412 without the condition, which
        becomes a plain OSError or an error of their client. So look whether the file exists. Some return 409 while
        another writer creates the file; then try again.
        """
        path = self._path(name)
        with self._reached("create", name):
            failed = 0
            while True:
                try:
                    self._put(path, content, mode="create")
                    return True
                except FileExistsError:
                    return False
                except (TypeError, ValueError, NotImplementedError):  # the file system does not support this mode
                    raise
                except Exception:
                    if self.read(name) is not None:
                        return False
                    failed += 1
                    if failed == _ATTEMPTS:
                        raise

    @contextlib.contextmanager
    def _reached(self, doing: str, name: str) -> Iterator[None]:
        """Add the location and the file to an error of a store, whose own errors do not have them."""
        try:
            yield
        except (TypeError, ValueError, NotImplementedError):
            raise
        except Exception as error:
            raise self._error(f"{self._where}: cannot {doing} {name}: {type(error).__name__}: {error}") from error

    def replace(self, name: str, content: bytes) -> None:
        with self._reached("write", name):
            self._put(self._path(name), content)

    def _put(self, path: str, content: bytes, **options: Any) -> None:
        """Write a file in one request; create the folder if it is missing and the file system has folders."""
        try:
            self._system.pipe_file(path, content, **options)
        except FileNotFoundError:
            self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._system.pipe_file(path, content, **options)

    def append(self, name: str, content: bytes) -> None:
        # Object stores cannot append.
        before = self.read(name) or b""
        self.replace(name, before + (b"\n" if before and not before.endswith(b"\n") else b"") + content)

    def names(self, folder: str) -> list[str]:
        self._system.invalidate_cache()
        with self._reached("list", folder):
            try:
                paths = self._system.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]

    def delete(self, name: str) -> None:
        with self._reached("delete", name), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def clear(self, folder: str) -> None:
        with self._reached("delete", folder), contextlib.suppress(FileNotFoundError):
            self._system.rm(self._path(folder), recursive=True)

    def make_folder(self, folder: str) -> None:
        self._system.makedirs(self._path(folder), exist_ok=True)

    def delete_folder(self, folder: str) -> None:
        """See `Files`. Object stores have no folders."""

    def open_output(self, name: str) -> Any:
        return self._system.open(self._path(name), "wb")

    def copy(self, source: str, target: str) -> None:
        """Copy all files below a folder; the store copies many at a time. Files deleted meanwhile are skipped."""
        names = self.below(source)
        copies = [self._path(f"{target}{name.removeprefix(source)}") for name in names]
        with self._reached("copy", source):
            self._system.copy([self._path(name) for name in names], copies, on_error="ignore")

    def below(self, folder: str) -> list[str]:
        """Return the names of all files below a folder."""
        self._system.invalidate_cache()
        with self._reached("list", folder):
            root = self._system._strip_protocol(self._root)
            return [path.removeprefix(f"{root}/") for path in self._system.find(self._path(folder))]
