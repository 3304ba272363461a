"""Row patterns in plain Python, from the definition: a backtracking matcher with generators, and SQL's skip modes.

It knows nothing of Braided. A pattern is a tree of tuples; `text_of` writes it as SQL does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

Row = dict[str, Any]
Step = tuple[int, str, bool]
"""A row of a match: its number, its symbol, whether it is excluded from the result."""
Path = tuple[Step, ...]
Condition = Callable[["Seen"], bool | None]


class Seen:
    """What a condition or a measure sees: the match so far, its last row included."""

    def __init__(self, rows: Sequence[Row], path: Path, symbol: str, within: int = 1 << 60) -> None:
        self.rows, self.path, self.symbol, self.within = rows, path, symbol, within
        self.row = rows[path[-1][0]]

    def of(self, *symbols: str) -> list[Row]:
        """Return the rows of some symbols, or of all."""
        return [self.rows[at] for at, symbol, _ in self.path if not symbols or symbol in symbols]

    def before(self, count: int = 1) -> Row:
        """Return a row before the last one."""
        return self.near(self.path[-1][0], -count)

    def near(self, at: int | None, offset: int) -> Row:
        """Return the row so many rows after one, nulls where there is none; a later one only if it comes in time."""
        if at is None or not 0 <= at + offset < len(self.rows):
            return dict.fromkeys(self.rows[0])
        row = self.rows[at + offset]
        in_time = offset <= 0 or row["t"] - self.rows[at]["t"] <= self.within
        return row if in_time else dict.fromkeys(row)

    def place(self, which: str, count: int, *symbols: str) -> int | None:
        """Return where the row of some symbols is, so many of theirs after the first or before the last."""
        places = [at for at, symbol, _ in self.path if not symbols or symbol in symbols]
        places = places if which == "first" else places[::-1]
        return places[count] if count < len(places) else None

    def label(self, at: int | None) -> str | None:
        """Return the symbol of a row of the match so far."""
        return next((symbol for place, symbol, _ in self.path if place == at), None)


@dataclass(frozen=True)
class Query:
    """A pattern with its conditions; symbols that have none match every row."""

    tree: Any
    define: dict[str, Condition] = field(default_factory=dict)
    within: int = 1 << 60
    after: str = "skip past last row"
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    negated: str | None = None
    unmatched: bool = False
    """Whether rows that no match has are wanted, too."""


def text_of(tree: Any) -> str:
    """Return a pattern as text."""
    match tree:
        case ("symbol", name):
            return str(name)
        case ("sequence", *parts):
            return "(" + " ".join(map(text_of, parts)) + ")"
        case ("choice", *parts):
            return "(" + " | ".join(map(text_of, parts)) + ")"
        case ("permute", *parts):
            return "PERMUTE(" + ", ".join(map(text_of, parts)) + ")"
        case ("exclude", part):
            return "{- " + text_of(part) + " -}"
        case ("repeat", part, low, high, greedy):
            return f"({text_of(part)}){{{low},{'' if high is None else high}}}" + ("" if greedy else "?")
        case ("empty",):
            return "()"
        case ("anchor", mark):
            return str(mark)
    raise AssertionError(tree)


def matches(query: Query, rows: Sequence[Row]) -> list[Path]:
    """Return the matches among the rows of one key, which are in order.

    A match without rows is shown as the row where it is, of symbol ``-``; a row that no match has is of symbol ``?``.
    """
    found: list[Path] = []
    covered: set[int] = set()
    start = 0
    while start < len(rows):
        best = next(_ways(query, rows, start), None)
        if best:
            found.append(best)
            covered |= {at for at, _, _ in best}
            start = _next_start(query, best)
            continue
        if best is not None:
            found.append(((start, "-", False),))
        elif query.unmatched and start not in covered:
            found.append(((start, "?", False),))
        start += 1
    return found


def _ways(query: Query, rows: Sequence[Row], start: int) -> Iterator[Path]:
    """Yield all matches from a row, the preferred first."""
    deadline = rows[start]["t"] + query.within

    def test(path: Path, symbol: str, at: int, excluded: bool) -> Path | None:
        if at >= len(rows) or rows[at]["t"] > deadline:
            return None
        longer = (*path, (at, symbol, excluded))
        condition = query.define.get(symbol)
        return longer if condition is None or condition(Seen(rows, longer, symbol, query.within)) is True else None

    def walk(tree: Any, at: int, path: Path, excluded: bool) -> Iterator[tuple[int, Path]]:
        match tree:
            case ("symbol", name):
                longer = test(path, name, at, excluded)
                if longer is not None:
                    yield at + 1, longer
            case ("sequence",) | ("empty",):
                yield at, path
            case ("anchor", mark):
                if at == (0 if mark == "^" else len(rows)):
                    yield at, path
            case ("sequence", part, *parts):
                for then, longer in walk(part, at, path, excluded):
                    yield from walk(("sequence", *parts), then, longer, excluded)
            case ("choice", *parts):
                for part in parts:
                    yield from walk(part, at, path, excluded)
            case ("permute", *parts):
                for order in permutations(parts):
                    yield from walk(("sequence", *order), at, path, excluded)
            case ("exclude", part):
                yield from walk(part, at, path, True)
            case ("repeat", part, low, high, greedy):
                yield from repeat(part, low, high, greedy, at, path, excluded)

    def repeat(part: Any, low: int, high: Any, greedy: bool, at: int, path: Path, excluded: bool) -> Any:
        if low > 0:
            for then, longer in walk(part, at, path, excluded):
                yield from repeat(part, low - 1, None if high is None else high - 1, greedy, then, longer, excluded)
            return
        if not greedy:
            yield at, path
        if high is None or high > 0:
            for then, longer in walk(part, at, path, excluded):
                if then > at:
                    yield from repeat(part, 0, None if high is None else high - 1, greedy, then, longer, excluded)
        if greedy:
            yield at, path

    for end, path in walk(query.tree, start, (), False):
        followed = query.negated is not None and any(
            test(path, query.negated, at, False) is not None for at in range(end, len(rows))
        )
        if not followed:
            yield path


def _next_start(query: Query, path: Path) -> int:
    if query.after == "skip past last row":
        return path[-1][0] + 1
    if query.after == "skip to next row":
        return path[0][0] + 1
    _, _, which, name = query.after.split()
    members = query.subsets.get(name, (name,))
    rows = [at for at, symbol, _ in path if symbol in members]
    return rows[0] if which == "first" else rows[-1]
