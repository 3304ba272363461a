"""The compiled form of an expression: types, values and truths, as plain trees that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Type:
    """A SQL type by its Spark name; only ``decimal`` has a precision and a scale."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


# Values. Each has its type; both operands of an operator have the same type.


@dataclass(frozen=True)
class Column:
    side: str
    """The row of the column: ``l`` or ``r`` of a pair, or a row of a match."""
    name: str
    type: Type


@dataclass(frozen=True)
class Constant:
    """A literal that is not NULL; a decimal as its unscaled integer, a time as its days or microseconds."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Widen:
    """A cast that loses nothing, or rounds a whole number to the nearest double."""

    operand: Value
    type: Type


@dataclass(frozen=True)
class Arithmetic:
    """``+ - *``, the unary ``-`` and ``abs``; ``text`` is for the message of an overflow."""

    op: str
    operands: tuple[Value, ...]
    type: Type
    text: str


@dataclass(frozen=True)
class Call:
    """``lower upper concat string coalesce`` of operands; except for ``string``, the result has the operands' type."""

    name: str
    operands: tuple[Value, ...]
    type: Type


Value = Column | Constant | Widen | Arithmetic | Call


# Truths.


@dataclass(frozen=True)
class Always:
    """TRUE, FALSE, or NULL, which is neither."""

    value: bool | None


@dataclass(frozen=True)
class Holds:
    """A boolean value as a predicate."""

    operand: Value


@dataclass(frozen=True)
class Compare:
    op: str
    left: Value
    right: Value


@dataclass(frozen=True)
class IsNull:
    operand: Value


@dataclass(frozen=True)
class IsIn:
    """``members`` have the operand's type; ``null`` means that the list also contains NULL."""

    operand: Value
    members: tuple[Any, ...]
    null: bool


@dataclass(frozen=True)
class Like:
    """A text matches a pattern of ``%`` and ``_``; a backslash escapes the next character."""

    operand: Value
    pattern: str


@dataclass(frozen=True)
class Not:
    operand: Truth


@dataclass(frozen=True)
class Every:
    """AND of all parts."""

    parts: tuple[Truth, ...]


@dataclass(frozen=True)
class Some:
    """OR of all parts."""

    parts: tuple[Truth, ...]


Truth = Always | Holds | Compare | IsNull | IsIn | Like | Not | Every | Some
