"""Where in a TOML file a key stands, for messages: Python's own reader does not say."""

from __future__ import annotations

import re
from collections import Counter

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, path: Path) -> int:
    """Return the line, from 1, of a key or of the nearest table above it; 1 if neither is written out.

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
    found: list[tuple[int, Path]] = []
    table: Path = ()
    seen: Counter[str] = Counter()
    quote: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if quote is not None:  # inside a text of several lines
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
            found.append((number, table))
        elif key:
            found.append((number, (*table, *_parts(key[1]))))
            rest = line[key.end() :]
            quote = next((mark for mark in ('"""', "'''") if rest.count(mark) == 1), None)
    return found


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
