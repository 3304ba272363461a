"""The parts of a condition on two streams: equal keys, bounds on their times, and the rest.

A bound is a comparison of two times and constants, in any form:

    b.ts <= a.ts + INTERVAL 10 SECONDS        a.ts - b.ts > - INTERVAL 1 MINUTE
    a.ts + INTERVAL 5 SECONDS >= b.ts         b.ts BETWEEN a.ts - INTERVAL 10 SECONDS AND a.ts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

_FLIPPED = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


@dataclass(frozen=True)
class Bound:
    """``time[plus] - time[minus]`` is at most (or at least, or equal to) the sum of constants."""

    plus: exp.Column
    minus: exp.Column
    op: type[exp.Expression]
    constants: tuple[tuple[int, exp.Expression], ...]
    """(sign, interval)"""
    subtracts: bool
    """Whether two times are subtracted, which Spark does in local time."""
    source: exp.Expression
    assumed: bool = False
    """Whether it comes from the user's cap, and not from a condition in the text."""


@dataclass
class Linear:
    """A sum of times and constant intervals."""

    times: list[tuple[int, exp.Column]] = field(default_factory=list)
    constants: list[tuple[int, exp.Expression]] = field(default_factory=list)


def tables_of(condition: exp.Expression) -> set[str]:
    """Return the names of the inputs whose columns a condition reads."""
    return {column.table for column in condition.find_all(exp.Column)}


def guarded(value: str, guards: Sequence[str]) -> str:
    """Return a value that is null, and not computed, in rows for which not all conditions hold.

    `r.kind = 'num' AND CAST(r.txt AS INT) = l.k` must not cast the texts of other kinds, which would be an error.

    >>> guarded("CAST(txt AS INT)", ["kind = 'num'"])
    "CASE WHEN (kind = 'num') THEN CAST(txt AS INT) END"
    """
    return f"CASE WHEN {' AND '.join(f'({each})' for each in guards)} THEN {value} END" if guards else value


def equality(condition: exp.Expression) -> tuple[exp.Column, exp.Column] | None:
    """Return the two columns of different inputs that must be equal by a condition; None for other conditions."""
    if not isinstance(condition, exp.EQ):
        return None
    one, other = condition.left, condition.right
    both = isinstance(one, exp.Column) and isinstance(other, exp.Column) and one.table != other.table
    return (one, other) if both else None


def bound(condition: exp.Expression, is_time: Callable[[exp.Column], bool]) -> Bound | None:
    """Return the bound that a condition sets on two times of different inputs; None if it sets none."""
    if type(condition) not in _FLIPPED:
        return None
    sides = [_linear(side, is_time) for side in (condition.left, condition.right)]
    if any(side is None for side in sides):
        return None
    left, right = sides
    assert left is not None
    assert right is not None
    times = [*left.times, *((-sign, column) for sign, column in right.times)]
    if len(times) != 2 or sorted(sign for sign, _ in times) != [-1, 1] or times[0][1].table == times[1][1].table:
        return None
    constants = [*((-sign, value) for sign, value in left.constants), *right.constants]
    plus, minus = sorted(times, key=lambda time: -time[0])
    subtracts = len(left.times) == 2 or len(right.times) == 2
    return Bound(plus[1], minus[1], type(condition), tuple(constants), subtracts, condition)


def _linear(value: exp.Expression, is_time: Callable[[exp.Column], bool]) -> Linear | None:
    if isinstance(value, exp.Paren):
        return _linear(value.this, is_time)
    if isinstance(value, exp.Column):
        return Linear([(1, value)]) if is_time(value) else None
    if isinstance(value, exp.Neg):
        return _scaled(_linear(value.this, is_time), -1)
    if isinstance(value, exp.Add | exp.Sub):
        left, right = _linear(value.left, is_time), _linear(value.right, is_time)
        right = _scaled(right, -1 if isinstance(value, exp.Sub) else 1)
        if left is None or right is None:
            return None
        return Linear([*left.times, *right.times], [*left.constants, *right.constants])
    is_constant = isinstance(value, exp.Interval) or (
        isinstance(value, exp.Func | exp.Cast) and not list(value.find_all(exp.Column, exp.Query))
    )
    return Linear(constants=[(1, value)]) if is_constant else None


def _scaled(value: Linear | None, sign: int) -> Linear | None:
    if value is None:
        return None
    return Linear([(sign * s, c) for s, c in value.times], [(sign * s, c) for s, c in value.constants])


def ties(bound_: Bound) -> set[str]:
    """Return the two times of a bound."""
    return {bound_.plus.sql(), bound_.minus.sql()}


def two_sided(
    bounds: Sequence[tuple[exp.Expression, Bound]], alias: str, is_marked: Callable[[exp.Column], bool]
) -> tuple[exp.Column, exp.Column] | None:
    """Return the first pair of times, of a left stream and of `alias`, with bounds on both sides.

    Columns with a watermark (`is_marked`) come first. An equality comes last, since it can also be a key.
    """

    def rank(known: tuple[exp.Expression, Bound]) -> tuple[bool, bool]:
        return not (is_marked(known[1].plus) and is_marked(known[1].minus)), known[1].op is exp.EQ

    for _, each in sorted(bounds, key=rank):
        same = [other for _, other in bounds if ties(other) == ties(each)]
        right, left = (each.plus, each.minus) if each.plus.table == alias else (each.minus, each.plus)
        if _has_both(same, alias):
            return left, right
    return None


def _has_both(bounds: Sequence[Bound], alias: str) -> bool:
    upper = lower = False
    for each in bounds:
        is_plus = each.plus.table == alias
        upper |= each.op is exp.EQ or (each.op in (exp.LT, exp.LTE)) == is_plus
        lower |= each.op is exp.EQ or (each.op in (exp.GT, exp.GTE)) == is_plus
    return upper and lower


def limits(bounds: Sequence[tuple[Bound, int]], left: set[str]) -> tuple[int | None, int | None]:
    """Return ``lo <= right - left <= hi`` in microseconds from all bounds together; `left` has the left inputs.

    Each bound is a pair with the value of its constants.
    """
    lo: int | None = None
    hi: int | None = None
    for each, value in bounds:
        op, limit = each.op, value
        if each.plus.table in left:  # left - right op limit
            op, limit = _FLIPPED[op], -limit
        strict = 1 if op in (exp.LT, exp.GT) else 0
        if op in (exp.LT, exp.LTE, exp.EQ):
            hi = limit - strict if hi is None else min(hi, limit - strict)
        if op in (exp.GT, exp.GTE, exp.EQ):
            lo = limit + strict if lo is None else max(lo, limit + strict)
    return lo, hi


def position(node: exp.Expression) -> str:
    """Return the line and column of a part of the text, as in an editor."""
    for identifier in node.find_all(exp.Identifier):
        at = identifier.meta
        if "line" in at:  # the column of sqlglot is that of the end of a word
            return f"line {at['line']}, column {at['col'] - (at['end'] - at['start'])}"
    return "the text"
