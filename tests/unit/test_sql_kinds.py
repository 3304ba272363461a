"""Joins of other kinds in a text: which condition goes where, and what is refused by name and place."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from braided.errors import OptionError
from braided.expressions.dialect import Braided
from braided.sqltext.asof import place_matches, take_asof
from braided.sqltext.cut import cut_select
from braided.sqltext.joins import Cut, Match, Source
from braided.sqltext.shared_columns import keep_shared
from braided.sqltext.subqueries import join_subqueries

TYPES = {"k": "int", "j": "int", "ts": "timestamp", "x": "int", "g": "string"}
STREAMS = {"a", "b", "c"}
TABLES = (*sorted(STREAMS), "t")


def cut_of(text: str, marked: frozenset[str] = frozenset()) -> tuple[Cut, str]:
    """Return how the last SELECT of a text is cut, and what is left of the text."""
    plain, clauses = take_asof(text)
    schema = dict.fromkeys(TABLES, TYPES)
    tree = sqlglot.parse_one(plain, dialect=Braided)
    tree = qualify(tree, schema=schema, dialect=Braided, validate_qualify_columns=False)
    keep_shared(tree)
    join_subqueries(tree, STREAMS)
    matches = place_matches(tree, clauses)
    cuts = []
    for scope in traverse_scope(tree):
        nodes = {alias: node for alias, node in scope.references if alias in scope.sources}
        sources = {
            alias: Source(alias, node, TYPES, not (isinstance(node, exp.Table) and node.name == "t"), marked)
            for alias, node in nodes.items()
        }
        cuts.append(cut_select(scope.expression, sources, matches))
    assert cuts[-1] is not None
    return cuts[-1], tree.sql(dialect=Braided).replace("`", "")


def texts(parts: list[exp.Expression]) -> list[str]:
    return [part.sql().replace('"', "") for part in parts]


AB = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS"
BC = "b.k = c.k AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 10 SECONDS"
AC = "a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS"
ONE_SIDED = f"ON {AB} AND a.x > 1 AND b.x > 2 AND a.x < b.x WHERE a.x = 3 AND b.x = 4"

# What the join evaluates, what filters a and b before it, and what Spark evaluates on the result.
PLACES = {
    "JOIN": (["a.x < b.x"], ["a.x > 1", "a.x = 3"], ["b.x > 2", "b.x = 4"], None),
    "LEFT JOIN": (["a.x > 1", "b.x > 2", "a.x < b.x"], ["a.x = 3"], [], "b.x = 4"),
    "RIGHT OUTER JOIN": (["a.x > 1", "b.x > 2", "a.x < b.x"], [], ["b.x = 4"], "a.x = 3"),
    "FULL JOIN": (["a.x > 1", "b.x > 2", "a.x < b.x"], [], [], "a.x = 3 AND b.x = 4"),
    "LEFT SEMI JOIN": (["a.x > 1", "a.x < b.x"], ["a.x = 3"], ["b.x > 2"], None),
    "ANTI JOIN": (["a.x > 1", "b.x > 2", "a.x < b.x"], ["a.x = 3"], [], None),
}


@pytest.mark.parametrize("kind", PLACES)
def test_conditions_of_on_and_of_where_have_their_places(kind: str) -> None:
    text = f"SELECT a.x FROM a {kind} b {ONE_SIDED}"
    if "SEMI" in kind or "ANTI" in kind:
        text = text.replace(" AND b.x = 4", "")
    cut, left = cut_of(text)
    [step] = cut.steps
    where = left.partition(" WHERE ")[2] or None
    assert (texts(step.rest), texts(cut.filters["a"]), texts(cut.filters["b"]), where) == PLACES[kind]


def test_a_filter_goes_down_past_joins_that_keep_it_and_no_further() -> None:
    cut, left = cut_of(f"SELECT a.x FROM a JOIN b ON {AB} LEFT JOIN c ON {BC} WHERE a.x = 1 AND a.x < b.x AND c.x = 3")
    assert [step.how for step in cut.steps] == ["inner", "left"]
    assert (texts(cut.steps[0].rest), texts(cut.filters["a"]), texts(cut.steps[1].rest)) == (
        ["a.x < b.x"],
        ["a.x = 1"],
        [],
    )
    assert left.endswith("WHERE c.x = 3")
    cut, left = cut_of(f"SELECT a.x FROM a LEFT JOIN b ON {AB} JOIN c ON {AC} AND a.x < b.x WHERE b.x = 2 AND c.x = 1")
    assert (texts(cut.steps[1].rest), texts(cut.filters["c"])) == (["a.x < b.x", "b.x = 2"], ["c.x = 1"])
    assert "WHERE" not in left
    # Rows of c that match nothing have nulls for a: a condition on a before the join would keep them.
    cut, left = cut_of(f"SELECT a.x FROM a JOIN b ON {AB} RIGHT JOIN c ON {BC} WHERE a.x = 1 AND c.x = 3")
    assert (cut.filters["a"], texts(cut.filters["c"])) == ([], ["c.x = 3"])
    assert left.endswith("WHERE a.x = 1")


def test_a_condition_on_a_time_with_a_watermark_is_no_filter_of_the_other_stream() -> None:
    """Spark's watermark would go on while the clock, and the rows that wait for it, stand still."""
    text = f"SELECT a.x FROM a LEFT SEMI JOIN b ON {AB} AND hour(b.ts) > 8"
    assert texts(cut_of(text)[0].filters["b"]) == ["HOUR(b.ts) > 8"]
    cut, _ = cut_of(text, marked=frozenset({"ts"}))
    assert (cut.filters["b"], texts(cut.steps[0].rest)) == ([], ["HOUR(b.ts) > 8"])


