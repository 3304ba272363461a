"""Random predicates for ``where=``: their SQL text beside what they mean, in plain Python, row by row.

The meaning knows nothing of the compiler. A value is a Python int, Fraction (decimals), float, NumPy float32, str, bytes,
bool or None; ``Overflow`` is raised where Spark's ANSI arithmetic raises. A predicate gives the set of answers
that a row may have: one of True, False and None, or all of them where an overflow hides it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st

from braided.join.where import Predicate as Compiled
from braided.join.where import Uncompilable, compile_where

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
_DAY = 86_400_000_000


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
        "ts": [-1, 0, 1, 1_706_695_200_000_000, 1_706_695_200_000_001, 1_706_695_205_000_000, -_DAY, _DAY],
    }
    pools["ntz"] = [*pools["ts"], 19_753 * _DAY]
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
    """SQL text, its type and its meaning; ``terms`` counts the parts of an integer sum or product."""

    text: str
    kind: str  # a column name of ARROW, which stands for its type; or "literal"
    size: tuple[int, int]  # bits of an integer; precision and scale of a decimal
    of: Callable[[Row], Any]
    op: str = ""

    def __repr__(self) -> str:
        return self.text


def _column(name: str) -> st.SearchStrategy[Value]:
    def build(side: str, spelling: str) -> Value:
        scale = DECIMALS[name][1] if name in DECIMALS else None

        def of(row: Row) -> Any:
            value = row[f"{side}.{name}"]
            if value is None:
                return None
            if scale is not None:
                return Fraction(value, 10**scale)
            return np.float32(value) if name == "f32" else value

        size = (WHOLE[name], 0) if name in WHOLE else DECIMALS.get(name, (0, 0))
        text = {"plain": f"{side}.{name}", "quoted": f"`{side}`.`{name}`", "loud": f"{side}.{name}".upper()}
        return Value(text[spelling], name, size, of)

    return st.builds(build, st.sampled_from("lr"), st.sampled_from(["plain", "plain", "quoted", "loud"]))


def _fixed(text: str, kind: str, value: Any, size: tuple[int, int] = (0, 0)) -> Value:
    return Value(text, kind, size, lambda _row: value)


_WHOLE_LITERALS = [
    *(
        _fixed(str(n), "i32", n, (32, 0))
        for n in (0, 1, -1, 2, 5, -3, 127, 200, 32768, 2147483647, -2147483648)
    ),
    *(_fixed(str(n), "i64", n, (64, 0)) for n in (2147483648, 9223372036854775807, -9223372036854775808)),
    *(_fixed(f"{n}L", "i64", n, (64, 0)) for n in (1, -5)),
    *(_fixed(f"{n}S", "i16", n, (16, 0)) for n in (1, -32768)),
    *(_fixed(f"{n}Y", "i8", n, (8, 0)) for n in (2, 127)),
]
_DECIMAL_LITERALS = [
    _fixed(text, "literal", Fraction(Decimal(text.removesuffix("BD"))), size)
    for text, size in {
        "1.5": (2, 1),
        "-1.50": (3, 2),
        "0.05": (2, 2),
        "2.0": (2, 1),
        "2.": (1, 0),
        ".5": (1, 1),
        "1.0001": (5, 4),
        "5BD": (1, 0),
        "127.9": (4, 1),
        "-0.0": (1, 1),
    }.items()
]
_DOUBLE_LITERALS = [
    _fixed(text, "f64", float(text.rstrip("D")))
    for text in ("1e0", "1.5D", "-0.0D", "0D", "1.5e-1", "2D", "1e308", "9007199254740992D", "-1.5e0")
]


def _wrap(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise Overflow
    return value


def _apply(op: str, a: Any, b: Any) -> Any:
    return a + b if op == "+" else a - b if op == "-" else a * b


def _whole() -> st.SearchStrategy[Value]:
    plain = st.one_of(*(_column(name) for name in WHOLE))
    literal = st.sampled_from(_WHOLE_LITERALS)

    def two(op: str, a: Value, b: Value, brackets: bool) -> Value:
        bits = max(a.size[0], b.size[0])

        def of(row: Row) -> Any:
            x, y = _lenient(a, row), _lenient(b, row)
            if x is None or y is None:
                return None
            if x is Overflow or y is Overflow:
                raise Overflow
            return _wrap(_apply(op, x, y), bits)

        text = f"{a.text} {op} {b.text}"
        kind = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}[bits]
        return (
            Value(f"({text})", kind, (bits, 0), of, op) if brackets else Value(text, kind, (bits, 0), of, op)
        )

    def one(op: str, a: Value) -> Value:
        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else _wrap(abs(x) if op == "abs" else -x, a.size[0])

        return Value(f"{op}({a.text})", a.kind, a.size, of)

    def cast(a: Value, bits: int) -> Value:
        bits = max(bits, a.size[0])
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[bits]
        return Value(f"CAST({a.text} AS {name})", f"i{bits}", (bits, 0), a.of)

    ops = st.sampled_from("+-*")
    sums = st.builds(two, ops, plain, st.one_of(plain, literal), st.just(True))
    swapped = st.builds(two, ops, literal, plain, st.just(True))
    mixed = st.builds(two, st.just("-"), st.one_of(sums, plain), st.one_of(sums, plain), st.just(True))
    signed = st.builds(one, st.sampled_from(["-", "abs"]), st.one_of(plain, sums))
    casts = st.builds(cast, plain, st.sampled_from(sorted(WHOLE.values())))
    return st.one_of(plain, plain, plain, sums, swapped, mixed, signed, casts)


def _lenient(value: Value, row: Row) -> Any:
    """A null operand hides the other's overflow, in whatever order Spark looks at them."""
    try:
        return value.of(row)
    except Overflow:
        return Overflow


