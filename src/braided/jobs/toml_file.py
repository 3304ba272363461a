"""TOML files of users: an invalid value is an error with the file, the line and the key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import Any, NoReturn

from braided.durations import parse_duration
from braided.errors import BraidedError, JobError

Path = tuple[str | int, ...]
"""The keys from the root of a file to a value, with places in arrays."""
Table = Mapping[str, Any]

_LARGEST = 1 << 20
_KINDS = {str: "a string", int: "an integer", list: "a list"}
_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def read_text(file: File) -> str:
    """Return the text of a job file."""
    try:
        size = file.stat().st_size
        if size > _LARGEST:
            raise JobError(f"{file}: the file has {size} bytes, but a job file has at most {_LARGEST}")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(f"{file}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise JobError(f"{file}: {error.strerror}") from None


class TomlFile:
    """The text of a file, and the checks of its values."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        try:
            self.root: Table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            raise JobError(f"{file}: not valid TOML: {error}") from None

    def where(self, at: Path) -> str:
        """Return the file and the line of a key."""
        return f"{self._file}, line {line_of(self._text, at)}"

    def refuse(self, at: Path, why: str) -> NoReturn:
        """Raise the error of a key."""
        raise JobError(f"{self.where(at)}: {dotted(at)}: {why}")

    def check_keys(self, table: Table, at: Path, known: Sequence[str]) -> None:
        """Raise if a key is unknown."""
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
                self.refuse((*at, key), f"unknown key; {hint}")

    def value(self, table: Table, at: Path, kind: type, *default: Any) -> Any:
        """Return the value of a key, which must have this type; without a default it is required."""
        key = str(at[-1])
        if key not in table:
            if default:
                return default[0]
            self.refuse(at, "is missing")
        value = table[key]
        if type(value) is not kind:
            self.refuse(at, f"{value!r}: write {_KINDS[kind]}")
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            self.refuse(at, f"{value!r}: write a string that is not empty")
        return value

    def table(self, value: Any, at: Path) -> Table:
        """Return a value that must be a table."""
        if value is None:
            self.refuse(at, "is missing")
        if not isinstance(value, dict):
            self.refuse(at, f"write a table, [{dotted(at)}{'.NAME' * (at in (('sources',), ('tables',)))}]")
        return value

    def check_duration(self, value: str, at: Path, more: str = "") -> None:
        """Raise if a text is not a duration."""
        try:
            if parse_duration(value, "x") >= 0:
                return
        except BraidedError:
            pass
        self.refuse(at, f"{value!r}: write a duration, such as '10 seconds'{more}")


def dotted(at: Path) -> str:
    """Return the name of a key in messages.

    >>> dotted(("steps", 0, "sql"))
    'steps.0.sql'
    """
    return ".".join(map(str, at))


def line_of(text: str, path: Path) -> int:
    """Return the line, from 1, of a key or of the nearest table above it; 1 if the file has neither.

    >>> line_of('name = "x"\\n[sources.a]\\npath = 3\\n', ("sources", "a", "path"))
    3
    >>> line_of('[[steps]]\\n[[steps]]\\nsql = 3\\n', ("steps", 1, "python"))
    2
    """
    lines = {place: number for number, place in reversed(_places(text))}
    for length in range(len(path), 0, -1):
        inside = [number for place, number in lines.items() if place[:length] == path[:length]]
        if path[:length] in lines or inside:
            return lines.get(path[:length], min(inside))
    return 1


def _places(text: str) -> list[tuple[int, Path]]:
    """Return the lines of a file with the tables and keys that begin there."""
    places: list[tuple[int, Path]] = []
    table: Path = ()
    seen: Counter[str] = Counter()
    quote: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if quote is not None:  # inside a string of several lines
            quote = None if quote in line else quote
            continue
        header, key = _HEADER.fullmatch(line), _KEY.match(line)
        if header:
            parts = _parts(header[2])
            if header[1] == "[[":
                table = (*parts, seen[header[2]])
                seen[header[2]] += 1
            elif seen[str(parts[0])]:  # a table of the last element of an array
                table = (parts[0], seen[str(parts[0])] - 1, *parts[1:])
            else:
                table = parts
            places.append((number, table))
        elif key:
            places.append((number, (*table, *_parts(key[1]))))
            rest = line[key.end() :]
            quote = next((mark for mark in ('"""', "'''") if rest.count(mark) == 1), None)
    return places


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
