"""An outer join with an operator after it: after a silence, rows that waited are not late there, and nothing is lost."""

from __future__ import annotations

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

TIME = {"left": "t", "right": "t_right"}


def chain(story: Story, how: Any) -> tuple[Plan, Plan]:
    """Return the plans of an outer join and of an `order` by the time of the stream that it keeps."""
    spec = JoinSpec(on="k", time="t", within=micros(story.within), how=how, lateness=micros(int(story.lateness)))
    first = build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)])
    after = OrderSpec(inputs=1, time=TIME[how], lateness=micros(0), idle=None)
    return first, build(after, [first.as_stream("the streams")])


def run(story: Story, how: Any, workers: int) -> tuple[Counter[tuple[int | None, ...]], int, int]:
    """Run both, batch by batch; return the ids that leave the second, how many are late there, and how many given up."""
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
    return found, late, runtimes[1].report().to_dict()["streams"][0]["given_up"]


@pytest.mark.parametrize("how", TIME)
@settings(max_examples=examples(800, quick=60), deadline=None)
@given(story=shifts(), workers=st.integers(1, 2))
def test_after_a_silence_no_row_is_late_after_an_outer_join(how: str, story: Story, workers: int) -> None:
    pairs = story.pairs()
    side = ("left", "right").index(how)
    met = {pair[side] for pair in pairs}
    alone = [(row, None)[:: 1 - 2 * side] for row in range(len(story.times[side])) if row not in met]
    found, late, given_up = run(story, how, workers)
    assert found == Counter([*pairs, *alone])
    assert (late, given_up) == (0, 0)