def _real(value: Value, row: Row) -> Any:
    """A number as Spark's double."""
    x = value.of(row)
    return None if x is None else float(x)


def _is_float(value: Value) -> bool:
    return value.kind in ("f32", "f64")


def _floats() -> st.SearchStrategy[Value]:
    plain = st.one_of(_column("f32"), _column("f64"))
    number = st.one_of(
        plain,
        st.sampled_from(_DOUBLE_LITERALS),
        st.sampled_from(_DECIMAL_LITERALS),
        st.sampled_from(_WHOLE_LITERALS),
        _column("i64"),
        _column("i16"),
        _column("d5"),
        _column("d12"),
    )

    def two(op: str, a: Value, b: Value) -> Value:
        single = a.kind == b.kind == "f32"

        def of(row: Row) -> Any:
            x, y = (a.of(row), b.of(row)) if single else (_real(a, row), _real(b, row))
            with np.errstate(all="ignore"):
                return None if x is None or y is None else _apply(op, x, y)

        return Value(f"({a.text} {op} {b.text})", "f32" if single else "f64", (0, 0), of, op)

    def one(op: str, a: Value) -> Value:
        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else abs(x) if op == "abs" else -x

        return Value(f"{op}({a.text})", a.kind, a.size, of)

    def cast(a: Value) -> Value:
        return Value(f"CAST({a.text} AS DOUBLE)", "f64", (0, 0), lambda row: _real(a, row))

    ops = st.sampled_from("+-*")
    sums = st.one_of(st.builds(two, ops, plain, number), st.builds(two, ops, number, plain))
    deep = st.builds(two, ops, sums, number)
    casts = st.builds(cast, st.one_of(_column("i64"), _column("i8"), _column("f32"), _column("d12")))
    return st.one_of(
        plain, plain, sums, deep, st.builds(one, st.sampled_from(["-", "abs"]), st.one_of(plain, sums)), casts
    )


def _decimals() -> st.SearchStrategy[Value]:
    plain = st.one_of(*(_column(name) for name in DECIMALS))

    def one(op: str, a: Value) -> Value:
        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else abs(x) if op == "abs" else -x

        return Value(f"{op}({a.text})", "literal", a.size, of)

    def cast(a: Value, precision: int, scale: int) -> Value:
        return Value(f"CAST({a.text} AS DECIMAL({precision}, {scale}))", "literal", (precision, scale), a.of)

    narrow = st.builds(cast, st.one_of(_column("i32"), _column("d5")), st.just(14), st.sampled_from([2, 4]))
    wide = st.builds(cast, st.one_of(_column("i64"), _column("d12")), st.just(30), st.sampled_from([4, 10]))
    short = st.one_of(*(_column(name) for name, (precision, _) in DECIMALS.items() if precision <= 18))
    signed = st.builds(one, st.sampled_from(["-", "abs"]), short)
    return st.one_of(plain, plain, signed, narrow, wide)


def _digits(value: Value) -> tuple[int, int]:
    """The decimal that Spark casts a number to."""
    bits = value.size[0] if value.kind in WHOLE else 0
    return {8: (3, 0), 16: (5, 0), 32: (10, 0), 64: (20, 0)}[bits] if bits else value.size


