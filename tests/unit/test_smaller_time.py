"""The output time of StreamCloud's joins, min(s.t, u.t): how late it is, for which joins, and what cannot have it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.operators import micros
from support.profiles import examples
from support.silences import SCHEMA, Story, shifts

from braided import local
from braided.errors import OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import Plan
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.plan.nodes import Filter, Operator, Project, SmallerTime, Source, Watermark
from braided.plan.smaller_time import smaller_time
from braided.plan.stages import split

NAME = "t_min"
US = pa.timestamp("us")


def join(**options: Any) -> tuple[Plan, Stream]:
    """Return the plan of a join, and its result with the smaller time as a stream."""
    spec = JoinSpec(on="k", time="t", **options)
    plan = build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)])
    time, result = smaller_time(spec, plan), plan.as_stream("the streams")
    marks = result.marks_of(time.left).smaller_with(result.marks_of(time.right), time.further)
    schema = result.schema.append(pa.field(time.name, US))
    return plan, replace(result, schema=schema, marks={**result.marks, time.name: marks})


def with_smaller(piece: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    both = pc.min_element_wise(piece["t"], piece["t_right"])
    return pa.RecordBatch.from_arrays([*piece.columns, both], schema=schema)


@pytest.mark.parametrize("how", ["inner", "left", "right"])
@settings(max_examples=examples(400, quick=40), deadline=None)
@given(story=shifts(), workers=st.integers(1, 2))
def test_no_row_is_late_by_it_also_after_a_silence(how: str, story: Story, workers: int) -> None:
    late = micros(int(story.lateness))
    first, stream = join(within=micros(story.within), how=how, lateness=late)
    second = build(OrderSpec(inputs=1, time=NAME, lateness=micros(0), idle=None), [stream])
    runtimes = [LocalRuntime(plan.operator, workers) for plan in (first, second)]
    found: Counter[tuple[int | None, ...]] = Counter()
    for tasks in [*story.batches(), [(0, [])]]:
        final = tasks == [(0, [])]
        pieces = [with_smaller(piece, stream.schema) for piece in runtimes[0].run_batch(tasks, final=final)]
        for piece in runtimes[1].run_batch([(0, pieces)], final=final):
            found.update(zip(*(piece[name].to_pylist() for name in ("id", "id_right")), strict=True))
            assert not pc.any(piece["late"]).as_py()
    pairs = story.pairs()
    side = ("left", "right").index(how) if how != "inner" else 0
    met = {pair[side] for pair in pairs}
    rows = range(len(story.times[side])) if how != "inner" else ()
    assert found == Counter([*pairs, *((row, None)[:: 1 - 2 * side] for row in rows if row not in met)])


History = list[tuple[int, int, int]]
"""Rows in order of arrival: stream, key and how far a row is ahead of the one before it in its stream."""


@pytest.mark.parametrize("how", ["inner", "left", "right"])
@settings(max_examples=examples(2000, quick=150), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 12)), max_size=25),
    lateness=st.integers(0, 3),
    bounds=st.tuples(st.integers(-8, 8), st.integers(0, 6)),
    late=st.integers(0, 1 << 20),
)
@example(
    rows=[
        (1, 1, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 2),
        (1, 1, 0),
        (0, 1, 5),
        (1, 0, 1),
        (0, 1, 12),
        (1, 1, 0),
        (0, 1, 0),
    ],
    lateness=1,
    bounds=(3, 0),
    late=588852,
)
def test_it_is_at_most_its_delay_behind_the_largest(
    how: str, rows: History, lateness: int, bounds: tuple[int, int], late: int
) -> None:
    """Every row is a batch of its own, after some that make the clocks count.

    A row is late by what a step after the join knew in the batch before, as rows of the join itself are.
    """
    lo, hi = bounds[0], sum(bounds)
    plan, stream = join(between=(micros(lo), micros(hi)), how=how, lateness=micros(lateness))
    delay = stream.marks_of(NAME).delay
    assert delay is not None
    runtime = LocalRuntime(plan.operator, 1)
    random, now, largest = np.random.default_rng(late), [0, 0], [-(1 << 60)] * 2
    for side, key, ahead in [(side, 2 + side, 0) for side in (0, 1)] + rows:
        now[side] += ahead
        time = now[side] - int(random.integers(0, lateness + 1))
        keys, times, ids = (pa.array([value] * (8 if key > 1 else 1)) for value in (key, time, 0))
        batch = pa.RecordBatch.from_arrays([keys, times.cast(US), ids], schema=SCHEMA)
        pieces = runtime.run_batch([(side, [batch])])
        found = [with_smaller(piece, stream.schema)[NAME].cast(pa.int64()).to_pylist() for piece in pieces]
        assert all(time >= largest[-2] - delay for times in found for time in times)
        largest.append(max([largest[-1], *(time for times in found for time in times)]))


def test_a_left_join_needs_more_than_the_delays_of_its_two_times() -> None:
    """A left row without a pair has its own time; the pair after it has one that is 5 before that."""
    _, stream = join(between=("-5 us", "-5 us"), how="left", lateness="0 us")
    assert [stream.marks_of(name).delay for name in ("t", "t_right", NAME)] == [0, 0, 5]
    _, stream = join(between=("2 us", "6 us"), how="right", lateness="0 us")
    assert [stream.marks_of(name).delay for name in ("t", "t_right", NAME)] == [4, 4, 10]
    _, stream = join(between=("2 us", "6 us"), how="left", lateness="3 us")
    assert [stream.marks_of(name).delay for name in ("t", "t_right", NAME)] == [7, 7, 7]


def streams() -> tuple[local.LocalQuery, local.LocalQuery]:
    left = pa.table({"k": [1, 1, 2], "ts": pa.array([10, 40, 50], US)})
    right = pa.table({"k": [1, 1], "at": pa.array([12, 37], US)})
    return local.stream(left, time="ts"), local.stream(right, time="at")


def test_the_local_runtime_adds_it_as_a_last_column() -> None:
    left, right = streams()
    options: dict[str, Any] = {"on": "k", "within": "5 us", "lateness": "0 us", "time": "min"}
    table = left.join(right, **options).result.table
    assert table.column_names == ["k", "ts", "at", "ts_min"]
    assert sorted(table["ts_min"].cast(pa.int64()).to_pylist()) == [10, 37]
    table = left.join(right, how="left", **options).result.table
    assert sorted(table["ts_min"].cast(pa.int64()).to_pylist()) == [10, 37, 50]
    windows = left.join(right, **options).aggregate(rows=1, n="count(*)", low="min(ts)").table
    assert windows["ts_min"].cast(pa.int64()).to_pylist() == [10]
    assert "ts_min" not in left.join(right, **(options | {"time": "left"})).result.table.column_names


def test_what_it_is_not_known_for_is_refused_by_name() -> None:
    left, right = streams()
    options: dict[str, Any] = {"on": "k", "within": "5 us", "time": "min"}
    for changed, message in (
        ({"time": "max"}, "time='max': write 'left' or 'min'"),
        ({"how": "full"}, "time='min': with how='full' rows of each stream come out alone"),
        ({"how": "left_semi"}, "time='min': the join must give both times"),
        ({"how": "left_anti"}, "time='min': the join must give both times"),
        ({"within": None, "rows": 3}, "time='min': the join must give both times"),
        ({"how": "left"}, "time='min': with how='left' and a learned lateness it is not known how late"),
    ):
        with pytest.raises(OptionError, match=message):
            left.join(right, **(options | changed))
    assert left.join(right, how="left", **(options | {"within": ("0 us", "9 us")}), lateness="0 us").smaller is not None
    named = local.stream(pa.table({"k": [1], "ts": pa.array([1], US), "TS_MIN": [1]}), time="ts")
    with pytest.raises(OptionError, match="time='min': the join has a column 'ts_min' already; rename it"):
        named.join(right, **options)
    with pytest.raises(
        OptionError, match="time='min': windows of the smaller time cannot be aggregated in one process"
    ):
        left.join(right, **options).aggregate(window="5 us", n="count(*)")


@pytest.mark.parametrize("strategy", ["operator", "subquery"])
def test_no_topic_stands_between_it_and_a_step_that_must_know_how_late_it_is(strategy: Any) -> None:
    sources = Source(0, ("k", "t")), Source(1, ("k", "t"))
    joined = Operator(JoinSpec(on="k", time="t", within="1 second", lateness="0 us"), sources)
    smaller = Project(joined, ("*",), (SmallerTime("t", "t_right", NAME),))
    ordered = Operator(OrderSpec(inputs=1, time=NAME, lateness="0 us"), (Filter(smaller, "k > 1"),))
    message = "strategy: t_min is the smaller time of a join .* deploy as a 'query', or write time='left'"
    for root in (ordered, Watermark(smaller, NAME, 5)):
        with pytest.raises(OptionError, match=message):
            split(root, 2, strategy, lambda join: False)
        assert len(split(root, 2, "query", lambda join: False)) == 1
    assert split(Filter(smaller, "k > 1"), 2, strategy, lambda join: False)
