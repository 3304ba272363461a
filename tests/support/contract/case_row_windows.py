"""Windows of a number of rows: counted row by row in order of (time, content), and the variants to try."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from braided.operators.row_windows.spec import RowWindowsSpec
from braided.time.lateness import Lateness
from support.contract.case_match import ordered
from support.contract.histories import Row
from support.contract.kinds import Bag, Case, Change, Kind, Streams, fixed, learned, micros, names_of, us

VALUES = {
    "n": "count(*)",
    "texts": "count(s)",
    "total": "sum(id)",
    "mean": "avg(id)",
    "low": "min(id)",
    "late": "max(u)",
}


def wanted(spec: RowWindowsSpec, streams: Streams) -> Bag:
    """Return every window of every key that a further row exceeds."""
    key = names_of(spec.key, 1)[0]
    groups: dict[Any, list[Row]] = {}
    for row in ordered([row for row in streams[0] if row[spec.time] is not None], spec.time):
        groups.setdefault(tuple(row[name] for name in key), []).append(row)
    bag: Bag = Counter()
    for values, every in groups.items():
        for rows in runs(every, spec):
            for start in range(0, len(rows) - spec.rows, spec.slide):
                bag[(*values, *aggregated(rows[start : start + spec.rows], spec.time))] += 1
    return bag


def runs(rows: list[Row], spec: RowWindowsSpec) -> list[list[Row]]:
    """Return the rows of a key in parts: a new one begins after a time in which the key is forgotten."""
    found: list[list[Row]] = []
    forget = int(str(spec.forget).removesuffix(" us"))
    for row in rows:
        if not found or row[spec.time] - found[-1][-1][spec.time] > forget:
            found.append([])
        found[-1].append(row)
    return found


def aggregated(rows: list[Row], time: str) -> tuple[Any, ...]:
    """Return the values of a window, after the time of its first row."""
    ids = [row["id"] for row in rows]
    others = [row["u"] for row in rows if row["u"] is not None]
    texts = sum(row["s"] is not None for row in rows)
    latest = max(others) if others else None
    return rows[0][time], len(rows), texts, sum(ids), sum(ids) / len(ids), min(ids), latest


def some(**options: Any) -> RowWindowsSpec:
    """Return a spec with the values of the reference."""
    given = {
        "time": "t",
        "key": "k",
        "rows": 3,
        "every": 2,
        "values": VALUES,
        "forget": us(9),
        "lateness": us(5),
        **options,
    }
    return RowWindowsSpec(**given)


@st.composite
def specs(draw: st.DrawFn, lateness: Any = micros) -> RowWindowsSpec:
    rows = draw(st.integers(1, 5))
    return some(
        key=draw(st.sampled_from((None, "k", ("k", "s")))),
        rows=rows,
        every=draw(st.none() | st.integers(1, rows)),
        forget=us(draw(st.integers(1, 20))),
        lateness=draw(lateness),
    )


ROW_WINDOWS = Kind(
    wanted=wanted,
    content=lambda spec, row: tuple(value for name, value in row.items() if name != "more"),
    of_parts=lambda spec: False,
    crowded=lambda spec: (some(key="s", rows=1, every=1), 270_000, 2_000),
    cases=(
        Case("windows that overlap", some(), specs()),
        Case("of the whole stream", some(key=None, rows=2, every=None), specs()),
        Case("learned lateness", some(lateness=Lateness(floor=us(4), memory=us(50))), specs(learned)),
    ),
    changes=(
        Change("time", "time", {"time": "u"}),
        Change("key", "key", {"key": "id"}),
        Change("rows", "rows", lambda spec: {"rows": spec.rows + 1, "every": spec.slide}),
        Change("every", "every", lambda spec: {"every": 1 if spec.slide > 1 else 2}, lambda spec: spec.rows > 1),
        Change("forget", "forget", {"forget": us(50)}),
        Change("values", None, {"values": {**VALUES, "more": "max(id)"}}),
        Change("lateness", None, {"lateness": us(7)}, fixed),
        Change("lateness", "lateness", {"lateness": us(4)}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
    ),
)
