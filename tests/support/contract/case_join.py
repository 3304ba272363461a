"""Joins of two streams: a nested loop, and the variants to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from braided.operators.join.spec import JoinSpec
from braided.operators.spec import Spec
from braided.time.lateness import Lateness
from support.contract import case_outer, case_rows_join
from support.contract.histories import Row
from support.contract.kinds import (
    Bag,
    Case,
    Change,
    Kind,
    Streams,
    beside,
    budget_changes,
    budgets,
    fits,
    fixed,
    key_of,
    keys,
    learned,
    micros,
    names_of,
    policies,
    shares,
    us,
    windows,
)
from support.profiles import some

# Predicates as SQL has them: a null is no.
WHERE: dict[str, Callable[[Row, Row], bool]] = {
    "l.k < r.k": lambda a, b: None not in (a["k"], b["k"]) and a["k"] < b["k"],
    "abs(l.id - r.id) <= 9": lambda a, b: abs(a["id"] - b["id"]) <= 9,
    "l.k = r.k OR l.id = 3": lambda a, b: (a["k"] is not None and a["k"] == b["k"]) or a["id"] == 3,
    "l.k <> r.k AND l.id >= r.id - 1": lambda a, b: (
        None not in (a["k"], b["k"]) and a["k"] != b["k"] and a["id"] >= b["id"] - 1
    ),
}


def pairs(
    left: Sequence[Row],
    right: Sequence[Row],
    keys: Sequence[Sequence[str]],
    times: Sequence[str],
    bounds: tuple[int, int],
    where: str | None,
) -> Bag:
    """Return the rows of a window join: the key, the rest of the left row, the rest of the right one."""
    found: Bag = Counter()
    accept = (lambda a, b: True) if where is None else WHERE[where]
    for a, b in product(left, right):
        key, start, end = key_of(a, keys[0]), a[times[0]], b[times[1]]
        if start is None or end is None or key is None or key != key_of(b, keys[1]):
            continue
        if bounds[0] <= end - start <= bounds[1] and accept(a, b):
            found[*key, *beside(a, keys[0]), *beside(b, keys[1])] += 1
    return found


def wanted(spec: JoinSpec, streams: Streams) -> Bag:
    """Return all pairs, or what another kind of join makes of them."""
    if spec.rows is not None:
        return case_rows_join.last_rows(spec, streams, *([] if spec.where is None else [WHERE[spec.where]]))
    if spec.join_kind != "inner":
        return case_outer.wanted(spec, streams)
    times = [str(spec.time_of(side)) for side in (0, 1)]
    return pairs(streams[0], streams[1], names_of(spec.on, 2), times, spec.bounds, spec.where)


_join: dict[str, Any] = {"time": "t", "lateness": (us(3), us(5)), "between": (us(-8), us(9))}
_two = st.tuples(micros, micros)


def _joins(**options: Any) -> st.SearchStrategy[Any]:
    given = {"time": st.just("t"), "lateness": _two, "between": windows, "on": keys, **options}
    return st.builds(JoinSpec, **given)


def _crowded_join(spec: JoinSpec) -> tuple[Spec, int, int]:
    if spec.rows is not None:
        return replace(spec, rows=700), 700, 70
    where = None if spec.on else "abs(l.id - r.id) <= 9"
    # Rows of one key and time have matches: semi joins give each once, and anti joins none.
    how = "left" if spec.join_kind in ("left_semi", "left_anti") else spec.how
    return replace(spec, memory=spec.memory and 2_000, shed=None, where=where, how=how), 700, 70


def _is_pairwise(spec: JoinSpec) -> bool:
    return spec.is_pairwise


JOINS = Kind(
    wanted=wanted,
    whole=fits,
    null_key=lambda spec, side, row: key_of(row, names_of(spec.on, 2)[side]) is None,
    # Where a row of a key is missing, an earlier one is among the last, or another one comes out alone.
    of_parts=_is_pairwise,
    crowded=_crowded_join,
    cases=(
        Case(
            "exact",
            JoinSpec(on="k", **_join),
            _joins(
                where=st.sampled_from((None, "abs(l.id - r.id) <= 9")),
                time=st.sampled_from(("t", ("t", "u"))),
                partition=st.sampled_from(("auto", "hash", "ssp", "grid")),
                suffixes=st.sampled_from((("", "_right"), ("_l", "_r"))),
                idle=st.sampled_from((None, "1 hour")),
            ),
        ),
        Case(
            "window on one side",
            JoinSpec(on="s", time="t", within=(us(9), us(0)), lateness=us(3)),
            st.builds(JoinSpec, on=keys, time=st.just("t"), lateness=micros, within=micros | _two),
        ),
        Case(
            "theta",
            JoinSpec(where="l.k < r.k", **_join),
            _joins(
                on=st.none(),
                where=st.sampled_from(sorted(WHERE)),
                partition=st.sampled_from(("auto", "ssp", "grid")),
            ),
        ),
        Case(
            "learned lateness",
            JoinSpec(on="k", **{**_join, "lateness": Lateness(floor=us(4), memory=us(50))}),
            _joins(on=st.just("k"), lateness=st.tuples(learned, micros | learned)),
        ),
        Case("late rows dropped", JoinSpec(on="k", late="drop", **_join), _joins(late=st.just("drop"))),
        Case(
            "budget",
            JoinSpec(on="k", memory=6, evict="gdj", **_join),
            _joins(on=st.just("k"), memory=budgets, evict=policies, share=shares),
        ),
        Case(
            "budget tuned",
            JoinSpec(on="s", memory=6, **_join),
            _joins(on=st.just("s"), memory=budgets, lateness=st.tuples(learned, micros)),
        ),
        Case(
            "budget in bytes",
            JoinSpec(on="k", memory="8 KB", evict="prob", **_join),
            _joins(on=st.just("k"), memory=st.sampled_from(("3 KB", "8 KB")), evict=policies, share=st.just("unified")),
        ),
        Case(
            # Identical rows are told apart by their number within a task, so that cuts matter where there are any.
            "sample",
            JoinSpec(on="k", shed=0.3, **_join),
            _joins(shed=st.just(0.3)),
            twins=False,
        ),
        Case(
            "sample and budget",
            JoinSpec(on="k", shed=0.2, memory=6, evict="fifo", **_join),
            _joins(on=st.just("k"), shed=st.sampled_from((0.2, "unbiased")), memory=budgets, evict=policies),
        ),
        *some(case_rows_join.CASES, quick=1),
        *some(case_outer.CASES, quick=3),
    ),
    changes=(
        Change("on", "on", {"on": ("k", "s")}),
        Change("time", "time", {"time": "u"}),
        Change("within", "between", {"within": us(5), "between": None}),
        Change("between", "between", {"within": None, "between": (us(-8), us(10))}),
        Change("where", "where", {"where": "l.id <= r.id"}),
        Change("lateness", None, {"lateness": (us(7), us(5))}, fixed),
        Change("lateness", "lateness", {"lateness": (us(3), us(2))}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("lateness", "lateness", {"lateness": us(3)}, lambda spec: not fixed(spec)),
        Change("suffixes", None, {"suffixes": ("_l", "_r")}, lambda spec: "left_" not in spec.join_kind),
        Change("how", "how", {"how": "full"}, lambda spec: spec.join_kind not in ("inner", "full")),
        Change(
            "late",
            None,
            lambda spec: {"late": "drop" if spec.late == "join" else "join"},
            lambda spec: spec.memory is None and spec.shed is None and spec.rows is None,
        ),
        Change("idle", None, {"idle": "1 hour"}),
        Change("rows", "rows", {"rows": 5}, lambda spec: spec.rows is not None),
        Change("forget", "forget", {"forget": us(50)}, lambda spec: spec.rows is not None),
        Change("partition", "partition", {"partition": "ssp"}, _is_pairwise),
        Change(
            "memory",
            "memory",
            {"memory": 7},
            lambda spec: spec.on is not None and _is_pairwise(spec) and spec.late == "join",
        ),
        *budget_changes,
        Change("shed", "shed", {"shed": 0.4}, lambda spec: _is_pairwise(spec) and spec.late == "join"),
    ),
)
