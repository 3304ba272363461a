"""Which joins of three and more streams are one join of many: a common key, and every two times alike."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from braided.expressions.dialect import Braided
from braided.sqltext.common import find_common
from braided.sqltext.conditions import Bound
from braided.sqltext.cut import cut_select
from braided.sqltext.joins import Source

KINDS = {"k": "string", "j": "string", "ts": "timestamp", "u": "timestamp", "n": "int"}
KEYS = "a.k = b.k AND c.k = b.k"


def near(one: str, other: str, seconds: int = 5) -> str:
    return f"{one}.ts BETWEEN {other}.ts - INTERVAL {seconds} SECONDS AND {other}.ts + INTERVAL {seconds} SECONDS"


ALL = f"{near('a', 'b')} AND {near('b', 'c')} AND {near('c', 'a')}"


def value(each: Bound) -> int:
    """Return the value of constants, which Spark evaluates otherwise."""
    return sum(sign * int(constant.this.name) for sign, constant in each.constants)


def read(condition: str) -> tuple[tuple[tuple[str, ...], ...], int | None, list[str]] | None:
    text = f"SELECT a.n FROM s AS a JOIN s AS b JOIN s AS c WHERE {condition}"
    select = sqlglot.parse_one(text, dialect=Braided)
    assert isinstance(select, exp.Select)
    sources = {alias: Source(alias, select, KINDS, True) for alias in "abc"}
    cut = cut_select(select, sources)
    assert cut is not None
    found = find_common(cut, sources)
    return None if found is None else (found.keys, found.within(value), [part.sql() for part in found.rest])


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (f"{KEYS} AND {ALL}", ((("k", "k", "k"),), 5, [])),
        (f"a.k = b.k AND a.k = c.k AND b.k = c.k AND {ALL}", ((("k", "k", "k"),), 5, [])),
        (f"{KEYS} AND {ALL} AND a.n < c.n AND a.j = b.j", ((("k", "k", "k"),), 5, ["a.n < c.n", "a.j = b.j"])),
        (f"a.k = b.j AND b.j = c.k AND {ALL}", ((("k", "j", "k"),), 5, [])),
        # A chain lets the ends be further apart; two windows are not one; a window on one side is none.
        (f"{KEYS} AND {near('a', 'b')} AND {near('b', 'c')}", ((("k", "k", "k"),), None, [])),
        (f"{KEYS} AND {near('a', 'b')} AND {near('b', 'c')} AND {near('c', 'a', 6)}", ((("k", "k", "k"),), None, [])),
        (f"{KEYS} AND {ALL} AND a.ts <= b.ts", ((("k", "k", "k"),), None, [])),
        # No key that all have; another time.
        (f"a.k = b.k AND b.j = c.j AND {ALL}", None),
        (f"{KEYS} AND {near('a', 'b')} AND {near('c', 'b').replace('b.ts', 'b.u')}", None),
    ],
)
def test_streams_that_share_a_key_and_a_window(condition: str, wanted: object) -> None:
    assert read(condition) == wanted
