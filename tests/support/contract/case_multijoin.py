"""Joins of many streams: a nested loop over all of them, and the variants to try."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from braided.operators.multijoin.spec import MultiJoinSpec
from braided.time.lateness import Lateness
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
    learned,
    micros,
    names_of,
    policies,
    shares,
    us,
)


def wanted(spec: MultiJoinSpec, streams: Streams) -> Bag:
    """Return all combinations."""
    found: Bag = Counter()
    keys = names_of(spec.on, spec.streams)
    times = [str(spec.time_of(side)) for side in range(spec.streams)]
    timed = [[row for row in rows if row[time] is not None] for rows, time in zip(streams, times, strict=True)]
    for key in {key_of(row, keys[0]) for row in timed[0]} - {None}:
        mine = [[row for row in rows if key_of(row, names) == key] for rows, names in zip(timed, keys, strict=True)]
        for rows in product(*mine):
            moments = [row[time] for row, time in zip(rows, times, strict=True)]
            if max(moments) - min(moments) <= spec.span:
                rest = [beside(row, names) for row, names in zip(rows, keys, strict=True)]
                found[*key, *(value for values in rest for value in values)] += 1  # type: ignore[misc]
    return found


_multi: dict[str, Any] = {"time": "t", "within": us(9)}


def _multijoins(**options: Any) -> st.SearchStrategy[Any]:
    @st.composite
    def specs(draw: st.DrawFn) -> MultiJoinSpec:
        count = draw(st.integers(2, 4))
        late = draw(st.tuples(*[options.get("lateness", micros)] * count))
        given = {name: draw(values) for name, values in options.items() if name != "lateness"}
        within = draw(st.integers(0, 9).map(us))
        return MultiJoinSpec(**{"streams": count, "on": "k", "time": "t", "within": within, "lateness": late, **given})

    return specs()


MULTIJOINS = Kind(
    wanted=wanted,
    whole=fits,
    null_key=lambda spec, side, row: key_of(row, names_of(spec.on, spec.streams)[side]) is None,
    crowded=lambda spec: (
        replace(spec, memory=spec.memory and 2_000, shed=None),
        *((80, 14) if spec.streams == 3 else (700, 70)),
    ),
    cases=(
        Case(
            "exact",
            MultiJoinSpec(streams=3, on="k", lateness=(us(3), us(5), us(0)), **_multi),
            _multijoins(
                on=st.sampled_from(("k", "s", ("k", "s"))),
                partition=st.sampled_from(("auto", "hash")),
                idle=st.sampled_from((None, "1 hour")),
                late=st.sampled_from(("join", "drop")),
            ),
        ),
        Case(
            "names of their own",
            MultiJoinSpec(
                streams=2, on=(("k", "k"), "s"), time=("t", "u"), within=us(9), lateness=us(4), suffixes=("_a", "_b")
            ),
            st.builds(
                MultiJoinSpec,
                streams=st.just(2),
                on=st.just((("k", "k"), "s")),
                time=st.just(("t", "u")),
                within=micros,
                lateness=micros,
                suffixes=st.just(("_a", "_b")),
            ),
        ),
        Case(
            "learned lateness",
            MultiJoinSpec(streams=3, on="k", lateness=Lateness(floor=us(4), memory=us(50)), **_multi),
            _multijoins(lateness=micros | learned),
        ),
        Case(
            "budget",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), memory=6, evict="gdj", **_multi),
            _multijoins(memory=st.integers(5, 9) | st.just(1000), evict=policies, share=shares),
        ),
        Case(
            "budget tuned",
            MultiJoinSpec(streams=3, on="s", lateness=us(4), memory=6, **_multi),
            _multijoins(on=st.just("s"), memory=budgets),
        ),
        Case(
            "budget in bytes",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), memory="8 KB", evict="prob", **_multi),
            _multijoins(memory=st.just("8 KB"), evict=policies),
        ),
        Case(
            "sample",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), shed=0.3, **_multi),
            _multijoins(shed=st.just(0.3)),
            twins=False,
        ),
        Case(
            "sample and budget",
            MultiJoinSpec(streams=2, on="k", lateness=us(4), shed=0.2, memory=6, evict="fifo", **_multi),
            _multijoins(shed=st.sampled_from((0.2, "unbiased")), memory=budgets, evict=policies),
        ),
    ),
    changes=(
        Change("on", "on", lambda spec: {"on": ("k", "s") if isinstance(spec.on, str) else "k"}),
        Change("time", "time", {"time": "u"}),
        Change("within", "within", {"within": us(10)}),
        Change("lateness", None, lambda spec: {"lateness": (us(7),) * spec.streams}, fixed),
        Change("lateness", "lateness", lambda spec: {"lateness": (us(0),) * spec.streams}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("suffixes", None, lambda spec: {"suffixes": tuple(f"_s{n}" for n in range(spec.streams))}),
        Change("idle", None, {"idle": "1 hour"}),
        Change(
            "late",
            None,
            lambda spec: {"late": "drop" if spec.late == "join" else "join"},
            lambda spec: spec.memory is None and spec.shed is None,
        ),
        Change("partition", "partition", {"partition": "hash"}),
        Change("memory", "memory", {"memory": 7}),
        *budget_changes,
        Change("shed", "shed", {"shed": 0.4}),
    ),
)
