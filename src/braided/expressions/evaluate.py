"""Evaluate the tree of an expression over a block of rows, or of candidate pairs of rows.

A value is a vector with two masks: ``valid`` (not null) and ``bad`` (evaluating it raises an overflow in
Spark). A truth is evaluated for one result, true or false, because null is neither:

    true(a AND b)  = true(a) & true(b)        false(a AND b) = false(a) | false(b)
    true(NOT a)    = false(a)                 false(a = b)   = a != b, where both are valid

So three-valued logic needs one mask per node, and a predicate without nulls needs no extra mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError
from braided.expressions import tree

Mask = npt.NDArray[np.bool_]

DTYPES: dict[str, Any] = {
    "boolean": np.bool_,
    "tinyint": np.int8,
    "smallint": np.int16,
    "int": np.int32,
    "bigint": np.int64,
    "float": np.float32,
    "double": np.float64,
    "decimal": np.int64,
    "date": np.int32,
    "timestamp": np.int64,
    "timestamp_ntz": np.int64,
}
ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that a computed column may have."""
# Unscaled decimals of up to this many digits fit into int64 and are compared there; wider ones stay in Arrow.
NARROW = 18
_DAY = 86_400_000_000
_ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply}
_NUMPY = {"=": np.equal, "<=>": np.equal, "<": np.less, "<=": np.less_equal}
_ARROW = {"=": pc.equal, "<=>": pc.equal, "<": pc.less, "<=": pc.less_equal}


class Vector(NamedTuple):
    """NumPy values, or Arrow values for strings, binaries and wide decimals; without masks all are valid, none bad."""

    values: Any
    valid: Mask | None = None
    bad: Mask | None = None