def meet(*values: Value) -> bool:
    """Whether numbers compare in the subset: 38 digits hold them, or no long decimal is beside a float."""
    if any(_is_float(value) for value in values):
        exact = [value.text for value in _DECIMAL_LITERALS]
        return all(_is_float(v) or v.kind in WHOLE or v.text in exact or v.size[0] <= 15 for v in values)
    sizes = [_digits(value) for value in values]
    return max(p - s for p, s in sizes) + max(s for _, s in sizes) <= 38


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
    return (x > y) - (x < y)


_MEANING: dict[str, Callable[[int], bool]] = {
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
    x, y = _lenient(a, row), _lenient(b, row)
    if op in ("<=>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
        if x is Overflow or y is Overflow:
            return ANY
        if x is None or y is None:
            return frozenset([(x is y) == (op != "IS DISTINCT FROM")])
    if x is None or y is None:
        return frozenset([None])
    if x is Overflow or y is Overflow:
        return ANY
    return frozenset([_MEANING[op](_order(x, y, _is_float(a) or _is_float(b)))])


def compare(op: str, a: Value, b: Value) -> Predicate:
    return Predicate(f"{a.text} {op} {b.text}", lambda row: _answer(op, a, b, row))


def between(a: Value, low: Value, high: Value, negated: bool) -> Predicate:
    def of(row: Row) -> Answers:
        found = _and(_answer(">=", a, low, row), _answer("<=", a, high, row))
        return _not(found) if negated else found

    return Predicate(f"{a.text} {'NOT ' * negated}BETWEEN {low.text} AND {high.text}", of)


def member(a: Value, items: list[Value | None], negated: bool) -> Predicate:
    given = [item for item in items if item is not None]
    real = any(_is_float(value) for value in (a, *given))

    def of(row: Row) -> Answers:
        x = _lenient(a, row)
        if x is Overflow and given:
            found = ANY
        elif x is None or not given:
            found = frozenset([None])
        elif any(_order(x, item.of(row), real) == 0 for item in given):
            found = frozenset([True])
        else:
            found = frozenset([None if len(given) < len(items) else False])
        return _not(found) if negated else found

    listed = ", ".join("NULL" if item is None else item.text for item in items)
    return Predicate(f"{a.text} {'NOT ' * negated}IN ({listed})", of)


def is_null(a: Value, negated: bool) -> Predicate:
    return Predicate(
        f"{a.text} IS {'NOT ' * negated}NULL", lambda row: frozenset([(a.of(row) is None) != negated])
    )


def _not(answers: Answers) -> Answers:
    return frozenset(None if answer is None else not answer for answer in answers)


def _and(one: Answers, other: Answers) -> Answers:
    return frozenset(
        False if False in pair else None if None in pair else True for pair in product(one, other)
    )


def _or(one: Answers, other: Answers) -> Answers:
    return _not(_and(_not(one), _not(other)))


def _bracketed(op: str, a: Predicate, b: Predicate) -> Predicate:
    fold = _and if op == "AND" else _or
    return Predicate(f"({a.text}) {op} ({b.text})", lambda row: fold(a.of(row), b.of(row)))


def _bare(a: Predicate, b: Predicate, c: Predicate) -> Predicate:
    """``NOT a AND b OR c`` with no brackets, to see the precedence; parts are single comparisons."""

    def of(row: Row) -> Answers:
        return _or(_and(_not(a.of(row)), b.of(row)), c.of(row))

    return Predicate(f"NOT {a.text} AND {b.text} OR {c.text}", of)


def _negated(a: Predicate) -> Predicate:
    return Predicate(f"NOT ({a.text})", lambda row: _not(a.of(row)))


_TIMES = {
    "d": [_fixed("DATE '1970-01-01'", "d", 0), _fixed("DATE '2024-01-31'", "d", 19_753)],
    "ts": [
        _fixed("TIMESTAMP '2024-01-31 10:00:00Z'", "ts", 1_706_695_200_000_000),
        _fixed("TIMESTAMP '2024-01-31T12:00:00.000001+02:00'", "ts", 1_706_695_200_000_001),
    ],
    "ntz": [_fixed("TIMESTAMP_NTZ '2024-01-31 10:00:00'", "ntz", 1_706_695_200_000_000)],
}
_INTERVALS = {
    "INTERVAL 5 SECONDS": 5_000_000,
    "INTERVAL '-1' MICROSECOND": -1,
    "INTERVAL 1 HOUR 30 MINUTES": 5_400_000_000,
}
_STRINGS = {
    "''": "",
    "'a'": "a",
    "'it''s'": "it's",
    r"'a\nb'": "a\nb",
    r"'back\\slash'": "back\\slash",
    "'é'": "é",
}


def _moments(name: str) -> st.SearchStrategy[Value]:
    def shift(a: Value, op: str, interval: str) -> Value:
        micros = {**_INTERVALS, "INTERVAL 2 DAYS": 2 * _DAY}[interval] * (1 if op == "+" else -1)

        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else x + micros

        return Value(f"{a.text} {op} {interval}", a.kind, (0, 0), of)

    intervals = [*_INTERVALS, "INTERVAL 2 DAYS"] if name == "ntz" else list(_INTERVALS)
    shifted = st.builds(shift, _column(name), st.sampled_from("+-"), st.sampled_from(intervals))
    return _column(name) if name == "d" else st.one_of(_column(name), shifted)


def _days(a: Value) -> Value:
    """A date beside an NTZ timestamp is its midnight."""

    def of(row: Row) -> Any:
        x = a.of(row)
        return None if x is None else x * _DAY

    return Value(a.text, "ntz", (0, 0), of)


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    """Single predicates of every type, in proportion to how much can go wrong."""
    return draw(_leaves())


@cache
def _leaves() -> st.SearchStrategy[Predicate]:
    numbers = st.one_of(_whole(), _whole(), _floats(), _decimals())
    literals = st.sampled_from([*_WHOLE_LITERALS, *_DECIMAL_LITERALS, *_DOUBLE_LITERALS])
    ops = st.sampled_from(sorted(_MEANING))
    others = st.one_of(numbers, numbers, literals)
    flags = st.booleans()
    numeric = st.one_of(
        st.tuples(ops, numbers, others).filter(lambda t: meet(*t[1:])).map(lambda t: compare(*t)),
        st.tuples(ops, literals, numbers).filter(lambda t: meet(*t[1:])).map(lambda t: compare(*t)),
        st.tuples(numbers, others, others, flags)
        .filter(lambda t: meet(t[0], t[1]) and meet(t[0], t[2]))
        .map(lambda t: between(*t)),
        st.tuples(
            numbers,
            st.lists(st.one_of(st.none(), literals, literals, literals), min_size=1, max_size=14),
            flags,
        )
        .filter(lambda t: meet(t[0], *(item for item in t[1] if item is not None)))
        .map(lambda t: member(*t)),
    )
    typed = []
    for name, fixed in (
        ("s", [_fixed(text, "s", value) for text, value in _STRINGS.items()]),
        ("b", [_fixed("TRUE", "b", True), _fixed("false", "b", False)]),
        *_TIMES.items(),
    ):
        own = _column(name) if name in ("s", "b") else _moments(name)
        literal = st.sampled_from(fixed)
        typed.append(st.builds(compare, ops, own, st.one_of(own, literal)))
        typed.append(st.builds(between, own, st.one_of(own, literal), literal, flags))
        typed.append(
            st.builds(member, own, st.lists(st.one_of(st.none(), literal), min_size=1, max_size=12), flags)
        )
    midnight = st.one_of(_column("d"), st.sampled_from(_TIMES["d"])).map(_days)
    return st.one_of(
        *[numeric] * 5,
        *typed,
        st.builds(compare, ops, _moments("ntz"), midnight),
        st.builds(compare, ops, _column("bin"), _column("bin")),
        st.builds(is_null, st.one_of(*(_column(name) for name in ARROW)), flags),
        _column("b").map(lambda a: Predicate(a.text, lambda row: frozenset([a.of(row)]))),
    )


def predicates() -> st.SearchStrategy[Predicate]:
    """Predicates of up to a few leaves under AND, OR and NOT."""
    bare = st.builds(_bare, leaves(), leaves(), leaves())
    return st.one_of(
        leaves(),
        bare,
        st.recursive(
            leaves(),
            lambda part: st.one_of(
                st.builds(_bracketed, st.sampled_from(["AND", "OR"]), part, part), st.builds(_negated, part)
            ),
            max_leaves=5,
        ),
    )


def meaning(predicate: Predicate, rows: list[Row]) -> list[bool | None]:
    """Return whether each row is kept; None where an overflow decides."""
    answers = [predicate.of(row) for row in rows]
    return [None if True in answer and len(answer) > 1 else answer == {True} for answer in answers]


def compile_unless_repeated(text: str) -> Compiled:
    """Compile a random predicate, which must succeed unless it happens to test the same arithmetic twice."""
    try:
        return compile_where(text, SCHEMA, SCHEMA)
    except Uncompilable as refusal:
        if "repeats arithmetic" not in str(refusal):
            raise
        reject()
