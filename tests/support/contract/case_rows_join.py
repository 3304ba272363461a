"""Joins with the last rows of each key: a loop over all rows in order, and the variants to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from braided.operators.join.spec import JoinSpec
from braided.time.lateness import Lateness
from support.contract.case_match import ordered
from support.contract.histories import Row
from support.contract.kinds import Bag, Case, Streams, beside, key_of, keys, learned, micros, names_of, us, windows

Accept = Callable[[Row, Row], bool]


def last_rows(spec: JoinSpec, streams: Streams, accept: Accept = lambda left, right: True) -> Bag:
    """Return what every row meets: the rows of its key are looked at one by one, from the last before it."""
    keys, times = names_of(spec.on, 2), [str(spec.time_of(side)) for side in (0, 1)]
    groups: dict[Any, list[tuple[int, int, Row]]] = {}
    for side, rows in enumerate(streams):
        for row in ordered([row for row in rows if row[times[side]] is not None], times[side]):
            key = key_of(row, keys[side])
            if key is not None:
                groups.setdefault(key, []).append((row[times[side]], side, row))
    found: Bag = Counter()
    for key, rows_of_key in groups.items():
        in_order = sorted(rows_of_key, key=lambda each: each[:2])
        for at, (_, side, row) in enumerate(in_order):
            for other in _met(spec, in_order, at, side):
                left, right = (row, other) if side == 0 else (other, row)
                if spec.bounds[0] <= right[times[1]] - left[times[0]] <= spec.bounds[1] and accept(left, right):
                    found[*key, *beside(left, keys[0]), *beside(right, keys[1])] += 1
    return found


def _met(spec: JoinSpec, rows: list[tuple[int, int, Row]], at: int, side: int) -> list[Row]:
    """Return the last rows of the other stream before a row, back to where the key was forgotten."""
    assert spec.last_rows is not None
    found: list[Row] = []
    for before in range(at - 1, -1, -1):
        if spec.forget_us is not None and rows[before + 1][0] - rows[before][0] > spec.forget_us:
            break
        if rows[before][1] != side and len(found) < spec.last_rows[1 - side]:
            found.append(rows[before][2])
    return found


def some(**options: Any) -> JoinSpec:
    """Return a spec."""
    return JoinSpec(**{"on": "k", "time": "t", "rows": 2, "forget": us(9), "lateness": (us(3), us(5)), **options})


_two = st.tuples(micros, micros)
_few = st.integers(1, 3)
_forget = st.integers(1, 20).map(us)


@st.composite
def specs(draw: st.DrawFn, lateness: Any = _two, *, timed: bool = False) -> JoinSpec:
    window: dict[str, Any] = {}
    if timed:
        window = draw(st.fixed_dictionaries({"between": windows}) | st.fixed_dictionaries({"within": micros | _two}))
    return some(
        **window,
        on=draw(keys | st.none()),
        time=draw(st.sampled_from(("t", ("t", "u")))),
        rows=draw(_few | st.tuples(_few, st.integers(0, 3)) | st.tuples(st.just(0), _few)),
        forget=draw(st.none() | _forget if timed else _forget),
        where=draw(st.sampled_from((None, "abs(l.id - r.id) <= 9"))),
        lateness=draw(lateness),
        suffixes=draw(st.sampled_from((("", "_right"), ("_l", "_r")))),
        idle=draw(st.sampled_from((None, "1 hour"))),
    )


CASES = (
    Case("last rows", some(), specs()),
    Case("last rows within a time", some(on="s", within=(us(8), us(6)), forget=None), specs(timed=True)),
    Case(
        "last rows, learned lateness",
        some(rows=(3, 1), lateness=Lateness(floor=us(4), memory=us(50))),
        specs(st.tuples(learned, learned | micros)),
    ),
)
