"""What a ``where=`` predicate means, row by row in plain Python, and rows to try it on.

It knows nothing of the compiler. A value is a Python int, Fraction (decimals), float, NumPy float32, str,
bytes, bool or None; ``Overflow`` is raised where Spark's ANSI arithmetic raises. A predicate gives the set of
answers that a row may have: one of True, False and None, or all of them where an overflow hides it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import product
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
WHOLE = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
DECIMALS = {"d5": (5, 2), "d12": (12, 4), "d18": (18, 0), "d20": (20, 6), "d38": (38, 18)}
ARROW = {
    **{name: pa.int8() if bits == 8 else getattr(pa, f"int{bits}")() for name, bits in WHOLE.items()},
    **{name: pa.decimal128(*size) for name, size in DECIMALS.items()},
    "f32": pa.float32(),
    "f64": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "bin": pa.binary(),
    "d": pa.date32(),
    "ts": pa.timestamp("us", tz="UTC"),
    "ntz": pa.timestamp("us"),
}
SCHEMA = pa.schema(list(ARROW.items()))
DAY = 86_400_000_000


class Overflow(Exception):
    """Spark would raise here."""


# Data.


def _pool(name: str, wild: bool) -> list[Any]:
    """Values of a column, in Arrow's own terms: days, microseconds and unscaled integers."""
    if name in WHOLE:
        top = 1 << (WHOLE[name] - 1)
        near = [9_007_199_254_740_993, 9_007_199_254_740_992] if name == "i64" else []
        return [*range(-5, 6), 40, *([-top, 1 - top, top - 2, top - 1, top // 2, *near] if wild else [])]
    if name in DECIMALS:
        precision, scale = DECIMALS[name]
        one, top = 10**scale, 10**precision - 1
        return [
            -2 * one,
            0,
            one,
            one + 1,
            3 * one // 2,
            2 * one,
            5 * one,
            -one // 2,
            *([top, -top] if wild else []),
        ]
    pools: dict[str, list[Any]] = {
        "f32": [0.0, -0.0, 1.0, 1.5, -1.5, 0.1, 2.0, math.nan, math.inf, -math.inf, 3e38, 1e-45, 16777216.0],
        "f64": [0.0, -0.0, 1.0, 1.5, -1.5, 0.1, 2.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, 2.0**53],
        "b": [True, False],
        "s": [
            "",
            "a",
            "A",
            "b",
            "ab",
            "it's",
            "é",
            "z",
            "\U0001f600",
            "\uffee",
            "a\nb",
            "back\\slash",
            'say "a"',
        ],
        "bin": [b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff", b"ab"],
        "d": [-1, 0, 1, 19_753, 19_754, -700_000],
        "ts": [-1, 0, 1, 1_706_695_200_000_000, 1_706_695_200_000_001, 1_706_695_205_000_000, -DAY, DAY],
    }
    pools["ntz"] = [*pools["ts"], 19_753 * DAY]
    return pools[name]


def pairs(rows: int, seed: int, *, wild: bool, nulls: float = 0.15) -> list[Row]:
    """Return rows whose keys are ``l.x`` and ``r.x``; half of them hold the same value on both sides."""
    rng = random.Random(seed)
    found = []
    for _ in range(rows):
        row: Row = {}
        for name in ARROW:
            pool = _pool(name, wild)
            left = rng.choice(pool)
            both = left, (left if rng.random() < 0.4 else rng.choice(pool))
            for side, value in zip("lr", both, strict=True):
                row[f"{side}.{name}"] = None if rng.random() < nulls else value
        found.append(row)
    return found


def columns(rows: list[Row], side: str, names: Iterable[str] = tuple(ARROW)) -> dict[str, pa.Array[Any]]:
    """Return the Arrow columns of one side."""
    return {name: _array(name, [row[f"{side}.{name}"] for row in rows]) for name in names}


def _array(name: str, values: list[Any]) -> pa.Array[Any]:
    if name in DECIMALS:
        scale, exact = DECIMALS[name][1], Context(prec=40)
        values = [None if value is None else Decimal(value).scaleb(-scale, exact) for value in values]
    elif name in ("d", "ts", "ntz"):
        whole = pa.array(values, pa.int32() if name == "d" else pa.int64())
        return whole.cast(ARROW[name])
    return pa.array(values, ARROW[name])


# Values.


@dataclass(frozen=True)
class Value:
    """SQL text, its type and its meaning."""

    text: str
    kind: str  # a column name of ARROW, which stands for its type; or "literal"
    size: tuple[int, int]  # bits of an integer; precision and scale of a decimal
    of: Callable[[Row], Any]

    def __repr__(self) -> str:
        return self.text


def in_bits(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise Overflow
    return value


def apply(op: str, a: Any, b: Any) -> Any:
    return a + b if op == "+" else a - b if op == "-" else a * b


def lenient(value: Value, row: Row) -> Any:
    """A null operand hides the other's overflow, in whatever order Spark looks at them."""
    try:
        return value.of(row)
    except Overflow:
        return Overflow


def real(value: Value, row: Row) -> Any:
    """A number as Spark's double."""
    x = value.of(row)
    return None if x is None else float(x)


def is_float(value: Value) -> bool:
    return value.kind in ("f32", "f64")


# Predicates.

Answers = frozenset[bool | None]
ANY: Answers = frozenset([True, False, None])


@dataclass(frozen=True)
class Predicate:
    text: str
    of: Callable[[Row], Answers]

    def __repr__(self) -> str:
        return self.text


def _order(x: Any, y: Any, real: bool) -> int:
    """-1, 0 or 1, by Spark's order: NaN equals itself and is greatest, strings by their UTF-8."""
    if isinstance(x, str):
        x, y = x.encode(), y.encode()
    if real:
        x, y = float(x), float(y)
        x, y = (math.isnan(x), 0.0 if math.isnan(x) else x), (math.isnan(y), 0.0 if math.isnan(y) else y)
    return int(x > y) - int(x < y)


MEANING: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "==": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<=>": lambda order: order == 0,
    "IS NOT DISTINCT FROM": lambda order: order == 0,
    "IS DISTINCT FROM": lambda order: order != 0,
}


def _answer(op: str, a: Value, b: Value, row: Row) -> Answers:
    x, y = lenient(a, row), lenient(b, row)
    if op in ("<=>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
        if x is Overflow or y is Overflow:
            return ANY
        if x is None or y is None:
            return frozenset([(x is y) == (op != "IS DISTINCT FROM")])
    if x is None or y is None:
        return frozenset([None])
    if x is Overflow or y is Overflow:
        return ANY
    return frozenset([MEANING[op](_order(x, y, is_float(a) or is_float(b)))])


def compare(op: str, a: Value, b: Value) -> Predicate:
    return Predicate(f"{a.text} {op} {b.text}", lambda row: _answer(op, a, b, row))


def between(a: Value, low: Value, high: Value, negated: bool) -> Predicate:
    def of(row: Row) -> Answers:
        found = and3(_answer(">=", a, low, row), _answer("<=", a, high, row))
        return not3(found) if negated else found

    return Predicate(f"{a.text} {'NOT ' * negated}BETWEEN {low.text} AND {high.text}", of)


def member(a: Value, items: list[Value | None], negated: bool) -> Predicate:
    given = [item for item in items if item is not None]
    real = any(is_float(value) for value in (a, *given))

    def of(row: Row) -> Answers:
        x = lenient(a, row)
        if x is Overflow and given:
            found = ANY if len(given) == len(items) else frozenset([True, None])
        elif x is None or not given:
            found = frozenset([None])
        elif any(_order(x, item.of(row), real) == 0 for item in given):
            found = frozenset([True])
        else:
            found = frozenset([None if len(given) < len(items) else False])
        return not3(found) if negated else found

    listed = ", ".join("NULL" if item is None else item.text for item in items)
    return Predicate(f"{a.text} {'NOT ' * negated}IN ({listed})", of)


def is_null(a: Value, negated: bool) -> Predicate:
    return Predicate(f"{a.text} IS {'NOT ' * negated}NULL", lambda row: frozenset([(a.of(row) is None) != negated]))


def not3(answers: Answers) -> Answers:
    return frozenset(None if answer is None else not answer for answer in answers)


def and3(one: Answers, other: Answers) -> Answers:
    return frozenset(False if False in pair else None if None in pair else True for pair in product(one, other))


def or3(one: Answers, other: Answers) -> Answers:
    return not3(and3(not3(one), not3(other)))


def bracketed(op: str, a: Predicate, b: Predicate) -> Predicate:
    fold = and3 if op == "AND" else or3
    return Predicate(f"({a.text}) {op} ({b.text})", lambda row: fold(a.of(row), b.of(row)))


def bare(a: Predicate, b: Predicate, c: Predicate) -> Predicate:
    """``NOT a AND b OR c`` with no brackets, to see the precedence; parts are single comparisons."""

    def of(row: Row) -> Answers:
        return or3(and3(not3(a.of(row)), b.of(row)), c.of(row))

    return Predicate(f"NOT {a.text} AND {b.text} OR {c.text}", of)


def negated(a: Predicate) -> Predicate:
    return Predicate(f"NOT ({a.text})", lambda row: not3(a.of(row)))


def meaning(predicate: Predicate, rows: list[Row]) -> list[bool | None]:
    """Return whether each row is kept; None where an overflow decides."""
    answers = [predicate.of(row) for row in rows]
    return [None if True in answer and len(answer) > 1 else answer == {True} for answer in answers]