SUBQUERIES = {
    f"SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {AB} AND b.x = 3)": ("left_semi", "b"),
    f"SELECT * FROM a WHERE a.x = 1 AND NOT EXISTS (SELECT DISTINCT g FROM b WHERE {AB} AND b.x = 3)": ("left_anti", "b"),
    f"SELECT * FROM a WHERE NOT (NOT EXISTS (SELECT 1 FROM b WHERE {AB} AND b.x = 3))": ("left_semi", "b"),
    "SELECT * FROM a WHERE k IN (SELECT k FROM b WHERE b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS AND x = 3)": ("left_semi", "b"),
    # Inside, the name of the outer input means the inner one.
    "SELECT * FROM a JOIN b AS b ON a.k = b.k AND a.ts = b.ts WHERE EXISTS (SELECT 1 FROM c AS b WHERE b.k = a.k AND b.ts = a.ts AND b.x = 3)": ("left_semi", "b_1"),
    "SELECT * FROM a WHERE k IN (SELECT k FROM c AS a WHERE a.ts = a.ts AND a.x = 3)": None,
}  # fmt: skip


@pytest.mark.parametrize("text", SUBQUERIES)
def test_subqueries_over_streams_are_joins(text: str) -> None:
    wanted = SUBQUERIES[text]
    if wanted is None:
        with pytest.raises(OptionError, match="the time of a_1 has no bounds on both sides with that of a"):
            cut_of(text)
        return
    cut, left = cut_of(text)
    step = cut.steps[-1]
    assert (step.how, step.right) == wanted
    assert [(one.sql(), other.sql()) for one, other in step.keys] == [('"a"."k"', f'"{step.right}"."k"')]
    # Rows of an anti join wait for the clock of the other stream, which a filter would hold back.
    of_other = step.rest if step.how == "left_anti" else cut.filters[step.right]
    assert texts(of_other) == [f"{step.right}.x = 3"]
    assert "EXISTS" not in left


def test_several_columns_in_a_subquery_are_several_keys() -> None:
    text = "SELECT x FROM a WHERE (k, j) IN (SELECT j, k FROM b WHERE b.ts = a.ts)"
    keys = cut_of(text)[0].steps[0].keys
    assert [(one.name, other.name) for one, other in keys] == [("k", "j"), ("j", "k")]


def test_subqueries_over_tables_are_left_to_spark() -> None:
    cut, left = cut_of(f"SELECT a.x FROM a JOIN b ON {AB} WHERE a.k NOT IN (SELECT k FROM t)")
    assert [step.how for step in cut.steps] == ["inner"]
    assert "NOT a.k IN (SELECT t.k AS k FROM t AS t)" in left


def test_columns_of_using_are_those_of_the_row_that_is_there() -> None:
    bounds = "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND"
    for kind, shown in (("LEFT", "a.k"), ("RIGHT", "b.k"), ("FULL", "COALESCE(a.k, b.k)")):
        tree = sqlglot.parse_one(f"SELECT k FROM a {kind} JOIN b USING (k) WHERE {bounds}", dialect=Braided)
        tree = qualify(tree, schema=dict.fromkeys(TABLES, TYPES), dialect=Braided)
        keep_shared(tree)
        assert tree.sql(dialect=Braided).replace("`", "").startswith(f"SELECT {shown} AS k FROM a")


ASOF = {
    "ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k": ("inner", Match("backward", True), 0),
    "LEFT ASOF JOIN b MATCH_CONDITION (b.ts < a.ts) USING (k)": ("left", Match("backward", False), 0),
    "ASOF LEFT OUTER JOIN b MATCH_CONDITION (b.ts >= a.ts) ON a.k = b.k AND b.ts < a.ts + INTERVAL 5 SECONDS": ("left", Match("forward", True), 1),
    "INNER ASOF JOIN (SELECT k, x, ts FROM c JOIN t USING (k)) b MATCH_CONDITION (a.ts < b.ts AND b.ts - a.ts <= INTERVAL 1 HOUR) ON a.k = b.k": ("inner", Match("forward", False), 1),
}  # fmt: skip


@pytest.mark.parametrize("join", ASOF)
def test_asof_joins_are_read(join: str) -> None:
    cut, left = cut_of(
        f"SELECT a.x, b.x AS y FROM a {join} WHERE a.x > 2 AND b.x > 3".replace("c JOIN t USING (k)", "c")
    )
    [step] = cut.steps
    assert (step.how, step.match, len(step.bounds)) == ASOF[join]
    assert [(one.sql(), other.sql()) for one, other in step.keys] == [('"a"."k"', '"b"."k"')]
    # The closest row is chosen before WHERE looks at it.
    assert (texts(cut.filters["a"]), cut.filters["b"]) == (["a.x > 2"], [])
    assert left.endswith("WHERE b.x > 3")


