"""The aggregate of a SELECT as a node over its join, and the SELECT as it reads that node's columns."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from braided.expressions.dialect import Braided
from braided.plan.nodes import Aggregate
from braided.plan.nodes import Source as SourceNode
from braided.plan.optimiser import NotApplied
from braided.plan.values import parse_value
from braided.sqltext.aggregate import aggregate_of
from braided.sqltext.joins import Cut, Source

TYPES = {"k": "bigint", "ts": "timestamp", "x": "int", "g": "string"}
GROUP = "FROM a GROUP BY window(a.ts, '1 minute', '10 seconds')"


def _read(text: str) -> tuple[Aggregate, str]:
    """Return the aggregate of a SELECT over the streams a and b, and what is left of the text."""
    select = sqlglot.parse_one(text, dialect=Braided)
    assert isinstance(select, exp.Select)
    sources = {alias: Source(alias, exp.to_table(alias), TYPES, True) for alias in "ab"}
    cut = Cut("a", [], {}, {alias: list(TYPES) for alias in "ab"})
    names = {(alias, name): f"{alias}__{name}" for alias in "ab" for name in TYPES}
    known = {"my_total": True, "upper": False}
    node, reader = aggregate_of(select, cut, sources, names, known.get, SourceNode(0, ()))
    reader.read("v")
    return node, select.sql(dialect=Braided).replace("`", "")


def test_aggregates_windows_and_groups_become_columns() -> None:
    node, text = _read(
        f"SELECT window(a.ts, '1 minute', '10 seconds').start AS s, UPPER(b.g) AS g, SUM(a.x) + COUNT(*) AS n {GROUP}, UPPER(b.g) HAVING COUNT(*) > 1"
    )
    assert node.by == (("k0", "UPPER(`b__g`)"),)
    assert (node.time, node.size, node.slide, node.offset) == ("a__ts", 60_000_000, 10_000_000, 0)
    assert node.values == (("a0", "SUM(`a__x`)"), ("a1", "COUNT(*)"))
    assert text == "SELECT v.window.start AS s, v.k0 AS g, v.a0 + v.a1 AS n FROM a WHERE v.a1 > 1"


def test_a_window_may_begin_elsewhere() -> None:
    node, _ = _read("SELECT COUNT(*) FROM a GROUP BY window(a.ts, '1 minute', '20 seconds', '5 seconds')")
    assert (node.size, node.slide, node.offset) == (60_000_000, 20_000_000, 5_000_000)
    assert node.describe().startswith("Aggregate a__ts in windows of 1 minute every 20 seconds from 5 seconds: ")


def test_a_filter_belongs_to_its_aggregate_and_equal_ones_are_one() -> None:
    node, text = _read(f"SELECT SUM(a.x) FILTER (WHERE b.x > 3) AS s, SUM(a.x) AS t, SUM(a.x) AS u, a.k {GROUP}, a.k")
    name = {text: name for name, text in node.values}
    plain, some = name["SUM(`a__x`)"], name["SUM(`a__x`) FILTER(WHERE `b__x` > 3)"]
    assert len(name) == 2
    assert node.by == (("k0", "a__k"),)
    assert text == f"SELECT v.{some} AS s, v.{plain} AS t, v.{plain} AS u, v.k0 FROM a"


def test_group_by_all_groups_by_what_is_not_aggregated() -> None:
    node, text = _read("SELECT window(a.ts, '1 minute') AS w, a.k, COUNT(*) AS n, a.k AS again FROM a GROUP BY ALL")
    assert node.by == (("k0", "a__k"),)
    assert (node.time, node.size) == ("a__ts", 60_000_000)
    assert text == "SELECT v.window AS w, v.k0, v.a0 AS n, v.k0 AS again FROM a"


def test_second_names_of_aggregates_merge_too() -> None:
    node, _ = _read(f"SELECT MEAN(a.x), COUNT_IF(a.x > 3), EVERY(a.x > 1) {GROUP}")
    found = [parse_value(name, text) for name, text in node.values]
    assert [(value.kind, value.of if isinstance(value.of, str) else value.of.sql()) for value in found if value.of] == [
        ("avg", "a__x"),
        ("count", 'CASE WHEN "a__x" > 3 THEN 1 END'),
        ("bool_and", '"a__x" > 1'),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT a.x FROM a", "it is in another SELECT than the join"),
        ("SELECT COUNT(*) FROM a GROUP BY a.k", "it does not group by one window"),
        (f"SELECT DISTINCT COUNT(*) {GROUP}", "its groups are not plain"),
        ("SELECT window(a.ts, '1 minute'), my_total(a.x) FROM a GROUP BY ALL", "it has no aggregate function"),
        (
            "SELECT window(a.ts, '1 minute'), a.x + COUNT(*) FROM a GROUP BY ALL",
            "a.x is neither grouped nor aggregated",
        ),
        (f"SELECT COUNT(*) {GROUP}, t.k", "it does not only group by columns of streams"),
        (f"SELECT a.x, COUNT(*) {GROUP}", "a.x is neither grouped nor aggregated"),
        (f"SELECT a.k {GROUP}, a.k", "it has no aggregate function"),
        (f"SELECT COUNT(*), my_total(a.x) {GROUP}", "partial results of MY_TOTAL(a.x) cannot be merged"),
        (
            f"SELECT SUM(a.x) OVER (PARTITION BY a.k) {GROUP}",
            "SUM(a.x) OVER (PARTITION BY a.k) is not a plain aggregate",
        ),
        (f"SELECT window(b.ts, '1 minute').start, COUNT(*) {GROUP}", "it has several windows"),
        ("SELECT COUNT(*) FROM a GROUP BY window(a.ts, '1 month')", "month"),
        ("SELECT COUNT(*) FROM a WHERE a.x > 1 GROUP BY window(a.ts, '1 minute')", "Spark between join and aggregate"),
    ],
)
def test_what_is_more_than_the_node_can_say_stays_sparks(text: str, reason: str) -> None:
    with pytest.raises(NotApplied) as raised:
        _read(text)
    assert reason in str(raised.value)
