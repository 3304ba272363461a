"""Trino's TestAggregationsInRowPatternMatching: its rows, clauses and expected rows. Lists are written as ``[a;b]``."""

from __future__ import annotations

from support.suites.pattern_case import PatternCase, PatternRefusal, PatternText, Values, of

_SUITE = "TestAggregationsInRowPatternMatching"
_ALL, _ONE = "ALL ROWS PER MATCH", "ONE ROW PER MATCH"
_PAST = "AFTER MATCH SKIP PAST LAST ROW"


def _numbers(count: int) -> list[Values]:
    return [(number,) for number in range(1, count + 1)]


def _letters(text: str) -> list[Values]:
    return [(number, None if letter == "-" else letter) for number, letter in enumerate(text, 1)]


def _growing(text: str) -> str:
    """Return rows of a number and the letters up to there: ``1 [a], 2 [a;b]``."""
    return ", ".join(f"{count} [{';'.join(text[:count])}]" for count in range(1, len(text) + 1))


def _case(
    name: str,
    rows: list[Values],
    columns: str,
    pattern: str,
    define: str,
    measures: str,
    shown: str,
    wanted: str,
    *,
    per: str = _ALL,
    after: str = _PAST,
    partition: str = "",
    subset: str = "",
) -> PatternCase:
    text = PatternText(pattern, define, measures, rows=per, after=after, partition=partition, subset=subset)
    return of(_SUITE, name, text, columns, rows, shown, wanted)


def _parts(*values: int) -> list[Values]:
    """Return rows of the parts p1 to p3, in the suite's order."""
    places = "1p1 2p1 6p1 2p2 2p3 1p3 3p1 4p1 5p1 1p2 3p3 3p2"
    of_part = dict(zip(("p1", "p2", "p3"), values, strict=True))
    return [(int(place[0]), place[1:], of_part[place[1:]]) for place in places.split()]


_PARTS = _parts(1, 10, 100)
_SUMS = "p1 1 1, p1 2 2, p1 3 3, p1 4 4, p1 5 5, p1 6 6, p2 1 10, p2 2 20, p2 3 30, p3 1 100, p3 2 200, p3 3 300"
_THREES = "p1 1 1, p1 2 2, p1 3 3, p1 4 1, p1 5 2, p1 6 3, p2 1 10, p2 2 20, p2 3 30, p3 1 100, p3 2 200, p3 3 300"
_FROM_EACH = ", ".join(
    f"{part} {first} {row} {(row - first + 1) * value}"
    for part, last, value in (("p1", 6, 1), ("p2", 3, 10), ("p3", 3, 100))
    for first in range(1, last + 1)
    for row in range(first, last + 1)
)
_TWO = [(row, part, row * step) for part, step in (("p1", 1), ("p2", 2)) for row in range(1, 6)]
_MAXIMA = (
    "p1 1 B 1, p1 2 B 2, p1 3 B 3, p1 4 B 4, p1 5 A 5, p2 1 B 2, p2 2 B 4, p2 3 A 6, p2 4 A 8, p2 5 A 10"
)  # fmt: skip
_NAMED = [
    *((row, "p1", letter) for row, letter in enumerate("abcdef", 1)),
    *((row, "p2", letter) for row, letter in enumerate("ghi", 1)),
    *((row, "p3", letter) for row, letter in enumerate("jkl", 1)),
]
_LABELLED = ", ".join(
    f"{part} {row.split()[0]} {row.split()[1]}"
    for part, letters in (("p1", "aX bY cZ dZ eZ fZ"), ("p2", "gX hY iZ"), ("p3", "jX kY lZ"))
    for row in [
        f"{count} [{';'.join(letters.split()[:count])}]" for count in range(1, len(letters.split()) + 1)
    ]
)  # fmt: skip
_TWELVE = [(row, part, letter) for part, letters in (("p1", "abcdef"), ("p2", "ghijkl")) for row, letter in enumerate(letters, 1)]  # fmt: skip
_EXCLUDED = [(row, part, f"{number}{letter}") for part, number in (("p1", 1), ("p2", 2)) for row, letter in enumerate("abcde", 1)]  # fmt: skip
_BALANCE = [(row, value) for row, value in enumerate([4, 6, 10, 1, 1, 1, 10, 5, 1], 1)]

