"""WATERMARK clauses of newer Sparks, which sqlglot cannot parse: removed from a text, and applied to the stream.

```
 FROM calls WATERMARK ts DELAY OF INTERVAL 10 SECONDS c JOIN ...   ->   FROM calls__0 c JOIN ...
                                                                        calls__0: calls with that watermark
```
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.expressions.dialect import Braided

_UNITS = {"microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year"}
_BEFORE = {"FROM", "JOIN", ","}
# The words that may follow a table without an alias.
_AFTER = {
    "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "ON", "USING", "WHERE",
    "GROUP", "GROUP BY", "HAVING", "ORDER", "ORDER BY", "SORT", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY",
    "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "MINUS", "LATERAL", "WINDOW", "TABLESAMPLE", "PIVOT",
    "UNPIVOT", "MATCH_RECOGNIZE", ",", ")", ";",
}  # fmt: skip


@dataclass(frozen=True)
class Clause:
    """A stream with a watermark in a text: its name in the text, its new name, and the clause."""

    stream: str
    name: str
    text: str


def take_watermarks(text: str, streams: Collection[str]) -> tuple[str, list[Clause]]:
    """Return a text without WATERMARK clauses and the word STREAM, and the clauses; other characters keep their places.

    `streams` has the known names in lower case.
    """
    try:
        tokens = Braided().tokenize(text)
    except SqlglotError:
        return text, []  # the parser reports the error
    words = [token.text.upper() for token in tokens]
    known = set(streams)
    clauses: list[Clause] = []
    changes: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens):
        name = token.text.lower()
        if name in streams and at > 1 and words[at - 1] == "STREAM" and words[at - 2] in _BEFORE:
            changes.append((tokens[at - 1].start, tokens[at - 1].end + 1, ""))
        if words[at] != "WATERMARK" or not at or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        # Without DELAY OF it is the name of a column or an alias.
        past = next((i for i in range(at + 1, len(words)) if words[i] in _AFTER | _BEFORE | {"SELECT"}), len(words))
        delay = next((i for i in range(at + 1, past - 1) if words[i : i + 2] == ["DELAY", "OF"]), None)
        if delay is None:
            continue
        stream = tokens[at - 1].text
        if stream.lower() not in streams:
            raise OptionError(
                f"sql: line {token.line}, column {token.col - len(token.text) + 1}: WATERMARK must follow the name of "
                "a stream; write it there, or pass a DataFrame with withWatermark(...)"
            )
        end = _end_of_interval(tokens, words, delay + 2)
        new = next(name for n in range(len(known) + 1) if (name := f"{stream.lower()}__{n}") not in known)
        known.add(new)
        clauses.append(Clause(stream, new, text[token.start : tokens[end - 1].end + 1]))
        replaced = f"`{new}`" if end < len(tokens) and words[end] not in _AFTER else f"`{new}` AS `{stream}`"
        changes.append((tokens[at - 1].start, tokens[end - 1].end + 1, replaced))
    for start, stop, new in sorted(changes, reverse=True):
        # The text keeps its length, so that messages have the right column.
        text = text[:start] + new.ljust(stop - start) + text[stop:]
    return text, clauses


def _end_of_interval(tokens: Sequence[Any], words: Sequence[str], at: int) -> int:
    """Return the end of an interval's tokens; Spark reports errors in it."""
    at += words[at : at + 1] == ["INTERVAL"]
    while at < len(tokens):
        at += words[at] in ("-", "+")
        if at == len(tokens) or tokens[at].token_type not in (TokenType.NUMBER, TokenType.STRING):
            break
        at += 1
        while at < len(tokens) and (words[at].lower().removesuffix("s") in _UNITS or words[at] == "TO"):
            at += 1
    return at
