"""Remove MATCH_RECOGNIZE clauses from a query's text, one at a time, because Spark does not support them.

```
 SELECT ... FROM <input> MATCH_RECOGNIZE (<clause>) AS m JOIN s ON ...
   ->  <input>, the name of a stream or table, or a separate query; and the content of <clause>
       SELECT ... FROM         match_1                 AS m JOIN s ON ...
```
The removed text becomes spaces, so the rest keeps its lines and columns, also in messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.sqltext.recognize import Clause, read_clause
from braided.sqltext.words import Words, only

_NAME = "MATCH_RECOGNIZE"


@dataclass(frozen=True)
class Match:
    """One clause of a text: its content, its input, and the text around it."""

    clause: Clause
    table: tuple[str, ...] | None
    """The name of its input, with its database, if the input is not a query."""
    query: str | None
    """Its input as a query, with the common table expressions that it may use."""
    place: str
    """The place of its input in the text."""
    _before: str
    _after: str

    def without(self, name: str) -> str:
        """Return the text with a stream of this name instead of the input and the clause."""
        assert len(name) <= len(_NAME)
        return self._before + name.ljust(len(_NAME)) + self._after


def find_match(text: str) -> Match | None:
    """Return the first clause of a text, whose input contains no clause; None if there is none."""
    if _NAME not in text.upper():
        return None
    words = Words(text)
    for at in range(len(words)):
        if words.is_(at, TokenType.VAR) and words.says(at, _NAME, "("):
            return _match(words, at)
    return None


def _match(words: Words, at: int) -> Match:
    start = _input(words, at)
    close = words.close(at + 1)
    head, tail = words.start(start), words.stop(close)
    blank = only(words.text, [(0, head), (tail, len(words.text))])
    table, query = _read_input(words, start, at)
    clause = read_clause(words, at + 1)
    return Match(clause, table, query, words.place(start), blank[: words.start(at)], blank[words.stop(at) :])


def _input(words: Words, at: int) -> int:
    """Return the first word of a clause's input in FROM."""
    opens = {words.close(opened): opened for opened in range(at) if words.is_(opened, TokenType.L_PAREN)}
    start = at
    while start > 0 and not words.is_(
        start - 1, TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.L_PAREN, TokenType.SELECT
    ):
        start = opens[start - 1] if words.is_(start - 1, TokenType.R_PAREN) else start - 1
    if start in (0, at) or words.is_(start - 1, TokenType.SELECT):
        _refuse_input(words, at)
    return start


def _refuse_input(words: Words, at: int) -> NoReturn:
    raise OptionError(
        f"sql: {words.place(at)}: {_NAME} must follow a stream, a table or a subquery: FROM logins {_NAME} (...) AS m"
    )


def _read_input(words: Words, start: int, stop: int) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the input of a clause as a name or as a query; its alias is not visible outside."""
    visible, names = _visible(words, start)
    if words.is_(start, TokenType.L_PAREN):
        close = words.close(start)
        if not words.is_(start + 1, TokenType.SELECT, TokenType.WITH) or not _is_alias(words, close + 1, stop):
            _refuse_input(words, start)
        return None, _joined(words, [*visible, (start + 1, close)])
    parts = []
    at = start
    while (name := words.name(at)) is not None:
        parts.append(name)
        at += 1
        if not words.is_(at, TokenType.DOT):
            break
        at += 1
    if not parts or not _is_alias(words, at, stop):
        _refuse_input(words, start)
    if len(parts) == 1 and parts[0].lower() in names:
        return None, f"{_joined(words, visible)} SELECT * FROM `{parts[0]}`"
    return tuple(parts), None


def _is_alias(words: Words, at: int, stop: int) -> bool:
    at += words.is_(at, TokenType.ALIAS)
    return at == stop or (at == stop - 1 and words.name(at) is not None)


def _visible(words: Words, before: int) -> tuple[list[tuple[int, int]], set[str]]:
    """Return the common table expressions that are visible at a word: the words of each WITH, and their names."""
    spans: list[tuple[int, int]] = []
    names: set[str] = set()
    for at in range(before):
        if not words.is_(at, TokenType.WITH) or words.end_around(at) <= before:
            continue
        last, new = _definitions(words, at, before)
        for name in new:
            if name in names:
                raise OptionError(
                    f"sql: {words.place(at)}: two common table expressions have the name {name}; rename one of them"
                )
            names.add(name)
        if new:
            spans.append((at, last + 1))
    return spans, names


def _definitions(words: Words, at: int, before: int) -> tuple[int, list[str]]:
    """Return the last word of those definitions of a WITH that end before a word, and their names."""
    last, names = at, []
    at += 2 if words.says(at + 1, "RECURSIVE") else 1
    while (name := words.name(at)) is not None:
        at += 1
        at = words.close(at) + 1 if words.is_(at, TokenType.L_PAREN) else at
        if not words.is_(at, TokenType.ALIAS) or not words.is_(at + 1, TokenType.L_PAREN):
            break
        close = words.close(at + 1)
        if close > before:
            break
        last = close
        names.append(name.lower())
        if not words.is_(close + 1, TokenType.COMMA):
            break
        at = close + 2
    return last, names


def _joined(words: Words, ranges: list[tuple[int, int]]) -> str:
    """Return a text of some words in their places; every WITH except the first becomes a comma."""
    text = only(words.text, [(words.start(start), words.stop(stop - 1)) for start, stop in ranges])
    later = [words.start(start) for start, _ in ranges[1:] if words.is_(start, TokenType.WITH)]
    for start in later:
        text = text[:start] + "," + " " * (len("WITH") - 1) + text[start + len("WITH") :]
    return text
