"""Parses the text of a row pattern into a tree: SQL's PATTERN clause, with a negation as its last part.

>>> parse_pattern("FAIL{3,} OK").root
Sequence(parts=(Repeat(part=Symbol(name='FAIL'), low=3, high=None, greedy=True), Symbol(name='OK')))
>>> parse_pattern("A (B | C")
Traceback (most recent call last):
    ...
braided.errors.OptionError: pattern='A (B | C': position 9: expected ')' or a further part, found the end
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import permutations
from typing import NoReturn

from braided.errors import OptionError

MOST_PERMUTED = 5
_MOST_REPEATS = 1000
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
    r"|(?P<number>[0-9]+)|(?P<mark>\{-|-\}|[(){},|?*+!^$])|(?P<end>\Z))"
)
_DEEPEST = 32


@dataclass(frozen=True)
class Symbol:
    """One row for which the symbol's condition holds."""

    name: str


@dataclass(frozen=True)
class Sequence:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of several parts, the earlier ones preferred."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A part `low` to `high` times, None for any number; greedy parts prefer more.

    Beyond the first `low` times, a part that takes no row is not repeated.
    """

    part: Node
    low: int
    high: int | None
    greedy: bool


@dataclass(frozen=True)
class Exclude:
    """A part whose rows are left out of the result's rows; they are still part of the match."""

    part: Node


@dataclass(frozen=True)
class Anchor:
    """No row: ``^`` is before the first row of a key, ``$`` after the last."""

    mark: str


Node = Symbol | Sequence | Choice | Repeat | Exclude | Anchor


@dataclass(frozen=True)
class Pattern:
    """A whole pattern: its symbols, each in its first spelling, and the symbol that may not follow."""

    root: Node
    symbols: tuple[str, ...]
    negated: str | None
    text: str


def parse_pattern(text: object) -> Pattern:
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"pattern={text!r}: write a pattern such as 'A B+ C'")
    return _Parser(text).parse()


class _Parser:
    """A recursive-descent parser; symbols are case-insensitive."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        self._depth = 0
        self._symbols: dict[str, str] = {}
        self._quoted: set[str] = set()
        position = 0
        while not self._tokens or self._tokens[-1][0] != "end":
            match = _TOKEN.match(text, position)
            if not match:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                self._refuse(start, f"unexpected {text[start]!r}")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()

    def parse(self) -> Pattern:
        root = self._choice()
        negated = None
        if self._accept("!"):
            negated = self._symbol("the symbol that may not follow")
            if self._kind != "end":
                self._expected("the end: a negation must be the last part of the whole pattern")
        if self._kind != "end":
            self._expected("the end or a further part")
        return Pattern(root, tuple(self._symbols.values()), negated, self._text)

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _sees(self, mark: str) -> bool:
        return self._tokens[self._at][:2] == ("mark", mark)

    def _accept(self, mark: str) -> bool:
        is_next = self._sees(mark)
        self._at += is_next
        return is_next

    def _expect(self, mark: str, what: str) -> None:
        if not self._accept(mark):
            self._expected(what)

    def _expected(self, what: str) -> NoReturn:
        _, text, position = self._tokens[self._at]
        self._refuse(position, f"expected {what}, found {repr(text) if text else 'the end'}")

    def _refuse(self, position: int, why: str) -> NoReturn:
        raise OptionError(f"pattern={self._text!r}: position {position + 1}: {why}")

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(
                self._tokens[self._at][2], f"nested deeper than {_DEEPEST} levels; write it with fewer brackets"
            )
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts = [self._repeated()]
        while self._kind in ("word", "quoted") or any(map(self._sees, ("(", "{-", "^", "$"))):
            parts.append(self._repeated())
        if self._sees("!") and self._depth > 1:
            self._expected("no '!' here: a negation must be the last part of the whole pattern, outside of brackets")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> Node:
        part = self._part()
        bounds = self._bounds()
        if bounds is None:
            return part
        greedy = not self._accept("?")
        if self._sees("?") or self._sees("*") or self._sees("+") or self._sees("{"):
            self._expected("no second quantifier (put the part in brackets)")
        return Repeat(part, *bounds, greedy)

    def _bounds(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self._accept(mark):
                return bounds
        start = self._tokens[self._at][2]
        if not self._accept("{"):
            return None
        low = self._number() if self._kind == "number" else None
        high = low
        if self._accept(","):
            high = self._number() if self._kind == "number" else None
            low = low or 0
        elif low is None:
            self._expected("a number or ','")
        self._expect("}", "a number or '}'" if high is None else "'}'")
        if high is not None and (high < (low or 0) or high == 0):
            self._refuse(
                start,
                f"{{{low},{high}}} has no valid number of times; write the smaller number first, and the larger one "
                "above 0",
            )
        return low or 0, high

    def _number(self) -> int:
        _, text, position = self._tokens[self._at]
        self._at += 1
        if len(text) > 4 or int(text) > _MOST_REPEATS:
            self._refuse(position, f"{text} repetitions are too many; write at most {_MOST_REPEATS:,}")
        return int(text)

    def _part(self) -> Node:
        position = self._tokens[self._at][2]
        if self._accept("("):
            if self._accept(")"):
                return Sequence(())
            inner = self._choice()
            self._expect(")", "')' or a further part")
            return inner
        if self._accept("{-"):
            inner = self._choice()
            self._expect("-}", "'-}' or a further part")
            return Exclude(inner)
        for mark in "^$":
            if self._accept(mark):
                return Anchor(mark)
        if self._kind == "word" and self._tokens[self._at][1].upper() == "PERMUTE":
            self._at += 1
            if self._accept("("):
                return self._permuted(position)
            self._at -= 1
        return Symbol(self._symbol("a symbol, '(' or '{-'"))

    def _permuted(self, position: int) -> Node:
        parts = [self._choice()]
        while self._accept(","):
            parts.append(self._choice())
        self._expect(")", "',' or ')'")
        if len(parts) > MOST_PERMUTED:
            self._refuse(position, f"PERMUTE has {len(parts)} parts; write at most {MOST_PERMUTED}")
        return Choice(tuple(Sequence(order) for order in permutations(parts))) if len(parts) > 1 else parts[0]

    def _symbol(self, what: str) -> str:
        kind, text, position = self._tokens[self._at]
        if kind not in ("word", "quoted"):
            self._expected(what)
        self._at += 1
        name = unquoted(text)
        known = self._symbols.setdefault(name.upper(), name)
        if kind == "quoted":
            self._quoted.add(name.upper())
        if known != name and name.upper() in self._quoted:
            self._refuse(
                position, f"{known} and {name} differ only in case, and symbols are case-insensitive; rename one"
            )
        return known


def unquoted(text: str) -> str:
    """Return a name without the quotes around it.

    >>> unquoted("fail"), unquoted('"fail"'), unquoted("`f``l`")
    ('fail', 'fail', 'f`l')
    """
    return text[1:-1].replace(text[0] * 2, text[0]) if text[0] in '`"' else text
