"""The search for matches equals a backtracking matcher in plain Python, for random patterns and rows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from match_reference import Query, matches, text_of
from profiles import examples

from braided.compile.build import build
from braided.compile.match import matcher_of
from braided.compile.stream import Stream
from braided.errors import OptionError
from braided.local.runtime import LocalRuntime
from braided.matching import matcher as matcher_module
from braided.matching.expressions import Source
from braided.matching.matcher import Sorted
from braided.routing.content import row_hashes
from braided.specs.match import MatchSpec

SCHEMA = pa.schema([("t", pa.timestamp("us")), ("x", pa.int64()), ("p", pa.float64()), ("s", pa.string())])
NAN = float("nan")


def last(seen: Any, column: str, *symbols: str) -> Any:
    rows = seen.of(*symbols)
    return rows[-1][column] if rows else None


def both(test: Any, *values: Any) -> bool | None:
    return None if None in values else bool(test(*values))


def counted(seen: Any) -> int:
    return sum(row["x"] is not None for row in seen.of("A"))


def total(seen: Any) -> Any:
    values = [row["x"] for row in seen.of() if row["x"] is not None]
    return sum(values) if values else None


def three(seen: Any) -> list[Any]:
    return [seen.row["x"], seen.of()[0]["x"], seen.before()["x"]]


def mean(seen: Any) -> bool | None:
    values = [row["p"] for row in seen.of() if row["p"] is not None]
    return None if seen.row["p"] is None else seen.row["p"] <= sum(values) / len(values)


def largest(seen: Any) -> bool | None:
    values = [row["p"] for row in seen.of() if row["p"] is not None]
    return None if seen.row["p"] is None else seen.row["p"] == max(values)


def smallest(seen: Any) -> bool | None:
    values = [row["s"] for row in seen.of() if row["s"] is not None]
    return None if seen.row["s"] is None else seen.row["s"] == min(values)


def unequal(seen: Any) -> bool | None:
    """Three-valued NOT of (same text AND x > 0)."""
    if seen.row["s"] != last(seen, "s", "A"):
        return True
    return None if seen.row["x"] is None else not seen.row["x"] > 0


PLAIN = [
    ("x = 1", lambda seen: both(lambda x: x == 1, seen.row["x"])),
    ("x > 1", lambda seen: both(lambda x: x > 1, seen.row["x"])),
    ("x < 2 or s = 'a'", lambda seen: (seen.row["x"] is not None and seen.row["x"] < 2) or seen.row["s"] == "a"),
    ("s is null", lambda seen: seen.row["s"] is None),
    ("s <> 'b'", lambda seen: both(lambda s: s != "b", seen.row["s"])),
    ("x >= prev(x)", lambda seen: both(lambda a, b: a >= b, seen.row["x"], seen.before()["x"])),
]
EARLIER = [
    ("x > last(A.x)", lambda seen: both(lambda x, y: x > y, seen.row["x"], last(seen, "x", "A"))),
    ("x >= B.x", lambda seen: both(lambda x, y: x >= y, seen.row["x"], last(seen, "x", "B"))),
    ("s <> first(s)", lambda seen: both(lambda x, y: x != y, seen.row["s"], seen.of()[0]["s"])),
    ("first(A.s) is null", lambda seen: not seen.of("A") or seen.of("A")[0]["s"] is None),
    ("count(*) < 4", lambda seen: len(seen.of()) < 4),
    ("count(A.x) < 2 and x > 0", lambda seen: counted(seen) < 2 and (seen.row["x"] or 0) > 0),
    ("sum(x) < 5", lambda seen: both(lambda total: total < 5, total(seen))),
    ("x - first(x) < 2", lambda seen: both(lambda a, b: a - b < 2, seen.row["x"], seen.of()[0]["x"])),
    ("x - first(x) <= prev(x)", lambda seen: both(lambda a, b, c: a - b <= c, *three(seen))),
    ("p <= avg(p)", mean),
    ("p = max(p)", largest),
    ("s = min(s)", smallest),
    ("not (s <=> last(A.s) and x > 0)", unequal),
]


def trees(depth: int = 3, *, exclude: bool = True) -> st.SearchStrategy[Any]:
    symbol = st.tuples(st.just("symbol"), st.sampled_from("ABC"))
    if not depth:
        return symbol
    inner = trees(depth - 1, exclude=exclude)
    several = st.lists(inner, min_size=2, max_size=3)
    bounds = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 2), (0, 3), (2, None)])
    parts = [
        symbol,
        several.map(lambda parts: ("sequence", *parts)),
        several.map(lambda parts: ("sequence", *parts)),
        several.map(lambda parts: ("choice", *parts)),
        several.map(lambda parts: ("permute", *parts)),
        st.tuples(inner, bounds, st.booleans()).map(lambda p: ("repeat", p[0], *p[1], p[2])),
    ]
    if exclude:
        parts.append(trees(depth - 1, exclude=False).map(lambda part: ("exclude", part)))
    return st.one_of(parts)


ROW = st.fixed_dictionaries(
    {
        "gap": st.integers(0, 2),
        "x": st.none() | st.integers(0, 3),
        "p": st.none() | st.sampled_from([0.0, 1.5, 2.5]),
        "s": st.none() | st.sampled_from("ab"),
    }
)
AFTER = ("skip past last row", "skip to next row", "skip to first A", "skip to last B", "skip to last U")


@st.composite
def cases(draw: st.DrawFn, conditions: Any) -> tuple[Query, MatchSpec, list[Any]]:
    """Return a query for the reference, the same as a spec, and rows."""
    tree, negated = draw(trees()), draw(st.none() | st.sampled_from("ABC"))
    text = text_of(tree) + ("" if negated is None else f" !{negated}")
    names = [name for name in "ABC" if name in text.replace("PERMUTE", "")]
    known = [pair for pair in conditions if all(name in names for name in re.findall(r"([ABC])\.", pair[0]))]
    chosen = {name: draw(st.none() | st.sampled_from(known)) for name in names}
    define = {name: pair for name, pair in chosen.items() if pair is not None}
    subsets = {"U": tuple(name for name in chosen if name in "AB")} if {"A", "B"} & set(chosen) else {}
    within, after = draw(st.sampled_from((0, 3, 5, 100))), draw(st.sampled_from(AFTER))
    try:
        spec = MatchSpec(
            time="t", pattern=text, define={name: sql for name, (sql, _) in define.items()}, measures={"n": "count(*)"},
            subsets=subsets, within=f"{within} us", after=after,
        )  # fmt: skip
    except OptionError as error:
        assume(any(word in str(error) for word in ("empty sequence", "no symbol", "may have no", "may be the first")))
        assume(False)
    query = Query(tree, {name: meaning for name, (_, meaning) in define.items()}, within, after, subsets, negated)
    rows, time = [], 0
    for row in draw(st.lists(ROW, max_size=9)):
        time += row.pop("gap")
        rows.append({"t": time, **row})
    return query, spec, rows


def check(query: Query, spec: MatchSpec, rows: list[Any]) -> None:
    try:
        matcher = matcher_of(spec, Source(SCHEMA), ())
    except OptionError as error:
        if "prev(x) may be before the first row of the match" not in str(error):
            raise
        return
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    count = len(rows)
    bounds = np.array([0, count] if count else [0], np.int64)
    times = np.array([row["t"] for row in rows], np.int64)
    columns = {name: batch.column(name) for name in matcher.read}
    for many in (1, 64):  # with a look ahead, and without
        none, every = np.zeros(count, np.uint8), np.ones(count, np.uint8)
        given_ = Sorted(columns, batch, np.arange(count), bounds, times, none, every)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matcher_module, "MANY_ROWS", many)
            decided = matcher.search(given_, 1 << 60)
        check_decided(query, rows, matcher, decided)


def check_decided(query: Query, rows: list[Any], matcher: Any, decided: Any) -> None:
    found = decided.matches
    symbols, ends = matcher.automaton.symbol, np.cumsum(found.length)
    paths = []
    for start, length, end in zip(found.first.tolist(), found.length.tolist(), ends.tolist(), strict=True):
        states = found.states[end - length : end].tolist()
        names = [matcher.automaton.symbols[symbols[state]] for state in states]
        outside = [matcher.automaton.excluded[state] for state in states]
        paths.append(tuple(zip(range(start, start + length), names, outside, strict=True)))
    assert paths == matches(query, rows)
    assert not decided.stays.any()
    assert not decided.opens.any()


@settings(max_examples=examples(3000, quick=200), deadline=None)
@given(cases(PLAIN))
def test_conditions_on_a_row(case: Any) -> None:
    check(*case)


@settings(max_examples=examples(3000, quick=200), deadline=None)
@given(cases(PLAIN + EARLIER))
def test_conditions_on_earlier_symbols(case: Any) -> None:
    check(*case)


KEYED = pa.schema([("k", pa.int64()), ("id", pa.int64()), *SCHEMA])
# A clock counts once some rows have been near it; until then nothing leaves and everything is decided at the end.
BEFORE = [{"k": -1, "id": -1 - number, "t": -50, "x": None, "p": None, "s": None} for number in range(10)]


@settings(max_examples=examples(2000, quick=200), deadline=None)
@given(
    cases(PLAIN + EARLIER),
    st.lists(st.integers(0, 2), min_size=9, max_size=9),
    st.lists(st.booleans(), max_size=20),
    st.booleans(),
)
def test_random_patterns_under_random_cuts(case: Any, keys: list[int], cuts: list[bool], ahead: bool) -> None:
    """Rows of several keys come in batches of any size; what is open waits in the state of a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher_module, "MANY_ROWS", 1 if ahead else 64)
        check_cuts(case, keys, cuts)


