"""Cases of other engines' test suites, as data: each in three cuts, or refused, or different for a reason (docs/reference/conformance.md)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.suites import duckdb_asof, flink_joins, spark_outer
from support.suites.suite_case import Difference, Refusal, SuiteCase, Values

import braided
from braided import local
from braided.durations import parse_duration
from braided.local.results import LocalResult

CASES: list[SuiteCase] = [*spark_outer.CASES, *flink_joins.CASES, *duckdb_asof.CASES]
DIFFERENCES: list[Difference] = [*spark_outer.DIFFERENCES, *flink_joins.DIFFERENCES]
REFUSALS: list[Refusal] = [*spark_outer.REFUSALS, *flink_joins.REFUSALS, *duckdb_asof.REFUSALS]
CUTS = ("one batch", "a row per batch", "shuffled")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def table(columns: Any, rows: list[tuple[int, Values]]) -> pa.Table:
    """Return rows with the number of their arrival; times are seconds."""
    values: dict[str, pa.Array] = {}
    for place, name in enumerate(columns):
        column = [row[place] for _, row in rows]
        if name == "ts":
            micros = [None if value is None else round(value * 1_000_000) for value in column]
            values[name] = pa.array(micros, pa.timestamp("us"))
        else:
            kinds = {type(value) for value in column} - {type(None)}
            values[name] = pa.array(column, pa.string() if kinds == {str} else pa.int64())
    # Last, since as-of joins compare the columns of rows of one time in order.
    values["at"] = pa.array([at for at, _ in rows], pa.int64())
    return pa.table(values)


def arrivals(case: SuiteCase, cut: str) -> tuple[list[list[tuple[int, Values]]], int]:
    """Return the rows of each stream with the numbers of their arrival, and how many there are."""
    together = [(side, row) for step in case.steps for side, rows in enumerate(step) for row in rows]
    if cut == "shuffled":
        # A row that comes as much later than its time as the lateness, at most, is not late.
        given = case.options["lateness"]
        slack = [
            parse_duration(part, "lateness") / 1e6 for part in ((given, given) if isinstance(given, str) else given)
        ]
        places = [case.columns[side].index("ts") for side in (0, 1)]
        rng = random.Random(case.name)
        together.sort(key=lambda each: (each[1][places[each[0]]] or 0) + rng.random() * slack[each[0]] * 0.99)
    sides: list[list[tuple[int, Values]]] = [[], []]
    for number, (side, row) in enumerate(together):
        sides[side].append((number, row))
    return sides, len(together)


def run(case: SuiteCase, sides: list[list[tuple[int, Values]]], batch_rows: int) -> LocalResult:
    tables = [table(columns, rows) for columns, rows in zip(case.columns, sides, strict=True)]
    function = getattr(local, case.function)
    result: LocalResult = function(*tables, time="ts", arrival="at", batch_rows=max(1, batch_rows), **case.options)
    return result


def found(case: SuiteCase, result: LocalResult) -> Counter[Values]:
    """Return the columns that are compared, of the rows that count."""
    rows = result.table.to_pylist()
    return Counter(tuple(row[name] for name in case.shown) for row in rows if case.keep is None or case.keep(row))


def check(case: SuiteCase, cut: str) -> None:
    sides, count = arrivals(case, cut)
    result = run(case, sides, 1 if cut == "a row per batch" else 3 if cut == "shuffled" else count)
    assert found(case, result) == Counter([*case.wanted, *case.open])
    assert sum(stream["late"] for stream in result.report.to_dict()["streams"]) == 0


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.suite}: {case.name}")
def test_a_case_gives_the_rows_of_its_suite(case: SuiteCase, cut: str) -> None:
    check(case, cut)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: f"{each.case.suite}: {each.case.name}")
def test_a_case_differs_as_the_page_says(difference: Difference, cut: str) -> None:
    check(difference.case, cut)
    assert f"`{difference.case.name}`" in PAGE.read_text()


@pytest.mark.parametrize("case", [case for case in CASES if any(case.late)], ids=lambda case: case.name)
def test_late_rows_of_a_suite_are_counted_and_never_come_out_alone(case: SuiteCase) -> None:
    """The suite drops them. Here they find what is still stored."""
    sides, count = arrivals(case, "a row per batch")
    for side, rows in enumerate(case.late):
        for row in rows:
            sides[side].append((count, row))
            count += 1
    result = run(case, sides, 1)
    assert found(case, result) == Counter([*case.wanted, *case.open, *case.found_late])
    assert [stream["late"] for stream in result.report.to_dict()["streams"]] == [len(rows) for rows in case.late]


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
@pytest.mark.parametrize("name", flink_joins.WINDOWS)
def test_windows_after_an_interval_join_are_those_of_the_suite(name: str, batch_rows: int) -> None:
    time, wanted = flink_joins.WINDOWS[name]
    left, right = (
        local.stream(table(["key", "id", "ts"], list(enumerate(flink_joins.rows_of(rows)))), time="ts")
        for rows in flink_joins.WINDOW_ROWS
    )
    joined = left.join(right, on="key", within="5 seconds", lateness="1 ms", batch_rows=batch_rows)
    found = joined.aggregate(by="key", window="4 seconds", time=time, n="count(*)").table.to_pylist()
    ends = [(row["key"], row["window"]["end"].second, row["n"]) for row in found]
    assert Counter(ends) == Counter(wanted)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: f"{refusal.suite}: {refusal.name}")
def test_a_case_is_refused_with_the_reason(refusal: Refusal) -> None:
    assert f"`{refusal.name}`" in PAGE.read_text()
    if refusal.message is None:
        return
    rows = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us")), "nested": [[1]]})
    with pytest.raises((braided.BraidedError, TypeError), match=refusal.message):
        getattr(local, refusal.function)(rows, rows, **{"time": "ts", **refusal.options})


def test_the_page_has_the_number_of_cases() -> None:
    lines = PAGE.read_text().splitlines()
    for suite in {case.suite for case in CASES}:
        passed = sum(case.suite == suite for case in CASES)
        passed += len(flink_joins.WINDOWS) if suite == "IntervalJoinITCase" else 0
        other = sum(each.case.suite == suite for each in DIFFERENCES)
        refused = sum(refusal.suite == suite for refusal in REFUSALS)
        assert any(
            line.startswith(f"| `{suite}` |") and f"| {passed} | {refused} | {other} |" in line for line in lines
        ), f"{suite}: write | {passed} | {refused} | {other} |"
