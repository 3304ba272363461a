"""Parse the text of a ``where=`` predicate to a syntax tree: a recursive-descent parser of Spark's own grammar.

It reads only the subset that ``braided.expressions.compile`` documents. Anything else raises ``Uncompilable``,
even if the meaning seems clear. Spark then evaluates the predicate after the join, so a refusal costs only time,
but a wrong guess would give wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from braided.errors import OptionError
from braided.expressions import literals
from braided.expressions.tree import Type


class Uncompilable(OptionError):
    """The predicate is outside the compiled subset; Spark can still evaluate it after the join."""


@dataclass(frozen=True)
class Syntax:
    """A node: ``op`` is its operator, ``args`` are its parts, ``text`` is its text in the predicate.

    The parts of ``column`` are a side and a name, of ``literal`` a value and a ``Type``, of ``interval``
    microseconds, of ``cast`` an operand and a ``Type``; every other operator has operands only. A decimal's value
    is its unscaled integer. ``> >= <> BETWEEN`` and the NOT forms are expressed by ``< <= = and not``.
    """

    op: str
    args: tuple[Any, ...]
    text: str


class Token(NamedTuple):
    kind: str  # number, word, quoted, string, mark or end
    text: str
    start: int
    end: int


# No letter, digit or dot may follow a number: Spark reads 1e3L and 2x as identifiers.
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[lLsSyYdD])?(?![A-Za-z0-9_.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<string>'(?:[^'\\]|\\.|'')*')
    | (?P<mark>(?!--)(?:<=>|<>|!=|<=|>=|==|[-=<>+*(),.]))
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CASTS = {
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "double": "double",
    "timestamp_ntz": "timestamp_ntz",
}
# Words that Spark does not read as a column when they stand alone.
_NOT_COLUMNS = re.compile(
    "all|and|between|case|current_[a-z]+|distinct|else|end|exists|in|interval|is|like|localtime|localtimestamp"
    "|not|or|select|session_user|then|user|when|with"
)
_COMPARISONS = {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"}
# Python's stack limits the depth of a tree that the compiler, pickle and the kernels can process.
_DEEPEST = 32


class Parser:
    """Parses one predicate; ``column`` is called with each side and name, and returns the name in the schema.

    With ``bare``, all columns belong to one input, the left one, and are written without a side.
    """

    not_columns = _NOT_COLUMNS
    tokens = _TOKEN
    page = "docs/reference/where.md"
    """The page of the documentation that lists what compiles; messages name it."""

    def __init__(
        self, text: str, column: Callable[[str, str], str], option: str = "where", *, bare: bool = False
    ) -> None:
        self.text = text
        self._option = option
        self._column = column
        self._bare = bare
        self._depth = 0
        self._at = 0
        if "${" in text:
            self._refuse("Spark substitutes ${...} before it parses")
        self._tokens: list[Token] = []
        while not self._tokens or self._tokens[-1].kind != "end":
            start = self._tokens[-1].end if self._tokens else 0
            match = self.tokens.match(text, start)
            if not match:
                self._refuse(f"{text[start:].strip()[:20]!r} is not in the compiled subset")
            kind = str(match.lastgroup)
            self._tokens.append(Token(kind, match[kind], match.start(kind), match.end(kind)))

    def parse(self) -> Syntax:
        tree = self._disjunction()
        if self._next.kind != "end":
            self._unexpected()
        return tree

    # Tokens.

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _sees(self, *words: str) -> bool:
        """Whether the next tokens are these words or marks."""
        coming = self._tokens[self._at : self._at + len(words)]
        return len(coming) == len(words) and all(
            token.kind in ("word", "mark") and token.text.lower() == word
            for token, word in zip(coming, words, strict=True)
        )

    def _accept(self, *words: str) -> bool:
        is_next = self._sees(*words)
        self._at += len(words) * is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            self._unexpected()

    def _node(self, op: str, args: tuple[Any, ...], start: int) -> Syntax:
        return Syntax(op, args, self.text[self._tokens[start].start : self._tokens[self._at - 1].end])

    def _refuse(self, why: str) -> NoReturn:
        raise Uncompilable(f"{self._option}={self.text!r}: {why}; {self.page} lists what compiles")

    def _unexpected(self) -> NoReturn:
        token = self._next
        self._refuse(f"{token.text!r} is not in the compiled subset here" if token.text else "it ends too early")

    # Boolean expressions, loosest first.

    def _disjunction(self) -> Syntax:
        return self._chain("or", lambda: self._chain("and", self._negation))

    def _chain(self, op: str, part: Callable[[], Syntax]) -> Syntax:
        start, parts = self._at, [part()]
        while self._accept(op):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self._node(op, tuple(parts), start)

    def _negation(self) -> Syntax:
        start = self._at
        if not self._accept("not"):
            return self._predicate()
        return self._node("not", (self._nested(self._negation),), start)

    def _nested(self, part: Callable[[], Syntax]) -> Syntax:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"it nests deeper than {_DEEPEST} levels")
        node = part()
        self._depth -= 1
        return node

    def _predicate(self) -> Syntax:
        """Read a value, or one comparison of values; AND, OR, a bracket or the end must follow."""
        start, value = self._at, self._sum()
        if self._next.kind == "mark" and self._next.text in _COMPARISONS:
            op = self._take().text
            return self._compare(op, value, self._sum(), start)
        if self._accept("is"):
            negated = self._accept("not")
            if self._accept("distinct", "from"):
                negated = not negated
                node = self._compare("<=>", value, self._sum(), start)
            else:
                self._expect("null")
                node = self._node("isnull", (value,), start)
        else:
            negated = self._accept("not")
            if self._accept("between"):
                low = self._sum()
                self._expect("and")
                bounds = (
                    self._compare("<=", low, value, start),
                    self._compare("<=", value, self._sum(), start),
                )
                node = self._node("and", bounds, start)
            elif self._accept("in"):
                node = self._node("in", (value, *self._items()), start)
            elif negated:
                self._unexpected()
            else:
                return value
        return self._node("not", (node,), start) if negated else node

    def _compare(self, op: str, left: Syntax, right: Syntax, start: int) -> Syntax:
        if op in (">", ">="):
            op, left, right = op.replace(">", "<"), right, left
        node = self._node("=" if op in ("==", "<>", "!=") else op, (left, right), start)
        return self._node("not", (node,), start) if op in ("<>", "!=") else node

    def _items(self) -> list[Syntax]:
        self._expect("(")
        items = [self._unary()]
        while self._accept(","):
            items.append(self._unary())
        self._expect(")")
        for item in items:
            if item.op != "literal":
                self._refuse(f"IN compiles with literals, not {item.text}")
        return items

    # Values.

    def _sum(self) -> Syntax:
        return self._left_to_right(("+", "-"), lambda: self._left_to_right(("*",), self._unary))

    def _left_to_right(self, ops: tuple[str, ...], part: Callable[[], Syntax]) -> Syntax:
        start, value, length = self._at, part(), 1
        while self._next.kind == "mark" and self._next.text in ops:
            op = self._take().text
            value, length = self._node(op, (value, part()), start), length + 1
            if length > _DEEPEST:
                self._refuse(f"it chains more than {_DEEPEST} operators")
        return value

    def _unary(self) -> Syntax:
        start = self._at
        if not self._accept("-"):
            return self._primary()
        if self._next.kind == "number":  # -2147483648 is one int literal, as in Spark's grammar
            return self._number(start, "-")
        return self._node("-", (self._nested(self._unary),), start)

    def _primary(self) -> Syntax:
        start, token = self._at, self._next
        if token.kind == "number":
            return self._number(start, "")
        if token.kind == "string":
            value = literals.string(self._take().text)
            return self._literal(None if value is None else (value, Type("string")), start)
        if self._accept("("):
            inner = self._nested(self._disjunction)
            self._expect(")")
            return inner
        if token.kind not in ("word", "quoted"):
            self._unexpected()
        self._take()
        if self._accept("."):
            return self._qualified(token, start)
        word = token.text.lower()
        if word in ("true", "false"):
            return self._literal((word == "true", Type("boolean")), start)
        if word == "null":
            return self._literal((None, Type("void")), start)
        if self._next.kind == "string" and word in ("date", "timestamp", "timestamp_ltz", "timestamp_ntz"):
            return self._literal(literals.moment(word, self._take().text[1:-1]), start)
        if word == "interval" and (self._next.kind in ("number", "string") or self._sees("-")):
            return self._node("interval", (self._interval(),), start)
        if word == "abs" and self._accept("("):
            operand = self._nested(self._sum)
            self._expect(")")
            return self._node("abs", (operand,), start)
        if word == "cast" and self._accept("("):
            operand = self._nested(self._sum)
            self._expect("as")
            target = self._type()
            self._expect(")")
            return self._node("cast", (operand, target), start)
        called = self._called(token, start)
        if called is not None:
            return called
        if self._sees("(") or self._next.kind == "string" or self.not_columns.fullmatch(word):
            self._refuse(f"{token.text} is not in the compiled subset")
        return self._unqualified(token, start)

    def _called(self, word: Token, start: int) -> Syntax | None:
        """Read a further function that a subclass supports; None if the word is not one."""
        return None

    def _unqualified(self, word: Token, start: int) -> Syntax:
        name = self._name(word)
        if self._bare:
            return self._node("column", ("l", self._column("l", name)), start)
        raise OptionError(f"where={self.text!r}: column {name!r} has no side; write l.{name} or r.{name}")

    def _qualified(self, side: Token, start: int) -> Syntax:
        side_name, token = self._name(side), self._next
        if token.kind not in ("word", "quoted"):
            self._unexpected()
        self._take()
        if self._bare:  # an alias of the input or a field of a struct: only Spark can decide which
            self._refuse(f"{side_name}.{token.text} has a qualifier")
        if side_name.lower() not in ("l", "r"):
            raise OptionError(
                f"where={self.text!r}: {side_name!r} is not a side; write l.{token.text} or r.{token.text}"
            )
        if self._sees(".") or self._sees("("):
            self._refuse(f"{side_name}.{token.text}{self._next.text} is a field or a function")
        name = self._column(side_name.lower(), self._name(token))
        return self._node("column", (side_name.lower(), name), start)

    @staticmethod
    def _name(token: Token) -> str:
        return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text

    def _number(self, start: int, sign: str) -> Syntax:
        text = self._take().text
        return self._literal(literals.number(text, sign), start)

    def _literal(self, literal: tuple[Any, Type] | None, start: int) -> Syntax:
        node = self._node("literal", literal or (), start)
        if literal is None:
            shown = node.text if len(node.text) <= 60 else f"{node.text[:20]}... of {len(node.text):,} characters"
            self._refuse(f"the literal {shown} is not in the compiled subset")
        return node

    def _interval(self) -> int:
        total, parts = 0, 0
        while not parts or self._next.kind in ("number", "string"):
            sign = "-" if self._accept("-") else ""
            token = self._take()
            digits = token.text[1:-1] if token.kind == "string" and not sign else sign + token.text
            micros = literals.interval(digits, self._next.text)
            if micros is None or parts == _DEEPEST:
                self._refuse(f"INTERVAL {digits} {self._next.text}: write INTERVAL 10 SECONDS")
            self._take()
            total, parts = total + micros, parts + 1
        return total

    def _type(self) -> Type:
        name = self._take().text.lower()
        if name in _CASTS:
            return Type(_CASTS[name])
        if name not in ("decimal", "dec", "numeric"):
            self._refuse(f"CAST to {name} is not in the compiled subset")
        size = [10, 0]
        if self._accept("("):
            size = [self._digits(), 0]
            if self._accept(","):
                size[1] = self._digits()
            self._expect(")")
        if not 0 <= size[1] <= size[0] <= 38 or not size[0]:
            self._refuse(f"decimal({size[0]},{size[1]}) is not a type")
        return Type("decimal", size[0], size[1])

    def _digits(self) -> int:
        token = self._take()
        if not re.fullmatch(r"[0-9]{1,2}", token.text):
            self._refuse(f"{token.text!r} is not a precision or scale")
        return int(token.text)