def test_the_text_around_an_asof_join_stays_in_place() -> None:
    text = "SELECT asof FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts)\nON a.k = b.k"
    plain, [clause] = take_asof(text)
    assert plain == "SELECT asof FROM a LEFT      JOIN b                               \nON a.k = b.k"
    assert clause.place == "line 1, column 37"


def test_a_tolerance_comes_from_a_hint() -> None:
    cut, _ = cut_of(
        "SELECT /*+ BRAIDED('b', 'tolerance=5 seconds') */ a.x FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k"
    )
    [bound] = cut.steps[0].bounds
    assert (bound.plus.table, bound.op, bound.assumed) == ("b", exp.GTE, True)


BAD = {
    f"a LEFT JOIN (b JOIN c ON {BC}) ON {AB}": r"line 1, column 30: a join inside a join is not supported; write it as a subquery",
    f"a JOIN b LEFT JOIN c ON {BC} ON {AB}": r"line 1, column \d+: a join inside a join is not supported",
    "a LEFT JOIN b ON b.ts = a.ts": r"line 1, column 29: a LEFT JOIN of streams needs a key: an equality of columns such as a\.k = b\.k",
    "a LEFT JOIN b ON a.k = b.k WHERE b.ts = a.ts": r"line 1, column 29: the time of b has no bounds on both sides with that of a",
    f"a LEFT JOIN b ON {AB} AND a.x = (SELECT max(x) FROM t)": r"line 1, column \d+: .* in the condition of a LEFT JOIN does not only read its streams",
    f"a JOIN t ON a.k = t.k RIGHT JOIN b ON {AB}": r"a RIGHT JOIN of streams after a join with a table is not supported",
    f"a JOIN b ON {AB} FULL JOIN t ON a.k = t.k": r"a FULL JOIN with a table, together with joins of streams, is not supported",
    f"t JOIN a ON a.k = t.k LEFT JOIN b ON {AB}": r"must start with a stream; write the table t after the streams",
    "a WHERE k NOT IN (SELECT k FROM b WHERE b.ts = a.ts)": r"line 1, column \d+: NOT IN over a stream is not supported, because a single null .*; write NOT EXISTS",
    f"a WHERE a.x = 1 OR EXISTS (SELECT 1 FROM b WHERE {AB})": r"EXISTS over a stream is supported only as a condition of WHERE, alone or with AND",
    f"a WHERE EXISTS (SELECT count(*) FROM b WHERE {AB})": r"EXISTS over a stream needs a plain subquery",
    f"a WHERE EXISTS (SELECT 1 FROM b JOIN c ON {BC} WHERE {AB})": r"EXISTS over a stream needs a plain subquery",
    "a ASOF JOIN b ON a.k = b.k": r"line 1, column 24: an ASOF JOIN needs a MATCH_CONDITION",
    "a RIGHT ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k": r"line 1, column 25: a RIGHT ASOF JOIN is not supported",
    "a ASOF JOIN b MATCH_CONDITION (a.ts = b.ts) ON a.k = b.k": r"line 1, column \d+: MATCH_CONDITION \(a\.ts = b\.ts\) must compare the time of b",
    "a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts + INTERVAL 1 SECOND) ON a.k = b.k": r"must compare the time of b with that of a by >=",
    "a ASOF JOIN b MATCH_CONDITION (ts >= b.ts) ON a.k = b.k": r"MATCH_CONDITION: ts is a column of several inputs; write its table before it",
    "a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k AND a.x < b.x": r"the condition of an ASOF JOIN can only have equalities of columns and a bound on the two times",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused_says_where_and_what_to_write(text: str) -> None:
    with pytest.raises(OptionError, match=BAD[text]):
        cut_of(f"SELECT a.k FROM {text}")


@pytest.mark.parametrize("marked", [False, True])
def test_an_equality_of_times_is_a_key_if_other_times_have_bounds(
    marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TYPES, "day", "timestamp")
    equal, near = "a.ts = b.ts", "b.day BETWEEN a.day AND a.day + INTERVAL 1 DAY"
    for condition in (f"{equal} AND {near}", f"{near} AND {equal}"):
        cut, _ = cut_of(f"SELECT a.x FROM a JOIN b ON {condition}", frozenset({"ts"}) if marked else frozenset())
        (step,) = cut.steps
        # A watermark decides which columns are the times of the streams.
        assert [time.name for time in step.times] == (["ts", "ts"] if marked else ["day", "day"])
        assert [(one.name, other.name) for one, other in step.keys] == ([] if marked else [("ts", "ts")])


def test_a_computed_column_is_no_time() -> None:
    source = Source(
        "a", exp.to_table("a"), {"ts": "timestamp", "key0": "timestamp"}, True, computed=frozenset({"key0"})
    )
    assert (source.is_time("ts"), source.is_time("key0")) == (True, False)
