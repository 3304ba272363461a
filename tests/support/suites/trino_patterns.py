"""Trino's TestRowPatternMatching: its rows, clauses and expected rows.

The suite orders by a number, ours by `ts`: that number in seconds (`id`, or the number of the row). All clauses have a
WITHIN longer than the rows are apart. Expected rows are written as ``2 1 80 B, 3 1 70 B``, with ``-`` for a null.
"""

from __future__ import annotations

from support.suites.pattern_case import PatternCase, PatternDifference, PatternRefusal, PatternText, of, values

_SUITE = "TestRowPatternMatching"
_USUAL = "match_number() AS match, RUNNING LAST(value) AS val, classifier() AS label"
_FALLS = "B AS B.value < PREV (B.value)"
_TURNS = f"{_FALLS}, C AS C.value > PREV (C.value)"
_ALL = "ALL ROWS PER MATCH"
_SHOWN = "id match val label"
_FOUR, _LEVEL = values("90 80 70 80"), values("90 80 70 70")
_EIGHT = values("90 80 70 80 90 50 40 60")
_NO_MATCH = "1 1 - -, 2 2 - -, 3 3 - -, 4 4 - -"
_ONE_BY_ONE = "2 1 80 B, 3 2 70 B, 4 3 70 B"


def _case(test: str, text: PatternText, rows: list[tuple[object, ...]], shown: str, wanted: str) -> PatternCase:
    return of(_SUITE, test, text, "id value", rows, shown, wanted)


def _level(test: str, pattern: str, wanted: str, define: str = _FALLS) -> PatternCase:
    text = PatternText(pattern, define, _USUAL, rows=_ALL, after="AFTER MATCH SKIP PAST LAST ROW")
    return _case(f"{test}: {pattern}", text, _LEVEL, _SHOWN, wanted)


_ROW_PATTERN = [
    _level("testRowPattern", pattern, wanted, define)
    for pattern, define, wanted in [
        ("() | A", "A AS true", _NO_MATCH),
        ("^A", "A AS true", "1 1 90 A"),
        ("A^", "A AS true", ""),
        ("^A^", "A AS true", ""),
        ("A$", "A AS true", "4 1 70 A"),
        ("$A", "A AS true", ""),
        ("$A$", "A AS true", ""),
        ("A B C", f"{_FALLS}, C AS C.value = PREV (C.value)", "2 1 80 A, 3 1 70 B, 4 1 70 C"),
        ("B | C | A", f"{_FALLS}, C AS C.value <= PREV (C.value)", "1 1 90 A, 2 2 80 B, 3 3 70 B, 4 4 70 C"),
        ("PERMUTE(B, C)", f"{_FALLS}, C AS C.value < PREV (C.value)", "2 1 80 B, 3 1 70 C"),
        ("((A) (B (C)))", f"{_FALLS}, C AS C.value = PREV (C.value)", "2 1 80 A, 3 1 70 B, 4 1 70 C"),
    ]
]

_GREEDY = "1 1 - -, 2 2 80 B, 3 2 70 B, 4 2 70 B"
_AT_LEAST_ONE = "2 1 80 B, 3 1 70 B, 4 1 70 B"
_SINGLE = "1 1 - -, 2 2 80 B, 3 3 70 B, 4 4 70 B"
_TWO = "2 1 80 B, 3 1 70 B"
_QUANTIFIERS = [
    _level("testPatternQuantifiers", pattern, wanted, "B AS B.value <= PREV (B.value)")
    for pattern, wanted in [
        ("B*", _GREEDY),
        ("B*?", _NO_MATCH),
        ("B+", _AT_LEAST_ONE),
        ("B+?", _ONE_BY_ONE),
        ("B?", _SINGLE),
        ("B??", _NO_MATCH),
        ("B{,}", _GREEDY),
        ("B{,}?", _NO_MATCH),
        ("B{1,}", _AT_LEAST_ONE),
        ("B{1,}?", _ONE_BY_ONE),
        ("B{2,}", _AT_LEAST_ONE),
        ("B{2,}?", _TWO),
        ("B{5,}", ""),
        ("B{5,}?", ""),
        ("B{,1}", _SINGLE),
        ("B{,1}?", _NO_MATCH),
        ("B{,2}", "1 1 - -, 2 2 80 B, 3 2 70 B, 4 3 70 B"),
        ("B{,2}?", _NO_MATCH),
        ("B{,5}", _GREEDY),
        ("B{,5}?", _NO_MATCH),
        ("B{1,1}", _ONE_BY_ONE),
        ("B{1,1}?", _ONE_BY_ONE),
        ("B{1,5}", _AT_LEAST_ONE),
        ("B{1,5}?", _ONE_BY_ONE),
        ("B{5,7}", ""),
        ("B{5,7}?", ""),
        ("B{1}", _ONE_BY_ONE),
        ("B{1}?", _ONE_BY_ONE),
        ("B{2}", _TWO),
        ("B{2}?", _TWO),
        ("B{5}", ""),
        ("B{5}?", ""),
    ]
]

