"""MATCH_RECOGNIZE as text: the spec that `braided.match` would make, however it is laid out; places in messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.match_cases import EARLIER, PLAIN, cases
from support.profiles import examples

from braided.errors import OptionError
from braided.operators.match.spec import MatchSpec
from braided.sqltext.matches import find_match

CLAUSE = "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B) DEFINE B AS x > 1"


def written(spec: MatchSpec) -> str:
    """Return a spec as a clause."""
    parts = [
        f"ORDER BY {spec.time} ASC",
        "MEASURES " + ", ".join(f"{text} AS {n}" for n, text in spec.measures.items()),
    ]
    parts += ["ALL ROWS PER MATCH" if spec.rows == "all" else "ONE ROW PER MATCH", f"AFTER MATCH {spec.after.upper()}"]
    parts += [f"PATTERN ({spec.pattern}) WITHIN INTERVAL {spec.within}"]
    if spec.subsets:
        parts.append("SUBSET " + ", ".join(f"{name} = ({', '.join(of)})" for name, of in spec.subsets.items()))
    if spec.define:
        parts.append("DEFINE " + ", ".join(f"{name} AS {text}" for name, text in spec.define.items()))
    return f"SELECT n FROM logins AS l MATCH_RECOGNIZE ({' '.join(parts)}) AS m WHERE n > 3"


@settings(max_examples=examples(1000, quick=50), deadline=None)
@given(cases(PLAIN + EARLIER), st.sampled_from(["one", "all"]), st.data())
def test_a_clause_says_what_the_spec_says(case: Any, rows: Any, data: st.DataObject) -> None:
    given_ = case[1]
    empty = {name: getattr(given_, name) or None for name in ("define", "subsets")}
    spec = replace(given_, rows=rows, **empty)
    gap = st.sampled_from([" ", "\n", "  ", " -- (why)\n", " /* AS, ) */ "])
    text = "".join(data.draw(gap) if letter == " " else letter for letter in written(spec))
    found = find_match(text)
    assert found is not None
    assert found.clause.within == f"INTERVAL {spec.within}"
    assert MatchSpec(**found.clause.options, within=spec.within).to_json() == spec.to_json()
    rest = found.without("match_1")
    assert [len(line) for line in rest.splitlines()] == [len(line) for line in text.splitlines()]
    assert find_match(rest) is None


def test_the_input_is_a_name_or_a_query_with_what_it_may_use() -> None:
    def read(text: str) -> tuple[Any, Any, str]:
        found = find_match(text.replace("MR", f"MATCH_RECOGNIZE ({CLAUSE})"))
        assert found is not None
        short = [None if part is None else " ".join(part.split()) for part in (found.query, found.without("match_1"))]
        return found.table, short[0], str(short[1])

    assert read("SELECT * FROM a.`b c` AS x MR m") == (("a", "b c"), None, "SELECT * FROM match_1 m")
    assert read("SELECT * FROM t JOIN a MR USING (k)") == (("a",), None, "SELECT * FROM t JOIN match_1 USING (k)")
    assert read("SELECT * FROM t, a MR") == (("a",), None, "SELECT * FROM t, match_1")
    assert read("SELECT * FROM (SELECT f(x) FROM a) AS x MR") == (None, "SELECT f(x) FROM a", "SELECT * FROM match_1")
    two = "WITH b AS (SELECT 1), c(x) AS (SELECT 2), d AS (SELECT * FROM {} MR), e AS (SELECT 3) SELECT * FROM d"
    before = "WITH b AS (SELECT 1), c(x) AS (SELECT 2)"
    assert read(two.format("c"))[:2] == (None, f"{before} SELECT * FROM `c`")
    assert read(two.format("(SELECT * FROM c)"))[1] == f"{before} SELECT * FROM c"
    assert read(two.format("e"))[0] == ("e",)
    nested = "WITH b AS (SELECT 1) SELECT * FROM (WITH c AS (SELECT 2) SELECT * FROM C MR)"
    assert read(nested)[1] == "WITH b AS (SELECT 1) , c AS (SELECT 2) SELECT * FROM `C`"
    assert read("SELECT * FROM (WITH c AS (SELECT 2) SELECT * FROM c) JOIN c MR")[0] == ("c",)
    # The inner one first.
    assert read("SELECT * FROM (SELECT * FROM a MR) MATCH_RECOGNIZE (...)")[0] == ("a",)
    assert find_match("SELECT match_recognize FROM t -- MATCH_RECOGNIZE (") is None


REFUSED = {
    "FROM a MATCH_RECOGNIZE (PARTITION BY k)": "line 2, column 39: MATCH_RECOGNIZE: expected ORDER BY and the event-time",
    "FROM a MATCH_RECOGNIZE (PARTITION BY k.x ORDER BY ts)": "column 38: MATCH_RECOGNIZE: write only the name of a column",
    "FROM a MATCH_RECOGNIZE (ORDER BY ts, k NULLS LAST)": "column 40: MATCH_RECOGNIZE: ORDER BY always treats nulls as the smallest",
    "FROM a MATCH_RECOGNIZE (ORDER BY ts DESC)": "ORDER BY must begin with the event time, ascending",
    "FROM a MATCH_RECOGNIZE (ORDER BY ts PATTERN (A))": "column 37: MATCH_RECOGNIZE: expected MEASURES and at least",
    "FROM a MATCH_RECOGNIZE (ORDER BY ts MEASURES A.x PATTERN (A))": "expected a name for A.x: A.x AS name",
    "FROM a MATCH_RECOGNIZE (ORDER BY ts MEASURES x AS x, 1 AS X PATTERN (A))": "X occurs twice; omit one of them",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x ALL ROWS PER MATCH WITH EMPTY MATCHES)": "expected PATTERN",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x AFTER MATCH SKIP B)": "column 69: .*expected PAST LAST ROW or",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN A)": r"expected PATTERN \(...\); found 'A'",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN ())": r"PATTERN \(\) has no symbol",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN (A\n (B | )))": r"line 3, column 7: PATTERN: expected a symb",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN (A) WITHIN)": "expected an interval: WITHIN INTERVAL",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN (A) SUBSET U = A)": "expected symbols in brackets: U",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN (A) DEFINE A x > 1)": "expected AS and the condition of",
    "FROM a MATCH_RECOGNIZE (ORDER BY t MEASURES x AS x PATTERN (A) DEFINE A AS x ALL ROWS PER MATCH)": "have an order",
    "FROM f(x) MATCH_RECOGNIZE (ORDER BY t)": "line 2, column 6: MATCH_RECOGNIZE must follow a stream, a table or a",
    ", MATCH_RECOGNIZE (ORDER BY t)": "line 2, column 3: MATCH_RECOGNIZE must follow a stream",
    "FROM (a MATCH_RECOGNIZE (ORDER BY t)": r"line 2, column 6: this \( is not closed",
    "FROM a MATCH_RECOGNIZE (ORDER BY t))": r"line 2, column 36: this \) has no \(",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_said_with_its_place(text: str) -> None:
    with pytest.raises(OptionError, match=f"^sql: .*{REFUSED[text]}"):
        find_match(f"SELECT x\n{text}")


def test_messages_about_options_are_about_the_text() -> None:
    found = find_match(f"SELECT *\nFROM t MATCH_RECOGNIZE (PARTITION BY k {CLAUSE})")
    assert found is not None
    placed = found.clause.placed
    assert placed("define['B']='x > 1': nothing") == "sql: line 2, column 101: DEFINE B: nothing"
    assert placed("key='k': no such column") == "sql: line 2, column 38: PARTITION BY 'k': no such column"
    assert placed("time='ts': no = sign") == "sql: line 2, column 49: ORDER BY ts: no = sign"
    assert placed("within=None: for ever") == "sql: line 2, column 84: WITHIN: for ever"
    assert placed("lateness=3: no") == "sql: MATCH_RECOGNIZE: lateness=3: no"


def test_functions_of_rows_with_numbers_and_no_measures() -> None:
    clause = "ORDER BY ts {} PATTERN (A B) DEFINE B AS x > PREV(LAST(A.x, 1), 2), A AS NEXT(x, 2) > 1"
    found = find_match(f"SELECT * FROM a MATCH_RECOGNIZE ({clause.format('ALL ROWS PER MATCH')})")
    assert found is not None
    assert found.clause.options["measures"] == {}
    assert found.clause.options["define"] == {"B": "x > PREV(LAST(A.x, 1), 2)", "A": "NEXT(x, 2) > 1"}
    found = find_match(f"SELECT * FROM a MATCH_RECOGNIZE ({clause.format('MEASURES MATCH_NUMBER() AS n, x AS y')})")
    assert found is not None
    assert found.clause.options["measures"] == {"n": "MATCH_NUMBER()", "y": "x"}
