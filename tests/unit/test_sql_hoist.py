"""What an aggregate computes of one stream becomes a column of it, wherever the text has it."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from braided.sqltext.dialect import Braided
from braided.sqltext.hoist import hoist

GROUP = "FROM a JOIN b GROUP BY window(a.ts, '1 minute')"


def _hoisted(text: str, refused: str = "") -> tuple[str, list[str]]:
    select = sqlglot.parse_one(text, dialect=Braided)
    assert isinstance(select, exp.Select)
    made: list[str] = []

    def column_of(alias: str, expression: exp.Expression) -> str | None:
        text = f"{alias}: {expression.sql(dialect=Braided)}"
        if refused and refused in text:
            return None
        made.append(text)
        return f"e{len(made) - 1}"

    hoist(select, ["a", "b"], column_of)
    return select.sql(dialect=Braided).replace("`", ""), made


@pytest.mark.parametrize(
    ("text", "wanted", "made"),
    [
        (f"SELECT SUM(a.x * 2) {GROUP}", "SUM(a.e0)", ["a: a.x * 2"]),
        (f"SELECT COUNT(*) FILTER (WHERE b.n > 3) {GROUP}", "COUNT(b.e0)", ["b: CASE WHEN b.n > 3 THEN 1 END"]),
        (f"SELECT MAX(7) FILTER (WHERE b.n > 3) {GROUP}", "MAX(b.e0)", ["b: CASE WHEN b.n > 3 THEN 7 END"]),
        (f"SELECT UPPER(a.g) AS g, COUNT(*) {GROUP}, UPPER(a.g)", "SELECT a.e0 AS g, COUNT(*)", ["a: UPPER(a.g)"]),
        (f"SELECT SUM(a.x + 1), MIN(a.x + 1) {GROUP}", "SUM(a.e0), MIN(a.e0)", ["a: a.x + 1"]),
    ],
)
def test_one_stream_gets_a_column(text: str, wanted: str, made: list[str]) -> None:
    found, columns = _hoisted(text)
    assert wanted in found
    assert columns == made


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT SUM(a.x * b.x) {GROUP}",
        f"SELECT COUNT(*) FILTER (WHERE a.n > b.n) {GROUP}",
        f"SELECT FIRST(a.x) FILTER (WHERE a.n > 1) {GROUP}",
        f"SELECT COUNT(DISTINCT a.x + 1) {GROUP}",
        f"SELECT STDDEV(a.x + 1) {GROUP}",
        f"SELECT SUM(t.x + 1) {GROUP}",
        f"SELECT SUM(a.x + 1) OVER (PARTITION BY a.k) {GROUP}",
        "SELECT COUNT(*) FROM a JOIN b GROUP BY SESSION_WINDOW(a.ts, '1 minute')",
        "SELECT SUM(a.x + 1) FROM a JOIN b",
        f"SELECT COUNT(*), (SELECT SUM(a.x + 1) FROM a) {GROUP}",
    ],
)
def test_the_rest_stays_as_it_is(text: str) -> None:
    before = sqlglot.parse_one(text, dialect=Braided).sql(dialect=Braided)
    assert _hoisted(text) == (before.replace("`", ""), [])


def test_what_may_fail_stays() -> None:
    found, made = _hoisted(f"SELECT SUM(a.x + 1), SUM(b.y * 2D) {GROUP}", refused="a.x + 1")
    assert "SUM(a.x + 1)" in found
    assert len(made) == 1