_EVERY = "1 1 90 A, 2 1 80 B, 3 1 70 B, 4 1 80 C, 5 1 90 C, 6 2 50 A, 7 2 40 B, 8 2 60 C"
_ONLY_A = "1 1 90 A, 6 2 50 A"
_EXCLUSIONS = [
    _case(
        f"testExclusionSyntax: {pattern}",
        PatternText(pattern, _TURNS, _USUAL, rows=_ALL, after="AFTER MATCH SKIP PAST LAST ROW"),
        _EIGHT,
        _SHOWN,
        wanted,
    )
    for pattern, wanted in [
        ("A B+ C+", _EVERY),
        ("A {- B+ -} C+", "1 1 90 A, 4 1 80 C, 5 1 90 C, 6 2 50 A, 8 2 60 C"),
        ("{- A -} {- B+ -} C+", "4 1 80 C, 5 1 90 C, 8 2 60 C"),
        ("A {- {- B+ -} C+ -}", _ONLY_A),
        ("{- A B+ C+ -}", ""),
        ("A B+ {- ()* -} C+", _EVERY),
        ("A {- B -}+ {- C -}+", _ONLY_A),
        ("A {- B -}* {- C -}*", _ONLY_A),
        ("A {- B -}{1,2} {- C -}{1,2}", _ONLY_A),
        ("A {- C -}{2,3} {- B -}{2,3}", "3 1 70 A"),
    ]
]

_SUM = "PREV(LAST(A.value), 3) + FIRST(A.value) + PREV(LAST(B.value), 2)"
_LABELS = "PREV(CLASSIFIER(U), 1) = 'A' AND LAST(CLASSIFIER(), 3) = 'B' AND FIRST(CLASSIFIER(U)) = 'B'"
_BACK = [
    _case(
        f"testBackReference: {name}",
        PatternText("(A | B)* X", f"X AS value = {name}.value", "CLASSIFIER() AS classy", rows=_ALL),
        values("1 1"),
        "value classy",
        f"1 {name}, 1 X",
    )
    for name in "AB"
] + [
    _case(
        "testBackReference: A and B",
        PatternText(
            "(A | B)* X", f"X AS value = {_SUM}", f"CLASSIFIER() AS classy, {_SUM} AS defining_condition", rows=_ALL
        ),
        values("1 2 3 4 5 6"),
        "value classy defining_condition",
        "1 B -, 2 A -, 3 A -, 4 A -, 5 B 6, 6 X 6",
    ),
    _case(
        "testBackReference: labels",
        PatternText(
            "(A | B)* X $",
            f"X AS {_LABELS}",
            f"CLASSIFIER() AS classy, {_LABELS} AS defining_condition",
            rows=_ALL,
            subset="U = (A, B)",
        ),
        values("1 2 3 4 5"),
        "value classy defining_condition",
        "1 B -, 2 B false, 3 A false, 4 A true, 5 X true",
    ),
]

