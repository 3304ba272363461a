"""Compile the ``where=`` predicate of a join to NumPy and Arrow kernels with the same results as Spark 4.3.

``compile_where`` reads a SQL expression over ``l.`` and ``r.`` columns with Spark's default settings (ANSI
mode, case-insensitive names) and returns a ``Predicate``. Its mask over candidate pairs selects exactly the
pairs that Spark's filter would keep. An expression that is not listed here raises ``Uncompilable``; Spark
evaluates it instead.

The subset
----------
* Logic: ``AND OR NOT``, brackets, boolean columns, ``TRUE FALSE NULL``; three-valued, Spark's precedence.
* Comparisons: ``= == <> != < <= > >= <=>``, ``IS [NOT] DISTINCT FROM``, ``[NOT] BETWEEN``, ``[NOT] IN``
  with literals, and ``IS [NOT] NULL`` of a column.
* Values: columns, ``+ - *`` and unary ``-`` and ``abs()`` of integers and floats, ``-`` and ``abs()`` of
  decimals to 18 digits, ``timestamp +/- INTERVAL n unit`` (microseconds to days; below a day unless the timestamp is
  NTZ, because a day of a zoned timestamp may have 23 hours).
* Literals: ``1 1L 1S 1Y``, ``1.5 1.5BD`` (decimal), ``1e3 1.5D`` (double), ``'text'``, ``DATE '2024-01-31'``,
  ``TIMESTAMP '2024-01-31 10:00:00Z'`` with a zone, ``TIMESTAMP_NTZ '2024-01-31 10:00:00'``.
* ``CAST`` to a wider integer, to double, to a decimal that holds every value, of a date to timestamp_ntz.
* Operands of two types: integers, decimals (if 38 digits hold both) and floats with each other, where a decimal
  column that is compared with a double has at most 15 digits; date with timestamp_ntz; otherwise equal types only.

NaN equals NaN and is larger than all other values, ``-0.0 = 0.0``, strings and binaries compare by unsigned bytes.

Overflow
--------
Integer arithmetic raises on overflow, as in ANSI mode, but only if the result for a pair depends on it. Spark
evaluates a filter lazily and in any order, so in Spark ``l.a + 1 > 0 AND r.b = 1`` may or may not fail when
``r.b = 1`` is false. Here an overflow does not raise if another conjunct is false, if an alternative is true, or
if an operand is null. If neither raises, the results are equal. Sums and products of three or more integers do
not compile, because Spark reorders them. Arithmetic that is tested twice does not compile, because Spark may
simplify it. Both would overflow at other rows than in Spark.

Preconditions: the pairs passed to ``mask`` satisfy all other conditions of the join; string columns have the
default collation, which an Arrow schema does not show.

>>> schema = pa.schema([("cell", pa.string()), ("amount", pa.int64())])
>>> predicate = compile_where("l.cell <> r.cell AND r.amount > l.amount + 10", schema, schema)
>>> predicate.left
('cell', 'amount')
>>> predicate.mask(
...     {"cell": pa.array(["a", "a", None]), "amount": pa.array([1, 1, 1])},
...     {"cell": pa.array(["b", "b", "b"]), "amount": pa.array([12, 11, 12])},
... )
array([ True, False, False])
>>> compile_where("upper(l.cell) = 'A'", schema, schema)
Traceback (most recent call last):
    ...
braided.expressions.parse.Uncompilable: where="upper(l.cell) = 'A'": upper is not in the compiled subset; docs/reference/where.md lists what compiles
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError, OptionError
from braided.expressions import tree
from braided.expressions.evaluate import NARROW, Block, arrow_type
from braided.expressions.overflow import Comparisons, terms
from braided.expressions.parse import Parser, Syntax, Uncompilable

__all__ = ["Predicate", "Uncompilable", "compile_filter", "compile_where"]

_WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}  # digits of the decimal that Spark casts each to
_FLOATS = ("float", "double")
_DOUBLE = tree.Type("double")
# A decimal of 15 digits and its power of ten are exact doubles, so their division rounds only once, as in Java.
_EXACT_DIGITS = 15
_DAY = 86_400_000_000


@dataclass(frozen=True)
class Predicate:
    """A compiled predicate: the columns that it needs from each side, and a mask over candidate pairs."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    text: str
    root: tree.Truth

    def mask(self, left: Mapping[str, pa.Array[Any]], right: Mapping[str, pa.Array[Any]]) -> npt.NDArray[np.bool_]:
        """Return which pairs satisfy the predicate; row i of every array belongs to pair i.

        A pair whose result is null is not returned. Raises ``BraidedError`` if the result depends on an overflow.
        """
        rows = len(left[self.left[0]] if self.left else right[self.right[0]])
        block = Block({"l": left, "r": right}, rows)
        with np.errstate(all="ignore"):
            mask = block.true(self.root)
            if block.overflowed and (block.true(self.root, possibly=True) & ~mask).any():
                parts = " or ".join(dict.fromkeys(block.overflowed))
                raise BraidedError(f"where={self.text!r}: {parts} overflows; cast an operand to a wider type")
        return mask


