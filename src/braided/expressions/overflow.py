"""Which integer arithmetic Spark may reorder or skip, so that an overflow happens in another place or not at all.

This comes from comparing thousands of random predicates with Spark 4.3. Its optimizer

* reorders sums and products of three or more integers: ``a + 1 + b`` becomes ``a + b + 1``;
* removes ``a AND NOT a`` and ``a = a``, and treats ``a + b`` and ``b + a`` as equal;
* removes a cast that is compared with a constant, and with it a test whose result the narrower type decides:
  ``CAST(a AS BIGINT) <> 2147483648`` is true for every int.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite

import numpy as np

from braided.expressions.evaluate import DTYPES, is_whole
from braided.expressions.tree import Arithmetic, Constant, Type, Value, Widen


class Comparisons:
    """The comparisons of one predicate so far, each as the set of its values."""

    def __init__(self) -> None:
        self._seen: set[frozenset[str]] = set()

    def why_skipped(self, *values: Value) -> str | None:
        """Return why Spark may decide another comparison without computing its arithmetic; None if it cannot."""
        if not any(_can_overflow(value) for value in values):
            return None
        values_of = frozenset(_shape(value) for value in values)
        if values_of in self._seen or len(values_of) < len(values):
            return "repeats arithmetic, which Spark may simplify away"
        self._seen.add(values_of)
        for value in values:
            kind = _uncast(value).type
            if isinstance(value, Widen) and _can_overflow(value):
                for constant in values:
                    if isinstance(constant, Constant) and not _inside(constant, kind):
                        return f"compares {kind} arithmetic with {constant.value}, which Spark may simplify away"
        return None


def terms(value: Value, op: str) -> int:
    """Return how many operands a sum or a product has, including those in brackets and casts."""
    value = _uncast(value)
    if isinstance(value, Arithmetic) and value.op == op and len(value.operands) == 2:
        return sum(terms(operand, op) for operand in value.operands)
    return 1


def _can_overflow(value: Value) -> bool:
    """Whether arithmetic can overflow; a date as a timestamp can too, but only after the year 290000."""
    value = _uncast(value)
    if not isinstance(value, Arithmetic):
        return False
    return is_whole(value.type) or any(_can_overflow(operand) for operand in value.operands)


def _uncast(value: Value) -> Value:
    while isinstance(value, Widen):
        value = value.operand
    return value


def _shape(value: Value) -> str:
    """Return a text that is the same for values that Spark treats as equal, such as ``a + b`` and ``b + a``."""
    if isinstance(value, Widen):
        return f"{value.type}({_shape(value.operand)})"
    if not isinstance(value, Arithmetic):
        return repr(value)
    parts = [_shape(operand) for operand in value.operands]
    return f"{value.op}({', '.join(parts if value.op == '-' else sorted(parts))})"


def _inside(constant: Constant, kind: Type) -> bool:
    """Whether the constant is an integer strictly between the smallest and the largest value of the type."""
    if not is_whole(kind) or not isfinite(constant.value):
        return False
    exact = Fraction(constant.value) / 10**constant.type.scale
    ends = np.iinfo(DTYPES[kind.name])
    return exact.denominator == 1 and bool(int(ends.min) < exact < int(ends.max))
