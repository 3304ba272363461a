"""DuckDB's test/sql/join/asof: times that are numbers there are seconds here, hours are 3600 of them.

Rows at infinite times are left out: Spark has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.suites.suite_case import Refusal, SuiteCase, Values


def _asof(
    name: str,
    left: Sequence[Values],
    right: Sequence[Values],
    shown: Sequence[str],
    wanted: Sequence[Values],
    columns: tuple[Sequence[str], Sequence[str]] = (("ts", "p"), ("ts", "v")),
    **more: Any,
) -> SuiteCase:
    """Return an as-of join of two tables, backward unless it says otherwise."""
    keep = more.pop("keep", None)
    options = {"on": None, "tolerance": None, "lateness": "1 hour", **more}
    return SuiteCase(
        "DuckDB asof", name, columns, [(left, right)], options, shown, wanted, function="join_asof", keep=keep
    )


_HOUR = 3600
_PROBES: list[Values] = [*((hour * _HOUR, hour) for hour in range(12, 22)), (None, -1)]
_EVENTS: list[Values] = [*((hour * _HOUR, hour - 13) for hour in range(13, 17)), (None, -1)]
_HOURS = [(hour, min(hour - 13, 3)) for hour in range(13, 22)]
_STRICT = [(hour, min(hour - 14, 3)) for hour in range(14, 22)]
_FORWARD = [(12, 0), *((hour, hour - 13) for hour in range(13, 17))]
_AFTER = [(hour, hour - 12) for hour in range(12, 16)]
_NUMBERS: list[Values] = [(second, second) for second in range(10)]
_STEPS: list[Values] = [(None, -1), (1, 0), (3, 1), (6, 2), (8, 3), (999_999, 9)]
_FOUND = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (8, 3), (9, 3)]
_KEYED: list[Values] = [(key, second, second) for key in (1, 2) for second in range(10)]
_KEYED_STEPS: list[Values] = [(1, 1, 0), (1, 3, 1), (1, 6, 2), (1, 8, 3), (2, 0, 10), (2, 7, 20), (2, 11, 30)]
_KEYED_FOUND = [*((1, *row) for row in _FOUND), *((2, second, 10 if second < 7 else 20) for second in range(10))]
_KEYS = (("k", "ts", "p"), ("k", "ts", "v"))
_DAYS = "10 days"


def _hours(name: str, inner: Sequence[Values], **options: Any) -> list[SuiteCase]:
    """Return the inner join and the left one of hours, in which probes without an answer have nulls."""
    answered = {probe for probe, _ in inner}
    alone = [(p, None) for _, p in _PROBES if p not in answered]
    return [
        _asof(f"{name}, {how}", _PROBES, _EVENTS, ["p", "v"], rows, how=how, **options)
        for how, rows in (("inner", inner), ("left", [*inner, *alone]))
    ]


def _missing(dates: int, keys: int, total: int) -> SuiteCase:
    """Return probes half a minute before each date, of keys of which half are missing; the sum of what they find."""
    build = [(key, 60 * date, date) for date in range(dates) for key in range(keys)]
    probe = [(2 * key, time - 30, 0) for key, time, _ in build]
    found = [(2 * key, date - 1) for date in range(1, dates) for key in range(keys) if 2 * key < keys]
    assert sum(value for _, value in found) == total, "the sum that DuckDB expects"
    return _asof(f"missing: {dates} dates, {keys} keys", probe, build, ["k", "v"], found, _KEYS, on="k", how="inner")


_PRICES = (("symbol", "ts"), ("symbol", "ts", "price"))
_AMOUNTS: list[Values] = [(1, 100), (2, None), (3, None), (4, None), (5, 200), (6, None), (7, None), (8, 300),
                          (9, None), (10, None), (11, 500)]  # fmt: skip
_FILLED = [1, 1, 1, 1, 5, 5, 5, 8, 8, 8, 11]

CASES = [
    *_hours("timestamps, inequalities: >=", _HOURS),
    *_hours("inequalities: >", _STRICT, allow_exact_matches=False),
    *_hours("inequalities: <=", _FORWARD, direction="forward", tolerance=_DAYS),
    *_hours("inequalities: <", _AFTER, direction="forward", tolerance=_DAYS, allow_exact_matches=False),
    _asof("integers: inner", _NUMBERS, _STEPS, ["p", "v"], _FOUND, how="inner"),
    _asof("integers: left", _NUMBERS, _STEPS, ["p", "v"], [(0, None), *_FOUND], how="left"),
    _asof("doubles: inner, with equality", _KEYED, _KEYED_STEPS, ["k", "p", "v"], _KEYED_FOUND, _KEYS, on="k", how="inner"),
    _asof(
        "doubles: left, with equality", _KEYED, _KEYED_STEPS, ["k", "p", "v"], [(1, 0, None), *_KEYED_FOUND], _KEYS,
        on="k", how="left",
    ),
    *(_missing(*sizes) for sizes in ((10, 5, 108), (20, 5, 513), (30, 5, 1218), (50, 5, 3528), (100, 5, 14553))),
    _asof(
        "nulls: a key and a time of null",
        [("A", None, 5, 3), ("A", 1, None, 4)], [("A", None, 3, 20), ("A", 1, 3, 30)], ["l", "r"],
        [(3, None), (4, None)], (("symbol", "venue", "ts", "l"), ("symbol", "venue", "ts", "r")), on=["symbol", "venue"],
        how="left",
    ),
    _asof(
        "predicates: issue 18309", [("A", 2, 2), ("B", 4, 4), ("A", 5, 5)], [("A", 1, "I"), ("B", 3, "II")],
        ["i", "k"], [(2, "I"), (4, "II"), (5, "I")], (("j", "ts", "i"), ("j", "ts", "k")), on="j", how="inner",
    ),
    *(
        _asof(f"pushdown: right filter, {how}", [(0, 0), (1, None)], [(0, 0)], ["p", "v"], [(0, 0), (None, 0)], how=how)
        for how in ("inner", "left")
    ),
    _asof(
        "pushdown: issue 12215", [(4, 5), (8, 10), (15, 14), (18, 21)], [(9, 5), (13, 10), (20, 14), (23, 21)],
        ["p", "v"], [(10, 5), (21, 14)], direction="forward", tolerance=_DAYS, how="inner",
        keep=lambda row: row["p"] != row["v"],
    ),
    *(
        _asof(
            f"pushdown: condition on the result, {how}", [(n, n) for n in (0, 5, 10, 15)], [(n, n) for n in (1, 6, 11, 16)],
            ["p", "v"], [(5, 6), (10, 11)], direction="forward", tolerance=_DAYS, how=how, allow_exact_matches=False,
            keep=lambda row: row["v"] is not None and 3 <= row["v"] <= 12,
        )
        for how in ("inner", "left")
    ),
    _asof(
        "pushdown: issue 13899", _AMOUNTS, [(n, n) for n, amount in _AMOUNTS if amount is not None], ["p", "v"],
        [(amount, last) for (_, amount), last in zip(_AMOUNTS, _FILLED, strict=True)], how="inner",
    ),
    _asof("empty right: left", [(1, 1)], [], ["p", "v"], [(1, None)], how="left"),
    _asof("empty right: inner", [(1, 1)], [], ["p", "v"], [], how="inner"),
    _asof("empty left", [], [(1, 1)], ["p", "v"], [], how="left"),
    _asof("prefix: integers", [(1, 3), (3, 3)], [(1, 0, 42), (2, 0, 55)], ["symbol", "price"], [(1, 42)], _PRICES, on="symbol", how="inner"),
    _asof(
        "prefix: texts", [("APPL", 3), ("VCT", 3)], [("APPL", 0, 42), ("MEL", 0, 55)], ["symbol", "price"],
        [("APPL", 42)], _PRICES, on="symbol", how="inner",
    ),
    _asof(
        "prefix: multiple keys", [("APPL", 1, 3), ("MEL", 3, 3)], [("APPL", 1, 0, 42), ("MEL", 2, 0, 55)],
        ["symbol", "exchange", "price"], [("APPL", 1, 42)],
        (("symbol", "exchange", "ts"), ("symbol", "exchange", "ts", "price")), on=["symbol", "exchange"], how="inner",
    ),
]  # fmt: skip
_K: dict[str, Any] = {"on": "k", "tolerance": None}
REFUSALS = [
    Refusal("DuckDB asof", "RIGHT joins of timestamps, inequalities, integers, doubles, texts", "how= is left or inner",
            {**_K, "how": "right"}, "how='right': unknown", function="join_asof"),
    Refusal("DuckDB asof", "semi and anti", "how= is left or inner",
            {**_K, "how": "left_semi"}, "how='left_semi': unknown", function="join_asof"),
    Refusal("DuckDB asof", "predicates: issues 19027 and 19251", "an as-of join has no predicate",
            {**_K, "where": "l.k > r.k"}, "where", function="join_asof"),
    Refusal("DuckDB asof", "nulls: IS NOT DISTINCT FROM", "on= is the = of SQL, for which null equals nothing"),
    Refusal("DuckDB asof", "varchar; ON p.ts >= e.ts of texts", "the order is that of a timestamp",
            {**_K, "time": "k"}, "time='k'", function="join_asof"),
    Refusal("DuckDB asof", "prefix: keys that are structs, lists and arrays", "keys are plain values",
            {**_K, "on": "nested"}, "nested", function="join_asof"),
    Refusal("DuckDB asof", "rows at infinite times", "Spark's timestamps end in the year 9999"),
]  # fmt: skip
