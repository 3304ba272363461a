"""Several joins under one budget: the nested loop of each, and the variants to try."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import braided
from braided.operators.bounded.group_spec import GroupSpec, Join
from braided.time.lateness import Lateness
from support.contract.case_join import pairs
from support.contract.histories import Row
from support.contract.kinds import (
    Bag,
    Case,
    Change,
    Kind,
    Streams,
    budgets,
    fits,
    fixed,
    key_of,
    learned,
    micros,
    names_of,
    us,
    windows,
)


def wanted(spec: GroupSpec, streams: Streams) -> Bag:
    """Return all pairs of all joins, each after the name of its join."""
    found: Bag = Counter()
    by_name = dict(zip(spec.streams, streams, strict=True))
    for one in spec.joins:
        times = [str(spec.time_of(spec.streams.index(name))) for name in (one.left, one.right)]
        keys = names_of(one.on, 2)
        for row, count in pairs(by_name[one.left], by_name[one.right], keys, times, one.bounds, None).items():
            found[one.name, *row] = count
    return found


_STREAMS = ("a", "b", "c")
_group: dict[str, Any] = {"streams": _STREAMS, "time": "t"}
_two_keys = (
    Join("ab", left="a", right="b", on="k", between=(us(-5), us(6))),
    Join("cb", left="c", right="b", on="s", within=us(4)),
    Join("ac", left="a", right="c", on="k", within=us(3), suffixes=("_a", "_c")),
)
_star = (
    Join("ab", left="a", right="b", on="k", between=(us(-5), us(6))),
    Join("ca", left="c", right="a", on="k", between=(us(0), us(7))),
)


@st.composite
def _groups(draw: st.DrawFn, /, joins: st.SearchStrategy[Any], **options: Any) -> GroupSpec:
    late = {name: draw(options.get("lateness", micros)) for name in _STREAMS}
    given = {name: draw(values) for name, values in options.items() if name != "lateness"}
    return GroupSpec(streams=_STREAMS, joins=draw(joins), **{"time": "t", "lateness": late, **given})


@st.composite
def _members(draw: st.DrawFn, pairs: tuple[str, ...], on: tuple[str, ...]) -> tuple[Join, ...]:
    out = []
    for number, pair in enumerate(pairs):
        left, right = draw(st.permutations(pair))
        out.append(Join(f"j{number}", left=left, right=right, on=draw(st.sampled_from(on)), between=draw(windows)))
    return tuple(out)


def _no_key(spec: GroupSpec, side: int, row: Row) -> bool:
    """Whether a row has a null in the key of every join that it serves."""
    stream = spec.streams[side]
    serving = [
        names_of(join.on, 2)[part]
        for join in spec.joins
        for part, name in enumerate((join.left, join.right))
        if name == stream
    ]
    return all(key_of(row, names) is None for names in serving)


def _of_join(row: Row) -> tuple[Any, ...]:
    """Return the name of the join and its part; the parts of the other joins are null."""
    assert [name for name, part in row.items() if part is not None] == ["join", row["join"]]
    return row["join"], *row[row["join"]].values()


_group_policies = st.sampled_from(("gdj", "prob", "fifo", "random", braided.GDJ(initial=0.3)))

GROUPS = Kind(
    wanted=wanted,
    content=lambda spec, row: _of_join(row),
    whole=fits,
    null_key=_no_key,
    crowded=lambda spec: (replace(spec, memory=3_000, shed=None), 500, 50),
    cases=(
        Case(
            "star of one key",
            GroupSpec(joins=_star, lateness=us(4), memory=12, **_group),
            _groups(_members(("ab", "ac", "ab"), ("k",)), memory=budgets, evict=_group_policies),
        ),
        Case(
            "several keys",
            GroupSpec(
                joins=_two_keys, lateness={"a": us(2), "b": us(0), "c": us(5)}, memory=12, evict="prob", **_group
            ),
            _groups(
                _members(("ab", "bc", "ac"), ("k", "s")),
                memory=budgets,
                evict=_group_policies,
                time=st.sampled_from(("t", {"a": "t", "b": "u", "c": "t"})),
                idle=st.sampled_from((None, "1 hour")),
            ),
        ),
        Case(
            "learned lateness",
            GroupSpec(joins=_star, lateness=Lateness(floor=us(4), memory=us(50)), memory=1000, **_group),
            _groups(_members(("ab", "ac"), ("k",)), memory=budgets, lateness=micros | learned),
        ),
        Case(
            "budget in bytes",
            GroupSpec(joins=_star, lateness=us(4), memory="8 KB", evict="fifo", **_group),
            _groups(
                _members(("ab", "ac"), ("s",)), memory=st.just("8 KB"), evict=st.sampled_from(("gdj", "fifo", "random"))
            ),
        ),
        Case(
            "memory by credits",
            GroupSpec(joins=_star, lateness=us(4), memory=12, share="credits", **_group),
            _groups(
                _members(("ab", "bc", "ac"), ("k", "s")),
                memory=budgets,
                share=st.just("credits"),
                evict=st.sampled_from(("gdj", braided.GDJ(initial=0.3), braided.GDJ.method(2, initial=0.5))),
            ),
        ),
        Case(
            "sample",
            GroupSpec(joins=_two_keys, lateness=us(4), shed=0.2, memory=12, **_group),
            _groups(_members(("ab", "bc"), ("k", "s")), memory=budgets, shed=st.sampled_from((0.2, "unbiased"))),
        ),
    ),
    changes=(
        Change("joins", "joins", lambda spec: {"joins": spec.joins[:2] if len(spec.joins) > 2 else _two_keys}),
        Change(
            "joins",
            r"joins\[0\].between",
            lambda spec: {"joins": (replace(spec.joins[0], between=("0 us", "1 us")), *spec.joins[1:])},
        ),
        Change("joins", None, lambda spec: {"joins": (replace(spec.joins[0], suffixes=("_x", "_y")), *spec.joins[1:])}),
        Change("time", r"joins\[0\].time", {"time": "u"}),
        Change("lateness", None, {"lateness": us(7)}, fixed),
        Change("lateness", "lateness", {"lateness": {"a": us(1), "b": us(9), "c": us(9)}}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("memory", "memory", {"memory": 7}),
        Change("evict", "evict", {"evict": "random"}, lambda spec: spec.share == "unified"),
        Change("share", "share", {"share": "credits"}, lambda spec: spec.share == "unified" and spec.evict == "gdj"),
        Change("shed", "shed", {"shed": 0.4}),
    ),
)