_EMPTY_CYCLE = [
    _level("testEmptyCycle", pattern, wanted)
    for pattern, wanted in [
        ("()* | B", _NO_MATCH),
        ("()+ | B", _NO_MATCH),
        ("(){5,} | B", _NO_MATCH),
        ("B | ()*", "1 1 - -, 2 2 80 B, 3 3 70 B, 4 4 - -"),
        ("(B ()*)*", "1 1 - -, 2 2 80 B, 3 2 70 B, 4 3 - -"),
        ("(B ()*)*?", _NO_MATCH),
        ("^* | B", _NO_MATCH),
        ("^+ | B", "1 1 - -, 2 2 80 B, 3 3 70 B"),
        ("^* A B", "1 1 90 A, 2 1 80 B"),
        ("$* | B", _NO_MATCH),
        ("$+ | B", "2 1 80 B, 3 2 70 B"),
        ("B A $+", "3 1 70 B, 4 1 70 A"),
    ]
]

_OUTPUT_MODES = [
    _case(
        f"testOutputModes: {mode or 'no mode'}, {pattern}",
        PatternText(pattern, _FALLS, _USUAL, rows=mode, after="AFTER MATCH SKIP PAST LAST ROW"),
        _LEVEL,
        "match val label",
        wanted,
    )
    for mode, pattern, wanted in [
        ("ONE ROW PER MATCH", "B*", "1 - -, 2 70 B, 3 - -"),
        ("", "B*", "1 - -, 2 70 B, 3 - -"),
        ("ONE ROW PER MATCH", "B+", "1 70 B"),
        (_ALL, "B*", "1 - -, 2 80 B, 2 70 B, 3 - -"),
        (_ALL, "B+", "1 80 B, 1 70 B"),
        (f"{_ALL} SHOW EMPTY MATCHES", "B*", "1 - -, 2 80 B, 2 70 B, 3 - -"),
        (f"{_ALL} OMIT EMPTY MATCHES", "B*", "2 80 B, 2 70 B"),
        (f"{_ALL} OMIT EMPTY MATCHES", "B+", "1 80 B, 1 70 B"),
        (f"{_ALL} WITH UNMATCHED ROWS", "B+", "- - -, 1 80 B, 1 70 B, - - -"),
    ]
]

_FIRST_MATCH = "1 1 90 A, 2 1 80 B, 3 1 70 B, 4 1 80 C"
_FROM_FOURTH = f"{_FIRST_MATCH}, 4 2 80 A, 5 2 70 B, 6 2 80 C"
_FROM_SECOND = f"{_FIRST_MATCH}, 2 2 80 A, 3 2 70 B, 4 2 80 C, 4 3 80 A, 5 3 70 B, 6 3 80 C"


def _skips(after: str, wanted: str) -> PatternCase:
    text = PatternText("A B+ C+ D?", f"{_TURNS}, D AS false", _USUAL, rows=_ALL, after=after, subset="U = (C, D)")
    return _case(f"testAfterMatchSkip: {after}", text, values("90 80 70 80 70 80"), _SHOWN, wanted)


_AFTER = [
    _skips(f"AFTER MATCH SKIP {to}", wanted)
    for to, wanted in [
        ("PAST LAST ROW", _FIRST_MATCH),
        ("TO NEXT ROW", _FROM_SECOND),
        ("TO FIRST C", _FROM_FOURTH),
        ("TO FIRST c", _FROM_FOURTH),
        ("TO LAST B", _FROM_FOURTH),
        ("TO LAST b", _FROM_FOURTH),
        ("TO B", _FROM_FOURTH),
        ("TO b", _FROM_FOURTH),
        ("TO U", _FROM_FOURTH),
        ("TO u", _FROM_FOURTH),
    ]
]
# The suite expects errors here, too.
FAILURES = [
    (_skips("AFTER MATCH SKIP TO A", ""), "may be the first row of the match"),
    (_skips("AFTER MATCH SKIP TO D", ""), "a match may have no D"),
]

