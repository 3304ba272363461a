"""Which expressions Spark may compute for every row of a stream, even for rows that a join would have dropped.

`sum(a.price * 2)` after a join can be a column of `a` before it, if computing it fails for no row and always gives the
same value. Spark's own tree of the expression is checked, so it includes the casts that Spark adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braided.spark.catalyst import ExpressionNode, expressions_of, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# By the names of Spark's classes. None of them fails for any operands.
_SAFE = {
    "Alias", "AttributeReference", "Literal", "CaseWhen", "If", "And", "Or", "Not", "In", "InSet", "EqualTo",
    "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Between", "IsNull",
    "IsNotNull", "IsNaN", "Coalesce", "NullIf", "Nvl", "Nvl2", "Least", "Greatest", "Upper", "Lower",
    "Length", "Concat", "StringTrim", "StringTrimLeft", "StringTrimRight", "Substring", "Left", "Right",
    "StartsWith", "EndsWith", "Contains", "GetStructField", "Year", "Month", "DayOfMonth", "DayOfWeek",
    "Hour", "Minute", "Second", "Signum", "Sqrt",
}  # fmt: skip
# These do not fail if their operands are doubles.
_OF_DOUBLES = {"Add", "Subtract", "Multiply", "UnaryMinus", "Abs"}
_DIVISIONS = {"Remainder", "Pmod"}
_FAILS = object()


def is_safe(frame: DataFrame, text: str) -> bool:
    """Whether an expression over a frame's columns can be computed for each of its rows."""
    plan = plan_of(frame.selectExpr(f"{text} AS x"))
    if not plan.child.same_result(plan_of(frame)):
        return False  # more than a column, such as a window
    return all(map(_is_safe, expressions_of(plan)))


def _is_safe(node: ExpressionNode) -> bool:
    if node.is_constant:
        return _value_of(node) is not _FAILS
    return _never_fails(node) and all(map(_is_safe, node.children))


def _never_fails(node: ExpressionNode) -> bool:
    if node.kind in _OF_DOUBLES or node.kind == "Divide":
        divides = node.kind != "Divide" or _is_not_zero(node.children[1])
        return node.type_name in ("float", "double") and divides
    if node.kind in _DIVISIONS:
        return _is_not_zero(node.children[1])
    if node.kind == "Cast":
        return node.is_safe_cast
    return node.kind in _SAFE


def _value_of(constant: ExpressionNode) -> Any:
    try:
        return constant.constant()
    except ValueError:
        return _FAILS


def _is_not_zero(divisor: ExpressionNode) -> bool:
    """Whether an operand is a constant that can divide."""
    value = _value_of(divisor) if divisor.is_constant else _FAILS
    return isinstance(value, int | float) and value != 0
