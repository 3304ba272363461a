"""A case of another engine's suite of row patterns: rows, the parts of a MATCH_RECOGNIZE clause, and expected rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Values = tuple[Any, ...]


@dataclass(frozen=True)
class PatternText:
    """The parts of a clause as the suite has them."""

    pattern: str
    define: str = ""
    measures: str = ""
    rows: str = ""
    after: str = ""
    partition: str = ""
    subset: str = ""
    order: str = "ts"
    within: str = "'1' HOUR"

    def clause(self) -> str:
        parts = [
            f"PARTITION BY {self.partition}" if self.partition else "",
            f"ORDER BY {self.order}",
            f"MEASURES {self.measures}" if self.measures else "",
            self.rows,
            self.after,
            f"PATTERN ({self.pattern}) WITHIN INTERVAL {self.within}",
            f"SUBSET {self.subset}" if self.subset else "",
            f"DEFINE {self.define}" if self.define else "",
        ]
        return f"SELECT * FROM t MATCH_RECOGNIZE ({' '.join(part for part in parts if part)}) AS m"


@dataclass(frozen=True)
class PatternCase:
    """Rows and what a clause finds among them.

    columns : of the rows; the first is the time in seconds, which the clause orders by as `ts`.
    shown : the columns that are compared, `*` for all. wanted : the rows that the suite expects.
    """

    suite: str
    name: str
    text: PatternText
    columns: Sequence[str]
    rows: Sequence[Values]
    shown: Sequence[str]
    wanted: Sequence[Values]


@dataclass(frozen=True)
class PatternDifference:
    """A case with other rows: as `case`, whose `wanted` are our rows, and why."""

    case: PatternCase
    reason: str


@dataclass(frozen=True)
class PatternRefusal:
    """A case that is refused: the clause and the error, or why it is not run."""

    suite: str
    name: str
    reason: str
    text: PatternText | None = None
    message: str = ""
    columns: Sequence[str] = field(default=("id", "value"))


def values(text: str) -> list[Values]:
    """Return rows of a number, from 1, and a value."""
    return [(number, int(value)) for number, value in enumerate(text.split(), 1)]


def of(
    suite: str, name: str, text: PatternText, columns: str, rows: Sequence[Values], shown: str, wanted: str
) -> PatternCase:
    """Return a case whose expected rows are written as text."""
    parts = [tuple(map(_read, row.split())) for row in wanted.split(",") if row.strip()]
    return PatternCase(suite, name, text, columns.split(), rows, shown.split(), parts)


def _read(word: str) -> Any:
    if word in ("-", "true", "false"):
        return {"-": None, "true": True, "false": False}[word]
    if word.startswith("["):
        return [_read(part) for part in word[1:-1].split(";") if part]
    if word.lstrip("-").isdigit():
        return int(word)
    return float(word) if word.replace(".", "", 1).isdigit() else word
