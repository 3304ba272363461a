"""Chains of joins whose times change: a join by the time of the first stream, after one by that of the second."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.operators import micros
from support.profiles import examples

import braided
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.registry import build
from braided.operators.stream import Stream, TimeMarks

US = pa.timestamp("us")
NAMES = "abcd"


def schema_of(name: str) -> pa.Schema:
    return pa.schema([("k", pa.int64()), (f"t_{name}", US), (name, pa.int64())])


@dataclass
class Chain:
    """Four streams, their rows batch by batch, and the three joins: kind, times and bounds of each."""

    rows: dict[str, list[list[tuple[int, int, int]]]]
    steps: tuple[tuple[str, str, tuple[int, int]], ...]
    lateness: dict[str, int]
    given: int | None
    """The lateness that is set for results of joins."""

    def batch(self, name: str, number: int) -> pa.RecordBatch:
        rows = self.rows[name][number]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, schema_of(name), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(name))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    random = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    batches = draw(st.integers(2, 8))
    lateness = {name: draw(st.sampled_from((0, 0, 5))) for name in NAMES}
    rows = {}
    for name in NAMES:
        count = draw(st.integers(8, 60))
        times = np.sort(random.integers(0, 300, count))
        order = np.argsort(times + random.integers(0, lateness[name] + 1, count), kind="stable")
        cuts = np.sort(random.integers(0, count + 1, batches - 1))
        triples = [(int(random.integers(0, 3)), int(times[at]), int(at)) for at in order]
        rows[name] = [triples[i:j] for i, j in itertools.pairwise([0, *map(int, cuts), count])]
    bounds = st.sampled_from(((0, 60), (-20, 20), (0, 1), (-60, 0)))
    first, second, third = (
        draw(st.sampled_from(kinds))
        for kinds in (("inner", "left", "right"), ("inner", "left", "left_anti"), ("inner", "left"))
    )
    known = "ab" if second == "left_anti" else "abc"
    steps = (
        (first, "a", draw(bounds)),
        (second, draw(st.sampled_from("ab")), draw(bounds)),
        (third, draw(st.sampled_from(known)), draw(bounds)),
    )
    return Chain(rows, steps, lateness, draw(st.sampled_from((None, 0))))


def run(chain: Chain) -> Counter[tuple[int | None, ...]]:
    """Join stream by stream, batch by batch; return the ids of the results."""
    stream = Stream("left", schema_of("a"))
    plans = []
    for (how, time, between), name, before in zip(chain.steps, "bcd", "abc", strict=True):
        left = micros(chain.lateness["a"]) if before == "a" else None if chain.given is None else micros(chain.given)
        spec = JoinSpec(
            on="k", time=(f"t_{time}", f"t_{name}"), between=tuple(map(micros, between)), how=how,
            lateness=(left, micros(chain.lateness[name])),
        )  # fmt: skip
        assume(not stream.marks_of(f"t_{time}").mixed)  # refused, or learned
        plan = build(spec, [stream, Stream("right", schema_of(name))])
        assert all(isinstance(rule, int) for rule in plan.operator.lateness)
        plans.append(plan)
        stream = plan.as_stream("left")
    runtimes = [LocalRuntime(plan.operator, 2) for plan in plans]
    found: Counter[tuple[int | None, ...]] = Counter()
    batches = len(chain.rows["a"])
    for number in range(batches + 1):
        final = number == batches
        pieces = [] if final else [chain.batch("a", number)]
        for name, plan, runtime in zip("bcd", plans, runtimes, strict=True):
            others = [] if final else [chain.batch(name, number)]
            made = runtime.run_batch([(0, pieces), (1, others)], final=final)
            result = plan.as_stream("left").schema
            pieces = [pa.RecordBatch.from_arrays(piece.columns, schema=result) for piece in made]
        for piece in pieces:
            ids = [name for name in NAMES if name in piece.schema.names]
            found.update(zip(*(piece[name].to_pylist() for name in ids), strict=True))
    return found


def wanted(chain: Chain) -> Counter[tuple[int | None, ...]]:
    with duckdb.connect() as database:
        for name in NAMES:
            rows = [row for batch in chain.rows[name] for row in batch]
            columns = [pa.array(list(values), pa.int64()) for values in zip(*rows, strict=True)]
            database.register(name, pa.table(columns, names=["k", "t", name]))
        text, ids = "SELECT k, t AS t_a, a FROM a", ["a"]
        for (how, time, (low, high)), name in zip(chain.steps, "bcd", strict=True):
            near = f"r.k = l.k AND r.t - l.t_{time} BETWEEN {low} AND {high}"
            if how == "left_anti":
                text = f"SELECT l.* FROM ({text}) l ANTI JOIN {name} r ON {near}"
                continue
            ids.append(name)
            text = f"""SELECT coalesce(l.k, r.k) AS k, l.* EXCLUDE (k), r.t AS t_{name}, r.{name}
                FROM ({text}) l {how} JOIN {name} r ON {near}"""
        text = f"SELECT {', '.join(ids)} FROM ({text})"
        return Counter(database.sql(text).fetchall())


@settings(max_examples=examples(3000, quick=120), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(chain=chains())
def test_the_time_of_a_chain_may_change_from_join_to_join(chain: Chain) -> None:
    assert run(chain) == wanted(chain)


@pytest.mark.parametrize(("given", "lateness"), [(None, 120), ("0 us", 120), ("7 us", 127)])
def test_a_time_that_passes_a_join_is_later_by_its_distance_from_the_join_s_own(given: Any, lateness: int) -> None:
    """a.t is up to 60 before b.t, by which the second join may wait for 60."""
    streams = {name: Stream("right", schema_of(name)) for name in NAMES}
    first = JoinSpec(on="k", time=("t_a", "t_b"), between=("0 us", "60 us"), lateness="0 us")
    pairs = build(first, [streams["a"], streams["b"]]).as_stream("left")
    assert (pairs.marks_of("t_a").offsets, pairs.marks_of("t_b").offsets) == ((0, 0), (0, 60))
    second = JoinSpec(on="k", time=("t_b", "t_c"), between=("0 us", "1 us"), lateness=(None, "0 us"))
    triples = build(second, [pairs, streams["c"]]).as_stream("left")
    assert triples.marks_of("t_a") == TimeMarks(120, 120, exact=True, offsets=(0, 0))
    third = JoinSpec(on="k", time=("t_a", "t_d"), within="1 us", lateness=(given, "0 us"))
    assert build(third, [triples, streams["d"]]).operator.lateness == (lateness, 0)
    ordered = build(OrderSpec(time="t_b"), [pairs]).as_stream("left")
    assert (ordered.marks_of("t_b").delay, ordered.marks_of("t_a").delay) == (0, 60)


@pytest.mark.parametrize("how", ["left", "left_anti", "full"])
def test_a_time_of_rows_that_wait_by_another_one_among_rows_that_do_not_has_no_fixed_lateness(how: Any) -> None:
    """Rows without b come out of the second join at once, with a.t; those with b wait for c."""
    streams = {name: Stream("right", schema_of(name)) for name in NAMES}
    first = JoinSpec(on="k", time=("t_a", "t_b"), within="60 us", lateness="0 us", how="left")
    pairs = build(first, [streams["a"], streams["b"]]).as_stream("left")
    second = JoinSpec(on="k", time=("t_b", "t_c"), within="60 us", lateness=(None, "0 us"), how=how)
    after = build(second, [pairs, streams["c"]]).as_stream("left")
    assert after.marks_of("t_a").mixed
    third = {"on": "k", "time": ("t_a", "t_d"), "within": "1 us"}
    with pytest.raises(braided.OptionError, match="no fixed lateness holds for this time"):
        build(JoinSpec(lateness="0 us", **third), [after, streams["d"]])
    learned = build(JoinSpec(lateness=(None, "0 us"), **third), [after, streams["d"]])
    assert isinstance(learned.operator.lateness[0], braided.Lateness)
    by_b = JoinSpec(on="k", time=("t_b", "t_d"), within="1 us", lateness="0 us")
    assert isinstance(build(by_b, [after, streams["d"]]).operator.lateness[0], int)
