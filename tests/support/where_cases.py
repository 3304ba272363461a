"""Random predicates for ``where=``: SQL text beside the meaning that ``where_reference`` gives it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from braided.expressions.compile import Predicate as Compiled
from braided.expressions.compile import Uncompilable, compile_where
from support.where_reference import (
    ARROW,
    DAY,
    DECIMALS,
    MEANING,
    SCHEMA,
    WHOLE,
    Overflow,
    Predicate,
    Row,
    Value,
    apply,
    bare,
    between,
    bracketed,
    compare,
    in_bits,
    is_float,
    is_null,
    lenient,
    member,
    negated,
    real,
)


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
    *(_fixed(str(n), "i32", n, (32, 0)) for n in (0, 1, -1, 2, 5, -3, 127, 200, 32768, 2147483647, -2147483648)),
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


def _whole() -> st.SearchStrategy[Value]:
    plain = st.one_of(*(_column(name) for name in WHOLE))
    literal = st.sampled_from(_WHOLE_LITERALS)

    def two(op: str, a: Value, b: Value, brackets: bool) -> Value:
        bits = max(a.size[0], b.size[0])

        def of(row: Row) -> Any:
            x, y = lenient(a, row), lenient(b, row)
            if x is None or y is None:
                return None
            if x is Overflow or y is Overflow:
                raise Overflow
            return in_bits(apply(op, x, y), bits)

        text = f"{a.text} {op} {b.text}"
        kind = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}[bits]
        return Value(f"({text})", kind, (bits, 0), of) if brackets else Value(text, kind, (bits, 0), of)

    def one(op: str, a: Value) -> Value:
        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else in_bits(abs(x) if op == "abs" else -x, a.size[0])

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
            x, y = (a.of(row), b.of(row)) if single else (real(a, row), real(b, row))
            with np.errstate(all="ignore"):
                return None if x is None or y is None else apply(op, x, y)

        return Value(f"({a.text} {op} {b.text})", "f32" if single else "f64", (0, 0), of)

    def one(op: str, a: Value) -> Value:
        def of(row: Row) -> Any:
            x = a.of(row)
            return None if x is None else abs(x) if op == "abs" else -x

        return Value(f"{op}({a.text})", a.kind, a.size, of)

    def cast(a: Value) -> Value:
        return Value(f"CAST({a.text} AS DOUBLE)", "f64", (0, 0), lambda row: real(a, row))

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
    if any(is_float(value) for value in values):
        exact = [value.text for value in _DECIMAL_LITERALS]
        return all(is_float(v) or v.kind in WHOLE or v.text in exact or v.size[0] <= 15 for v in values)
    sizes = [_digits(value) for value in values]
    return max(p - s for p, s in sizes) + max(s for _, s in sizes) <= 38


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
        micros = {**_INTERVALS, "INTERVAL 2 DAYS": 2 * DAY}[interval] * (1 if op == "+" else -1)

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
        return None if x is None else x * DAY

    return Value(a.text, "ntz", (0, 0), of)


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    """Single predicates of every type, in proportion to how much can go wrong."""
    return draw(_leaves())


@cache
def _leaves() -> st.SearchStrategy[Predicate]:
    numbers = st.one_of(_whole(), _whole(), _floats(), _decimals())
    literals = st.sampled_from([*_WHOLE_LITERALS, *_DECIMAL_LITERALS, *_DOUBLE_LITERALS])
    ops = st.sampled_from(sorted(MEANING))
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
        typed.append(st.builds(member, own, st.lists(st.one_of(st.none(), literal), min_size=1, max_size=12), flags))
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
    unbracketed = st.builds(bare, leaves(), leaves(), leaves())
    return st.one_of(
        leaves(),
        unbracketed,
        st.recursive(
            leaves(),
            lambda part: st.one_of(
                st.builds(bracketed, st.sampled_from(["AND", "OR"]), part, part), st.builds(negated, part)
            ),
            max_leaves=5,
        ),
    )


def compile_unless_simplified(text: str) -> Compiled:
    """Compile a random predicate, which must succeed unless Spark may skip its arithmetic."""
    try:
        return compile_where(text, SCHEMA, SCHEMA)
    except Uncompilable as refusal:
        if "simplify away" not in str(refusal):
            raise
        reject()
