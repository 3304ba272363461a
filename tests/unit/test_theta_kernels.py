"""The predicate kernels of theta joins, against ``Predicate.mask`` over every pair of the window."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.profiles import examples, some
from support.where_cases import compile_unless_simplified, predicates
from support.where_reference import SCHEMA, columns, pairs
from support.where_reference import Predicate as Meaning

from braided.errors import BraidedError
from braided.expressions.compile import Predicate, compile_where
from braided.operators.join.theta import band as theta_band
from braided.operators.join.theta import loop as theta_loop
from braided.operators.join.theta import search as module
from braided.operators.join.theta.search import ThetaPredicate

ROWS = 40
Found = list[tuple[int, int]]


def batch(seed: int, side: str, wild: bool, nulls: float) -> pa.RecordBatch:
    found = columns(pairs(ROWS, seed, wild=wild, nulls=nulls), side)
    return pa.record_batch(list(found.values()), names=list(found)).slice(1)


BLOCKS = {
    name: (batch(seed, "l", wild, nulls), batch(seed, "r", wild, nulls))
    for name, seed, wild, nulls in (
        ("wild", 1, True, 0.15),
        ("calm", 2, False, 0.15),
        ("no nulls", 3, True, 0.0),
        ("calm, no nulls", 4, False, 0.0),
    )
}


def windows(rng: np.random.Generator, probe: int, stored: int, ordered: bool) -> tuple[Any, Any]:
    """Ranges of stored rows, some of them empty or turned around."""
    first, past = rng.integers(0, stored + 1, probe), rng.integers(0, stored + 1, probe)
    if ordered:
        first, past = np.sort(np.minimum(first, past)), np.sort(np.maximum(first, past))
    return first, past


def reference(
    predicate: Predicate, side: int, probe: pa.RecordBatch, stored: pa.RecordBatch, first: Any, past: Any
) -> Found | None:
    """Every pair of the window through the mask; None where that raises."""
    i, j = np.meshgrid(np.arange(probe.num_rows), np.arange(stored.num_rows), indexing="ij")
    inside = (j >= first[:, None]) & (j < past[:, None])
    index = i[inside], j[inside]
    taken = [
        {name: rows.column(name).take(pa.array(at)) for name in rows.schema.names}
        for rows, at in zip((probe, stored), index, strict=True)
    ]
    try:
        kept = predicate.mask(taken[side], taken[1 - side])
    except BraidedError:
        return None
    return sorted(zip(index[0][kept].tolist(), index[1][kept].tolist(), strict=True))


def found(theta: ThetaPredicate, side: int, *given: Any) -> Found | None:
    pieces = []
    try:
        for probes, rows in theta.pairs(side, *given):
            assert 0 < len(probes) == len(rows) <= theta_band.PIECE
            assert probes.dtype == rows.dtype == np.int64
            pieces.append((probes, rows))
    except BraidedError:
        return None
    return sorted((i, j) for probes, rows in pieces for i, j in zip(probes.tolist(), rows.tolist(), strict=True))


@pytest.fixture(params=["nested", "zoned", "loop"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Send small inputs down every path of a band."""
    if request.param != "nested":
        monkeypatch.setattr(module, "_SORTED_FROM", 0)
    monkeypatch.setattr(module, "_LOOSE", -1.0 if request.param == "loop" else 2.0)
    return str(request.param)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run generated loops as Python, since compiling takes half a second each."""
    make = theta_loop.loop_of.__wrapped__
    monkeypatch.setattr(module, "loop_of", lambda *given: make(*given).py_func)
    with np.errstate(all="ignore"):
        yield


def check(text: str, seed: int = 0) -> ThetaPredicate:
    """Compare all blocks and both sides, after a pickle."""
    predicate = compile_unless_simplified(text)
    theta = pickle.loads(pickle.dumps(ThetaPredicate.of(predicate, SCHEMA, SCHEMA)))
    rng = np.random.default_rng(seed)
    for left, right in BLOCKS.values():
        for side, (probe, stored) in enumerate(((left, right), (right, left))):
            for ordered in (False, True):
                first, past = windows(rng, probe.num_rows, stored.num_rows, ordered)
                want = reference(predicate, side, probe, stored, first, past)
                assert found(theta, side, probe, stored, first, past) == want, (text, side)
    return theta


# Against the reference.


@pytest.mark.usefixtures("way", "interpreted")
@settings(
    max_examples=examples(150, quick=15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(predicates(), st.integers(0, 1 << 30))
def test_random_predicates(predicate: Meaning, seed: int) -> None:
    check(predicate.text, seed)


@st.composite
def bands(draw: st.DrawFn) -> str:
    """Conjunctions with a band or an inequality across the sides, the case that sorts."""
    names = ["i8", "i32", "i64", "f32", "f64", "d12", "d38", "s", "bin", "d", "ts", "b"]
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        x = draw(st.sampled_from(names))
        one, other = draw(st.permutations("lr"))
        op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]))
        c = draw(st.sampled_from(["0", "1", "5", "200", "-3"]))
        number = draw(st.sampled_from(["i16", "i32", "i64", "f32", "f64"]))
        y = draw(st.sampled_from(["i16", "i32", "i64", "f32", "f64"]))
        parts.append(
            draw(
                st.sampled_from(
                    [
                        f"{one}.{x} {op} {other}.{x}",
                        f"NOT {one}.{x} {op} {other}.{x}",
                        f"abs({one}.{number} - {other}.{y}) {op} {c}",
                        f"{one}.{number} - {other}.{y} {op} {c}",
                        f"{c} {op} {one}.{number} + {other}.{y}",
                        f"{one}.{number} * {other}.{y} {op} {c}",
                        f"{one}.{number} BETWEEN {other}.{y} - {c} AND {other}.{y} + 5",
                        f"({one}.{x} {op} {other}.{x} OR {one}.{number} < {other}.{number})",
                        f"{one}.{number} {op} {c}",
                        f"{one}.ts BETWEEN {other}.ts - INTERVAL 5 SECONDS AND {other}.ts + INTERVAL 1 HOUR",
                    ]
                )
            )
        )
    return " AND ".join(parts)


@pytest.mark.usefixtures("way", "interpreted")
@settings(
    max_examples=examples(150, quick=15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bands(), st.integers(0, 1 << 30))
def test_random_bands(text: str, seed: int) -> None:
    check(text, seed)


COMPILED = {
    "l.i64 > r.i64 OR l.i32 = r.i32": "compiled",
    "l.s <> r.s AND (l.s < r.s OR l.f64 = r.f64 OR r.b)": "compiled",
    "l.d38 <> r.d20 AND l.f32 + r.f32 <> 1.5 AND l.i64 <=> r.i64": "band",
    "CAST(l.i32 + r.i32 AS DOUBLE) < l.f64 AND NOT (l.i16 - r.i16 IN (1, 2, NULL) OR l.bin <=> r.bin)": "compiled",
    "NOT (l.f64 * r.f64 <= 1.5 OR l.bin <=> r.bin)": "compiled",
    "l.i16 - r.i16 IN (1, 2, NULL) OR l.d <=> r.d": "compiled",
    "NOT (l.i16 - r.i16 NOT IN (1, 2) OR l.d = r.d)": "compiled",
    "CAST(l.i32 + r.i32 AS DOUBLE) < l.f64 AND l.i8 - r.i8 < 2.5": "compiled",
    "l.i32 > 2 AND r.i32 < 3": "compiled",
    "l.i64 + r.i64 > 9223372036854775807 OR l.i64 - r.i64 = -9223372036854775808": "compiled",
}


@pytest.mark.parametrize("text", some(COMPILED, 1))
@pytest.mark.usefixtures("way")
def test_generated_loops_once_compiled(text: str) -> None:
    assert check(text).kind == COMPILED[text]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("l.i64 BETWEEN r.i64 - 5 AND r.i64 + 5", "band"),
        ("abs(l.f64 - r.f64) <= 10", "band"),
        ("NOT l.s < r.s", "band"),
        ("l.i64 <> r.i64", "compiled"),
        ("l.i64 = NULL", "compiled"),
        ("l.i64 + r.i64 > 1.5BD AND l.d38 > CAST(l.i64 + r.i64 AS DECIMAL(20, 0))", "mask"),
    ],
)
@pytest.mark.usefixtures("interpreted")
def test_kind(text: str, kind: str) -> None:
    assert check(text).kind == kind


def test_an_overflow_raises_only_where_it_decides() -> None:
    top = (1 << 63) - 1
    left = pa.record_batch({"x": [0, top], "ok": [True, False]})
    right = pa.record_batch({"x": [-1, -2], "ok": [True, True]})
    first, past = np.zeros(2, np.int64), np.full(2, 2)
    theta = ThetaPredicate.of(compile_where("abs(l.x - r.x) < 2 AND l.ok", left.schema, right.schema))
    assert found(theta, 0, left, right, first, past) == [(0, 0)]
    theta = ThetaPredicate.of(compile_where("abs(l.x - r.x) < 2", left.schema, right.schema))
    with pytest.raises(BraidedError, match=r"l.x - r.x or .* overflows; cast an operand"):
        list(theta.pairs(0, left, right, first, past))
    past[1] = 0
    assert found(theta, 0, left, right, first, past) == [(0, 0)]


# Many blocks and groups.


def large(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    base = rng.integers(0, 10_000, rows)
    null = rng.random(rows) < 0.05
    return pa.record_batch(
        {
            "x": pa.array(rng.integers(0, 10_000, rows), mask=null),
            "y": base,
            "z": base + rng.integers(0, 50, rows),
            "f": pa.array(np.where(rng.random(rows) < 0.01, np.nan, rng.normal(0, 100, rows))),
            "s": rng.integers(0, 300, rows).astype(str).tolist(),
            "d": [Decimal(int(v)) * 10**20 for v in rng.integers(-50, 50, rows)],
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "abs(l.x - r.x) <= 3",
        "l.x = r.x",
        "l.f BETWEEN r.f - 0.5D AND r.f + 0.5D",
        "abs(l.f - r.f) < 0.1D AND l.s <> r.s",
        "l.y < r.y AND l.z > r.z",
        "l.x < r.y AND l.z > r.x AND l.f < r.f AND l.s = r.s",
        "l.x > r.x + 7000 AND l.y < r.y - 7000",
        "l.s = r.s AND l.d > r.d",
        "l.x + r.x < 1000",
    ],
)
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.usefixtures("way")
def test_many_blocks(text: str, ordered: bool) -> None:
    predicate, given, wanted = many_blocks(text, ordered)
    theta = ThetaPredicate.of(predicate, given[0].schema, given[1].schema)
    for side, want in enumerate(wanted):
        assert want, "a test without pairs shows nothing"
        assert found(theta, side, *given) == want


@cache
def many_blocks(text: str, ordered: bool) -> tuple[Predicate, tuple[Any, ...], list[Found | None]]:
    """A predicate, what it is tried on, and the pairs it should find, the same for every way to find them."""
    rng = np.random.default_rng(7)
    probe, stored = large(rng, 150), large(rng, 9_001)
    first, past = windows(rng, 150, 9_001, ordered)
    if not ordered:
        first[:], past[:] = 0, 9_001
    predicate = compile_where(text, probe.schema, stored.schema)
    given = probe, stored, first, past
    return predicate, given, [reference(predicate, side, *given) for side in (0, 1)]


@pytest.mark.parametrize("text", ["l.y >= r.y - 20000", "l.y >= r.y - 20000 AND l.f <> r.f", "l.y <> r.y OR l.f = r.f"])
@pytest.mark.usefixtures("way")
def test_pieces_are_bounded_where_most_pairs_match(text: str) -> None:
    rng = np.random.default_rng(8)
    left, right = large(rng, 300), large(rng, 1_000)
    theta = ThetaPredicate.of(compile_where(text, left.schema, right.schema))
    first, past = np.zeros(300, np.int64), np.full(300, 1_000)
    pieces = [len(i) for i, _ in theta.pairs(0, left, right, first, past)]
    assert len(pieces) > 4
    assert found(theta, 0, left, right, first, past) == reference(theta.predicate, 0, left, right, first, past)


def test_nothing_in_the_window() -> None:
    left, right = BLOCKS["calm"]
    theta = ThetaPredicate.of(compile_where("l.i64 < r.i64", SCHEMA, SCHEMA))
    none = np.zeros(left.num_rows, np.int64)
    assert found(theta, 0, left, right, none, none) == []
    assert found(theta, 0, left.slice(0, 0), right, none[:0], none[:0]) == []


def test_a_generated_loop_is_compiled_once() -> None:
    arrays = [
        np.arange(4),
        np.zeros(4, np.int64),
        np.full(4, 4),
        0,
        -1,
        100,
        np.zeros(100, np.int64),
        np.zeros(100, np.int64),
        np.arange(4),
    ]
    loops = [theta_loop.loop_of.__wrapped__("p0 < s0", ("p0",), ("s0",), 4) for _ in (0, 1)]
    assert [loop(*arrays) for loop in loops] == [(4, -1, 6)] * 2
    assert sum(loops[1].stats.cache_hits.values()) == 1


@pytest.mark.parametrize("most", [5, 1_500])
def test_a_loop_over_many_tiles_fills_many_pieces(most: int) -> None:
    rng = np.random.default_rng(most)
    left, right = (
        pa.record_batch({"a": rng.integers(0, 1_000, n), "b": rng.integers(0, 1_000, n)}) for n in (70, 3_000)
    )
    theta = ThetaPredicate.of(compile_where(f"l.a = r.a OR l.b + r.b < {most}", left.schema, right.schema))
    assert theta.kind == "compiled"
    first, past = np.sort(rng.integers(0, 1_500, 70)), np.sort(rng.integers(1_400, 3_001, 70))
    i, j = np.meshgrid(np.arange(70), np.arange(3_000), indexing="ij")
    a, b, c, d = (batch.column(name).to_numpy() for batch in (left, right) for name in ("a", "b"))
    kept = ((a[i] == c[j]) | (b[i] + d[j] < most)) & (j >= first[:, None]) & (j < past[:, None])
    assert found(theta, 0, left, right, first, past) == sorted(zip(i[kept].tolist(), j[kept].tolist(), strict=True))