def check_cuts(case: Any, keys: list[int], cuts: list[bool]) -> None:
    query, spec, rows = case
    rows = [{"k": key, "id": number, **row} for number, (row, key) in enumerate(zip(rows, keys, strict=False))]
    names = [name for name in "ABC" if name in query.define or f"'{name}'" in repr(query.tree) or name == query.negated]
    measures = {"first": "first(id)", "last": "last(id)", **{name: f"count({name}.*)" for name in names}}
    try:
        plan = build(replace(spec, key="k", measures=measures, lateness="0 us"), [Stream("input", KEYED)])
    except OptionError as error:
        if "prev(x) may be before the first row of the match" not in str(error):
            raise
        return
    runtime = LocalRuntime(plan.operator)
    found = list(runtime.run_batch([(0, [pa.RecordBatch.from_pylist(BEFORE, KEYED)])]))
    batch: list[Any] = []
    for row, cut in zip(rows, [*cuts, *[False] * len(rows)], strict=False):
        batch.append(row)
        if cut:
            found += runtime.run_batch([(0, [pa.RecordBatch.from_pylist(batch, KEYED)])])
            batch = []
    found += runtime.run_batch([(0, [pa.RecordBatch.from_pylist(batch, KEYED)] if batch else [])])
    found += runtime.run_batch([(0, [])], final=True)
    table = pa.Table.from_batches(found, plan.operator.output)
    wanted = []
    for key in {-1, *keys}:
        own = in_order([row for row in (*BEFORE, *rows) if row["k"] == key])
        for path in matches(query, own):
            symbols = [symbol for _, symbol, _ in path]
            wanted.append(
                (key, own[path[0][0]]["id"], own[path[-1][0]]["id"], *(symbols.count(name) for name in names))
            )
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(wanted)
    assert not runtime.stores[0].blocks


def in_order(rows: list[Any]) -> list[Any]:
    hashes = row_hashes(pa.RecordBatch.from_pylist(rows, KEYED)).tolist()
    return [rows[at] for at in sorted(range(len(rows)), key=lambda at: (rows[at]["t"], hashes[at]))]