_NAVIGATION = [
    _case(
        f"testNavigationFunctions: {measure}",
        PatternText("A+", "A AS true", f"{measure} AS measure", rows=_ALL),
        values("10 20 30"),
        "id measure",
        ", ".join(f"{number} {value}" for number, value in enumerate(wanted.split(), 1)),
    )
    for measure, wanted in [
        ("value", "10 20 30"),
        ("LAST(value)", "10 20 30"),
        ("RUNNING LAST(value)", "10 20 30"),
        ("FINAL LAST(value)", "30 30 30"),
        ("FIRST(value)", "10 10 10"),
        ("RUNNING FIRST(value)", "10 10 10"),
        ("FINAL FIRST(value)", "10 10 10"),
        ("FINAL LAST(value, 2)", "10 10 10"),
        ("FIRST(value, 2)", "- - 30"),
        ("LAST(value, 10)", "- - -"),
        ("FIRST(value, 10)", "- - -"),
        ("PREV(value)", "- 10 20"),
        ("NEXT(value)", "20 30 -"),
        ("NEXT(FIRST(value), 2)", "30 30 30"),
        ("NEXT(FIRST(value), 10)", "- - -"),
        ("PREV(FIRST(value), 10)", "- - -"),
        ("PREV(FIRST(value, 10), 2)", "- - -"),
        ("PREV(LAST(value, 10), 2)", "- - -"),
    ]
] + [
    _case(
        f"testNavigationFunctions: {measure}",
        PatternText("A B", "B AS B.value = PREV(B.value)", f"{measure} AS measure", rows="ONE ROW PER MATCH"),
        values("10 20 30 30 40"),
        "measure",
        wanted,
    )
    for measure, wanted in [
        ("PREV(B.value, 4)", "-"),
        ("PREV(B.value, 3)", "10"),
        ("PREV(B.value, 2)", "20"),
        ("NEXT(B.value, 1)", "40"),
        ("NEXT(B.value, 2)", "-"),
    ]
]

