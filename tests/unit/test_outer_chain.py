"""An outer join with an operator after it: after a silence, rows that waited are not late there, and nothing is lost."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import micros
from support.profiles import examples
from support.silences import SCHEMA, Story, shifts

from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import Plan
from braided.operators.registry import build
from braided.operators.stream import Stream

_THIRD = Stream("right", SCHEMA)
TIME = {"left": "t", "right": "t_right"}


def chain(story: Story, how: Any) -> tuple[Plan, Plan]:
    """Return the plans of an outer join and of an `order` by the time of the stream that it keeps."""
    spec = JoinSpec(on="k", time="t", within=micros(story.within), how=how, lateness=micros(int(story.lateness)))
    first = build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)])
    after = OrderSpec(inputs=1, time=TIME[how], lateness=micros(0), idle=None)
    return first, build(after, [first.as_stream("the streams")])


def run(story: Story, how: Any, workers: int) -> tuple[Counter[tuple[int | None, ...]], int, int]:
    """Run both, batch by batch; return the ids that leave the second, how many are late there, and how many discarded."""
    plans = chain(story, how)
    runtimes = [LocalRuntime(plan.operator, workers) for plan in plans]
    middle = plans[0].as_stream("the streams").schema
    found: Counter[tuple[int | None, ...]] = Counter()
    late = 0
    for tasks in [*story.batches(), [(0, [])]]:
        final = tasks == [(0, [])]
        pieces = [
            pa.RecordBatch.from_arrays(piece.columns, schema=middle)
            for piece in runtimes[0].run_batch(tasks, final=final)
        ]
        for piece in runtimes[1].run_batch([(0, pieces)], final=final):
            found.update(zip(*(piece[name].to_pylist() for name in ("id", "id_right")), strict=True))
            late += int(np.count_nonzero(piece["late"]))
        if story.restart:
            for runtime in runtimes:
                runtime.stores = pickle.loads(pickle.dumps(runtime.stores))
    return found, late, runtimes[1].report().to_dict()["streams"][0]["discarded"]


@pytest.mark.parametrize("how", TIME)
@settings(max_examples=examples(800, quick=60), deadline=None)
@given(story=shifts(), workers=st.integers(1, 2))
def test_after_a_silence_no_row_is_late_after_an_outer_join(how: str, story: Story, workers: int) -> None:
    pairs = story.pairs()
    side = ("left", "right").index(how)
    met = {pair[side] for pair in pairs}
    alone = [(row, None)[:: 1 - 2 * side] for row in range(len(story.times[side])) if row not in met]
    found, late, discarded = run(story, how, workers)
    assert found == Counter([*pairs, *alone])
    assert (late, discarded) == (0, 0)


@st.composite
def starts(draw: st.DrawFn) -> Story:
    """The first rows of two streams: so few that clocks do not count yet, and on so few keys that they make many pairs."""
    second = 1_000_000
    lateness = draw(st.sampled_from((0, 2 * second)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    times, arrivals, keys = [], [], []
    for _ in range(2):
        gaps = draw(st.lists(st.sampled_from((0, 0, second, 40 * second, 1000 * second)), min_size=1, max_size=12))
        mine = np.cumsum(np.array(gaps, np.int64)) + draw(st.sampled_from((0, 0, second, 30 * second)))
        times.append(mine)
        arrivals.append(mine + rng.integers(0, lateness + 1, len(mine)) + draw(st.sampled_from((0, 0, 500 * second))))
        keys.append(rng.integers(0, draw(st.integers(1, 3)), len(mine)))
    return Story(
        times,
        arrivals,
        keys,
        [np.zeros(len(mine), np.bool_) for mine in times],
        lateness,
        draw(st.sampled_from((0, second, 60 * second))),
        draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)),
        draw(st.booleans()),
    )


def join_with(story: Story, third: Story, how: Any, workers: int) -> Counter[tuple[int | None, ...]]:
    """Join the outer join's results, by their key and the time of the kept stream, with a third stream."""
    first = chain(story, how)[0]
    spec = JoinSpec(on="k", time=(TIME[how], "t"), within=micros(story.within), lateness=micros(0), suffixes=("", "_3"))
    middle = first.as_stream("left")
    runtimes = [LocalRuntime(plan, workers) for plan in (first.operator, build(spec, [middle, _THIRD]).operator)]
    found: Counter[tuple[int | None, ...]] = Counter()
    rest = iter([rows for [(_, [rows])] in third.batches()])
    for tasks in [*story.batches(), [(0, [])]]:
        final = tasks == [(0, [])]
        pieces = [
            pa.RecordBatch.from_arrays(piece.columns, schema=middle.schema)
            for piece in runtimes[0].run_batch(tasks, final=final)
        ]
        others = list(rest) if final else list(itertools.islice(rest, 1))
        for piece in runtimes[1].run_batch([(0, pieces), (1, others)], final=final):
            found.update(zip(*(piece[name].to_pylist() for name in ("id", "id_right", "id_3")), strict=True))
    return found


@pytest.mark.parametrize("how", TIME)
@settings(max_examples=examples(1500, quick=100), deadline=None)
@given(story=starts(), workers=st.integers(1, 2))
def test_at_the_start_of_a_stream_no_row_is_late_after_an_outer_join(how: Any, story: Story, workers: int) -> None:
    """A third stream has its first rows before, so that the clock of the results counts with the first of them."""
    side = ("left", "right").index(how)
    pairs = story.pairs()
    met = {pair[side] for pair in pairs}
    rows = [*pairs, *((row, None)[:: 1 - 2 * side] for row in range(len(story.times[side])) if row not in met)]
    ends = np.sort(story.times[side])
    times = np.concatenate([np.full(8, ends[0]), ends])
    third = Story([times], [np.arange(len(times))], [np.zeros(len(times), np.int64)], [], 0, 0, [9, 1])
    keys = story.keys[side]
    near = np.abs(story.times[side][:, None] - times[None]) <= story.within
    wanted = Counter((*row, int(m)) for row in rows if keys[row[side]] == 0 for m in np.flatnonzero(near[row[side]]))
    assert join_with(story, third, how, workers) == wanted
