"""Random patterns, with conditions as SQL and in plain Python, and rows for them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from braided.errors import OptionError
from braided.operators.match.spec import MatchSpec
from support.match_reference import Query, text_of

SCHEMA = pa.schema([("t", pa.timestamp("us")), ("x", pa.int64()), ("p", pa.float64()), ("s", pa.string())])


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


def after(seen: Any, count: int) -> Any:
    return seen.near(seen.path[-1][0], count)


def smaller_or_one(seen: Any) -> bool | None:
    less, is_one = both(lambda a, b: a < b, seen.row["p"], after(seen, 1)["p"]), both(lambda x: x == 1, seen.row["x"])
    return True if less or is_one else None if less is None or is_one is None else False


def at(seen: Any, column: str, which: str, count: int, offset: int, *symbols: str) -> Any:
    """Return a column of a row near one of the match."""
    return seen.near(seen.place(which, count, *symbols), offset)[column]


PLAIN = [
    ("x = 1", lambda seen: both(lambda x: x == 1, seen.row["x"])),
    ("x > 1", lambda seen: both(lambda x: x > 1, seen.row["x"])),
    ("x < 2 or s = 'a'", lambda seen: (seen.row["x"] is not None and seen.row["x"] < 2) or seen.row["s"] == "a"),
    ("s is null", lambda seen: seen.row["s"] is None),
    ("s <> 'b'", lambda seen: both(lambda s: s != "b", seen.row["s"])),
    ("x >= prev(x)", lambda seen: both(lambda a, b: a >= b, seen.row["x"], seen.before()["x"])),
]
NEAR = [
    ("x >= prev(x, 2)", lambda seen: both(lambda a, b: a >= b, seen.row["x"], seen.before(2)["x"])),
    ("prev(s) is null", lambda seen: seen.before()["s"] is None),
    ("x <= next(x)", lambda seen: both(lambda a, b: a <= b, seen.row["x"], after(seen, 1)["x"])),
    ("next(s, 2) is null", lambda seen: after(seen, 2)["s"] is None),
    ("p < next(p) or x = 1", smaller_or_one),
]
FAR = [
    ("x > last(x, 1)", lambda seen: both(lambda a, b: a > b, seen.row["x"], seen.near(seen.place("last", 1), 0)["x"])),
    ("s = first(A.s, 1)", lambda seen: both(lambda a, b: a == b, seen.row["s"], at(seen, "s", "first", 1, 0, "A"))),
    ("prev(last(A.x, 1), 2) is null", lambda seen: at(seen, "x", "last", 1, -2, "A") is None),
    ("x <= next(first(A.x))", lambda seen: both(lambda a, b: a <= b, seen.row["x"], at(seen, "x", "first", 0, 1, "A"))),
    ("x >= prev(B.x)", lambda seen: both(lambda a, b: a >= b, seen.row["x"], at(seen, "x", "last", 0, -1, "B"))),
    ("last(classifier(), 1) = 'A'", lambda seen: both(lambda a: a == "A", seen.label(seen.place("last", 1)))),
    ("prev(classifier()) <> 'B'", lambda seen: both(lambda a: a != "B", seen.label(seen.path[-1][0] - 1))),
    ("first(classifier()) in ('A', 'C')", lambda seen: seen.label(seen.place("first", 0)) in ("A", "C")),
    ("next(classifier()) is null", lambda seen: True),
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
        return st.one_of(symbol, symbol, symbol, st.sampled_from([("empty",), ("anchor", "^"), ("anchor", "$")]))
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


ROW: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
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
    rows: Any = draw(st.sampled_from(["one", "all with unmatched"]))
    tree, negated = draw(trees(exclude=rows == "one")), draw(st.none() | st.none() | st.sampled_from("ABC"))
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
            subsets=subsets, within=f"{within} us", after=after, rows=rows,
        )  # fmt: skip
    except OptionError as error:
        assume(
            any(
                word in str(error)
                for word in (
                    "may match no rows",
                    "expected a symbol",
                    "no symbol",
                    "may have no",
                    "may be the first",
                    "no column",
                )
            )
        )
        assume(False)
    query = Query(
        tree, {name: meaning for name, (_, meaning) in define.items()}, within, after, subsets, negated, rows != "one"
    )
    stream: list[Any] = []
    time = 0
    for row in draw(st.lists(ROW, max_size=9)):
        time += row.pop("gap")
        stream.append({"t": time, **row})
    return query, spec, stream
