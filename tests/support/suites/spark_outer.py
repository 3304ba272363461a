"""Spark's StreamingJoinSuite, but for inner joins: outer, full outer and semi joins.

Streams of single numbers: a row of the value 3 has the key 3 and the time of 3 seconds; its left value is 6, its right
one 9. Joins of windows of 10 seconds have the window as a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.suites.suite_case import Difference, Refusal, SuiteCase, Values

_OUTER, _FULL, _SEMI = "StreamingOuterJoinSuite", "StreamingFullOuterJoinSuite", "StreamingLeftSemiJoinSuite"
Steps = Sequence[tuple[Sequence[int], Sequence[int]]]

_LEFT_FIRST: Steps = (((1, 2, 3), (3, 4, 5)), ((20,), (21,)), ((), (20,)))
_RIGHT_FIRST: Steps = (((3, 4, 5), (1, 2, 3)), ((20,), (21,)), ((), (20,)))
_WINDOWS: Steps = (((1, 2, 3, 4, 5), (3, 4, 5, 6, 7)), ((21,), (22,)), ((22,), ()))


def _numbers(
    suite: str, name: str, how: str, steps: Steps, wanted: Sequence[Values], open: Sequence[Values] = (), **more: Any
) -> SuiteCase:
    """Return a join of streams of numbers by key and window; rows are (key, left value, right value)."""
    where = {"where": more.pop("where")} if "where" in more else {}
    late: tuple[Sequence[int], Sequence[int]] = more.pop("late", ((), ()))
    shown = ["key", "lv"] if how == "left_semi" else ["key", "lv", "rv"]
    return SuiteCase(
        suite,
        name,
        (["key", "window", "ts", "lv"], ["key", "window", "ts", "rv"]),
        [([_number(v, 2) for v in left], [_number(v, 3) for v in right]) for left, right in steps],
        {"on": ["key", "window"], "within": "10 seconds", "lateness": "10 seconds", "how": how, **where},
        shown,
        wanted,
        open,
        late=([_number(v, 2) for v in late[0]], [_number(v, 3) for v in late[1]]),
        **more,
    )


def _number(value: int, times: int) -> Values:
    return value, value // 10, value, value * times


def _ranges(suite: str, name: str, how: str, third: int, wanted: Sequence[Values], open: Sequence[Values]) -> SuiteCase:
    """Return a join of rows (key, time) whose times are at most 5 seconds apart."""
    steps = [
        ([(1, 5), (3, 5)], []),
        ([], [(1, 10), (2, 5)]),
        ([], [(1, third)]),
        ([(1, 7), (1, 30)], []),
        ([], [(0, 30)]),
    ]
    return _range(suite, name, how, steps, "5 seconds", "10 seconds", wanted, open)


def _range(
    suite: str,
    name: str,
    how: str,
    steps: Sequence[tuple[Sequence[Values], Sequence[Values]]],
    within: str,
    lateness: str,
    wanted: Sequence[Values],
    open: Sequence[Values],
) -> SuiteCase:
    return SuiteCase(
        suite,
        name,
        (["key", "ts", "lt"], ["key", "ts", "rt"]),
        [([(*row, row[1]) for row in left], [(*row, row[1]) for row in right]) for left, right in steps],
        {"on": "key", "within": within, "lateness": lateness, "how": how},
        ["key", "lt"] if how == "left_semi" else ["key", "lt", "rt"],
        wanted,
        open,
    )


_MINUTES = [
    ([(1, 210), (3, 5)], []),
    ([], [(1, 300), (2, 5)]),
    ([], [(1, 450)]),
    ([(1, 260), (1, 1800)], []),
    ([], [(0, 1800)]),
]
_FOUND = [(1, 5, 10), (1, 7, 10), (1, 7, 11)]
_FOUND_MINUTES = [(1, 210, 300), (1, 260, 300), (1, 260, 450)]


def _self(suite: str, name: str, how: str, wanted: Sequence[Values], open: Sequence[Values]) -> SuiteCase:
    """Return a join of the numbers from 1 to 15 with the even ones among them, up to 5 seconds later."""
    steps = []
    for first in (1, 6, 11):
        every = [(v, v, v) for v in range(first, first + 5)]
        even = [row for row in every if row[0] % 2 == 0]
        steps.append((even, every) if how == "right" else (every, even))
    between = ("-5 seconds", "0 seconds") if how == "right" else ("0 seconds", "5 seconds")
    return SuiteCase(
        suite,
        name,
        (["id", "ts", "lt"], ["id", "ts", "rt"]),
        steps,
        {"on": "id", "between": between, "lateness": "5 seconds", "how": how},
        ["id", "lt"] if how == "left_semi" else ["id", "lt", "rt"],
        wanted,
        open,
    )


_EVEN = [(v, v, v) for v in range(2, 15, 2)]
_HOUR = 3600


def _texts(name: str, lateness: Any, steps: Any, wanted: Sequence[Values]) -> SuiteCase:
    """Return a left join of texts of one key within 30 seconds."""
    return SuiteCase(
        _OUTER,
        name,
        (["id", "ts", "comment"], ["id", "ts", "name"]),
        [([("abc", *row) for row in left], [("abc", *row) for row in right]) for left, right in steps],
        {"on": "id", "within": "30 seconds", "lateness": lateness, "how": "left"},
        ["comment", "name"],
        wanted,
    )


def _nulls(name: str, left: Sequence[Any], right: Sequence[Any], wanted: Sequence[Values]) -> SuiteCase:
    """Return a left join of rows (first key, value), whose second key is the value and third the window."""
    steps = [([(key, *_number(v, 2)) for key, v in left], [(key, *_number(v, 3)) for key, v in right])]
    steps.append(([(1, *_number(21, 2))], [(1, *_number(22, 3))]))
    return SuiteCase(
        _OUTER,
        name,
        (["first", "key", "window", "ts", "lv"], ["first", "key", "window", "ts", "rv"]),
        steps,
        {"on": ["first", "key", "window"], "within": "10 seconds", "lateness": "10 seconds", "how": "left"},
        ["first", "key", "lv", "rv"],
        wanted,
        [(1, 21, 42, None)],
    )


_THREE = [(3, 6, 9), (4, 8, 12), (5, 10, 15)]
CASES = [
    _numbers(
        _OUTER, "left outer early state exclusion on left", "left", _LEFT_FIRST,
        [(3, 6, 9), (1, 2, None), (2, 4, None), (20, 40, 60)], where="l.lv > 4",
    ),
    _numbers(
        _OUTER, "left outer early state exclusion on right", "left", _RIGHT_FIRST,
        [(3, 6, 9), (4, 8, None), (5, 10, None), (20, 40, 60)], where="r.rv > 7",
    ),
    _numbers(
        _OUTER, "right outer early state exclusion on left", "right", _LEFT_FIRST,
        [(3, 6, 9), (4, None, 12), (5, None, 15), (20, 40, 60)], [(21, None, 63)], where="l.lv > 4",
    ),
    _numbers(
        _OUTER, "right outer early state exclusion on right", "right", _RIGHT_FIRST,
        [(3, 6, 9), (1, None, 3), (2, None, 6), (20, 40, 60)], [(21, None, 63)], where="r.rv > 7",
    ),
    _numbers(
        _OUTER, "windowed left outer join", "left", _WINDOWS,
        [*_THREE, (1, 2, None), (2, 4, None), (22, 44, 66)], [(21, 42, None)],
    ),
    _numbers(
        _OUTER, "windowed right outer join", "right", _WINDOWS,
        [*_THREE, (6, None, 18), (7, None, 21), (22, 44, 66)],
    ),
    _ranges(
        _OUTER, "left outer with watermark range condition", "left", 11, [*_FOUND, (3, 5, None)], [(1, 30, None)]
    ),
    _ranges(
        _OUTER, "right outer with watermark range condition", "right", 11, [*_FOUND, (2, None, 5)], [(0, None, 30)]
    ),
    _range(
        _OUTER, "left outer with watermark range condition, 3 minutes 30 seconds", "left", _MINUTES,
        "3 minutes 30 seconds", "10 minutes", [*_FOUND_MINUTES, (3, 5, None)], [(1, 1800, None)],
    ),
    _range(
        _OUTER, "right outer with watermark range condition, 3 minutes 30 seconds", "right", _MINUTES,
        "3 minutes 30 seconds", "10 minutes", [*_FOUND_MINUTES, (2, None, 5)], [(0, None, 1800)],
    ),
    _numbers(
        _OUTER, "left outer join with non-key condition violated", "left",
        (
            ((1, 2, 3), (1, 2, 3)), ((20,), (21,)), ((), (20,)), ((40, 41), (40, 41)), ((70,), (71,)), ((), (70,)),
            ((101, 102, 103), (101, 102, 103)), ((1000,), (1001,)),
        ),
        [
            (1, 2, None), (2, 4, None), (3, 6, None), (20, 40, 60), (40, 80, 120), (41, 82, 123), (70, 140, 210),
            (101, 202, None), (102, 204, None), (103, 206, None),
        ],
        [(1000, 2000, None)], where="l.lv > 10 AND (r.rv < 300 OR r.rv > 1000)",
    ),
    _self(
        _OUTER, "SPARK-26187 self left outer join", "left",
        [*_EVEN, (1, 1, None), (3, 3, None)], [(v, v, None) for v in range(5, 16, 2)],
    ),
    _self(
        _OUTER, "SPARK-26187 self right outer join", "right",
        [*_EVEN, (1, None, 1), (3, None, 3)], [(v, None, v) for v in range(5, 16, 2)],
    ),
    _texts(
        "SPARK-32148 stream-stream join regression on Spark 3.0.0", ("2 minutes", "4 minutes"),
        [(
            [(0, "has no join partner"), (24 * _HOUR, "joined with A"), (25 * _HOUR, "joined with B")],
            [(24 * _HOUR + 10, "A"), (25 * _HOUR - 1, "B"), (26 * _HOUR, "C")],
        )],
        [("has no join partner", None), ("joined with A", "A"), ("joined with B", "B")],
    ),
    _texts(
        "SPARK-38684: rows enter and leave for one key in the same batch", "0 seconds",
        [
            ([(0, "left 1")], [(60, "right 1")]),
            ([(_HOUR, "left 2")], [(_HOUR + 60, "right 2")]),
            ([(_HOUR + 1800, "left 3")], []),
            ([], [(_HOUR + 1810, "match")]),
        ],
        [("left 1", None), ("left 2", None), ("left 3", "match")],
    ),
    _nulls(
        "left-outer: joining non-nullable left join key with nullable right join key",
        [(1, v) for v in range(1, 6)], [(1, v) for v in range(3, 7)],
        [(1, 3, 6, 9), (1, 4, 8, 12), (1, 5, 10, 15), (1, 1, 2, None), (1, 2, 4, None)],
    ),
    _nulls(
        "left-outer: joining nullable left join key with non-nullable right join key",
        [(1, 1), (None, 2), (1, 3), (1, 4), (1, 5)], [(1, v) for v in range(3, 7)],
        [(1, 3, 6, 9), (1, 4, 8, 12), (1, 5, 10, 15), (1, 1, 2, None), (None, 2, 4, None)],
    ),
    _numbers(
        _FULL, "windowed full outer join", "full", _WINDOWS,
        [*_THREE, (1, 2, None), (2, 4, None), (6, None, 18), (7, None, 21), (22, 44, 66)], [(21, 42, None)],
        # A left 5 is still stored: Spark drops the late right 5, we find the pair.
        late=((1,), (5,)), found_late=[(5, 10, 15)],
    ),
    _numbers(
        _FULL, "full outer early state exclusion on left", "full", _LEFT_FIRST,
        [(1, 2, None), (2, 4, None), (3, 6, 9), (4, None, 12), (5, None, 15), (20, 40, 60)], [(21, None, 63)],
        where="l.lv > 4",
    ),
    _numbers(
        _FULL, "full outer early state exclusion on right", "full", _RIGHT_FIRST,
        [(1, None, 3), (2, None, 6), (3, 6, 9), (4, 8, None), (5, 10, None), (20, 40, 60)], [(21, None, 63)],
        where="r.rv > 7",
    ),
    _ranges(
        _FULL, "full outer join with watermark range condition", "full", 9,
        [(1, 5, 10), (1, 5, 9), (1, 7, 9), (1, 7, 10), (3, 5, None), (2, None, 5)], [(1, 30, None), (0, None, 30)],
    ),
    _self(
        _FULL, "self full outer join", "full",
        [*_EVEN, (1, 1, None), (3, 3, None)], [(v, v, None) for v in range(5, 16, 2)],
    ),
    _numbers(
        _SEMI, "windowed left semi join", "left_semi", _WINDOWS, [(3, 6), (4, 8), (5, 10), (22, 44)], late=((1,), (5,))
    ),
    _numbers(
        _SEMI, "left semi early state exclusion on left", "left_semi", _LEFT_FIRST, [(3, 6), (20, 40)],
        where="l.lv > 4",
    ),
    _numbers(
        _SEMI, "left semi early state exclusion on right", "left_semi", _RIGHT_FIRST, [(3, 6), (20, 40)],
        where="r.rv > 7",
    ),
    _ranges(_SEMI, "left semi join with watermark range condition", "left_semi", 9, [(1, 5), (1, 7)], []),
    _self(_SEMI, "self left semi join", "left_semi", [(v, v) for v in range(2, 15, 2)], []),
]  # fmt: skip
DIFFERENCES = [
    Difference(
        _nulls(
            "left-outer: joining nullable left join key with nullable right join key",
            [(1, 1), (None, 2), (1, 3), (None, 4), (1, 5)],
            [(1, 3), (None, 4), (1, 5), (1, 6)],
            [(1, 3, 6, 9), (None, 4, 8, None), (1, 5, 10, 15), (1, 1, 2, None), (None, 2, 4, None)],
        ),
        "the suite compares keys by <=>, for which null equals null; on= is the = of SQL",
    ),
]
REFUSALS = [
    Refusal(_OUTER, "SPARK-26187 restore the query from Spark 2.4", "a checkpoint of Spark's own join is not read"),
    Refusal(_OUTER, "SPARK-29438 UNION and shifted partition IDs", "of Spark's own partition numbers; an inner join"),
]
