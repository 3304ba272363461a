"""Outer, semi and anti joins: a nested loop over the whole streams, and the variants to try."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from braided.operators.join.spec import JoinSpec
from braided.time.lateness import Lateness
from support.contract.histories import SCHEMA, Row
from support.contract.kinds import Bag, Case, Streams, beside, key_of, keys, learned, micros, names_of, us, windows

WHERE = "abs(l.id - r.id) <= 9"
NULLS: Row = dict.fromkeys(SCHEMA.names)


def wanted(spec: JoinSpec, streams: Streams) -> Bag:
    """Return the rows of a join of any kind but inner."""
    names, times = names_of(spec.on, 2), [str(spec.time_of(side)) for side in (0, 1)]
    low, high = spec.bounds

    def match(a: Row, b: Row) -> bool:
        key, start, end = key_of(a, names[0]), a[times[0]], b[times[1]]
        if None in (key, start, end) or key != key_of(b, names[1]) or not low <= end - start <= high:
            return False
        return spec.where is None or abs(a["id"] - b["id"]) <= 9

    lefts, rights = streams
    pairs = [(i, j) for i, a in enumerate(lefts) for j, b in enumerate(rights) if match(a, b)]
    met = [{pair[side] for pair in pairs} for side in (0, 1)]
    if spec.join_kind in ("left_semi", "left_anti"):
        semi = spec.join_kind == "left_semi"
        return Counter(tuple(row.values()) for i, row in enumerate(lefts) if (i in met[0]) == semi)
    found: Bag = Counter(
        (*_key(lefts[i], names[0]), *beside(lefts[i], names[0]), *beside(rights[j], names[1])) for i, j in pairs
    )
    if spec.join_kind in ("left", "full"):
        alone = [row for i, row in enumerate(lefts) if i not in met[0]]
        found.update((*_key(row, names[0]), *beside(row, names[0]), *beside(NULLS, names[1])) for row in alone)
    if spec.join_kind in ("right", "full"):
        alone = [row for j, row in enumerate(rights) if j not in met[1]]
        found.update((*_key(row, names[1]), *beside(NULLS, names[0]), *beside(row, names[1])) for row in alone)
    return found


def _key(row: Row, names: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


_two = st.tuples(micros, micros)


def _some(*how: str, lateness: Any = _two) -> st.SearchStrategy[Any]:
    return st.builds(
        JoinSpec,
        on=keys,
        time=st.sampled_from(("t", ("t", "u"))),
        between=windows,
        lateness=lateness,
        how=st.sampled_from(how),
        where=st.sampled_from((None, WHERE)),
        idle=st.sampled_from((None, "1 hour")),
    )


def _one(how: Any, **options: Any) -> JoinSpec:
    given = {"on": "k", "time": "t", "lateness": (us(3), us(5)), "between": (us(-8), us(9)), **options}
    return JoinSpec(how=how, **given)


CASES = (
    Case("left", _one("left"), _some("left")),
    Case("right", _one("right", on="s"), _some("right")),
    Case("full", _one("full"), _some("full")),
    Case("semi or anti", _one("left_anti", where=WHERE), _some("left_semi", "left_anti")),
    Case(
        "left, learned lateness",
        _one("left", lateness=Lateness(floor=us(4), memory=us(50))),
        _some("left", lateness=st.tuples(learned, micros | learned)),
    ),
)