_RUNNING = (
    "CLASSIFIER() AS label, FINAL LAST(CLASSIFIER()) AS final_label, RUNNING LAST(value) AS running_value, "
    "FINAL LAST(value) AS final_value, "
    + ", ".join(f"{mode} LAST({name}.value) AS {name}_{mode}_value" for name in "ABC" for mode in ("RUNNING", "FINAL"))
)
_PARTS: list[tuple[object, ...]] = [
    (1, "p1", 90),
    (2, "p1", 80),
    (6, "p1", 80),
    (2, "p2", 20),
    (2, "p3", 60),
    (1, "p3", 50),
    (3, "p1", 70),
    (4, "p1", 80),
    (5, "p1", 90),
    (1, "p2", 20),
    (3, "p3", 70),
    (3, "p2", 10),
]
_BY_PART = PatternText(
    "B+",
    _FALLS,
    "match_number() AS match, PREV(RUNNING LAST(value)) AS val, classifier() AS label",
    rows=_ALL,
    after="AFTER MATCH SKIP PAST LAST ROW",
    partition="part",
)
_IN = PatternText("A+", "A AS true", "", rows="ONE ROW PER MATCH", after="AFTER MATCH SKIP TO NEXT ROW")
_HUNDREDS = values("100 200 300 400")
_OTHERS = [
    _case(
        "testSimpleQuery",
        PatternText("A B+ C+", _TURNS, _USUAL, rows=_ALL, after="AFTER MATCH SKIP PAST LAST ROW"),
        _EIGHT,
        _SHOWN,
        _EVERY,
    ),
    _case(
        "testEmptyMatches",
        PatternText(
            "A B{2}",
            _FALLS,
            "MATCH_NUMBER() AS match, CLASSIFIER() AS label",
            rows=f"{_ALL} WITH UNMATCHED ROWS",
            after="AFTER MATCH SKIP TO NEXT ROW",
        ),
        values("100 100 90 80 70 100"),
        "id match value label",
        "1 - 100 -, 2 1 100 A, 3 1 90 B, 4 1 80 B, 3 2 90 A, 4 2 80 B, 5 2 70 B, 6 - 100 -",
    ),
    _case(
        "testUnionVariable",
        PatternText(
            "(L | H) A",
            "A AS A.value = 80, L AS L.value < 80, H AS H.value > 80",
            "match_number() AS match, RUNNING LAST(value) AS val, classifier(U) AS lower_or_higher, "
            "classifier(W) AS label",
            rows=_ALL,
            subset="U = (L, H), W = (A, L, H)",
        ),
        _FOUR,
        "id match val lower_or_higher label",
        "1 1 90 H H, 2 1 80 H A, 3 2 70 L L, 4 2 80 L A",
    ),
    _case(
        "testClassifierFunctionPastCurrentRow: measures",
        PatternText("A B+ C+", _TURNS, "CLASSIFIER() AS label, NEXT(CLASSIFIER()) AS next_label", rows=_ALL),
        _FOUR,
        "id value label next_label",
        "1 90 A B, 2 80 B B, 3 70 B C, 4 80 C -",
    ),
    _case(
        "testClassifierFunctionPastCurrentRow: definition",
        PatternText("A+", "A AS NEXT(CLASSIFIER()) = 'A'", "value AS val", rows=_ALL),
        _FOUR,
        "id val",
        "",
    ),
    _case(
        "testScalarFunctions",
        PatternText(
            "A B+",
            "B AS B.value + 10 < abs(PREV (B.value))",
            "CAST(lower(LAST(CLASSIFIER())) || '_label' AS varchar(7)) AS label",
            rows=_ALL,
        ),
        values("90 80 60"),
        "id label",
        "2 a_label, 3 b_label",
    ),
    _case(
        "testRunningAndFinal",
        PatternText("A B+ C+", _TURNS, _RUNNING, rows=_ALL),
        values("90 80 70 100 200"),
        "id label final_label running_value final_value "
        + " ".join(f"{name}_{mode}_value" for name in "ABC" for mode in ("RUNNING", "FINAL")),
        "1 A C 90 200 90 90 - 70 - 200, 2 B C 80 200 90 90 80 70 - 200, 3 B C 70 200 90 90 70 70 - 200, "
        "4 C C 100 200 90 90 70 70 100 200, 5 C C 200 200 90 90 70 70 200 200",
    ),
    of(
        _SUITE,
        "testPartitioningAndOrdering: partitions",
        _BY_PART,
        "id part value",
        _PARTS,
        "part id match val label",
        "p1 2 1 90 B, p1 3 1 80 B, p1 6 2 90 B, p2 3 1 20 B",
    ),
    of(
        _SUITE,
        "testPartitioningAndOrdering: no rows",
        _BY_PART,
        "id part value",
        [],
        "part id match val label",
        "",
    ),
    _case(
        "testPartitioningAndOrdering: no partitions",
        PatternText("B+", _FALLS, _USUAL, rows=_ALL, after="AFTER MATCH SKIP PAST LAST ROW"),
        [(5, 10), (2, 90), (1, 80), (4, 20), (3, 30)],
        _SHOWN,
        "3 1 30 B, 4 1 20 B, 5 1 10 B",
    ),
    of(
        _SUITE,
        "testPartitioningAndOrdering: no measures",
        PatternText("B+", _FALLS, rows=_ALL, after="AFTER MATCH SKIP PAST LAST ROW", partition="part"),
        "id part value",
        [(5, "p2", 10), (2, "p1", 90), (1, "p1", 80), (4, "p2", 20), (3, "p1", 30)],
        "id part",
        "3 p1, 5 p2",
    ),
    of(
        _SUITE,
        "testOutputLayout: ONE ROW PER MATCH",
        PatternText("A", "A AS true", "CLASSIFIER() AS classy", rows="ONE ROW PER MATCH", partition="part"),
        "id part value",
        [(1, "partitioning", 90)],
        "*",
        "partitioning A",
    ),
    *(
        _case(
            f"testInPredicateWithoutSubquery: {name}",
            PatternText("A+", "A AS true", f"{measure} AS val", rows=_IN.rows, after=_IN.after),
            _HUNDREDS,
            "val",
            wanted,
        )
        for name, measure, wanted in [
            ("navigation", "FIRST(A.value) IN (300, LAST(A.value))", "false, false, true, true"),
            ("CLASSIFIER", "CLASSIFIER() IN ('X', lower(CLASSIFIER()))", "false, false, false, false"),
            ("MATCH_NUMBER", "MATCH_NUMBER() IN (0, MATCH_NUMBER())", "true, true, true, true"),
        ]
    ),
    _case(
        "testPotentiallyExponentialMatch",
        PatternText("(A+)+ B", "A AS value = 1, B AS value = 2", "CLASSIFIER() AS classy"),
        values("1 " * 20),
        "classy",
        "",
    ),
    _case(
        "testExponentialMatch",
        PatternText(
            "(A | B)+ LAST",
            "LAST AS FIRST(CLASSIFIER()) = 'B' AND "
            + " AND ".join(f"FIRST(CLASSIFIER(), {number}) = 'B'" for number in range(1, 8)),
            "CLASSIFIER() AS classy",
            rows=_ALL,
        ),
        values("1 2 3 4 5 6 7 8 9"),
        "classy",
        ", ".join("BBBBBBBB") + ", LAST",
    ),
    of(
        _SUITE,
        "testProperties",
        PatternText("X", "X AS (b = 1)", partition="a"),
        "id a b",
        [(1, 1, 1)],
        "*",
        "1",
    ),
    _case(
        "testKillThread",
        PatternText("(Y?){2,}", "Y AS true", "'foo' AS foo"),
        values("1 2 3 4 5"),
        "foo",
        "foo",
    ),
]

