"""The files of a directory in the order in which streams found them: a log, so that an offset is a number.

```
 stream 1: lists the directory   -> entry 0 [a, b]    entry 2 [d]        created exclusively, by the first who sees
 stream 2: lists it too             -> entry 1 [c]    entry 3 [e, f]     a new file
 numbers of the files                  0  1  2  3  4  5                  the same for both
```

Entries 0 to 99 are in the file `merged-0` too, and so on: a stream that starts reads few files.

No order by name or time has every new file at its end: a file that is moved into a directory may be older than those
that are there. So whoever sees new files first gives them the next numbers, and all others read them here. A file is
in the log once, by its name. The log is in a hidden folder of the directory, or elsewhere where that is read-only.

A stream that begins leaves out what is in the log and not in the directory any more: an entry says which files these
are, so that a batch that runs again leaves out the same.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from braided.errors import BraidedError
from braided.storage.directory import FoundFile, list_files
from braided.storage.files import check_folder, files_at, is_remote
from braided.storage.tables import plain_location

FOLDER = "_braided_files"
FORMAT = 1
# An entry with more files is cut, so that a first listing makes no file of any size.
_MOST = 10_000
# So many entries are also in one file, since a stream that starts reads all of them.
_MERGED = 100


@dataclass(frozen=True)
class FilePosition:
    """Files before the number `files` of an index have been read.

    began : how many entries there were when the stream began: what these note as gone it leaves out.
    """

    index: str
    files: int
    began: int


class FileIndex:
    """The log of a directory. `place` is where it is, by default in the directory itself."""

    def __init__(self, directory: str, place: str | None = None) -> None:
        self.directory = plain_location(directory)
        self.id = ""
        """Which log this is; another one has other numbers."""
        self._files = files_at(self.directory if place is None else plain_location(place), "index")
        self._place = place
        self._folder = FOLDER if place is None else "files"
        self._found: list[FoundFile] = []
        self._names: set[str] = set()
        self._gone: dict[int, int] = {}  # the number of a file: the entry that notes it
        self._entries = 0
        self._recent: list[Any] = []
        """Entries since those that are in files of a hundred."""

    def begin(self) -> FilePosition:
        """Return where a new stream begins: with all files that there are now."""
        self.update()
        here = {file.name for file in list_files(self.directory)}
        while True:
            lost = [
                number for number, file in enumerate(self._found) if file.name not in here and number not in self._gone
            ]
            if self._entries and not lost:
                return FilePosition(self.id, 0, self._entries)
            self._append([], lost)

    def update(self) -> int:
        """Take files that are new into the log; return how many files it has."""
        self._read()
        listed = list_files(self.directory)
        while new := [file for file in listed if file.name not in self._names]:
            self._append(new[:_MOST], [])
        return len(self._found)

    def end(self, start: FilePosition, count: int, most: int | None) -> FilePosition:
        """Return how far a batch goes: to the file of number `count`, or so many files."""
        self._check(start)
        at = start.files
        left = count - at if most is None else most
        while at < count and left:
            left -= not self._is_gone(at, start)
            at += 1
        return FilePosition(start.index, max(at, start.files), start.began)

    def between(self, start: FilePosition, end: FilePosition) -> list[FoundFile]:
        """Return the files from one position to another, in their order."""
        self._check(end)
        numbers = range(start.files, end.files)
        return [self._found[number] for number in numbers if not self._is_gone(number, start)]

    def _is_gone(self, number: int, position: FilePosition) -> bool:
        return self._gone.get(number, position.began) < position.began

    def _check(self, position: FilePosition) -> None:
        if self._entries == 0 or len(self._found) < position.files or self._entries < position.began:
            self._read()
        if self.id != position.index or len(self._found) < position.files or self._entries < position.began:
            raise BraidedError(
                f"path={self.directory!r}: its list of files ({self._where(self._folder)}) is not the one that "
                "the checkpoint has read from, or entries are missing; restore it from a copy, or start with a new "
                "checkpoint"
            )

    def _read(self) -> None:
        while True:
            merged = self._files.read(self._merged()) if self._entries % _MERGED == 0 else None
            if merged is not None:
                for entry in self._parsed(merged, self._merged()):
                    self._take(entry, self._merged())
                continue
            name = self._name(self._entries)
            content = self._files.read(name)
            if content is None:
                return
            entry = self._parsed(content, name)
            self._take(entry, name)
            self._recent.append(entry)
            if self._entries % _MERGED == 0:
                self._create(self._merged(-1), self._recent)
                self._recent = []

    def _parsed(self, content: bytes, name: str) -> Any:
        try:
            return json.loads(content)
        except ValueError as error:
            raise self._damaged(name) from error

    def _take(self, entry: Any, name: str) -> None:
        try:
            version = entry["format"]
            if version == FORMAT:
                if entry["first"] != len(self._found) or (self._entries and entry["id"] != self.id):
                    raise ValueError
                self._apply(entry)
                return
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self._damaged(name) from error
        raise BraidedError(f"{self._where(name)}: has format {version!r}, this version reads {FORMAT}; upgrade braided")

    def _damaged(self, name: str) -> BraidedError:
        return BraidedError(f"{self._where(name)}: is damaged, or not of this list; restore it from a copy")

    def _apply(self, entry: dict[str, Any]) -> None:
        files = [FoundFile(str(name), int(size)) for name, size in entry["files"]]
        gone = {int(number): self._entries for number in entry["gone"]}
        self.id = str(entry["id"])
        self._found += files
        self._names |= {file.name for file in files}
        self._gone = gone | self._gone
        self._entries += 1

    def _append(self, new: Sequence[FoundFile], gone: Sequence[int]) -> None:
        """Add an entry, or read those of another who was first."""
        entry = {
            "format": FORMAT,
            "id": self.id or secrets.token_hex(8),
            "first": len(self._found),
            "files": [[file.name, file.bytes] for file in new],
            "gone": list(gone),
        }
        self._create(self._name(self._entries), entry)
        self._read()

    def _create(self, name: str, content: Any) -> None:
        location = self._place or self.directory
        if not self._entries and not is_remote(location):
            check_folder(location, "index" if self._place else "path")
        try:
            self._files.create(name, json.dumps(content, separators=(",", ":")).encode())
        except OSError as error:
            raise BraidedError(
                f"{self._where(name)}: cannot be written ({error.strerror}); the stream notes there which "
                "files it has found: allow it, or give the option index, a directory of its own elsewhere"
            ) from error

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"

    def _merged(self, before: int = 0) -> str:
        """Return the name of the file with the next hundred entries, or with those before them."""
        return f"{self._folder}/merged-{self._entries // _MERGED + before:010d}.json"

    def _where(self, name: str) -> str:
        return f"{plain_location(self._place or self.directory)}/{name}"
