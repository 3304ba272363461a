"""Bounds that are columns: hints cap them, and say which column is the time."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.dialect import Braided
from braided.sqltext.cut import cut_select
from braided.sqltext.joins import Cut, Source

KINDS = {"k": "string", "ts": "timestamp", "expires": "timestamp", "n": "int"}
HOUR = 3_600_000_000


def read(hints: str, condition: str, marked: frozenset[str] = frozenset(), cap: int | None = None) -> Cut:
    text = f"SELECT {hints and f'/*+ {hints} */'} a.n FROM s AS a JOIN s AS b ON a.k = b.k AND {condition}"
    select = sqlglot.parse_one(text, dialect=Braided)
    assert isinstance(select, exp.Select)
    found = cut_select(select, {alias: Source(alias, select, KINDS, True, marked) for alias in "ab"}, cap=cap)
    assert found is not None
    return found


CAP, TIME = "BRAIDED('b', 'cap=1 hour')", "BRAIDED('a', 'time=ts')"
EXPIRES = (
    "b.ts BETWEEN a.ts AND a.expires",
    "b.ts <= a.expires AND b.ts >= a.ts",
    "a.expires >= b.ts AND a.ts <= b.ts",
)


@pytest.mark.parametrize("condition", EXPIRES)
@pytest.mark.parametrize(("hints", "marked"), [(f"{CAP}, {TIME}", frozenset()), (CAP, frozenset({"ts"}))])
def test_a_cap_bounds_the_named_time_whatever_the_order(condition: str, hints: str, marked: frozenset[str]) -> None:
    found = read(hints, condition, marked)
    [step] = found.steps
    assert [time.name for time in step.times] == ["ts", "ts"]
    [assumed] = [each for each in step.bounds if each.assumed]
    assert assumed.constants[0][1].this.name == str(HOUR)
    assert any("expires" in part.sql() for part in step.rest), "what the text says stays a condition"
    assert "at most 1 hour apart" in found.capped[0]


def test_one_comparison_needs_no_name() -> None:
    [step] = read(CAP, "b.ts >= a.ts").steps
    assert [(each.op, each.assumed) for each in step.bounds] == [(exp.GTE, False), (exp.LTE, True)]
    [step] = read("BRAIDED('a', 'CAP = 1 hour')", "b.ts < a.ts").steps
    assert [(each.op, each.constants and each.constants[0][0]) for each in step.bounds] == [(exp.LT, ()), (exp.GTE, -1)]


def test_a_cap_for_all_joins_is_for_those_that_need_one_and_have_no_hint() -> None:
    found = read("", "b.ts >= a.ts", cap=2 * HOUR)
    assert [each.constants and each.constants[0][1].this.name for each in found.steps[0].bounds] == [(), str(2 * HOUR)]
    assert found.capped == ["by its cap=, b.ts and a.ts are at most 2 hours apart"]
    assert read(CAP, "b.ts >= a.ts", cap=2 * HOUR).capped == ["by its hint, b.ts and a.ts are at most 1 hour apart"]
    assert read("", "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND", cap=HOUR).capped == []
    with pytest.raises(OptionError, match=r"the cap may be for a\.ts or for a\.expires; .* or set a watermark on it"):
        read("", EXPIRES[0], cap=HOUR)
    assert read("", EXPIRES[0], frozenset({"ts"}), cap=HOUR).capped


@pytest.mark.parametrize(
    ("hints", "condition", "message"),
    [
        (CAP, EXPIRES[0], r"the cap may be for a\.ts or for a\.expires; .* BRAIDED\('a', 'time=ts'\)"),
        (
            CAP,
            "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND",
            "no join of b has a bound on one side only; omit the hint",
        ),
        (CAP, "a.n < b.n", "the time of b has no bounds on both sides"),
        ("BRAIDED('b', 'cap=-1 hour')", "b.ts >= a.ts", "negative; write '0 seconds' or more|not a duration"),
        ("BRAIDED('z', 'cap=1 hour')", "b.ts >= a.ts", r"no stream has this alias; use one of a, b"),
        (f"{CAP}, BRAIDED('a', 'time=n')", EXPIRES[0], "a has no such time"),
    ],
)
def test_a_cap_that_cannot_be_says_why(hints: str, condition: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(hints, condition)
