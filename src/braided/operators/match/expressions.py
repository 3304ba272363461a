"""Definitions and measures of a pattern: SQL expressions over the rows of a match, to typed trees.

A column of a tree says by its side whose it is:

    row       the row that is tested, or that a result row is made for
    r3        the row in register 3: the first or last row of a symbol so far, or that with its least or largest value
    row-1     the row before it, r3-1 the row before that in a register
    numbers   a count, a sum or a mean: its name says of which registers

Registers are filled row by row while a match is followed (`search_kernel`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from braided.errors import OptionError
from braided.expressions.compile import Compiler
from braided.expressions.evaluate import arrow_type
from braided.expressions.parse import Parser, Syntax, Token
from braided.expressions.tree import Column, Truth, Type, Value, Widen

ROW, NUMBERS, CLASSIFIER = "row", "numbers", "classifier"
_AGGREGATES = ("count", "sum", "avg", "min", "max")
_FUNCTIONS = ("first", "last", "prev", *_AGGREGATES, "classifier")
_REFUSED = {
    "next": "a row would wait for those after the match",
    "match_number": "matches of different keys are not numbered",
    "any_value": "it has no certain value",
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_TRUTHS = ("and", "or", "not", "isnull", "in", "=", "<", "<=", "<=>")
_MOST_BACK = 1000


@dataclass(frozen=True)
class Register:
    """What is remembered of the rows of some symbols: a row, a count or a sum. `final`: of the whole match."""

    kind: str
    symbols: int
    """A bit for each symbol."""
    source: Value | None = None
    """What is counted, summed or compared, of the row itself."""
    final: bool = False


@dataclass(frozen=True)
class Symbols:
    """The symbols of a pattern with their numbers, subsets of them, and how many rows of a match are before each."""

    names: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]
    least_before: tuple[int, ...]

    def mask(self, name: str) -> int | None:
        """Return the bits of a symbol or subset; None for what is neither."""
        for subset, members in self.subsets.items():
            if subset.upper() == name.upper():
                return sum({self.mask(member) or 0 for member in members})
        positions = [at for at, known in enumerate(self.names) if known.upper() == name.upper()]
        return 1 << positions[0] if positions else None

    @property
    def all(self) -> int:
        return (1 << len(self.names)) - 1

    def before(self, mask: int) -> int:
        """Return how many rows of a match are at least before one of some symbols."""
        return min(count for at, count in enumerate(self.least_before) if mask >> at & 1)


@dataclass(frozen=True)
class Source:
    """The columns of a stream: their schema, those that compare otherwise than by their bytes, how to find names."""

    schema: pa.Schema
    collated: frozenset[str] = frozenset()
    case_sensitive: bool = False

    def find(self, name: str, where: str) -> str:
        names: list[str] = self.schema.names
        folded = [] if self.case_sensitive else [known for known in names if known.lower() == name.lower()]
        matching = [name] if name in names else folded
        if len(matching) != 1:
            why = "no such column" if not matching else f"ambiguous among {', '.join(matching)}"
            raise OptionError(f"{where}: {name!r}: {why}; there are {', '.join(names)}")
        return matching[0]


@dataclass(frozen=True)
class Measure:
    """A column of the result: copied from a row, or computed as a value or a truth."""

    name: str
    root: Column | Value | Truth
    copied: bool


def columns_of(node: Any) -> Iterator[Column]:
    """Yield the columns of a tree."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from columns_of(part)
    elif hasattr(node, "__dataclass_fields__"):
        for part in vars(node).values():
            yield from columns_of(part)


def compile_define(
    option: str, text: object, source: Source, symbols: Symbols, own: int, registers: list[Register]
) -> Truth:
    """Return the condition of a symbol; it may read rows of symbols before."""
    _check_text(option, text)
    return _Compiler(option, str(text), source, symbols, registers, own=own, running=True).condition()


def compile_measure(
    name: str, text: object, source: Source, symbols: Symbols, registers: list[Register], *, running: bool
) -> Measure:
    """Return a measure; where `running`, of the rows of the match up to each one."""
    option = f"measures[{name!r}]"
    _check_text(option, text)
    return _Compiler(option, str(text), source, symbols, registers, own=None, running=running).measure(name)


