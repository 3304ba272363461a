"""Histories in files: one line of JSON per event, for reports of finished runs and for watching from another process.

```
 DIR/history.jsonl     the newest events
 DIR/history.1.jsonl   the events before these, when the file has grown to `LARGEST`; older events are deleted
```
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from braided.errors import HistoryError
from braided.runtime.contract import Json
from braided.ui.history_events import check_event

NAME, BEFORE = "history.jsonl", "history.1.jsonl"
LARGEST = 64 << 20
_LONGEST_LINE = 8 << 20


class HistoryWriter:
    """Appends events to the history of a directory, which is created if it is missing."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _drop_incomplete_line(folder / NAME)
            self._file = (folder / NAME).open("ab")
        except OSError as error:
            raise HistoryError(f"history={str(folder)!r}: {error.strerror}; use a writable directory") from error
        self._folder = folder
        self._kept: dict[tuple[str, str, str], bytes] = {}
        self._lock = threading.Lock()

    def add(self, event: Json) -> None:
        """Append an event. A new file begins with the events that are not about batches, so that it is complete."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return
            if self._file.tell() + len(line) > LARGEST:
                self._turn()
            self._file.write(line)
            self._file.flush()
            run = event.get("query", "")
            if event["event"] in ("started", "graph", "table", "fleet", "note"):
                self._kept[run, event["event"], event.get("operator", "")] = line
            elif event["event"] == "ended":
                self._kept = {key: stored for key, stored in self._kept.items() if key[0] != run}

    def _turn(self) -> None:
        self._file.close()
        (self._folder / NAME).replace(self._folder / BEFORE)
        self._file = (self._folder / NAME).open("ab")
        self._file.writelines(self._kept.values())

    def close(self) -> None:
        with self._lock:
            self._file.close()


def _drop_incomplete_line(path: Path) -> None:
    """Remove the last line if a killed process did not finish it."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _LONGEST_LINE))
        file.truncate(start + file.read().rfind(b"\n") + 1)


class HistoryReader:
    """Reads the events of a file, or of a directory's history, and later the events that were appended since."""

    def __init__(self, path: Path) -> None:
        try:
            folder = path if path.is_dir() else path.parent
            self._path = path / NAME if path.is_dir() else path
            before = folder / BEFORE
            self._waiting = [before] if self._path.name == NAME and before.exists() else []
            there = self._path.is_file()
        except OSError as error:
            raise HistoryError(f"{str(path)!r}: cannot read it: {error.strerror}") from error
        self._inode = self._at = self._line = 0
        if not there:
            raise HistoryError(
                f"{str(path)!r}: there is no history; run the query with `braided run --history DIR`, or with "
                "braided.dashboard(spark, history=DIR), and name that directory"
            )

    def read(self) -> Iterator[Json]:
        """Yield the events that were not read yet, except a last line that is still being written."""
        while self._waiting:
            path = self._waiting.pop()
            with path.open("rb") as file:
                yield from self._lines(file, path)
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if self._inode not in (0, inode):
                    yield from self._rest()
                if self._inode != inode:
                    self._inode, self._at, self._line = inode, 0, 0
                file.seek(self._at)
                yield from self._lines(file, self._path)
                self._at = file.tell()
        except OSError as error:
            raise HistoryError(f"{str(self._path)!r}: {error.strerror}") from error

    def _rest(self) -> Iterator[Json]:
        """Yield the remaining events of the file that was renamed to the previous one."""
        before = self._path.with_name(BEFORE)
        if before.exists():
            with before.open("rb") as file:
                if os.fstat(file.fileno()).st_ino == self._inode:
                    file.seek(self._at)
                    yield from self._lines(file, before)

    def _lines(self, file: BinaryIO, path: Path) -> Iterator[Json]:
        while line := file.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                if len(line) >= _LONGEST_LINE:
                    raise HistoryError(
                        f"{path}, line {self._line + 1}: too long for a braided history; name a file that braided wrote"
                    )
                file.seek(-len(line), 1)
                return
            self._line += 1
            where = f"{path}, line {self._line}"
            try:
                event = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise HistoryError(
                    f"{where}: not valid JSON; delete the line if it is damaged, or name a file that braided wrote"
                ) from error
            yield check_event(event, where)
