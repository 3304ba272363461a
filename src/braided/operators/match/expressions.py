"""Definitions and measures of a pattern: turns SQL expressions over the rows of a match into typed trees.

The side of a column in a tree tells which row it is of:

    row       the row that is tested, or the one of the result row
    r3        the row in register 3: the first or last row of a symbol so far, or that with its least or largest value
    row-1     the row before it; r3+1 is the row after the one in register 3
    class r3  the symbol of such a row, where it is part of the match
    numbers   a count, a sum, a mean or the match's number: its name says of which registers, or which aggregate

Registers are filled row by row while a match is followed (`search_kernel`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from braided.errors import OptionError
from braided.expressions import literals
from braided.expressions.compile import Compiler
from braided.expressions.evaluate import ARROW, arrow_type
from braided.expressions.parse import Parser, Syntax, Token
from braided.expressions.tree import Call, Column, Constant, IsNull, Like, Some, Truth, Type, Value, Widen
from braided.operators.match.match_aggregates import MatchAggregate, list_type

ROW, NUMBERS, CLASS, MATCH_NUMBER = "row", "numbers", "class ", "match_number"
_LISTS = ("array_agg", "collect_list", "listagg", "string_agg", "concat_ws")
_BY = ("max_by", "min_by")
_AGGREGATES = ("count", "sum", "avg", "min", "max", *_BY, *_LISTS)
# Functions of values, with the least and the largest number of them.
_SCALARS = {"lower": (1, 1), "upper": (1, 1), "concat": (1, 32), "coalesce": (2, 32)}
_LOGICAL, _PHYSICAL = ("first", "last"), ("prev", "next")
_FUNCTIONS = (*_LOGICAL, *_PHYSICAL, *_AGGREGATES)
_REFUSED = {"any_value": "its value is not deterministic; write first() or last()"}
_SIDE = re.compile(r"(?:class )?(row|r([0-9]+))([-+][0-9]+)?")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_TRUTHS = ("and", "or", "not", "isnull", "in", "=", "<", "<=", "<=>")
_PAGE = "docs/reference/match.md"
_SUBQUERY = re.compile(r"\(\s*select\b", re.IGNORECASE)
_MOST_STEPS = {"prev": 1000, "next": 1000, "first": 100, "last": 100}


@dataclass(frozen=True)
class Register:
    """A value kept about the rows of some symbols: a row, a count or a sum. `final`: of the whole match."""

    kind: str
    symbols: int
    """A bit for each symbol."""
    source: Value | None = None
    """The value of the row that is counted, summed or compared."""
    final: bool = False
    steps: int = 0
    """For first and last rows: how many of the symbols' rows further; one step less is the register before it."""


@dataclass(frozen=True)
class Symbols:
    """The symbols of a pattern with their numbers, subsets of them, and how many rows of a match are before each."""

    names: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]
    least_before: tuple[int, ...]

    def mask(self, name: str) -> int | None:
        """Return the bits of a symbol or subset; None for other names."""
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
    """The columns of a stream: their schema, which are collated, and whether names are case-sensitive."""

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
    """Return the register of a side, -1 for the row itself, and the offset in rows; negative: before it.

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
    """Return how many rows before the first row of a match a tree may read, and how many after its own row.

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
    """Return the condition of a symbol; it may read rows of earlier symbols."""
    _check_text(option, text)
    return _Compiler(option, str(text), source, symbols, registers, own=own, running=True).condition()


def compile_measure(
    name: str,
    text: object,
    source: Source,
    symbols: Symbols,
    registers: list[Register],
    aggregates: list[MatchAggregate],
    *,
    running: bool,
) -> Measure:
    """Return a measure; with `running`, of the rows of the match up to each row."""
    option = f"measures[{name!r}]"
    _check_text(option, text)
    compiler = _Compiler(option, str(text), source, symbols, registers, own=None, running=running)
    compiler.aggregates = aggregates
    return compiler.measure(name)