CASES = [
    *_ROW_PATTERN, *_QUANTIFIERS, *_EXCLUSIONS, *_BACK, *_EMPTY_CYCLE, *_OUTPUT_MODES, *_AFTER, *_NAVIGATION, *_OTHERS,
]  # fmt: skip


def _subquery(name: str, measure: str, define: str) -> PatternRefusal:
    text = PatternText("A+", f"A AS {define}", f"{measure} AS val", rows=_IN.rows, after=_IN.after)
    return PatternRefusal(_SUITE, f"testSubqueries: {name}", "subqueries", text, "a subquery")


REFUSALS = [
    _subquery("values", "(SELECT 'x')", "(SELECT true)"),
    _subquery("in navigation", "FINAL LAST(A.value + (SELECT 1000))", "FIRST(A.value < 0 OR (SELECT true))"),
    _subquery("IN", "LAST(A.id < 0 OR 1 IN (SELECT 1))", "FIRST(A.id > 0 AND 1 IN (SELECT 1))"),
    _subquery("IN of a column", "FIRST(id % 2 IN (SELECT 0))", "FIRST(value * 0 IN (SELECT 0))"),
    _subquery("EXISTS", "LAST(A.value < 0 OR EXISTS(SELECT 1))", "FIRST(A.value < 0 OR EXISTS(SELECT 1))"),
    PatternRefusal(_SUITE, "testMultipleMatchRecognize", "a cross join of three streams without a bound"),
    PatternRefusal(
        _SUITE,
        "testOutputLayout: ALL ROWS PER MATCH, ORDER BY twice",
        "the event time is ordered by once",
        PatternText("A", "A AS true", "CLASSIFIER() AS classy", rows=_ALL, partition="part", order="ts ASC, ts DESC"),
        "ts is there twice",
    ),
]
DIFFERENCES = [
    PatternDifference(
        _case(
            "testCaseSensitiveLabels",
            PatternText(
                'a "b"+ C+',
                '"b" AS "b".value < PREV("b".value), C AS C.value > PREV(C.value)',
                "CLASSIFIER() AS label",
                rows=_ALL,
            ),
            _FOUR,
            "id label",
            "1 a, 2 b, 3 b, 4 C",
        ),
        "a symbol has the name that is written, not one in capital letters",
    ),
    PatternDifference(
        of(
            _SUITE,
            "testOutputLayout: ALL ROWS PER MATCH",
            PatternText("A", "A AS true", "CLASSIFIER() AS classy", rows=_ALL, partition="part"),
            "id part value",
            [(1, "partitioning", 90)],
            "*",
            "1 partitioning 90 A",
        ),
        "columns stay in the order of the stream, with the measures last",
    ),
]
