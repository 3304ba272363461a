"""Row patterns of other engines' suites, as data: each in three cuts, or refused for a reason (docs/reference/conformance.md)."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.suites import flink_patterns, trino_pattern_aggregates, trino_patterns
from support.suites.pattern_case import PatternCase, PatternDifference, PatternRefusal, PatternText

from braided import local
from braided.errors import OptionError
from braided.sqltext.matches import find_match

CASES: list[PatternCase] = [*trino_patterns.CASES, *trino_pattern_aggregates.CASES, *flink_patterns.CASES]
REFUSALS: list[PatternRefusal] = [
    *trino_patterns.REFUSALS,
    *trino_pattern_aggregates.REFUSALS,
    *flink_patterns.REFUSALS,
]
DIFFERENCES = [*trino_patterns.DIFFERENCES, *flink_patterns.DIFFERENCES]
CUTS = {"one batch": 10_000, "a row per batch": 1, "shuffled": 3}
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def table(columns: Any, rows: Any) -> pa.Table:
    """Return rows with the first of their columns as a time, and the number of their arrival."""
    held = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
    arrays = {
        name: pa.array(column, None if any(value is not None for value in column) else pa.int64())
        for name, column in held.items()
    }
    arrays["ts"] = pa.array([round(float(row[0]) * 1_000_000) for row in rows], pa.timestamp("us"))
    arrays["at"] = pa.array(range(len(rows)), pa.int64())
    return pa.table(arrays)


def options(text: PatternText) -> dict[str, Any]:
    """Return what the clause says, in the words of `braided.match`."""
    found = find_match(text.clause())
    assert found is not None
    return {**found.clause.options, "within": text.within.replace("'", "").lower()}


def run(case: PatternCase, cut: str) -> pa.Table:
    rows = list(case.rows)
    if cut == "shuffled":
        random.Random(case.name).shuffle(rows)
    elif cut == "a row per batch":
        rows.sort(key=lambda row: float(row[0]))
    given = options(case.text)
    return local.match(
        table(case.columns, rows), arrival="at", batch_rows=CUTS[cut], lateness="1 hour" if cut == "shuffled" else "1 ms",
        **given,
    ).table  # fmt: skip


def found(case: PatternCase, result: pa.Table) -> Counter[Any]:
    names = [name for name in result.column_names if name not in ("at", "ts")] if case.shown == ["*"] else case.shown
    return counted(tuple(row[name] for name in names) for row in result.to_pylist())


def counted(rows: Any) -> Counter[Any]:
    return Counter(tuple(tuple(value) if isinstance(value, list) else value for value in row) for row in rows)


def check(case: PatternCase, cut: str) -> None:
    assert found(case, run(case, cut)) == counted(case.wanted)


def name_of(case: Any) -> str:
    return f"{case.suite}: {case.name}"


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_case_gives_the_rows_of_its_suite(case: PatternCase, cut: str) -> None:
    check(case, cut)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: name_of(each.case))
def test_a_case_differs_as_the_page_says(difference: PatternDifference, cut: str) -> None:
    check(difference.case, cut)
    assert f"`{difference.case.name}`" in PAGE.read_text()


@pytest.mark.parametrize("refusal", REFUSALS, ids=name_of)
def test_a_case_is_refused_with_the_reason(refusal: PatternRefusal) -> None:
    assert f"`{refusal.name}`" in PAGE.read_text()
    if refusal.text is None:
        return
    with pytest.raises(OptionError, match=re.escape(refusal.message)):
        local.match(table(refusal.columns, [(1, 1)]), **options(refusal.text))


@pytest.mark.parametrize(("case", "message"), trino_patterns.FAILURES, ids=["SKIP TO A", "SKIP TO D"])
def test_what_fails_in_the_suite_is_refused(case: PatternCase, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run(case, "one batch")


def test_the_page_has_the_number_of_cases() -> None:
    for suite in {case.suite for case in CASES}:
        passed = sum(case.suite == suite for case in [*CASES, *(case for case, _ in trino_patterns.FAILURES)])
        refused, other = (
            sum(each.suite == suite for each in some) for some in (REFUSALS, [d.case for d in DIFFERENCES])
        )
        lines = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{suite}` |")]
        assert any(f"| {passed} | {refused} | {other} |" in line for line in lines), (
            f"{suite}: {passed} {refused} {other}"
        )
