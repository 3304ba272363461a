"""The words of a query's text with their places, for the clauses that are read before the text is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.expressions.dialect import Braided

_NAME = re.compile(r"[A-Za-z_]\w*")


class Words:
    """The tokens of a text by number, with the matching bracket of each bracket.

    >>> words = Words("SELECT `a b` -- why\\nFROM (t)")
    >>> words.name(1), words.place(3), words.close(3), words.cut(0, 3)
    ('a b', 'line 2, column 6', 5, 'SELECT `a b` FROM')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.tokens = Braided().tokenize(text)
        except SqlglotError as error:
            raise OptionError(f"sql: the text cannot be parsed: {str(error).splitlines()[0]}") from error
        self._close: dict[int, int] = {}
        self._around: list[int | None] = []
        opened: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.token_type == TokenType.R_PAREN:
                if not opened:
                    raise OptionError(f"sql: {self.place(at)}: this ) has no (; remove it, or add a ( before")
                self._close[opened.pop()] = at
            self._around.append(opened[-1] if opened else None)
            if token.token_type == TokenType.L_PAREN:
                opened.append(at)
        if opened:
            raise OptionError(f"sql: {self.place(opened[-1])}: this ( is not closed; add a )")

    def __len__(self) -> int:
        return len(self.tokens)

    def start(self, at: int) -> int:
        """Return the start of a word in the text; after the last word, the end of the text."""
        return int(self.tokens[at].start) if at < len(self) else len(self.text)

    def stop(self, at: int) -> int:
        """Return the end of a word in the text."""
        return int(self.tokens[at].end) + 1

    def place(self, at: int) -> str:
        """Return the line and column of a word, as in an editor."""
        return place(self.text, self.start(at))

    def shown(self, at: int) -> str:
        """Return a word as text for messages."""
        return repr(self.text[self.start(at) : self.stop(at)]) if at < len(self) else "the end"

    def is_(self, at: int, *kinds: TokenType) -> bool:
        """Whether a word has one of these kinds."""
        return 0 <= at < len(self) and self.tokens[at].token_type in kinds

    def says(self, at: int, *words: str) -> bool:
        """Whether the text has these words from a position on, case-insensitive."""
        tokens = self.tokens[at : at + len(words)]
        return [" ".join(token.text.upper().split()) for token in tokens] == list(words)

    def name(self, at: int) -> str | None:
        """Return a word as a name, without its backticks; None if it cannot be a name."""
        if at >= len(self):
            return None
        is_name = self.is_(at, TokenType.IDENTIFIER) or _NAME.fullmatch(self.text[self.start(at) : self.stop(at)])
        return str(self.tokens[at].text) if is_name else None

    def close(self, at: int) -> int:
        """Return the closing bracket of an opening bracket."""
        return self._close[at]

    def end_around(self, at: int) -> int:
        """Return the closing bracket around a word; if there is none, the end of the text."""
        around = self._around[at]
        return len(self) if around is None else self._close[around]

    def cut(self, start: int, stop: int) -> str:
        """Return the text of some words with single spaces between them, without line breaks and comments."""
        return "".join(
            self.text[self.start(at) : self.stop(at)]
            + (" " if at + 1 < stop and self.stop(at) < self.start(at + 1) else "")
            for at in range(start, stop)
        )

    def in_place(self, start: int, stop: int) -> str:
        """Return the text of some words, each in its place, with only spaces between them."""
        shown = only(self.text, [(self.start(at), self.stop(at)) for at in range(start, stop)])
        return shown[self.start(start) : self.stop(stop - 1)]


def place(text: str, offset: int) -> str:
    """Return the line and column of an offset in a text, as in an editor.

    >>> place("a\\nbc", 3)
    'line 2, column 2'
    """
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - text.rfind(chr(10), 0, offset)}"


def only(text: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Return a text in which everything outside some ranges is replaced by spaces, so that they keep their places.

    >>> only("one two three", [(4, 7)])
    '    two      '
    """
    parts, done = [], 0
    for start, stop in ranges:
        parts += [_blank(text[done:start]), text[start:stop]]
        done = stop
    return "".join([*parts, _blank(text[done:])])


def _blank(text: str) -> str:
    return re.sub(r"\S", " ", text)