CASES: list[PatternCase] = [
    _case(
        "testSimpleQuery: sum", _numbers(8), "id", "A*", "A AS true", "RUNNING sum(id) AS running_sum",
        "id running_sum", "1 1, 2 3, 3 6, 4 10, 5 15, 6 21, 7 28, 8 36",
    ),
    _case(
        "testSimpleQuery: array_agg", _numbers(8), "id", "A*", "A AS true",
        "RUNNING array_agg(CLASSIFIER(A)) AS running_labels", "id running_labels", _growing("A" * 8),
    ),
    _case(
        "testSimpleQuery: concat_ws", _numbers(8), "id", 'M A X X T C H "!"', "M AS true",
        "concat_ws('', RUNNING array_agg(lower(CLASSIFIER(U)))) AS running_labels", "id running_labels",
        "1 m, 2 ma, 3 ma, 4 ma, 5 mat, 6 matc, 7 match, 8 match!", subset='U = (M, A, T, C, H, "!")',
    ),
    _case(
        "testPartitioning: one match", _PARTS, "id part value", "B+", "B AS true", "RUNNING sum(value) AS running_sum",
        "part id running_sum", _SUMS, partition="part",
    ),
    _case(
        "testPartitioning: many matches", _PARTS, "id part value", "B+", "B AS true",
        "RUNNING sum(value) AS running_sum, MATCH_NUMBER() AS match_no", "part match_no id running_sum", _FROM_EACH,
        partition="part", after="AFTER MATCH SKIP TO NEXT ROW",
    ),
    _case(
        "testTentativeLabelMatch: avg of another", [(1, 4), (2, 6), (3, 0)], "id value", "(A | B)*",
        "A AS avg(B.value) = 5", "RUNNING avg(B.value) AS running_avg_B, CLASSIFIER() AS classy",
        "id classy running_avg_B", "1 B 4, 2 B 5, 3 A 5",
    ),
    _case(
        "testTentativeLabelMatch: avg of its own", [(1, 4), (2, 6), (3, 0), (4, 5)], "id value", "(A | B)*",
        "A AS avg(A.value) = 5", "RUNNING avg(A.value) AS running_avg_A, CLASSIFIER() AS classy",
        "id classy running_avg_A", "1 B -, 2 B -, 3 B -, 4 A 5",
    ),
    _case(
        "testTentativeLabelMatch: sum that is never so large", _PARTS, "id part value", "B (A | B) B",
        "A AS sum(value) > 1000", "RUNNING sum(value) AS running_sum", "part id running_sum", _THREES, partition="part",
    ),
    _case(
        "testTentativeLabelMatch: sum", [(row, part, value) for part, value in (("p1", 1), ("p2", 2)) for row in range(1, 6)],
        "id part value", "(A | B)*", "A AS sum(value) > 4", "RUNNING sum(value) AS running_sum, CLASSIFIER() AS classy",
        "part id classy running_sum", _MAXIMA, partition="part",
    ),
    _case(
        "testTentativeLabelMatch: max", _TWO, "id part value", "(A | B)*", "A AS max(value) > 4",
        "RUNNING max(value) AS running_max, CLASSIFIER() AS classy", "part id classy running_max", _MAXIMA,
        partition="part",
    ),
    _case(
        "testAggregationArguments: a symbol", _NAMED, "id part value", "X Y Z+", "X AS true",
        "array_agg(value || CLASSIFIER()) AS measure", "part id measure", _LABELLED, partition="part",
    ),
    _case(
        "testAggregationArguments: a column twice", _letters("abc"), "id value", "X Y Z", "X AS true",
        "array_agg(value || value || CLASSIFIER()) AS measure", "id measure",
        "1 [aaX], 2 [aaX;bbY], 3 [aaX;bbY;ccZ]",
    ),
    _case(
        "testAggregationArguments: max_by", _letters("pqrs"), "id value", "A B D C", "A AS true",
        "max_by(value, CLASSIFIER()) AS measure", "id measure", "1 p, 2 q, 3 r, 4 r",
    ),
    _case(
        "testSelectiveAggregation", _letters("abcd"), "id value", "X Y Z Y", "X AS true",
        "array_agg(U.id) AS measure_1, array_agg(CLASSIFIER(U)) AS measure_2, "
        "array_agg(U.value || CLASSIFIER(U)) AS measure_3",
        "id measure_1 measure_2 measure_3",
        "1 [1] [X] [aX], 2 [1] [X] [aX], 3 [1;3] [X;Z] [aX;cZ], 4 [1;3] [X;Z] [aX;cZ]", subset="U = (X, Z)",
    ),
    _case(
        "testCountAggregation: all rows", _letters("abcd"), "id value", "X Y Z", "X AS id > 1",
        "count(*) AS measure_1, count() AS measure_2", "id measure_1 measure_2", "2 1 1, 3 2 2, 4 3 3",
    ),
    _case(
        "testCountAggregation: RUNNING and FINAL", _letters("abcd"), "id value", "A B C D", "A AS true",
        "RUNNING count(*) AS measure_1, FINAL count(*) AS measure_2, RUNNING count() AS measure_3, "
        "FINAL count() AS measure_4",
        "id measure_1 measure_2 measure_3 measure_4", "1 1 4 1 4, 2 2 4 2 4, 3 3 4 3 4, 4 4 4 4 4",
    ),
    _case(
        "testCountAggregation: of symbols", _letters("abcd"), "id value", "A B C D", "A AS true",
        "count(C.*) AS measure_1, count(U.*) AS measure_2", "id measure_1 measure_2", "1 0 0, 2 0 1, 3 1 1, 4 1 2",
        subset="U = (B, D)",
    ),
    _case(
        "testLabelAndColumnNames", _letters("pq-s"), "id A", "A B A A", "A AS true",
        "CLASSIFIER() AS classy, count(A.A) AS measure_1, count(A) AS measure_2, count(A.*) AS measure_3",
        "id classy measure_1 measure_2 measure_3", "1 A 1 1 1, 2 B 1 2 1, 3 A 1 2 2, 4 A 2 3 3", after="",
    ),
    _case(
        "testOneRowPerMatch", _TWELVE, "id part value", "X Y Z", "X AS true",
        "array_agg(value || CLASSIFIER()) AS measure", "part measure",
        "p1 [aX;bY;cZ], p1 [dX;eY;fZ], p2 [gX;hY;iZ], p2 [jX;kY;lZ]", per=_ONE, partition="part",
    ),
    _case(
        "testExclusions", _EXCLUDED, "id part value", "P {- Q R -} S", "P AS id > 1",
        "array_agg(value) AS measure_1, array_agg(value || CLASSIFIER()) AS measure_2", "part measure_1 measure_2",
        "p1 [1b] [1bP], p1 [1b;1c;1d;1e] [1bP;1cQ;1dR;1eS], p2 [2b] [2bP], p2 [2b;2c;2d;2e] [2bP;2cQ;2dR;2eS]",
        partition="part",
    ),
    _case(
        "testBalancingSums", _BALANCE, "id value", "(A | B)*", "A AS sum(A.value) - A.value <= sum(B.value)",
        "RUNNING sum(A.value) AS running_sum_A, RUNNING sum(B.value) AS running_sum_B, CLASSIFIER() AS classy",
        "id classy running_sum_A running_sum_B",
        "1 B - 4, 2 A 6 4, 3 B 6 14, 4 A 7 14, 5 A 8 14, 6 A 9 14, 7 A 19 14, 8 B 19 19, 9 A 20 19",
    ),
    _case(
        "testPeriodLength", [(minute, user) for user, of_user in ((1, (3, 4, 5, 8, 9)), (2, (2, 3, 4))) for minute in of_user],
        "minute_of_the_day user_id", "(A B* C | D)*",
        "B AS minute_of_the_day = PREV(minute_of_the_day) + 1, C AS minute_of_the_day = PREV(minute_of_the_day) + 1",
        "COALESCE(sum(C.minute_of_the_day) - sum(A.minute_of_the_day), 0) AS periods_total",
        "user_id periods_total", "1 3, 2 2", per=_ONE, after="", partition="user_id",
    ),
    _case(
        "testSetPartitioning: two", _numbers(8), "id", "^(A | B)* (LAST_A | LAST_B)$",
        "LAST_A AS sum(A.id) + id = sum(B.id), LAST_B AS sum(B.id) + id = sum(A.id)",
        "RUNNING array_agg(CLASSIFIER()) AS running_labels", "id running_labels",
        f"{_growing('AAAABBB')}, 8 [A;A;A;A;B;B;B;LAST_A]",
    ),
    _case(
        "testSetPartitioning: three", _numbers(6), "id", "^(A | B | C)* (LAST_A | LAST_B | LAST_C)$",
        "LAST_A AS sum(A.id) + id = sum(B.id) AND sum(B.id) = sum(C.id), "
        "LAST_B AS sum(B.id) + id = sum(A.id) AND sum(A.id) = sum(C.id), "
        "LAST_C AS sum(C.id) + id = sum(A.id) AND sum(A.id) = sum(B.id)",
        "RUNNING array_agg(CLASSIFIER()) AS running_labels", "id running_labels",
        f"{_growing('ABCCB')}, 6 [A;B;C;C;B;LAST_A]",
    ),
    _case(
        "testRunningAndFinalAggregations", _numbers(8), "id", "A B C D", "A AS true",
        "MATCH_NUMBER() AS match, RUNNING array_agg(CLASSIFIER()) AS running_labels, "
        "FINAL array_agg(lower(CLASSIFIER())) AS final_labels, RUNNING sum(MATCH_NUMBER() * 100) AS running_match, "
        "FINAL sum(-MATCH_NUMBER()) AS final_match",
        "id match running_labels final_labels running_match final_match",
        ", ".join(
            f"{4 * match + row - 4} {match} [{';'.join('ABCD'[:row])}] [a;b;c;d] {100 * match * row} {-4 * match}"
            for match in (1, 2)
            for row in (1, 2, 3, 4)
        ),
    ),
]  # fmt: skip