def compile_where(text: str, left: pa.Schema, right: pa.Schema) -> Predicate:
    """Compile a predicate over two Arrow schemas.

    Raises ``Uncompilable`` for an expression outside the module's subset, and ``BraidedError`` for a column that
    no side has or that has no side.
    """
    if not isinstance(text, str):
        raise OptionError(f"where={text!r}: not a string; write a SQL predicate over l. and r. columns")
    return Compiler(text, {"l": left, "r": right}).compile()


def compile_filter(text: str, schema: pa.Schema) -> Predicate:
    """Compile a predicate over the rows of one input; its columns are written without a side. See `compile_where`."""
    return Compiler(text, {"l": schema, "r": pa.schema([])}, bare=True).compile()


class Compiler:
    """Gives every node of a syntax tree its type, by the coercion rules of Spark's ANSI mode."""

    # True if Spark may evaluate the same text, and may reorder or skip arithmetic.
    shared_with_spark = True
    page = Parser.page

    def __init__(self, text: str, schemas: dict[str, pa.Schema], option: str = "where", *, bare: bool = False) -> None:
        self._text = text
        self._option = option
        self._bare = bare
        self._schemas = schemas
        self._used: dict[str, set[str]] = {"l": set(), "r": set()}
        self._comparisons = Comparisons()

    def compile(self) -> Predicate:
        root = self.truth(Parser(self._text, self._resolve, bare=self._bare).parse())
        left, right = (tuple(name for name in self._schemas[side].names if name in self._used[side]) for side in "lr")
        if not left and not right:
            raise self._refusal("it names no column")
        return Predicate(left, right, self._text, root)

    def _refusal(self, why: str) -> Uncompilable:
        return Uncompilable(f"{self._option}={self._text!r}: {why}; {self.page} lists what compiles")

    def _resolve(self, side: str, name: str) -> str:
        names = self._schemas[side].names
        matching = [known for known in names if known.lower() == name.lower()]
        if not matching:
            raise OptionError(
                f"{self._option}={self._text!r}: {side} has no column {name!r}; it has {', '.join(names)}"
            )
        if len(matching) > 1:
            raise self._refusal(f"{side}.{name} is ambiguous among {', '.join(matching)}")
        self._used[side].add(matching[0])
        return str(matching[0])

    # Truths.

    def truth(self, node: Syntax) -> tree.Truth:
        if node.op in ("and", "or"):
            parts = tuple(self.truth(part) for part in node.args)
            return tree.Every(parts) if node.op == "and" else tree.Some(parts)
        if node.op == "not":
            return tree.Not(self.truth(node.args[0]))
        if node.op == "isnull":
            if node.args[0].op not in ("column", "navigation"):
                raise self._refusal(f"{node.text}: IS NULL compiles for columns")
            return tree.IsNull(self.value(node.args[0]))
        if node.op == "in":
            return self._in(node)
        if node.op in ("=", "<", "<=", "<=>"):
            return self._compare(node)
        if node.op == "literal" and node.args[1].name in ("boolean", "void"):
            return tree.Always(node.args[0])
        value = self.value(node)
        if value.type.name != "boolean":
            raise self._refusal(f"{node.text} is {value.type}, not a boolean")
        return tree.Holds(value)

    def _compare(self, node: Syntax) -> tree.Truth:
        one, other = node.args
        if _is_null(one) or _is_null(other):
            rest = other if _is_null(one) else one
            if rest.op not in ("column", "navigation"):
                raise self._refusal(f"{node.text}: a comparison with NULL compiles for columns")
            column = self.value(rest)
            return tree.IsNull(column) if node.op == "<=>" else tree.Always(None)
        left, right = self.value(one), self.value(other)
        if isinstance(left, tree.Constant) and isinstance(right, tree.Constant):
            raise self._refusal(f"{node.text} compares constants")
        if left.type.name in _WHOLE and right.type.name == "decimal" and isinstance(right, tree.Constant):
            right = self._rounded(right, up=node.op == "<", node=node)
        elif right.type.name in _WHOLE and left.type.name == "decimal" and isinstance(left, tree.Constant):
            left = self._rounded(left, up=node.op != "<", node=node)
        kind = self._common(left.type, right.type, node.text)
        left, right = self._widen(left, kind, node.text), self._widen(right, kind, node.text)
        self._check(node, left, right)
        return tree.Compare(node.op, left, right)

    def _check(self, node: Syntax, *values: tree.Value) -> None:
        why = self._comparisons.why_skipped(*values)
        if why and self.shared_with_spark:
            raise self._refusal(f"{node.text} {why}")

    def _rounded(self, literal: tree.Constant, *, up: bool, node: Syntax) -> tree.Constant:
        """Return the integer with which a comparison has the same result as with the decimal, as Spark does."""
        unit = 10**literal.type.scale
        if not -(1 << 63) * unit <= literal.value <= ((1 << 63) - 1) * unit:
            # Here Spark returns TRUE or FALSE for every row, even for nulls.
            raise self._refusal(f"{node.text} compares an integer with a literal beyond 64 bits")
        if node.op in ("=", "<=>") and literal.value % unit:
            return literal
        return tree.Constant(-(-literal.value // unit) if up else literal.value // unit, tree.Type("bigint"))

    def _in(self, node: Syntax) -> tree.Truth:
        operand, members = self.value(node.args[0]), [item for item in node.args[1:] if not _is_null(item)]
        if isinstance(operand, tree.Constant):
            raise self._refusal(f"{node.text} tests a constant")
        if not members:
            return tree.Always(None)
        values = [self.value(member) for member in members]
        kind = operand.type
        for value in values:
            kind = self._common(kind, value.type, node.text)
        wide = [self._widen(value, kind, node.text) for value in values]
        operand = self._widen(operand, kind, node.text)
        self._check(node, operand, *dict.fromkeys(wide))
        has_null = len(members) < len(node.args) - 1
        return tree.IsIn(operand, tuple(value.value for value in wide if isinstance(value, tree.Constant)), has_null)

    # Values.

    def value(self, node: Syntax) -> tree.Value:
        """Return a value that is not a predicate."""
        match node.op:
            case "column":
                return self._column(*node.args)
            case "literal" if node.args[0] is not None:
                return tree.Constant(*node.args)
            case "+" | "-" | "*" if len(node.args) == 2:
                return self._folded(self._arithmetic(node), node)
            case "-" | "abs":
                operand = self.value(node.args[0])
                if operand.type.name not in (*_WHOLE, *_FLOATS, "decimal"):
                    raise self._refusal(f"{node.text}: {operand.type} is not a number")
                if operand.type.precision > NARROW:
                    raise self._refusal(f"{node.text}: Spark rounds the sign of {operand.type} to 34 digits")
                return self._folded(tree.Arithmetic(node.op, (operand,), operand.type, node.text), node)
            case "cast":
                return self._cast(node)
            case _:
                raise self._refusal(f"{node.text} is not a value in the compiled subset")

    def _column(self, side: str, name: str) -> tree.Column:
        return self._typed(side, name, self._schemas[side].field(name))

    def _typed(self, side: str, name: str, field: pa.Field[Any]) -> tree.Column:
        kind = arrow_type(field.type)
        if kind is None:
            raise self._refusal(f"{side}.{name} has type {field.type}")
        if any(b"__CHAR_VARCHAR_TYPE_STRING" in part for part in (field.metadata or {}).values()):
            raise self._refusal(f"{side}.{name} is a CHAR or VARCHAR, which Spark pads")
        return tree.Column(side, name, kind)

    def _arithmetic(self, node: Syntax) -> tree.Arithmetic:
        if any(part.op == "interval" for part in node.args):
            return self._shift(node)
        left, right = (self.value(part) for part in node.args)
        for operand in (left, right):
            if operand.type.name not in (*_WHOLE, *_FLOATS, "decimal"):
                raise self._refusal(f"{node.text}: {operand.type} {node.op} does not compile")
        kind = self._common(left.type, right.type, node.text)
        if kind.name == "decimal":
            raise self._refusal(f"{node.text} is decimal arithmetic")
        operands = (self._widen(left, kind, node.text), self._widen(right, kind, node.text))
        many = kind.name in _WHOLE and node.op != "-" and sum(terms(part, node.op) for part in operands) > 2
        if many and self.shared_with_spark:
            raise self._refusal(f"{node.text}: Spark reorders a {node.op} of three integers")
        return tree.Arithmetic(node.op, operands, kind, node.text)

    def _shift(self, node: Syntax) -> tree.Arithmetic:
        moment, interval = node.args if node.args[1].op == "interval" else reversed(node.args)
        if node.op == "*" or moment.op == "interval" or (node.op == "-" and moment is node.args[1]):
            raise self._refusal(f"{node.text}: an interval compiles as timestamp + INTERVAL or timestamp - INTERVAL")
        operand, micros = self.value(moment), interval.args[0]
        if operand.type.name not in ("timestamp", "timestamp_ntz"):
            raise self._refusal(f"{node.text}: {operand.type} with an interval does not compile")
        if operand.type.name == "timestamp" and abs(micros) >= _DAY:
            raise self._refusal(f"{node.text}: days of a zoned timestamp depend on the session time zone")
        return tree.Arithmetic(node.op, (operand, tree.Constant(micros, operand.type)), operand.type, node.text)

    def _cast(self, node: Syntax) -> tree.Value:
        operand, target = self.value(node.args[0]), node.args[1]
        source = operand.type
        names = list(_WHOLE)
        if target.name in _WHOLE:
            fits = source.name in _WHOLE and names.index(source.name) <= names.index(target.name)
        elif target.name == "decimal":
            digits = _WHOLE.get(source.name, source.precision - source.scale)
            numeric = source.name in _WHOLE or source.name == "decimal"
            fits = numeric and source.scale <= target.scale and digits <= target.precision - target.scale
        elif target.name == "double":
            fits = source.name in (*_WHOLE, *_FLOATS, "decimal")
        else:
            fits = source.name in ("date", target.name)
        if not fits:
            raise self._refusal(f"{node.text}: CAST of {source} to {target} does not compile")
        return self._widen(operand, target, node.text)

    def _folded(self, node: tree.Arithmetic, syntax: Syntax) -> tree.Value:
        """Compute an expression without columns now: Spark folds it too, and an overflow is an error of planning."""
        if not all(isinstance(operand, tree.Constant) for operand in node.operands):
            return node
        block = Block({}, 1)
        with np.errstate(all="ignore"):
            value = block.value(node)
        if block.overflowed:
            raise self._refusal(f"{syntax.text} overflows {node.type}")
        return tree.Constant(value.values.item(), node.type)

    def _common(self, one: tree.Type, other: tree.Type, text: str) -> tree.Type:
        """Return the type in which Spark's ANSI mode compares or adds values of two types."""
        names = {one.name, other.name}
        if one == other:
            return one
        if names <= _WHOLE.keys():
            return max(one, other, key=lambda kind: _WHOLE[kind.name])
        if names <= {*_WHOLE, *_FLOATS, "decimal"}:
            if names & set(_FLOATS):
                return _DOUBLE  # also for an integer with a float
            decimals = [
                kind if kind.name == "decimal" else tree.Type("decimal", _WHOLE[kind.name]) for kind in (one, other)
            ]
            scale = max(kind.scale for kind in decimals)
            precision = scale + max(kind.precision - kind.scale for kind in decimals)
            if precision > 38:
                raise self._refusal(f"{text}: {one} and {other} need more than 38 digits, so Spark rounds")
            return tree.Type("decimal", precision, scale)
        if names != {"date", "timestamp_ntz"}:
            raise self._refusal(f"{text}: {one} with {other} does not compile")
        return tree.Type("timestamp_ntz")

    def _widen(self, value: tree.Value, kind: tree.Type, text: str) -> tree.Value:
        if value.type == kind:
            return value
        source = value.type
        if isinstance(value, tree.Constant):
            return tree.Constant(_convert(value.value, source, kind), kind)
        if kind == _DOUBLE and source.name == "decimal" and source.precision > _EXACT_DIGITS:
            raise self._refusal(f"{text}: {source} has too many digits to become a double exactly as in Spark")
        return tree.Widen(value, kind)


def _convert(value: Any, source: tree.Type, target: tree.Type) -> Any:
    if target.name == "decimal":
        return value * 10 ** (target.scale - source.scale)
    if target.name == "double":
        return float(f"{value}e-{source.scale}") if source.name == "decimal" else float(value)
    return value * _DAY if source.name == "date" else value


def _is_null(node: Syntax) -> bool:
    return node.op == "literal" and node.args[0] is None
