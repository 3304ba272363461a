"""Definitions and measures of a pattern: SQL expressions over the rows of a match, to typed trees.

A column of a tree says by its side whose it is:

    row       the row that is tested, or that a result row is made for
    r3        the row in register 3: the first or last row of a symbol so far, or that with its least or largest value
    row-1     the row before it, r3+1 the row after that in a register
    class r3  the symbol of such a row, where it is part of the match
    numbers   a count, a sum, a mean or the match's number: its name says of which registers

Registers are filled row by row while a match is followed (`search_kernel`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from braided.errors import OptionError
from braided.expressions.compile import Compiler
from braided.expressions.evaluate import arrow_type
from braided.expressions.parse import Parser, Syntax, Token
from braided.expressions.tree import Column, Truth, Type, Value, Widen

ROW, NUMBERS, CLASS, MATCH_NUMBER = "row", "numbers", "class ", "match_number"
_AGGREGATES = ("count", "sum", "avg", "min", "max")
_LOGICAL, _PHYSICAL = ("first", "last"), ("prev", "next")
_FUNCTIONS = (*_LOGICAL, *_PHYSICAL, *_AGGREGATES)
_REFUSED = {"any_value": "it has no certain value"}
_SIDE = re.compile(r"(?:class )?(row|r([0-9]+))([-+][0-9]+)?")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_TRUTHS = ("and", "or", "not", "isnull", "in", "=", "<", "<=", "<=>")
_MOST_STEPS = {"prev": 1000, "next": 1000, "first": 100, "last": 100}


@dataclass(frozen=True)
class Register:
    """What is remembered of the rows of some symbols: a row, a count or a sum. `final`: of the whole match."""

    kind: str
    symbols: int
    """A bit for each symbol."""
    source: Value | None = None
    """What is counted, summed or compared, of the row itself."""
    final: bool = False
    steps: int = 0
    """Of first and last rows, how many rows of the symbols on; the register of one step fewer is before it."""


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


def place_of(side: str) -> tuple[int, int]:
    """Return the register of a side, -1 for the row itself, and how many rows after it; negative: before it.

    >>> place_of("row-2"), place_of("class r3")
    ((-1, -2), (3, 0))
    """
    match = _SIDE.fullmatch(side)
    assert match is not None, side
    return -1 if match[2] is None else int(match[2]), int(match[3] or 0)


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


def sight(node: Any, registers: Sequence[Register], symbols: Symbols, own: int | None) -> tuple[int, int]:
    """Return how many rows before the first row of a match a tree may read, and how many after the row that it is for.

    `own`: the symbol of the row itself; None: any.
    """
    back = ahead = 0
    for column in columns_of(node):
        if column.side == NUMBERS:
            continue
        register, offset = place_of(column.side)
        mask = registers[register].symbols if register >= 0 else symbols.all if own is None else 1 << own
        back, ahead = max(back, -offset - symbols.before(mask)), max(ahead, offset)
    return back, ahead


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
        self._around = ""
        """The function of rows that is being read."""

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
        unrowed = self._without_rows(name, start)
        if unrowed is not None:
            return unrowed
        if name in _REFUSED and self._sees("("):
            self._refuse(f"{name.upper()} is not supported: {_REFUSED[name]}")
        if name not in _FUNCTIONS or not self._accept("("):
            return None
        around = self._around
        if around and not (around in _PHYSICAL and name in _LOGICAL):
            self._refuse(f"{name.upper()} inside another function of rows is not supported yet")
        self._around = name
        inner: Syntax | str | None = None
        steps = int(name in _PHYSICAL)
        if name == "count" and self._accept("*"):
            inner = ""
        elif name == "count" and self._next.kind == "word" and self._starred():
            inner = self._take().text
            self._accept(".", "*")
        else:
            if self._accept("distinct"):
                self._refuse("DISTINCT is not supported yet")
            inner = self._nested(self._sum)
            if self._accept(","):
                steps = self._steps(name)
        self._expect(")")
        self._around = around
        return self._node("navigation", (name, inner, steps, mode), start)

    def _without_rows(self, name: str, start: int) -> Syntax | None:
        """Read what names no column: ``classifier()``, ``classifier(U)``, ``match_number()``."""
        if name not in ("classifier", "match_number") or not self._accept("("):
            return None
        symbol = ""
        if name == "classifier" and self._next.kind in ("word", "quoted"):
            symbol = self._name(self._take())
        self._expect(")")
        return self._node(name, (symbol,), start)

    def _starred(self) -> bool:
        return [token.text for token in self._tokens[self._at + 1 : self._at + 3]] == [".", "*"]

    def _steps(self, name: str) -> int:
        token = self._take()
        if name not in _MOST_STEPS:
            self._refuse(f"{name.upper()} takes no number of rows")
        most = _MOST_STEPS[name]
        if not re.fullmatch(r"[0-9]{1,4}", token.text) or int(token.text) > most:
            self._refuse(f"{name.upper()} goes 0 to {most:,} rows, not {token.text!r}")
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
        inner = _innermost(node)
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
        if node.op == "classifier":
            side = self._side_of(node.args[0]) if self._side is None else self._side
            return Column(CLASS + side, "classifier", Type("string"))
        if node.op == "match_number":
            if self._own is not None:
                raise self._refusal("MATCH_NUMBER is for measures")
            return Column(NUMBERS, MATCH_NUMBER, Type("bigint"))
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
        name, inner, steps, mode = node.args
        if name in _PHYSICAL:
            if mode:
                raise self._refusal(f"{mode.upper()} is for FIRST, LAST and aggregates, inside of {name.upper()}")
            is_nested = inner.op == "navigation"
            side = self._navigated(inner) if is_nested else self._side_of(self._one_symbol(node, inner))
            return f"{side}{'-' if name == 'prev' else '+'}{steps}" if steps else side
        symbol = self._one_symbol(node, inner)
        final = self._is_final(mode)
        if name == "last" and not steps:
            return self._side_of(symbol, final=final)
        mask = self._mask(symbol) if symbol else self._symbols.all
        for step in range(steps):
            self._register(Register(name, mask, final=final, steps=step))
        return self._register(Register(name, mask, final=final, steps=steps))

    def _is_final(self, mode: str) -> bool:
        if mode == "final" and self._own is not None:
            raise self._refusal("FINAL is for measures; a definition sees the match so far")
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
        if self._side is not None:
            raise self._refusal(f"{node.text} in an expression inside another function of rows is not supported yet")
        if name in (*_LOGICAL, *_PHYSICAL):
            return self._of_row(_innermost(node), self._navigated(node))
        symbol = self._one_symbol(node, inner)
        mask = self._mask(symbol) if symbol else self._symbols.all
        final = self._is_final(mode)
        source = None if isinstance(inner, str) else self._of_row(inner, ROW)
        if any(column.side.startswith(CLASS) for column in columns_of(source)):
            raise self._refusal(f"{node.text}: CLASSIFIER in an aggregate is not supported yet")
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


def _innermost(node: Any) -> Any:
    """Return what first, last, prev and next are of."""
    while isinstance(node, Syntax) and node.op == "navigation" and node.args[0] in (*_LOGICAL, *_PHYSICAL):
        node = node.args[1]
    return node


def _symbols_in(node: Any) -> Iterator[str]:
    if isinstance(node, Syntax):
        if node.op in ("column", "classifier"):
            yield node.args[0]
        else:
            for part in node.args:
                yield from _symbols_in(part)