def _check_text(option: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{option}={text!r}: write a SQL expression")


class _Parser(Parser):
    """Reads symbols before columns, and navigation: ``first(A.x)``, ``prev(x, 2)``, ``count(A.*)``."""

    page = _PAGE
    # Double quotes mean a name only before a dot: elsewhere they may mean a string.
    tokens = re.compile(
        Parser.tokens.pattern.replace("(?P<quoted>", r"(?P<quoted>\"(?:[^\"]|\"\")+\"(?=[ \t\r\n]*\.)|").replace(
            "(?P<mark>", r"(?P<mark>\|\||"
        ),
        Parser.tokens.flags,
    )

    # Spark's functions without brackets are not recognised here: a column may be called `user`.
    not_columns = re.compile(
        "all|and|between|case|distinct|else|end|exists|in|interval|is|like|not|or|select|then|when|with"
    )

    def __init__(self, text: str, option: str) -> None:
        self.text, self._option = text, option
        if _SUBQUERY.search(re.sub(r"'(?:[^'\\]|\\.|'')*'", "''", text)):
            self._refuse("a subquery is not supported; join the stream with it before, or compute its value")
        super().__init__(text, lambda side, name: name, option)
        self._around = ""
        """The function of rows that is being parsed."""

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
        if name in _SCALARS and self._accept("("):
            return self._scalar(name, start)
        if name == "concat_ws" and self._accept("("):
            return self._joined(start)
        if name not in _FUNCTIONS or not self._accept("("):
            return None
        around = self._around
        if around and not (around in _PHYSICAL and name in _LOGICAL):
            self._refuse(f"{name.upper()} inside another function of rows is not supported yet")
        self._around = name
        inner: Syntax | str | None = None
        steps = int(name in _PHYSICAL)
        others: tuple[Any, ...] = ()
        if name == "count" and (self._accept("*") or self._sees(")")):
            inner = ""
        elif name == "count" and self._next.kind == "word" and self._starred():
            inner = self._take().text
            self._accept(".", "*")
        else:
            if self._accept("distinct"):
                self._refuse("DISTINCT is not supported yet")
            inner = self._nested(self._sum)
            if name in _BY:
                self._expect(",")
                others = (self._nested(self._sum),)
            elif name in ("listagg", "string_agg"):
                others = (self._separator() if self._accept(",") else "",)
            elif self._accept(","):
                steps = self._steps(name)
        self._expect(")")
        self._around = around
        return self._node("navigation", (name, inner, steps, mode, *others), start)

    def _scalar(self, name: str, start: int) -> Syntax:
        values = [self._nested(self._sum)]
        while self._accept(","):
            values.append(self._nested(self._sum))
        self._expect(")")
        least, most = _SCALARS[name]
        if not least <= len(values) <= most:
            self._refuse(f"{name.upper()} takes {least} to {most} values, not {len(values)}")
        return self._node("call", (name, *values), start)

    def _joined(self, start: int) -> Syntax:
        """Read ``concat_ws(',', array_agg(x))``: like ``listagg(x, ',')``, but without values it is empty, not null."""
        separator = self._separator()
        self._expect(",")
        inner = self._nested(self._sum)
        if inner.op != "navigation" or inner.args[0] not in ("array_agg", "collect_list"):
            self._refuse("CONCAT_WS takes a string and one ARRAY_AGG")
        self._expect(")")
        return self._node("navigation", ("concat_ws", *inner.args[1:], separator), start)

    def _separator(self) -> str:
        start, token = self._at, self._next
        if token.kind != "string":
            self._refuse("the separator must be a string in quotes")
        self._take()
        return str(self._literal((literals.string(token.text), Type("string")), start).args[0])

    def _sum(self) -> Syntax:
        return self._left_to_right(("+", "-", "||"), lambda: self._left_to_right(("*",), self._unary))

    def _items(self) -> list[Syntax]:
        self._expect("(")
        items = [self._nested(self._sum)]
        while self._accept(","):
            items.append(self._nested(self._sum))
        self._expect(")")
        return items

    def _predicate(self) -> Syntax:
        start, at = self._at, self._depth
        value = self._sum()
        negated = self._sees("not", "like")
        if not negated and not self._sees("like"):
            self._at, self._depth = start, at
            return super()._predicate()
        self._accept("not")
        self._accept("like")
        token, where = self._next, self._at
        if token.kind != "string" or "\\" in token.text:
            self._refuse("LIKE takes a string in quotes, without a backslash")
        self._take()
        pattern = self._literal((literals.string(token.text), Type("string")), where).args[0]
        node = self._node("like", (value, pattern), start)
        return self._node("not", (node,), start) if negated else node

    def _type(self) -> Type:
        if self._next.text.lower() not in ("string", "varchar"):
            return super()._type()
        # Spark takes VARCHAR(n) in a cast as STRING.
        if self._take().text.lower() == "varchar" and self._accept("("):
            self._take()
            self._expect(")")
        return Type("string")

    def _without_rows(self, name: str, start: int) -> Syntax | None:
        """Read functions without a column: ``classifier()``, ``classifier(U)``, ``match_number()``."""
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
            self._refuse(f"{name.upper()} takes a number of rows from 0 to {most:,}, not {token.text!r}")
        return int(token.text)


class _Compiler(Compiler):
    """Assigns a row to every column, and a type to every node."""

    shared_with_spark = False
    page = _PAGE

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
        self.aggregates: list[MatchAggregate] = []

    def condition(self) -> Truth:
        return self.truth(_Parser(self._text, self._option).parse())

    def measure(self, name: str) -> Measure:
        node = _Parser(self._text, self._option).parse()
        copied = self._copied(node)
        if copied is not None:
            return Measure(name, copied, True)
        if node.op in _TRUTHS:
            return Measure(name, self.truth(node), False)
        return Measure(name, self.value(node), False)

    def _copied(self, node: Syntax) -> Column | None:
        """Return the column of a measure that is a plain column, of any type; None if something must be computed."""
        inner = _innermost(node)
        if not isinstance(inner, Syntax) or inner.op != "column":
            return None
        side = self._navigated(node) if inner is not node else self._side_of(node.args[0])
        return Column(side, self._found(inner.args[1]), Type(""))

    def truth(self, node: Syntax) -> Truth:
        match node.op:
            case "like":
                operand = self.value(node.args[0])
                if operand.type.name != "string" or isinstance(operand, Constant):
                    raise self._refusal(
                        f"{node.text}: LIKE needs a column, or a string that is not constant, on its left"
                    )
                return Like(operand, node.args[1])
            case "in" if any(item.op != "literal" for item in node.args[1:]):
                operand, *items = node.args
                return Some(tuple(self.truth(Syntax("=", (operand, item), node.text)) for item in items))
            case "isnull" if node.args[0].op in ("classifier", "call"):
                return IsNull(self.value(node.args[0]))
        return super().truth(node)

    def _called(self, node: Syntax) -> Value:
        name, *syntax = node.args
        values = [self.value(part) for part in syntax]
        if name == "coalesce":
            kind = values[0].type
            for value in values[1:]:
                kind = self._common(kind, value.type, node.text)
            return Call(name, tuple(self._widen(value, kind, node.text) for value in values), kind)
        for value in values:
            if value.type.name != "string":
                raise self._refusal(f"{node.text}: expected a string, not {value.type}; cast it to string")
        return Call(name, tuple(values), Type("string"))

    def _cast(self, node: Syntax) -> Value:
        if node.args[1].name != "string":
            return super()._cast(node)
        operand = self.value(node.args[0])
        if operand.type.name == "string":
            return operand
        if operand.type.name not in _WHOLE:
            raise self._refusal(f"{node.text}: CAST of {operand.type} to string does not compile")
        return Call("string", (operand,), Type("string"))

    def value(self, node: Syntax) -> Value:
        """Return a value; columns and navigation belong to some row of the match."""
        if node.op in _TRUTHS or node.op == "like":
            raise self._refusal(f"{node.text}: a predicate cannot be used as a value here")
        if node.op == "call":
            return self._called(node)
        if node.op == "||":
            return self._called(Syntax("call", ("concat", *node.args), node.text))
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
                raise self._refusal("MATCH_NUMBER can only be used in measures")
            return Column(NUMBERS, MATCH_NUMBER, Type("bigint"))
        return self._navigation(node) if node.op == "navigation" else super().value(node)

    def _found(self, name: str) -> str:
        return self._source.find(name, f"{self._option}={self._text!r}")

    def _mask(self, symbol: str) -> int:
        """Return the symbols that a name before a column stands for; no bits: the row itself, or any symbol."""
        if not symbol:
            return self._symbols.all if self._own is None else 1 << self._own
        mask = self._symbols.mask(symbol)
        if mask is None:
            known = ", ".join((*self._symbols.names, *self._symbols.subsets))
            raise OptionError(f"{self._option}={self._text!r}: {symbol!r}: unknown symbol; write one of {known}")
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
        name, inner, steps, mode = node.args[:4]
        if name in _PHYSICAL:
            if mode:
                raise self._refusal(
                    f"{mode.upper()} can only be used with FIRST, LAST and aggregates, inside {name.upper()}"
                )
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
            raise self._refusal("FINAL can only be used in measures; a definition sees the match so far")
        return mode == "final" and self._running

    def _one_symbol(self, node: Syntax, inner: Any) -> str:
        if isinstance(inner, str):
            return inner
        symbols = list(dict.fromkeys(_symbols_in(inner)))
        if not symbols and _has_number(inner):
            return ""
        if not symbols:
            raise self._refusal(f"{node.text} has no column; write one")
        if len(symbols) > 1:
            raise self._refusal(f"{node.text} has columns of different symbols")
        return str(symbols[0])

    def _navigation(self, node: Syntax) -> Value:
        name, inner, _, mode, *others = node.args
        if self._side is not None:
            raise self._refusal(f"{node.text} in an expression inside another function of rows is not supported yet")
        if name in (*_LOGICAL, *_PHYSICAL):
            return self._of_row(_innermost(node), self._navigated(node))
        symbol = self._one_symbol(node, inner)
        mask = self._mask(symbol) if symbol else self._symbols.all
        final = self._is_final(mode)
        source = None if isinstance(inner, str) else self._of_row(inner, ROW)
        late = [column for column in columns_of(source) if column.side == NUMBERS or column.side.startswith(CLASS)]
        if late or name in (*_BY, *_LISTS):
            return self._aggregate(node, mask, source, others, final=final)
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

    def _aggregate(self, node: Syntax, mask: int, source: Value | None, others: list[Any], *, final: bool) -> Value:
        """Return an aggregate that is computed when a match has been found."""
        name = node.args[0]
        if self._own is not None:
            raise self._refusal(
                f"{node.text}: a definition may use COUNT, SUM, AVG, MIN and MAX of columns; {name.upper()} of "
                "symbols, match numbers or lists can only be used in measures"
            )
        assert source is not None
        kind, separator, arguments = source.type, "", [source]
        if name in _BY:
            arguments.append(self._of_row(others[0], ROW))
            if arguments[1].type.name not in (*_WHOLE, *_FLOATS, "string", "date", "timestamp", "timestamp_ntz"):
                raise self._refusal(f"{node.text}: {name.upper()} by {arguments[1].type}")
        elif name in _LISTS:
            if name in ("listagg", "string_agg", "concat_ws"):
                separator = others[0]
                if kind.name != "string":
                    raise self._refusal(f"{node.text}: expected a string, not {kind}; cast it to string")
                name = "concat_ws" if name == "concat_ws" else "listagg"
            else:
                name, kind = "array_agg", Type(f"array<{kind.name}>")
                if list_type(kind) is None:
                    raise self._refusal(f"{node.text}: lists of {source.type} are not supported yet")
        elif name in ("sum", "avg", "count"):
            if name != "count" and kind.name not in _WHOLE:
                raise self._refusal(
                    f"{node.text}: {name.upper()} of {kind} with symbols or match numbers is not supported"
                )
            kind = Type("double" if name == "avg" else "bigint")
        for argument in arguments:
            if argument.type.name not in ARROW:
                raise self._refusal(f"{node.text}: {name.upper()} of {argument.type}; cast it to double")
        aggregate = MatchAggregate(name, mask, tuple(arguments), kind, final, node.text, separator)
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        return Column(NUMBERS, f"aggregate {self.aggregates.index(aggregate)}", kind)

    def _of_row(self, inner: Syntax, side: str) -> Value:
        self._side = side
        try:
            return self.value(inner)
        finally:
            self._side = None


def _innermost(node: Any) -> Any:
    """Return the argument of first, last, prev and next."""
    while isinstance(node, Syntax) and node.op == "navigation" and node.args[0] in (*_LOGICAL, *_PHYSICAL):
        node = node.args[1]
    return node


def _has_number(node: Any) -> bool:
    return isinstance(node, Syntax) and (node.op == "match_number" or any(map(_has_number, node.args)))


def _symbols_in(node: Any) -> Iterator[str]:
    if isinstance(node, Syntax):
        if node.op in ("column", "classifier"):
            yield node.args[0]
        else:
            for part in node.args:
                yield from _symbols_in(part)