class Block:
    """Evaluates truths over one block; ``overflowed`` lists the parts that overflowed in any row.

    Each side has its columns by name; row i of all columns belongs together.
    """

    def __init__(self, columns: Mapping[str, Mapping[str, pa.Array[Any]]], rows: int) -> None:
        self._columns = columns
        self.rows = rows
        self._memo: dict[tree.Value, Vector] = {}
        self.overflowed: list[str] = []

    def true(self, node: tree.Truth, want: bool = True, *, possibly: bool = False) -> Mask:
        """Return where ``node`` is ``want``; with ``possibly`` also the rows where an overflow hides the result."""
        match node:
            case tree.Every(parts) | tree.Some(parts):
                masks = (self.true(part, want, possibly=possibly) for part in parts)
                return reduce(np.logical_and if isinstance(node, tree.Every) == want else np.logical_or, masks)
            case tree.Not(operand):
                return self.true(operand, not want, possibly=possibly)
            case tree.Always(value):
                return np.full(self.rows, value is want)
            case tree.IsNull(operand):
                valid = self.value(operand).valid
                if valid is None:
                    return np.full(self.rows, not want)
                return ~valid if want else valid
            case tree.IsIn(null=True) if not want:
                return np.full(self.rows, False)  # x IN (1, NULL) is true or null, never false
        hit, valid, bad = self._leaf(node)
        if not want:
            hit = ~hit
        if valid is not None:
            hit = hit & valid
        if bad is not None:
            hit = hit | bad if possibly else hit & ~bad
        return np.asarray(hit)

    def _leaf(self, node: tree.Holds | tree.Compare | tree.IsIn | tree.Like) -> Vector:
        if isinstance(node, tree.Compare):
            left, right = self.value(node.left), self.value(node.right)
            hit = _compare(node.op, left.values, right.values, node.left.type)
            if node.op != "<=>":
                valid = _both(left.valid, right.valid)
                return Vector(hit, valid, _known(_either(left.bad, right.bad), valid))
            if left.valid is not None or right.valid is not None:
                one, other = (True if side.valid is None else side.valid for side in (left, right))
                hit = (hit & one & other) | ~(one | other)
            return Vector(hit, None, _either(left.bad, right.bad))
        operand = self.value(node.operand)
        if isinstance(node, tree.Holds):
            return operand
        if isinstance(node, tree.Like):
            hit = pc.match_like(operand.values, node.pattern).fill_null(False)
            return operand._replace(values=_bits(hit.buffers()[1], hit.offset, len(hit)))
        return operand._replace(values=_is_in(operand.values, node.members, node.operand.type))

    def value(self, node: tree.Value) -> Vector:
        """Return the vector of a value, which is computed only once per block."""
        if node not in self._memo:
            self._memo[node] = self._compute(node)
        return self._memo[node]

    def array(self, node: tree.Value) -> pa.Array[Any]:
        """Return a value as a column of one of the types in `ARROW`; rows that overflowed have undefined values."""
        vector = self.value(node)
        values = vector.values
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self.rows)
        if not isinstance(values, pa.Array):
            values = np.broadcast_to(values, (self.rows,))
            mask = None if vector.valid is None else ~vector.valid
            plain = pa.array(np.ascontiguousarray(values), mask=mask)
            values = plain.cast(pa.int32()) if node.type.name == "date" else plain
        return values.cast(ARROW[node.type.name])

    def _compute(self, node: tree.Value) -> Vector:
        match node:
            case tree.Column(side, name, kind):
                array = self._columns[side][name]
                if len(array) != self.rows or not same_type(array.type, kind):
                    raise BraidedError(
                        f"where: column {side}.{name} holds {len(array)} of {array.type}; "
                        f"give {self.rows} rows of {kind}"
                    )
                return _read(array, kind)
            case tree.Constant(value, kind):
                return Vector(_constant(value, kind))
            case tree.Widen(operand, kind):
                return self._widen(self.value(operand), operand.type, node)
            case tree.Arithmetic(op, operands, kind):
                parts = [self.value(operand) for operand in operands]
                if not is_whole(kind):
                    values, bad = _unchecked(op, *(part.values for part in parts)), None
                else:
                    values, bad = _checked(op, kind.name, *(part.values for part in parts))
                return self._combine(parts, values, bad, node.text)
            case tree.Call(name, operands):
                parts = [self.value(operand) for operand in operands]
                return self._coalesced(parts) if name == "coalesce" else self._called(name, parts)
        raise AssertionError(node)

    def _combine(self, parts: list[Vector], values: Any, bad: Mask | None, text: str) -> Vector:
        """Combine the masks. Null wins over overflow: Spark drops rows with a null operand before it computes."""
        valid = reduce(_both, (part.valid for part in parts))
        bad = _known(bad, valid)
        if bad is not None and bad.any():
            self.overflowed.append(text)
        return Vector(values, valid, _known(reduce(_either, (part.bad for part in parts), bad), valid))

    def _called(self, name: str, parts: list[Vector]) -> Vector:
        texts = [part.values for part in parts]
        if name == "concat":
            values = pc.binary_join_element_wise(*texts, "")
        elif name == "string":
            numbers = np.broadcast_to(np.asarray(texts[0]), (self.rows,))
            values = pa.array(numbers).cast(pa.string())
        else:
            values = (pc.utf8_lower if name == "lower" else pc.utf8_upper)(texts[0])
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self.rows)
        return Vector(values, reduce(_both, (part.valid for part in parts)), reduce(_either, (p.bad for p in parts)))

    def _coalesced(self, parts: list[Vector]) -> Vector:
        values, valid, bad = parts[-1]
        for part in reversed(parts[:-1]):
            if part.valid is None:
                values, valid, bad = part
            elif isinstance(values, pa.Array | pa.Scalar):
                values = pc.if_else(pa.array(part.valid), part.values, values)
            else:
                values = np.where(part.valid, part.values, values)
            if part.valid is not None:
                bad = _either(part.bad, None if bad is None else bad & ~part.valid)
                valid = None if valid is None else valid | part.valid
        return Vector(values, valid, bad)

    def _widen(self, vector: Vector, source: tree.Type, node: tree.Widen) -> Vector:
        values, target = vector.values, node.type
        if target.name == "timestamp_ntz":
            moments, bad = _checked("*", "bigint", np.asarray(values, np.int64), np.int64(_DAY))
            return self._combine([vector], moments, bad, f"a date as {target}")
        if target.name != "decimal":
            values = np.asarray(values, DTYPES[target.name])
            if source.name == "decimal" and source.scale:
                values = values / np.float64(10**source.scale)
            return vector._replace(values=values)
        if isinstance(values, pa.Array):
            return vector._replace(values=values.cast(pa.decimal128(target.precision, target.scale)))
        whole = np.asarray(values, np.int64)
        if target.precision <= NARROW:
            shift = target.scale - source.scale
            return vector._replace(values=whole * np.int64(10**shift) if shift else whole)
        if vector.valid is not None:
            whole = np.where(vector.valid, whole, 0)  # the value of a null row may not fit the decimal
        buffers = pa.array(np.ascontiguousarray(whole)).cast(pa.decimal128(19, 0)).buffers()
        narrow = pa.Array.from_buffers(pa.decimal128(19, source.scale), len(whole), buffers)
        return vector._replace(values=narrow.cast(pa.decimal128(target.precision, target.scale)))


def is_whole(kind: tree.Type) -> bool:
    """Whether arithmetic on the type is int64 arithmetic that can overflow."""
    return np.issubdtype(DTYPES.get(kind.name, np.bool_), np.signedinteger) and kind.name != "decimal"


def arrow_type(arrow: pa.DataType) -> tree.Type | None:
    """Return the SQL type of an Arrow type; None if the type does not compile."""
    if pa.types.is_decimal128(arrow):
        return tree.Type("decimal", arrow.precision, arrow.scale) if 0 <= arrow.scale <= arrow.precision else None
    if pa.types.is_timestamp(arrow):
        zoned = "timestamp_ntz" if arrow.tz is None else "timestamp"
        return tree.Type(zoned) if arrow.unit == "us" else None
    name = _ARROW_NAMES.get(arrow)
    return tree.Type(name) if name else None


