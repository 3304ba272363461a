"""Flink's IntervalJoinITCase and TemporalJoinITCase, by event time.

Interval joins: rows are (key, id, time); a left time from 5 seconds before the right one to 6 after it. Temporal joins:
orders with the last rate of their currency. Flink's streams of changes are rows here: an order as it is after its
update, a rate that is deleted as a rate of null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.suites.suite_case import Difference, Refusal, SuiteCase, Values

_INTERVAL, _TEMPORAL = "IntervalJoinITCase", "TemporalJoinITCase"
_AROUND = ("-6 seconds", "5 seconds")


def rows_of(texts: str) -> list[Values]:
    """Return rows of the form (key, id, seconds), written as ``A:L-1:1``; a key of ``-`` is null."""
    parts = [text.split(":") for text in texts.split()]
    return [(None if key == "-" else key, name, float(time)) for key, name, time in parts]


def _interval(name: str, left: str, right: str, wanted: str, **options: Any) -> SuiteCase:
    """Return an interval join; results are written as ``R-6/L-1``, with ``-`` for a null."""
    pairs = [tuple(None if part == "-" else part for part in text.split("/")) for text in wanted.split()]
    return SuiteCase(
        _INTERVAL,
        name,
        (["key", "lid", "ts"], ["key", "rid", "ts"]),
        [(rows_of(left), rows_of(right))],
        {"on": "key", "between": _AROUND, "lateness": "1 ms", **options},
        ["rid", "lid"],
        pairs,
    )


_LEFT = "A:L0.999:0.999 A:L1:1 A:L2:2 A:L3:3 B:L4:4 A:L5:5 A:L6:6 -:L8:8"
_RIGHT = "A:R6:6 B:R7:7 -:R10:10"
_PAIRS = "R6/L1 R6/L2 R6/L3 R6/L5 R6/L6 R7/L4"
_OUTER_LEFT = "A:L-1:1 A:L-2:2 B:L-4:4 B:L-5:5 A:L-6:6 C:L-7:7 A:L-10:10 A:L-12:12 A:L-20:20"
_SIX = "R-6/L-1 R-6/L-2 R-6/L-6 R-6/L-10 R-6/L-12 R-7/L-4"

_DAY = 86_400
# Order, currency, number, amount, time: the second order after its update; the sixth is deleted.
_ORDERS: list[Values] = [
    (1, "Euro", "no1", 12, 60),
    (3, "RMB", "no1", 40, 180),
    (2, "US Dollar", "no1", 18, _DAY + 180),
    (5, "RMB", "no1", 40, _DAY + 180),
    (4, "Euro", "no1", 14, _DAY + 240),
]
_FIRST_RATES: list[Values] = [
    ("Euro", "no1", 114, 1),
    ("US Dollar", "no1", 102, 2),
    ("Yen", "no1", 1, 3),
    ("RMB", "no1", 702, 4),
]
_CHANGES: list[Values] = [("Euro", "no1", 118, _DAY + 60), ("US Dollar", "no1", 106, _DAY + 120)]
_VERSIONS = [*_FIRST_RATES, *_CHANGES, ("RMB", "no1", None, _DAY + 120)]
# Insert-only: of two rates of one time the last, which is also the larger.
_HISTORY = [*_FIRST_RATES, *_CHANGES, ("US Dollar", "no1", 102, _DAY + 120)]
_RATES = [(1, 12, 114), (2, 18, 106), (3, 40, 702), (4, 14, 118)]


def _temporal(
    name: str, rates: Sequence[Values], wanted: Sequence[Values], on: Sequence[str] = ("currency",), **more: Any
) -> SuiteCase:
    """Return orders with the last rate before them; results are (order, amount, rate)."""
    how, late = more.pop("how", "inner"), more.pop("late", "10 seconds")
    keep = more.pop("keep", None if how == "left" else (lambda row: row["rate"] is not None))
    return SuiteCase(
        _TEMPORAL,
        name,
        (["order", "currency", "no", "amount", "ts"], ["currency", "no", "rate", "ts"]),
        [(_ORDERS, rates)],
        {"on": list(on), "tolerance": None, "lateness": ("2 days", late), "how": how},
        ["order", "amount", "rate"],
        wanted,
        function="join_asof",
        keep=keep,
    )


CASES = [
    _interval("testRowTimeInnerJoin", _LEFT, _RIGHT, _PAIRS),
    _interval(
        "testRowTimeInnerJoinWithoutEqualCondition", _LEFT, _RIGHT,
        "R6/L1 R6/L2 R6/L3 R6/L4 R6/L5 R6/L6 R6/L8 R7/L2 R7/L3 R7/L4 R7/L5 R7/L6 R7/L8 R10/L5 R10/L6 R10/L8", on=None,
    ),
    _interval(
        "testRowTimeInnerJoinWithEquiTimeAttrs",
        "K1:L1:1 K1:L2:1 K1:L3:1 K2:L4:2 K1:L5:4 K1:L7:6 K1:L8:5.001",
        "K1:R1:1 K1:R2:1 K1:R3:1 K2:R4:3 K1:R5:4 K1:R6:6 K1:R7:5.001",
        "R1/L1 R2/L1 R3/L1 R1/L2 R2/L2 R3/L2 R1/L3 R2/L3 R3/L3 R5/L5 R6/L7 R7/L8",
        between=("0 seconds", "0 seconds"), lateness="1 second",
    ),
    SuiteCase(
        _INTERVAL, "testRowTimeInnerJoinWithOtherConditions",
        (["a", "b", "lid", "ts"], ["a", "b", "rid", "ts"]),
        [(
            [
                (1, 4, "LEFT1", 1), (1, 8, "LEFT1.1", 1.001), (1, 2, "LEFT2", 2), (1, 7, "LEFT3", 3), (2, 5, "LEFT4", 4),
                (1, 4, "LEFT4.9", 4.999), (1, 4, "LEFT5", 5), (1, 10, "LEFT6", 6),
            ],
            [(1, 1, "RIGHT1", 1), (1, 9, "RIGHT6", 6), (2, 14, "RIGHT7", 7), (1, 4, "RIGHT8", 8)],
        )],
        {
            "on": "a", "between": ("1000001 us", "4999999 us"), "lateness": "1 ms", "where": "l.b < r.b AND l.b > 2",
        },
        ["lid", "rid"],
        [("LEFT3", "RIGHT6"), ("LEFT1.1", "RIGHT6"), ("LEFT4", "RIGHT7"), ("LEFT4.9", "RIGHT6")],
    ),
    _interval(
        "testRowTimeLeftOuterJoin", _OUTER_LEFT, "A:R-6:6 B:R-7:7 D:R-8:8 A:R-11:11",
        f"{_SIX} R-11/L-6 R-11/L-10 R-11/L-12 -/L-5 -/L-7 -/L-20", how="left", where="l.lid <> 'L-5'",
    ),
    _interval(
        "testRowTimeRightOuterJoin", "A:L-1:1 A:L-2:2 B:L-4:4 A:L-6:6 C:L-7:7 A:L-10:10 A:L-12:12",
        "A:R-5:5 A:R-6:6 B:R-7:7 D:R-8:8 A:R-20:20", f"{_SIX} R-5/- R-20/- R-8/-", how="right", where="r.rid <> 'R-5'",
    ),
    _interval(
        "testRowTimeFullOuterJoin", _OUTER_LEFT, "A:R-5:5 A:R-6:6 B:R-7:7 D:R-8:8",
        f"{_SIX} R-5/- R-8/- -/L-5 -/L-7 -/L-20", how="full", where="NOT (l.lid = 'L-5' OR r.rid = 'R-5')",
    ),
    _temporal("testEventTimeTemporalJoin", _VERSIONS, _RATES),
    _temporal("testEventTimeTemporalJoinThatJoinkeyContainsPk", _VERSIONS, _RATES, ("currency", "no")),
    _temporal("testEventTimeTemporalJoinWithMultiKeys", _VERSIONS, _RATES, ("no", "currency")),
    _temporal(
        "testEventTimeTemporalJoinWithFilter", _VERSIONS, [(1, 12, 114), (2, 18, 106)],
        keep=lambda row: row["rate"] is not None and row["rate"] < 115,
    ),
    _temporal("testEventTimeLeftTemporalJoin", _VERSIONS, [*_RATES, (5, 40, None)], how="left"),
    _temporal(
        "testEventTimeTemporalJoinWithDeduplicateFirstView", _FIRST_RATES,
        [(1, 12, 114), (2, 18, 102), (3, 40, 702), (4, 14, 114), (5, 40, 702)], how="left",
    ),
    _temporal("testEventTimeTemporalJoinWithDeduplicateLastView", _HISTORY, [*_RATES, (5, 40, 702)]),
    _temporal("testMiniBatchEventTimeViewTemporalJoin", _HISTORY, [*_RATES, (5, 40, 702)]),
]  # fmt: skip
# The joined rows of windows of 4 seconds: the times of one stream, (key, end of the window, rows).
WINDOW_ROWS = (
    "A:L-1:1 A:L-2:2 A:L-3:3 B:L-4:4 C:L-5:4 A:L-6:10 A:L-7:13",
    "A:R-1:7 B:R-4:7 A:R-3:8 D:R-2:8",
)
WINDOWS = {
    "testRowTimeInnerJoinWithWindowAggregateOnFirstTime": (
        "ts",
        [("A", 4, 3), ("A", 12, 2), ("A", 16, 1), ("B", 8, 1)],
    ),
    "testRowTimeInnerJoinWithWindowAggregateOnSecondTime": ("ts_right", [("A", 8, 3), ("A", 12, 3), ("B", 8, 1)]),
}
DIFFERENCES = [
    Difference(
        _interval("testRowTimeInnerJoinWithIsNotDistinctFrom", _LEFT, _RIGHT, _PAIRS),
        "the suite compares keys by IS NOT DISTINCT FROM, for which null equals null; on= is the = of SQL",
    ),
    Difference(
        _temporal(
            "testEventTimeLeftTemporalJoinUpsertSource",
            [*_FIRST_RATES, ("Euro", "no1", 118, _DAY + 60), ("US Dollar", "no1", 104, _DAY + 120), ("RMB", "no1", None, 4)],
            [(1, 12, 114), (2, 18, 104), (3, 40, 702), (4, 14, 118), (5, 40, 702)],
            how="left", late="2 days",
        ),
        "a rate is inserted and deleted at one time: of rows of one time the largest answers, and null is the least",
    ),
]  # fmt: skip
_NO_PAIR = "is above the upper bound"
REFUSALS = [
    Refusal(
        _INTERVAL, "testRowTimeLeftOuterJoinNegativeIntervalSize", "no pair can match",
        {"between": ("-1 seconds", "-3 seconds"), "on": "k", "how": "left"}, _NO_PAIR,
    ),
    Refusal(
        _INTERVAL, "testRowTimeRightOuterJoinNegativeIntervalSize", "no pair can match",
        {"between": ("-1 seconds", "-5 seconds"), "on": "k", "how": "right"}, _NO_PAIR,
    ),
    Refusal(
        _INTERVAL, "testRowTimeFullOuterJoinNegativeIntervalSize", "no pair can match",
        {"between": ("-4 seconds", "-5 seconds"), "on": "k", "how": "full"}, _NO_PAIR,
    ),
    Refusal(
        _INTERVAL, "testRowTimeInnerJoinWithOtherTimeCondition", "QUARTER is evaluated by Spark, not in one process",
        {"within": "4 seconds", "on": "k", "where": "quarter(l.ts) = r.k"}, "quarter",
    ),
    *(
        Refusal(_INTERVAL, name, "there is no processing time: a result would depend on the time of arrival")
        for name in (
            "testProcessTimeInnerJoin", "testProcessTimeJoinWithIsNotDistinctFrom",
            "testProcessTimeInnerJoinWithOtherConditions", "testProcTimeLeftOuterJoin", "testProcTimeRightOuterJoin",
            "testProcTimeFullOuterJoin",
        )
    ),
    Refusal(_INTERVAL, "testUnboundedAggAfterRowtimeInnerJoin", "an aggregate without a window changes its results"),
    *(
        Refusal(_TEMPORAL, name, "there is no processing time; Flink refuses it as well")
        for name in (
            "testProcTimeTemporalJoin", "testProcTimeLeftTemporalJoin", "testProcTimeTemporalJoinChangelogSource",
            "testProcTimeTemporalJoinWithView", "testProcTimeLeftTemporalJoinWithView",
            "testProcTimeTemporalJoinWithViewNonEqui", "testProcTimeLeftTemporalJoinWithViewWithPredicates",
            "testProcTimeMultiTemporalJoin",
        )
    ),
    Refusal(_TEMPORAL, "testEventTimeMultiTemporalJoin", "the same as-of join twice, one after the other"),
    *(
        Refusal(_TEMPORAL, name, "streams of changes that take back rows of earlier times")
        for name in (
            "testEventTimeTemporalJoinChangelogUsingBeforeTime", "testEventTimeTemporalJoinWithNonEqualCondition",
            "testEventTimeTemporalJoinEqualConditionOnKey",
        )
    ),
    Refusal(
        _TEMPORAL, "testEventTimeLeftTemporalJoinWithView", "an as-of join has no predicate",
        {"on": "k", "tolerance": None, "where": "l.k > 1"}, "where", function="join_asof",
    ),
]  # fmt: skip
