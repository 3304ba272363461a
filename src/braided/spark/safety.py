"""Which expressions Spark may compute for every row of a stream, also for rows that a join would have dropped.

`sum(a.price * 2)` after a join can be a column of `a` before it, if computing it fails for no row and gives the same
however often it is done. Spark's own tree of the expression is asked, so what it casts by itself is seen too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from braided.spark.plans import kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# By the names of Spark's classes. None of them fails, whatever its operands are.
_SAFE = {
    "Alias", "AttributeReference", "Literal", "CaseWhen", "If", "And", "Or", "Not", "In", "InSet", "EqualTo",
    "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Between", "IsNull",
    "IsNotNull", "IsNaN", "Coalesce", "NullIf", "Nvl", "Nvl2", "Least", "Greatest", "Upper", "Lower",
    "Length", "Concat", "StringTrim", "StringTrimLeft", "StringTrimRight", "Substring", "Left", "Right",
    "StartsWith", "EndsWith", "Contains", "GetStructField", "Year", "Month", "DayOfMonth", "DayOfWeek",
    "Hour", "Minute", "Second", "Signum", "Sqrt",
}  # fmt: skip
# These do not where they are of doubles.
_OF_DOUBLES = {"Add", "Subtract", "Multiply", "UnaryMinus", "Abs"}
_DIVISIONS = {"Remainder", "Pmod"}


def is_safe(frame: DataFrame, text: str) -> bool:
    """Whether an expression over a frame's columns can be computed for each of its rows."""
    chosen = frame.selectExpr(f"{text} AS x")
    plan = chosen._jdf.queryExecution().analyzed()
    if not plan.children().apply(0).sameResult(frame._jdf.queryExecution().analyzed()):
        return False  # more than a column, such as a window
    expressions = plan.expressions()
    return all(_is_safe(expressions.apply(at), chosen) for at in range(expressions.size()))


def _is_safe(node: Any, frame: DataFrame) -> bool:
    if node.foldable():
        return _is_computable(node)
    children = [node.children().apply(at) for at in range(node.children().size())]
    return _never_fails(node, children, frame) and all(_is_safe(child, frame) for child in children)


def _never_fails(node: Any, children: list[Any], frame: DataFrame) -> bool:
    name = kind_of(node)
    kind = node.dataType().typeName()
    if name in _OF_DOUBLES or name == "Divide":
        divides = name != "Divide" or _is_not_zero(children[1])
        return kind in ("float", "double") and divides
    if name in _DIVISIONS:
        return _is_not_zero(children[1])
    if name == "Cast":
        jvm = frame.sparkSession._jvm
        assert jvm is not None
        cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canUpCast(children[0].dataType(), node.dataType()))
    return name in _SAFE


def _is_computable(constant: Any) -> bool:
    try:
        constant.eval(None)
    except (PySparkException, Py4JError):
        return False
    return True


def _is_not_zero(divisor: Any) -> bool:
    """Whether an operand is a constant that can divide."""
    if not divisor.foldable() or not _is_computable(divisor):
        return False
    value = divisor.eval(None)
    return isinstance(value, int | float) and value != 0