def same_type(arrow: pa.DataType, kind: tree.Type) -> bool:
    """Whether an array has the type for which the predicate was compiled."""
    return arrow_type(arrow) == kind


_ARROW_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def _in_arrow(kind: tree.Type) -> bool:
    return kind.name in ("string", "binary") or (kind.name == "decimal" and kind.precision > NARROW)


def _read(array: pa.Array[Any], kind: tree.Type) -> Vector:
    """View an Arrow column without a copy; null rows have the values that are in its buffer."""
    buffers: list[Any] = array.buffers()
    rows, offset = len(array), array.offset
    valid = _bits(buffers[0], offset, rows) if array.null_count else None
    if _in_arrow(kind):
        return Vector(array, valid)
    if not rows:
        return Vector(np.empty(0, DTYPES[kind.name]), valid)
    if kind.name == "boolean":
        return Vector(_bits(buffers[1], offset, rows), valid)
    step = 2 if kind.name == "decimal" else 1  # the low half of a decimal128 has the full value of a narrow decimal
    words = np.frombuffer(buffers[1], DTYPES[kind.name])
    return Vector(words[offset * step : (offset + rows) * step : step], valid)


def _bits(buffer: Any, offset: int, rows: int) -> Mask:
    if not rows or buffer is None:
        return np.empty(0, np.bool_)
    part = np.frombuffer(buffer, np.uint8)[offset // 8 : (offset + rows + 7) // 8]
    return np.unpackbits(part, bitorder="little")[offset % 8 : offset % 8 + rows].view(np.bool_)


def _constant(value: Any, kind: tree.Type) -> Any:
    if not _in_arrow(kind):
        return DTYPES[kind.name](value)
    return pa.scalar(value, pa.string()) if kind.name == "string" else _decimal(value, kind)


def _decimal(unscaled: int, kind: tree.Type) -> pa.Scalar[Any]:
    # From bytes, because Python's decimal rounds to the 28 digits of its context.
    buffer = pa.py_buffer(unscaled.to_bytes(16, "little", signed=True))
    return pa.Array.from_buffers(pa.decimal128(kind.precision, kind.scale), 1, [None, buffer])[0]


def _compare(op: str, left: Any, right: Any, kind: tree.Type) -> Any:
    if _in_arrow(kind):
        result = _ARROW[op](left, right)
        return _bits(result.buffers()[1], result.offset, len(result))
    if kind.name not in ("float", "double"):
        return _NUMPY[op](left, right)
    # Spark's order of doubles: NaN equals NaN and is larger than everything else. In IEEE, comparing NaN is false.
    if op == "<":
        return ~(left >= right) & (left == left)  # noqa: PLR0124
    if op == "<=":
        return (left <= right) | (right != right)  # noqa: PLR0124
    return (left == right) | ((left != left) & (right != right))  # noqa: PLR0124


def _is_in(values: Any, members: tuple[Any, ...], kind: tree.Type) -> Any:
    if not _in_arrow(kind):
        return np.isin(values, np.array(members, DTYPES[kind.name]))
    tests = [_compare("=", values, _constant(member, kind), kind) for member in members]
    return reduce(np.logical_or, tests, np.zeros(len(values), np.bool_))


def _unchecked(op: str, left: Any, right: Any = None) -> Any:
    """Arithmetic that cannot overflow: on floats, and the sign of a narrow decimal."""
    if right is not None:
        return _ARITHMETIC[op](left, right)
    return np.negative(left) if op == "-" else np.abs(left)


def _checked(op: str, name: str, left: Any, right: Any = None) -> tuple[Any, Mask | None]:
    """Integer arithmetic in its own width, and the rows where it overflows that width."""
    dtype = np.dtype(DTYPES[name])
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if right is None:
        bad = left == low
        return (np.negative(left) if op == "-" else np.abs(left)), (bad if bad.any() else None)
    # The extremes of all three operators are at the extremes of the operands. One pass for each extreme is
    # enough for nearly every block, at a third of the cost of checking row by row.
    exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[op]
    ends = [exact(one, other) for one in _ends(left) for other in _ends(right)]
    result = _ARITHMETIC[op](left, right)
    if low <= min(ends) and max(ends) <= high:
        return result, None
    if dtype.itemsize < 8:
        wide = _ARITHMETIC[op](np.asarray(left, np.int64), np.asarray(right, np.int64))
        return result, (wide < low) | (wide > high)
    if op == "+":
        return result, ((left ^ result) & (right ^ result)) < 0
    if op == "-":
        return result, ((left ^ right) & (left ^ result)) < 0
    lost = result // np.where(left == 0, 1, left) != right
    return result, (left != 0) & (lost | ((left == -1) & (right == low)))


def _ends(values: Any) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if np.size(values) else (0, 0)


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _known(bad: Mask | None, valid: Mask | None) -> Mask | None:
    return bad if bad is None or valid is None else bad & valid
