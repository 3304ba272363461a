"""Parse a MATCH_RECOGNIZE clause into the options of `braided.match`, each with its place in the text.

    ( PARTITION BY user ORDER BY ts
      MEASURES FIRST(FAIL.ts) AS since, COUNT(FAIL.*) AS tries
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (FAIL{3,} OK) WITHIN INTERVAL '5' MINUTE
      SUBSET ANY = (FAIL, OK)
      DEFINE FAIL AS status = 'fail', OK AS status = 'ok' )

The parts are those of SQL:2016, in the same order; WITHIN is at the same place as in Flink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.operators.match.pattern import parse_pattern, unquoted
from braided.sqltext.words import Words, place

_ONE, _ALL = ("ONE", "ROW", "PER", "MATCH"), ("ALL", "ROWS", "PER", "MATCH")


@dataclass(frozen=True)
class Part:
    """One option in the text: its name in messages, and the start of its value."""

    called: str
    start: int


@dataclass
class Clause:
    """The content of a clause as options of `braided.match`; `within` is still an interval as text."""

    text: str
    """The whole query."""
    options: dict[str, Any] = field(default_factory=dict)
    within: str | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    """By the first word in messages of `braided.match`: ``pattern``, ``define['A']``."""

    def placed(self, message: str) -> str:
        """Return a message about an option of `braided.match` as a message about the text."""
        named = [option for option in self.parts if re.match(re.escape(option) + r"[=:]", message)]
        if not named:
            return f"sql: MATCH_RECOGNIZE: {message}"
        part = self.parts[named[0]]
        value = _value(self.options, named[0])
        reason = message.removeprefix(named[0]).removeprefix(f"={value!r}")
        reason = f" {reason[1:]}" if reason.startswith("=") else reason
        position = re.match(r": position (\d+)", reason)
        start = part.start + (int(position[1]) - 1 if position else 0)
        return f"sql: {place(self.text, start)}: {part.called}{reason[position.end() if position else 0 :]}"


def _value(options: Mapping[str, Any], option: str) -> object:
    """Return the value of an option by its name in messages."""
    name, bracket, rest = option.partition("[")
    values = options.get(name)
    if not bracket or not values:
        return values
    return next((value for key, value in values.items() if f"{key!r}]" == rest), None)


def read_clause(words: Words, opened: int) -> Clause:
    """Read the clause with this opening bracket."""
    return _Reader(words, opened).read()


class _Reader:
    """Reads the parts one by one, in SQL's order."""

    def __init__(self, words: Words, opened: int) -> None:
        self._words = words
        self._at = opened + 1
        self._stop = words.close(opened)
        self._clause = Clause(words.text)

    def read(self) -> Clause:
        options = self._clause.options
        if self._accept("PARTITION BY") or self._accept("PARTITION", "BY"):
            options["key"] = self._columns()
        if not (self._accept("ORDER BY") or self._accept("ORDER", "BY")):  # one token, or two with a comment between
            self._expected("ORDER BY and the event-time column")
        options["time"] = self._time()
        if ties := self._ties():
            options["ties"] = ties
        start = self._at
        options["measures"] = dict(self._measures()) if self._accept("MEASURES") else {}
        options["rows"] = self._rows()
        if not options["measures"] and options["rows"] == "one" and "key" not in options:
            self._at = start
            self._expected("MEASURES and at least one expression with a name: MEASURES FIRST(A.ts) AS since")
        if self._accept("AFTER"):
            options["after"] = self._after()
        self._expect(("PATTERN",), "PATTERN (...)")
        options["pattern"] = self._pattern()
        if self._accept("WITHIN"):
            self._clause.parts["within"] = Part("WITHIN", self._words.start(self._at))
            self._clause.within = self._value("an interval: WITHIN INTERVAL '5' MINUTE")
        if self._accept("SUBSET"):
            options["subsets"] = dict(self._subsets())
        if self._accept("DEFINE"):
            options["define"] = dict(self._define())
        if self._at < self._stop:
            self._expected("the end of the clause (its parts have an order: docs/reference/match.md)")
        return self._clause

    def _accept(self, *words: str) -> bool:
        accepted = self._at + len(words) <= self._stop and self._words.says(self._at, *words)
        self._at += len(words) if accepted else 0
        return accepted

    def _expect(self, words: tuple[str, ...], what: str) -> None:
        if not self._accept(*words):
            self._expected(what)

    def _expected(self, what: str) -> NoReturn:
        actual = "the end of the clause" if self._at >= self._stop else self._words.shown(self._at)
        self._refuse(self._at, f"expected {what}; found {actual}")

    def _refuse(self, at: int, why: str) -> NoReturn:
        raise OptionError(f"sql: {self._words.place(at)}: MATCH_RECOGNIZE: {why}")

    def _name(self, what: str) -> str:
        name = self._words.name(self._at) if self._at < self._stop else None
        if name is None:
            self._expected(what)
        self._at += 1
        return name

    def _symbol(self, what: str) -> str:
        """Read a symbol, which may also be in double quotes."""
        if self._at < self._stop and self._words.is_(self._at, TokenType.STRING):
            text = self._words.cut(self._at, self._at + 1)
            if text.startswith('"'):
                self._at += 1
                return unquoted(text)
        return self._name(what)

    def _listed(self, item: Callable[[], Any]) -> Iterator[Any]:
        yield item()
        while self._at < self._stop and self._words.is_(self._at, TokenType.COMMA):
            self._at += 1
            yield item()

    def _column(self) -> str:
        start = self._at
        name = self._name("the name of a column")
        if self._words.is_(self._at, TokenType.DOT, TokenType.L_PAREN):
            self._refuse(start, "write only the name of a column; select or compute it in a subquery before")
        return name

    def _columns(self) -> tuple[str, ...]:
        self._clause.parts["key"] = Part("PARTITION BY", self._words.start(self._at))
        return tuple(self._listed(self._column))

    def _time(self) -> str:
        start = self._words.start(self._at)
        name = self._column()
        self._clause.parts["time"] = Part(f"ORDER BY {name}", start)
        self._accept("ASC")
        if self._words.is_(self._at, TokenType.DESC):
            self._refuse(self._at, "ORDER BY must begin with the event time, ascending; omit DESC")
        self._refuse_nulls()
        return name

    def _refuse_nulls(self) -> None:
        if self._words.says(self._at, "NULLS"):
            self._refuse(self._at, "ORDER BY always treats nulls as the smallest; omit NULLS FIRST or NULLS LAST")

    def _ties(self) -> list[str]:
        """Read the columns that order rows of the same time."""
        ties = []
        self._clause.parts["ties"] = Part("ORDER BY", self._words.start(self._at))
        while self._at < self._stop and self._words.is_(self._at, TokenType.COMMA):
            self._at += 1
            name = self._column().replace("`", "``")
            direction = "DESC" if self._accept("DESC") else "ASC"
            self._accept("ASC")
            self._refuse_nulls()
            ties.append(f"`{name}` {direction}")
        return ties

    def _value(self, what: str) -> str:
        """Return the text up to the next part, or to the next comma or AS outside brackets."""
        start = self._at
        while self._at < self._stop and not self._words.is_(self._at, TokenType.COMMA, TokenType.ALIAS):
            if self._begins_part():
                break
            is_open = self._words.is_(self._at, TokenType.L_PAREN)
            self._at = (self._words.close(self._at) if is_open else self._at) + 1
        if start == self._at:
            self._expected(what)
        return self._words.cut(start, self._at)

    def _begins_part(self) -> bool:
        at, words = self._at, self._words
        named = (words.says(at, "DEFINE") and words.is_(at + 2, TokenType.ALIAS)) or (
            words.says(at, "SUBSET") and words.is_(at + 2, TokenType.EQ)
        )
        opens = words.says(at, "PATTERN") and words.is_(at + 1, TokenType.L_PAREN)
        return named or opens or any(words.says(at, *part) for part in (_ONE, _ALL, ("AFTER", "MATCH"), ("WITHIN",)))

    def _measures(self) -> Iterator[tuple[str, str]]:
        def measure() -> tuple[str, str]:
            start = self._words.start(self._at)
            value = self._value("an expression with a name: FIRST(A.ts) AS since")
            self._expect(("AS",), f"a name for {value}: {value} AS name")
            name = self._name("a name")
            self._note("measures", name, start)
            return name, value

        return self._unique(measure)

    def _define(self) -> Iterator[tuple[str, str]]:
        def definition() -> tuple[str, str]:
            name = self._symbol("a symbol of the pattern")
            self._expect(("AS",), f"AS and the condition of {name}")
            self._note("define", name, self._words.start(self._at))
            return name, self._value(f"the condition of {name}")

        return self._unique(definition)

    def _subsets(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        def subset() -> tuple[str, tuple[str, ...]]:
            start = self._words.start(self._at)
            name = self._symbol("a name for several symbols: SUBSET AB = (A, B)")
            self._expect(("=", "("), f"symbols in brackets: {name} = (A, B)")
            self._note("subsets", name, start)
            members = tuple(self._listed(lambda: self._symbol("a symbol")))
            self._expect((")",), "',' or ')'")
            return name, members

        return self._unique(subset)

    def _unique(self, item: Callable[[], tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        seen = set()
        for name, value in self._listed(item):
            if name.upper() in seen:
                self._refuse(self._at - 1, f"{name} occurs twice; omit one of them")
            seen.add(name.upper())
            yield name, value

    def _note(self, option: str, name: str, start: int) -> None:
        called = {"define": "DEFINE", "measures": "MEASURES", "subsets": "SUBSET"}[option]
        self._clause.parts[f"{option}[{name!r}]"] = Part(f"{called} {name}", start)

    def _rows(self) -> str:
        self._clause.parts["rows"] = Part("ROWS PER MATCH", self._words.start(self._at))
        if not self._accept(*_ALL):
            self._accept(*_ONE)
            return "one"
        if self._accept("WITH", "UNMATCHED", "ROWS"):
            return "all with unmatched"
        if self._accept("OMIT", "EMPTY", "MATCHES"):
            return "all omit empty"
        self._accept("SHOW", "EMPTY", "MATCHES")
        return "all"

    def _after(self) -> str:
        self._expect(("MATCH", "SKIP"), "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW, TO FIRST or LAST and a symbol")
        self._clause.parts["after"] = Part("AFTER MATCH SKIP", self._words.start(self._at))
        if self._accept("PAST", "LAST", "ROW"):
            return "skip past last row"
        self._expect(("TO",), "PAST LAST ROW or TO NEXT ROW, TO FIRST or LAST and a symbol")
        if self._accept("NEXT", "ROW"):
            return "skip to next row"
        # Without FIRST or LAST, SQL means the last.
        which = "first" if self._accept("FIRST") else "last"
        self._accept("LAST")
        name = self._symbol("a symbol")
        return f"skip to {which} {name}" if name.isidentifier() else f"skip to {which} `{name.replace('`', '``')}`"

    def _pattern(self) -> str:
        if not self._words.is_(self._at, TokenType.L_PAREN):
            self._expected("PATTERN (...)")
        opened, self._at = self._at, self._words.close(self._at) + 1
        self._clause.parts["pattern"] = Part("PATTERN", self._words.start(opened + 1))
        self._clause.parts.setdefault("within", Part("WITHIN", self._words.start(opened + 1)))
        if opened + 2 == self._at:
            self._refuse(opened, "PATTERN () has no symbols; write some, such as PATTERN (A B+)")
        text = self._words.in_place(opened + 1, self._at - 1)
        self._clause.options["pattern"] = text
        try:
            parse_pattern(text)
        except OptionError as error:
            raise OptionError(self._clause.placed(str(error))) from error
        return self._words.cut(opened + 1, self._at - 1)