def _refused(name: str, reason: str, message: str, define: str, measures: str = "count(*) AS n") -> PatternRefusal:
    return PatternRefusal(_SUITE, name, reason, PatternText("A B", define, measures), message)


REFUSALS = [
    _refused(
        "testTentativeLabelMatch: arbitrary", "any value is as good", "not in the compiled subset",
        "A AS arbitrary(value) > 1000",
    ),
    _refused(
        "testTentativeLabelMatchWithRuntimeEvaluatedAggregationArgument", "numbers of matches in a definition",
        "MATCH_NUMBER can only be used in measures", "A AS max(value + MATCH_NUMBER()) > 5",
    ),
    _refused(
        "testAggregationArguments: subquery", "subqueries", "a subquery", "A AS true",
        "array_agg('X' || (SELECT 'Y')) AS n",
    ),
    _refused(
        "testAggregationArguments: subquery with a symbol", "subqueries", "a subquery", "A AS true",
        "array_agg(CLASSIFIER() || (SELECT 'A')) AS n",
    ),
    PatternRefusal(_SUITE, "testSeek", "a pattern in a window is a function of Spark's, which has none"),
    _refused(
        "testForkingThreads", "lists in a definition", "can only be used in measures", "A AS array_agg(CLASSIFIER()) = 'C'",
    ),
    _refused(
        "testMultipleAggregationsInDefine", "numbers of matches and symbols in aggregates of a definition",
        "MATCH_NUMBER can only be used in measures", "A AS max(value - 2 * MATCH_NUMBER()) > 1 AND max(CLASSIFIER()) = 'B'",
    ),
    _refused(
        "testMultipleAggregationArguments", "max_by in a definition", "MATCH_NUMBER can only be used in measures",
        "A AS max_by(MATCH_NUMBER(), CLASSIFIER()) > 0",
    ),
]  # fmt: skip
