"""Patterns in a stream: a backtracking matcher over rows in order of (time, content), and the variants to try."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from braided.operators.match.spec import ROWS, MatchSpec
from braided.routing.content import row_hashes
from braided.time.lateness import Lateness
from support.contract.histories import SCHEMA, Row
from support.contract.kinds import Bag, Case, Change, Kind, Streams, fixed, learned, micros, names_of, us
from support.match_reference import Path, Query, matches

A, B, C = (("symbol", name) for name in "ABC")
IS_A = ("s = 'a'", lambda seen: seen.row["s"] == "a")
IS_B = ("s = 'bb'", lambda seen: seen.row["s"] == "bb")
NOT_A = ("s <> 'a'", lambda seen: seen.row["s"] not in ("a", None))
NULL = ("s is null or id > 10", lambda seen: seen.row["s"] is None or seen.row["id"] > 10)
OTHER = ("s <> last(A.s)", lambda seen: None not in texts(seen) and len(set(texts(seen))) == 2)
RISES = ("id > prev(id)", lambda seen: seen.before()["id"] is not None and seen.row["id"] > seen.before()["id"])
FEW = ("count(*) < 4 and id > A.id", lambda seen: len(seen.path) < 4 and seen.row["id"] > seen.of("A")[-1]["id"])


def texts(seen: Any) -> list[Any]:
    """Return the texts of the last A and of this row."""
    return [seen.of("A")[-1]["s"], seen.row["s"]]


PATTERNS: dict[str, tuple[Any, str | None, dict[str, Any]]] = {
    "A B*? C": (("sequence", A, ("repeat", B, 0, None, False), C), None, {"A": IS_A, "C": IS_B}),
    "A B{0,1}": (("sequence", A, ("repeat", B, 0, 1, True)), None, {"B": NOT_A}),
    "(A | B)+ C": (("sequence", ("repeat", ("choice", A, B), 1, None, True), C), None, {"A": IS_A, "B": NULL}),
    "A{2} {- B? -} C": (
        ("sequence", ("repeat", A, 2, 2, True), ("exclude", ("repeat", B, 0, 1, True)), C), None, {"B": IS_B, "C": NOT_A},
    ),
    "PERMUTE(A, B) C?": (
        ("sequence", ("permute", A, B), ("repeat", C, 0, 1, True)), None, {"A": IS_A, "B": NOT_A, "C": NULL},
    ),
    "A B+": (("sequence", A, ("repeat", B, 1, None, True)), None, {"B": RISES}),
    "A B": (("sequence", A, B), None, {"B": OTHER}),
    "A B* C": (("sequence", A, ("repeat", B, 0, None, True), C), None, {"B": FEW, "C": IS_B}),
    "A !B": (A, "B", {"A": IS_A, "B": IS_B}),
    "A B? !C": (("sequence", A, ("repeat", B, 0, 1, True)), "C", {"A": IS_A, "C": OTHER}),
    "A*": (("repeat", A, 0, None, True), None, {"A": IS_A}),
    "^ B? A | C B": (
        ("choice", ("sequence", ("anchor", "^"), ("repeat", B, 0, 1, True), A), ("sequence", C, B)), None,
        {"A": IS_A, "C": RISES},
    ),
    "A": (A, None, {"A": IS_A}),
}  # fmt: skip
MEASURES = {"first": "first(id)", "last": "last(id)", "n": "count(*)", "a": "count(A.*)"}


def defined(pattern: str) -> dict[str, str]:
    """Return the conditions of a pattern as SQL."""
    return {name: sql for name, (sql, _) in PATTERNS[pattern][2].items()}


def wanted(spec: MatchSpec, streams: Streams) -> Bag:
    """Return the result of every match of every key."""
    tree, negated, define = PATTERNS[spec.pattern]
    within = 1 << 60 if spec.within is None else int(str(spec.within).removesuffix(" us"))
    meanings = {name: meaning for name, (_, meaning) in define.items()}
    subsets: Any = dict(spec.subsets or {})
    query = Query(tree, meanings, within, spec.after, subsets, negated, spec.rows == "all with unmatched")
    key = names_of(spec.key, 1)[0]
    groups: dict[Any, list[Row]] = {}
    for row in ordered([row for row in streams[0] if row[spec.time] is not None], spec.time, spec.ties):
        groups.setdefault(tuple(row[name] for name in key), []).append({**row, "t": row[spec.time]})
    bag: Bag = Counter()
    for values, rows in groups.items():
        for path in matches(query, rows):
            if spec.rows == "one":
                bag[(*values, *measured(rows, path))] += 1
                continue
            for step, (at, symbol, excluded) in enumerate(path):
                if not excluded and not (symbol == "-" and spec.rows == "all omit empty"):
                    bag[(*rows[at].values(), *measured(rows, path[: step + 1]))] += 1
    return bag


def measured(rows: list[Row], path: Path) -> tuple[Any, ...]:
    """Return the measures of a match, or of its first rows."""
    if path[0][1] in "-?":
        return (None, None, 0, 0) if path[0][1] == "-" else (None,) * 4
    return rows[path[0][0]]["id"], rows[path[-1][0]]["id"], len(path), sum(symbol == "A" for _, symbol, _ in path)


def ordered(rows: list[Row], time: str, ties: Any = ()) -> list[Row]:
    """Return rows by (time, ties, content)."""
    hashes = row_hashes(pa.RecordBatch.from_pylist(rows, SCHEMA)).tolist()
    out = [row for _, row in sorted(zip(hashes, rows, strict=True), key=lambda pair: pair[0])]
    for tie in reversed(ties):
        name, _, direction = tie.partition(" ")
        out.sort(key=lambda row: (row[name] is not None, row[name]), reverse=direction == "DESC")
    return sorted(out, key=lambda row: row[time])


def content(spec: MatchSpec, row: Row) -> tuple[Any, ...]:
    """Return a result without the measure that a change adds."""
    return tuple(value for name, value in row.items() if name != "more")


def some(pattern: str, **options: Any) -> MatchSpec:
    """Return a spec of one of the patterns."""
    given = {"time": "t", "key": "k", "measures": MEASURES, "within": us(6), "lateness": us(5), **options}
    return MatchSpec(pattern=pattern, define=defined(pattern), **given)


@st.composite
def specs(draw: st.DrawFn, lateness: Any = micros) -> MatchSpec:
    pattern = draw(st.sampled_from(list(PATTERNS)))
    after = ["skip past last row", "skip to next row"]
    if pattern in ("A B*? C", "A B* C"):
        after += ["skip to last C", "skip to first C"]
    if pattern == "A B+":
        after += ["skip to last B", "skip to first X"]
    return some(
        pattern,
        key=draw(st.sampled_from((None, "k", ("k", "s")))),
        rows=draw(st.sampled_from(ROWS[:3] if "{-" in pattern else ROWS)),
        ties=draw(st.sampled_from(((), ("s DESC", "id")))),
        after=draw(st.sampled_from(after)),
        subsets={"X": ("B",)} if pattern == "A B+" else None,
        within=None if pattern == "A" else us(draw(st.integers(0, 12))),
        lateness=draw(lateness),
        idle=draw(st.sampled_from((None, "1 hour"))),
    )


MATCHES = Kind(
    wanted=wanted,
    content=content,
    of_parts=lambda spec: False,
    crowded=lambda spec: (replace(some("A", rows="all"), define=None), 270_000, 2_000),
    cases=(
        Case("conditions on rows", some("A B*? C"), specs()),
        Case(
            "conditions on earlier symbols", some("A B", after="skip to next row", subsets={"X": ("A", "B")}), specs()
        ),
        Case("negation", some("A !B", rows="all"), specs()),
        Case("empty matches", some("A*", rows="all with unmatched", ties=("s",)), specs()),
        Case("learned lateness", some("A B+", lateness=Lateness(floor=us(4), memory=us(50))), specs(learned)),
    ),
    changes=(
        Change("time", "time", {"time": "u"}),
        Change("key", "key", {"key": "id"}),
        Change("pattern", "pattern", {"pattern": "A B C", "define": {}}),
        Change("define", "define", {"define": {"A": "id > 0"}}),
        Change("measures", None, {"measures": {**MEASURES, "more": "last(s)"}}),
        Change("subsets", "subsets", {"subsets": {"Y": ("A",)}}),
        Change("within", "within", {"within": us(7)}),
        Change(
            "after", "after", lambda spec: {"after": f"skip {'past last' if 'next' in spec.after else 'to next'} row"}
        ),
        Change("rows", "rows", lambda spec: {"rows": "all" if spec.rows == "one" else "one"}),
        Change("ties", "ties", {"ties": ["id DESC"]}),
        Change("lateness", None, {"lateness": us(7)}, fixed),
        Change("idle", None, {"idle": "1 hour"}),
        Change("lateness", "lateness", {"lateness": us(4)}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
    ),
    no_case={"forget": "tests/unit/test_match_local.py tries it, with patterns that look before their first row"},
)
