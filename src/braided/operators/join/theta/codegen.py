"""Turn the predicate of a theta join into one loop over numbers: per-row inputs, an expression, and dimensions.

A part that reads one side only is computed once per row, by `expressions.evaluate`, into a *slot*: an array of numbers.
A comparison of a value of one side with one of the other becomes one of int64 keys, whose order is Spark's:

    ints, times, narrow decimals    themselves
    floats                          bits in order: -0.0 is 0.0, NaN is greatest
    strings, wide decimals          rank among the values of both sides

NOT is pushed down to the comparisons, so that null, which is neither true nor false, becomes the validity of a
slot. Rows with a null where a conjunct needs a value are dropped before; only an OR and ``<=>`` see nulls.

A *dimension* is a conjunct of the form ``low <= l - r <= high`` (or ``l + r``): `theta.band` finds its pairs
without testing all pairs. The expression is valid for numbers, under numba, and for arrays of pairs, under NumPy.

Precondition: integer arithmetic across sides does not overflow; ``Lowered.fits`` checks this from the ends of the
slots.

>>> import pyarrow as pa
>>> from braided.expressions.compile import compile_where
>>> schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
>>> lowered = lower(compile_where("abs(l.x - r.x) < 3 AND (l.s <> r.s OR l.x > 7)", schema, schema).root, False)
>>> lowered.text
'(abs((l0 - r0)) < 3) & (l1 | (l2 != r1))'
>>> lowered.rest
'(l1 | (l2 != r1))'
>>> [(dimension.low, dimension.high) for dimension in lowered.dimensions]
[(-2, 2)]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, NamedTuple

import numpy as np

from braided.expressions import tree
from braided.expressions.evaluate import DTYPES, NARROW, is_whole

Form = Literal["raw", "order", "rank", "truth", "valid"]
_FLOATS = ("float", "double")
_OPS = {"=": "==", "<=>": "==", "<": "<", "<=": "<="}
_INVERSE = {"==": "!=", "<": ">=", "<=": ">"}
_MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NAN_AWARE = {
    "==": "(({a} == {b}) | (({a} != {a}) & ({b} != {b})))",
    "!=": "(({a} != {b}) & (({a} == {a}) | ({b} == {b})))",
    "<": "(({a} < {b}) | (({b} != {b}) & ({a} == {a})))",
    "<=": "(({a} <= {b}) | ({b} != {b}))",
    ">": "(({a} > {b}) | (({a} != {a}) & ({b} == {b})))",
    ">=": "(({a} >= {b}) | ({a} != {a}))",
}


class Unlowered(Exception):
    """The predicate has a part, such as a wide decimal computed from both sides, that cannot be a number."""


class Slot(NamedTuple):
    """An input with one number per row of its side; a rank also depends on its partner on the other side."""

    side: str
    form: Form
    source: Any
    want: bool = True
    partner: tree.Value | None = None


class Dimension(NamedTuple):
    """``low <= l - r <= high``, of ``l + r`` if ``plus``; None is no bound.

    ``keys`` are the int64 slots, left and right; ``raw`` the numbers that bounds are computed from. The
    bounds of floats are widened by a few rounding errors, so ``exact`` is false and the pairs are tested again.
    """

    keys: tuple[str, str]
    raw: tuple[str, str]
    plus: bool
    low: int | float | None
    high: int | float | None
    exact: bool


class Check(NamedTuple):
    """Integer arithmetic on slots, literals and the results of earlier checks, each named by its text."""

    text: str
    op: str
    operands: tuple[str, ...]
    type: tree.Type


@dataclass(frozen=True)
class Lowered:
    """How one predicate runs. ``text`` is the test of pairs, ``rest`` the part of it that the dimensions leave."""

    columns: dict[str, tuple[str, ...]]
    slots: dict[str, Slot]
    filters: dict[str, tuple[tree.Truth, ...]]
    """Conjuncts of one side: rows must satisfy them before they are paired."""
    strict: frozenset[tuple[str, tree.Value]]
    """Values whose null rows pair with nothing."""
    lax: frozenset[tuple[str, tree.Value]]
    """Values that may be null in a pair. A predicate lowered as not nullable assumes that they have no nulls."""
    dimensions: tuple[Dimension, ...]
    text: str
    rest: str
    never: bool
    """Whether no pair satisfies the predicate, as with ``l.x = NULL``."""
    checks: tuple[Check, ...]

    def fits(self, ends: Callable[[str], tuple[int, int]]) -> bool:
        """Whether no integer arithmetic overflows, given the least and greatest number of each slot."""
        spans: dict[str, tuple[int, int]] = {}
        for check in self.checks:
            for part in check.operands:
                if part not in spans:
                    spans[part] = ends(part) if part in self.slots else (int(part), int(part))
            one, *others = (spans[part] for part in check.operands)
            if others:
                exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[check.op]
                values = [exact(a, b) for a in one for b in others[0]]
            else:
                values = [-end for end in one] if check.op == "-" else [max(map(abs, one)), 0]
            spans[check.text] = span = min(values), max(values)
            limits = np.iinfo(DTYPES[check.type.name])
            if span[0] < limits.min or span[1] > limits.max:
                return False
        return True


def lower(root: tree.Truth, nullable: bool) -> Lowered:
    """Return how a predicate runs; raises ``Unlowered``."""
    return _Builder(nullable).build(root)


def sides_of(node: Any) -> frozenset[str]:
    """Return the sides whose columns a value or a truth reads."""
    return frozenset(side for side, _ in _columns(node))


def _columns(node: Any) -> frozenset[tuple[str, str]]:
    match node:
        case tree.Column(side, name):
            return frozenset([(side, name)])
        case tree.Widen(operand) | tree.Holds(operand) | tree.IsNull(operand) | tree.IsIn(operand) | tree.Not(operand):
            return _columns(operand)
        case tree.Compare(_, left, right):
            return _columns(left) | _columns(right)
        case tree.Arithmetic(_, parts) | tree.Every(parts) | tree.Some(parts):
            return frozenset().union(*map(_columns, parts))
    return frozenset()


@dataclass
class _Builder:
    nullable: bool
    slots: dict[Slot, str] = field(default_factory=dict)
    strict: set[tuple[str, tree.Value]] = field(default_factory=set)
    lax: set[tuple[str, tree.Value]] = field(default_factory=set)
    checks: list[Check] = field(default_factory=list)
    dimensions: list[Dimension] = field(default_factory=list)

    def build(self, root: tree.Truth) -> Lowered:
        filters: dict[str, list[tree.Truth]] = {"l": [], "r": []}
        tests: list[tuple[str, bool]] = []
        never = False
        for part, want in _conjuncts(root, True):
            sides = sides_of(part)
            if len(sides) == 1:
                filters[min(sides)].append(part if want else tree.Not(part))
                continue
            known = len(self.dimensions)
            text = self._conjunct(part, want)
            if isinstance(text, bool):
                never |= not text
            else:
                tests.append((text, len(self.dimensions) > known and self.dimensions[-1].exact))
        return Lowered(
            {side: tuple(sorted(name for owner, name in _columns(root) if owner == side)) for side in "lr"},
            {name: slot for slot, name in self.slots.items()},
            {side: tuple(parts) for side, parts in filters.items()},
            frozenset(self.strict),
            frozenset(self.lax - self.strict),
            tuple(self.dimensions),
            " & ".join(text for text, _ in tests),
            " & ".join(text for text, answered in tests if not answered),
            never,
            tuple(self.checks),
        )

    def _slot(self, side: str, form: Form, source: Any, want: bool = True, partner: tree.Value | None = None) -> str:
        slot = Slot(side, form, source, want, partner)
        count = sum(known.side == side for known in self.slots)
        return self.slots.setdefault(slot, f"{side}{count}")

    # Truths.

    def _conjunct(self, node: tree.Truth, want: bool) -> str | bool:
        if not isinstance(node, tree.Compare) or (node.op == "<=>" and self.nullable):
            return self._truth(node, want)
        needed = {(min(sides_of(part)), part) for value in (node.left, node.right) for part in _halves(value)}
        if node.op == "<=>":
            self.lax |= needed
        else:
            self.strict |= needed
        self._dimension(node, want)
        return self._test(node, want)

    def _truth(self, node: tree.Truth, want: bool) -> str | bool:
        sides = sides_of(node)
        if len(sides) == 1:
            return self._slot(min(sides), "truth", node, want)
        match node:
            case tree.Always(value):
                return value is want
            case tree.Not(operand):
                return self._truth(operand, not want)
            case tree.Every(parts) | tree.Some(parts):
                every = isinstance(node, tree.Every) == want
                texts = [self._truth(part, want) for part in _by_side(parts, type(node))]
                if (not every) in texts:
                    return not every
                rest = [text for text in texts if isinstance(text, str)]
                return f"({(' & ' if every else ' | ').join(rest)})" if rest else every
            case tree.IsIn(operand, members, null):
                if null and not want:
                    return False
                equals = tuple(tree.Compare("=", operand, tree.Constant(member, operand.type)) for member in members)
                return self._truth(tree.Some(equals), want)
            case tree.Compare():
                return self._nulls(node, want, self._test(node, want))
        raise Unlowered(node)

    def _nulls(self, node: tree.Compare, want: bool, text: str) -> str:
        halves = [_halves(value) for value in (node.left, node.right)]
        self.lax |= {(min(sides_of(part)), part) for side in halves for part in side}
        if not self.nullable:
            return text
        one, other = (" & ".join(self._slot(min(sides_of(part)), "valid", part) for part in side) for side in halves)
        if node.op != "<=>":
            return f"({' & '.join(part for part in (text, one, other) if part)})"
        one, other = f"({one or 'True'})", f"({other or 'True'})"
        if want:
            return f"(({text} & {one} & {other}) | (({one} == False) & ({other} == False)))"
        return f"(({text} & {one} & {other}) | ({one} != {other}))"

    def _test(self, node: tree.Compare, want: bool) -> str:
        op = _OPS[node.op] if want else _INVERSE[_OPS[node.op]]
        if _across(node.left, node.right):
            return f"({self._key(node.left, node.right)} {op} {self._key(node.right, node.left)})"
        a, b = self._number(node.left), self._number(node.right)
        return _NAN_AWARE[op].format(a=a, b=b) if node.left.type.name in _FLOATS else f"({a} {op} {b})"

    # Values.

    def _key(self, value: tree.Value, partner: tree.Value) -> str:
        side = min(sides_of(value))
        if value.type.name in ("string", "binary") or _wide(value.type):
            return self._slot(side, "rank", value, partner=partner)
        return self._order(value) if value.type.name in _FLOATS else self._number(value)

    def _order(self, value: tree.Value) -> str:
        return self._slot(min(sides_of(value)), "order", value)

    def _number(self, node: tree.Value) -> str:
        """Return the text of a value that is a number itself."""
        if _wide(node.type) or node.type.name in ("string", "binary"):
            raise Unlowered(node)
        sides = sides_of(node)
        if len(sides) == 1:
            return self._slot(min(sides), "raw", node)
        match node:
            case tree.Constant(value, kind):
                return _literal(value, kind)
            case tree.Widen(operand, kind):
                text, source = self._number(operand), operand.type
                if kind.name == "double":
                    scale = f" / np.float64({10**source.scale})" if source.scale else ""
                    return f"(np.float64({text}){scale})"
                shift = kind.scale - source.scale
                return f"({text} * {10**shift})" if shift else text
            case tree.Arithmetic(op, operands, kind):
                parts = tuple(self._number(operand) for operand in operands)
                text = f"({parts[0]} {op} {parts[1]})" if len(parts) == 2 else f"{op}({parts[0]})"
                if is_whole(kind):
                    self.checks.append(Check(text, op, parts, kind))
                return text
        raise Unlowered(node)

    # Dimensions.

    def _dimension(self, node: tree.Compare, want: bool) -> None:
        """Record the dimension of a conjunct that has one."""
        op = _OPS[node.op] if want else _INVERSE[_OPS[node.op]]
        one, other = node.left, node.right
        if _across(one, other):
            if sides_of(one) == {"r"}:
                one, other, op = other, one, _MIRROR[op]
            bounds = _interval(op, 0, 1)
            if bounds:
                keys = self._key(one, other), self._key(other, one)
                self.dimensions.append(Dimension(keys, keys, False, *bounds, True))
            return
        if isinstance(one, tree.Constant):
            one, other, op = other, one, _MIRROR[op]
        if not isinstance(other, tree.Constant) or not isinstance(one, tree.Arithmetic) or not isfinite(other.value):
            return
        absolute = one.op == "abs"
        inner = one.operands[0] if absolute else one
        if not isinstance(inner, tree.Arithmetic) or inner.op not in "+-" or not _across(*inner.operands):
            return
        exact = is_whole(inner.type)
        bounds = _interval(op, other.value, int(exact))
        if bounds and absolute:
            bounds = (None if bounds[1] is None else -bounds[1], bounds[1]) if op in ("<", "<=") else None
        if bounds is None or (bounds[1] is None and not exact):
            return  # NaN exceeds every lower bound, wherever its row is sorted
        left, right = inner.operands
        low, high = bounds
        if sides_of(left) == {"r"}:
            left, right = right, left
            if inner.op == "-":
                low, high = None if high is None else -high, None if low is None else -low
        raw = self._number(left), self._number(right)
        keys = raw if exact else (self._order(left), self._order(right))
        self.dimensions.append(Dimension(keys, raw, inner.op == "+", low, high, exact))


def _conjuncts(node: tree.Truth, want: bool) -> list[tuple[tree.Truth, bool]]:
    match node:
        case tree.Not(operand):
            return _conjuncts(operand, not want)
        case tree.Every(parts) | tree.Some(parts) if isinstance(node, tree.Every) == want:
            return [conjunct for part in parts for conjunct in _conjuncts(part, want)]
    return [(node, want)]


def _by_side(parts: tuple[tree.Truth, ...], kind: type[tree.Every] | type[tree.Some]) -> list[tree.Truth]:
    """Group the parts that read one side only, so that they become one slot."""
    conjuncts: list[tree.Truth] = []
    for side in "lr":
        own = tuple(part for part in parts if sides_of(part) == {side})
        conjuncts += [kind(own)] if len(own) > 1 else own
    return conjuncts + [part for part in parts if len(sides_of(part)) != 1]


def _halves(value: tree.Value) -> list[tree.Value]:
    """Return the largest parts of a value that read one side only; the value is null if one of them is."""
    if len(sides_of(value)) == 1:
        return [value]
    match value:
        case tree.Widen(operand):
            return _halves(operand)
        case tree.Arithmetic(_, operands):
            return [part for operand in operands for part in _halves(operand)]
    return []


def _across(one: tree.Value, other: tree.Value) -> bool:
    return len(sides_of(one)) == len(sides_of(other)) == 1 and sides_of(one) != sides_of(other)


def _wide(kind: tree.Type) -> bool:
    return kind.name == "decimal" and kind.precision > NARROW


def _interval(op: str, value: Any, step: int) -> tuple[Any, Any] | None:
    """Return the closed interval of the numbers that are ``op`` value, a step apart; None if it has a hole."""
    return {
        "==": (value, value),
        "<": (None, value - step),
        "<=": (None, value),
        ">": (value + step, None),
        ">=": (value, None),
    }.get(op)


def _literal(value: Any, kind: tree.Type) -> str:
    if kind.name not in _FLOATS:
        return repr(int(value))
    text = repr(float(value)) if isfinite(value) else f"np.{float(value)}".replace("np.-", "-np.")
    return f"np.{'float32' if kind.name == 'float' else 'float64'}({text})"