def _check_text(option: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{option}={text!r}: write a SQL expression")


class _Parser(Parser):
    """Reads symbols before columns, and navigation: ``first(A.x)``, ``prev(x, 2)``, ``count(A.*)``."""

    # Spark's functions without brackets are none here: a column may be called `user`.
    not_columns = re.compile(
        "all|and|between|case|distinct|else|end|exists|in|interval|is|like|not|or|select|then|when|with"
    )

    def __init__(self, text: str, option: str) -> None:
        super().__init__(text, lambda side, name: name, option)
        self._navigating = False

    def _unqualified(self, word: Token, start: int) -> Syntax:
        return self._node("column", ("", self._name(word)), start)

    def _qualified(self, side: Token, start: int) -> Syntax:
        token = self._next
        if token.kind not in ("word", "quoted"):
            self._unexpected()
        self._take()
        return self._node("column", (self._name(side), self._name(token)), start)

    def _called(self, word: Token, start: int) -> Syntax | None:
        name, mode = word.text.lower(), ""
        if word.kind != "word":
            return None
        if name in ("running", "final") and self._next.text.lower() in _FUNCTIONS:
            mode, name = name, self._take().text.lower()
        if name in _REFUSED and self._sees("("):
            self._refuse(f"{name.upper()} is not supported: {_REFUSED[name]}")
        if name not in _FUNCTIONS or not self._accept("("):
            return None
        if self._navigating:
            self._refuse(f"{name.upper()} inside another function of rows is not supported yet")
        self._navigating = True
        inner: Syntax | str | None = None
        back = 1
        if name == "count" and self._accept("*"):
            inner = ""
        elif name == "count" and self._next.kind == "word" and self._starred():
            inner = self._take().text
            self._accept(".", "*")
        elif name != "classifier":
            if self._accept("distinct"):
                self._refuse("DISTINCT is not supported yet")
            inner = self._nested(self._sum)
            if self._accept(","):
                back = self._steps(name)
        self._expect(")")
        self._navigating = False
        return self._node("navigation", (name, inner, back, mode), start)

    def _starred(self) -> bool:
        return [token.text for token in self._tokens[self._at + 1 : self._at + 3]] == [".", "*"]

    def _steps(self, name: str) -> int:
        token = self._take()
        if name != "prev":
            self._refuse(f"{name.upper()} with a number of rows is not supported yet")
        if not re.fullmatch(r"[0-9]{1,4}", token.text) or not 1 <= int(token.text) <= _MOST_BACK:
            self._refuse(f"PREV goes back 1 to {_MOST_BACK:,} rows, not {token.text!r}")
        return int(token.text)


class _Compiler(Compiler):
    """Gives every column the row that it is of, and every node its type."""

    shared_with_spark = False

    def __init__(
        self,
        option: str,
        text: str,
        source: Source,
        symbols: Symbols,
        registers: list[Register],
        *,
        own: int | None,
        running: bool,
    ) -> None:
        super().__init__(text, {}, option)
        self._source, self._symbols, self._registers = source, symbols, registers
        self._own, self._running = own, running
        self._side: str | None = None

    def condition(self) -> Truth:
        return self.truth(_Parser(self._text, self._option).parse())

    def measure(self, name: str) -> Measure:
        node = _Parser(self._text, self._option).parse()
        copied = self._copied(node)
        if copied is not None:
            return Measure(name, copied, True)
        if node.op in _TRUTHS:
            return Measure(name, self.truth(node), False)
        if node.op == "literal":
            raise self._refusal(f"{node.text} is a constant; add it to the result")
        return Measure(name, self.value(node), False)

    def _copied(self, node: Syntax) -> Column | None:
        """Return the column of a measure that is one, of any type; None where something must be computed."""
        inner = node.args[1] if node.op == "navigation" and node.args[0] in ("first", "last", "prev") else node
        if not isinstance(inner, Syntax) or inner.op != "column":
            return None
        side = self._navigated(node) if inner is not node else self._side_of(node.args[0])
        return Column(side, self._found(inner.args[1]), Type(""))

    def value(self, node: Syntax) -> Value:
        """Return a value; columns and navigation are of some row of the match."""
        if node.op == "column":
            symbol, name = node.args
            side = self._side_of(symbol) if self._side is None else self._side
            column = self._found(name)
            arrow = self._source.schema.field(column).type
            kind = arrow_type(arrow)
            if kind is None:
                raise self._refusal(f"{node.text} has type {arrow}")
            if column in self._source.collated:
                raise self._refusal(f"{node.text} has a collation; cast it to string before")
            return Column(side, column, kind)
        return self._navigation(node) if node.op == "navigation" else super().value(node)

    def _found(self, name: str) -> str:
        return self._source.find(name, f"{self._option}={self._text!r}")

    def _mask(self, symbol: str) -> int:
        """Return the symbols that a name before a column stands for; none: the row itself, or any."""
        if not symbol:
            return self._symbols.all if self._own is None else 1 << self._own
        mask = self._symbols.mask(symbol)
        if mask is None:
            known = ", ".join((*self._symbols.names, *self._symbols.subsets))
            raise OptionError(
                f"{self._option}={self._text!r}: {symbol!r} is no symbol of the pattern; there are {known}"
            )
        return mask

    def _side_of(self, symbol: str, *, final: bool = False) -> str:
        mask = self._mask(symbol)
        is_own = self._own is not None and mask >> self._own & 1
        every_row = self._own is None and self._running and not final and mask == self._symbols.all
        return ROW if is_own or every_row else self._register(Register("last", mask, final=final))

    def _register(self, register: Register) -> str:
        if register not in self._registers:
            self._registers.append(register)
        return f"r{self._registers.index(register)}"

    def _navigated(self, node: Syntax) -> str:
        name, inner, back, mode = node.args
        symbol = self._one_symbol(node, inner)
        final = self._is_final(mode)
        if name == "first":
            mask = self._mask(symbol) if symbol else self._symbols.all
            return self._register(Register("first", mask, final=final))
        side = self._side_of(symbol, final=final)
        if name == "last":
            return side
        mask = self._mask(symbol)
        if self._symbols.before(mask) < back:
            # The last row of every key would have to be kept for ever.
            raise OptionError(
                f"{self._option}={self._text!r}: {node.text} may be before the first row of the match, which is not "
                "kept; begin the pattern with a further symbol that has no definition"
            )
        return f"{side}-{back}"

    def _is_final(self, mode: str) -> bool:
        if mode and self._own is not None:
            raise self._refusal(f"{mode.upper()} is for measures; a definition sees the match so far")
        return mode == "final" and self._running

    def _one_symbol(self, node: Syntax, inner: Any) -> str:
        if isinstance(inner, str):
            return inner
        symbols = list(dict.fromkeys(_symbols_in(inner)))
        if not symbols:
            raise self._refusal(f"{node.text} names no column")
        if len(symbols) > 1:
            raise self._refusal(f"{node.text} has columns of different symbols")
        return str(symbols[0])

    def _navigation(self, node: Syntax) -> Value:
        name, inner, _, mode = node.args
        if name == "classifier":
            if self._own is not None:
                raise self._refusal("CLASSIFIER is for measures")
            return Column(NUMBERS, CLASSIFIER, Type("string"))
        if name in ("first", "last", "prev"):
            return self._of_row(inner, self._navigated(node))
        symbol = self._one_symbol(node, inner)
        mask = self._mask(symbol) if symbol else self._symbols.all
        final = self._is_final(mode)
        source = None if isinstance(inner, str) else self._of_row(inner, ROW)
        if name == "count":
            return Column(NUMBERS, self._register(Register("count", mask, source, final)), Type("bigint"))
        assert source is not None
        if name in ("min", "max"):
            return self._of_row(inner, self._register(Register(name, mask, source, final)))
        if source.type.name not in (*_WHOLE, *_FLOATS):
            raise self._refusal(f"{node.text}: {name.upper()} of {source.type}; cast it to double")
        kind = Type("bigint" if source.type.name in _WHOLE and name == "sum" else "double")
        source = source if source.type == kind else Widen(source, kind)
        total = self._register(Register("sum", mask, source, final))
        counted = self._register(Register("count", mask, source, final))
        return Column(NUMBERS, f"{name} {total} {counted}", kind)

    def _of_row(self, inner: Syntax, side: str) -> Value:
        self._side = side
        try:
            return self.value(inner)
        finally:
            self._side = None


def _symbols_in(node: Any) -> Iterator[str]:
    if isinstance(node, Syntax):
        if node.op == "column":
            yield node.args[0]
        else:
            for part in node.args:
                yield from _symbols_in(part)
