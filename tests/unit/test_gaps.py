"""Sparse streams: rows hours apart move the clock, a year ahead they do not, and windows close as Spark closes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples

from braided.local.runtime import LocalRuntime
from braided.operators.aggregate.measures import Measure
from braided.operators.aggregate.partial import HORIZON, TICK, Panes, PartialAggregate
from braided.time.clocks import Window
from braided.time.gaps import SPARSE, Gaps
from braided.time.trust import JUMP, clusters_of

MINUTE = 60_000_000
HOUR = 60 * MINUTE
YEAR = 365 * 24 * HOUR
NOW = 1_700_000_000_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
IMPRESSIONS = [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]
CLICKS = [10.2, 12.5, 14.1, 16.9, 18.3, 20.5]


def taken(*batches: list[int]) -> Gaps:
    gaps = Gaps()
    for batch in batches:
        gaps.take(clusters_of(np.array(batch, np.int64), JUMP), JUMP)
        gaps = Gaps(json.loads(json.dumps(gaps.recent)))
    return gaps


@settings(deadline=None)
@given(
    own=st.lists(st.integers(0, 400 * HOUR), min_size=2, max_size=30),
    wrong=st.lists(st.sampled_from([-3, -1, 1, 3]), max_size=2),
    size=st.sampled_from([1, 3, 40]),
    seed=st.integers(0, 99),
)
def test_two_wrong_clocks_make_no_gap_usual_that_the_stream_does_not_have(
    own: list[int], wrong: list[int], size: int, seed: int
) -> None:
    right = np.cumsum(own)
    rows = np.array([*right, *(int(right[0]) + years * YEAR + 40_000 * HOUR * (years > 0) for years in wrong)])
    rows = np.random.default_rng(seed).permutation(rows)
    usual = taken(*(rows[at : at + size].tolist() for at in range(0, len(rows), size))).usual()
    if size == 40:
        assert usual is None or usual <= max(own[1:])
        assert (usual is None) <= (len(own) <= 4)
    elif not wrong and usual is not None:
        assert usual <= right[-1] - right[0]


def test_a_dense_stream_that_is_silent_at_night_is_not_sparse() -> None:
    shifts = [[day * 24 * HOUR + row * MINUTE for row in range(480)] for day in range(9)]
    for batches in ([[time for shift in shifts for time in shift]], shifts):
        usual = taken(*batches, [10 * 24 * HOUR]).usual()
        assert usual is not None
        assert SPARSE * usual < JUMP


def run(cuts: list[int], left: list[float], right: list[float]) -> tuple[list[Any], int]:
    """Run a join with windows of an hour, in batches; return the report of its streams, and the last horizon."""
    join = join_operator(SCHEMA, Window(0, HOUR, (2 * HOUR, 3 * HOUR)))
    measures = (Measure("m0", "rows", None, pa.int64()),)
    runtime = LocalRuntime(PartialAggregate(join, "t", (), measures, Panes(HOUR, 0, 0, HOUR)))
    horizon = None
    for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
        tasks = []
        for side, hours in enumerate((left, right)):
            times = [NOW + round(hour * HOUR) for hour in hours[start:stop]]
            rows = pa.record_batch([pa.array(range(len(times))), pa.array(times, pa.timestamp("us"))], schema=SCHEMA)
            tasks.append((side, [rows]))
        for piece in runtime.run_batch(tasks):
            horizon = next((row[HORIZON] for row in piece.to_pylist() if row[TICK]), horizon)
    streams = runtime.report().to_dict()["streams"]
    return streams, int(pa.scalar(horizon, pa.timestamp("us")).value)


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 3, 4, 5]])
def test_six_rows_hours_apart_close_the_windows_before_their_clocks(cuts: list[int]) -> None:
    """The later stream's clock less three hours, less the hour by which a click may be after its impression."""
    streams, horizon = run(cuts, IMPRESSIONS, CLICKS)
    assert [stream["clock"] for stream in streams] == [NOW + 20 * HOUR, NOW + 20 * HOUR + HOUR // 2]
    assert horizon == NOW + 16 * HOUR + HOUR // 2


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6]])
def test_a_device_a_year_ahead_closes_nothing_of_a_sparse_stream(cuts: list[int], at: int) -> None:
    """It sends a row to each stream."""
    ahead = 365 * 24.0
    left, right = ([*hours[:at], hours[0] + ahead, *hours[at:]] for hours in (IMPRESSIONS, CLICKS))
    streams, horizon = run(cuts, left, right)
    assert horizon <= NOW + 16 * HOUR + HOUR // 2
    assert all(stream["late"] == stream["discarded"] == 0 for stream in streams)
    if not cuts:
        assert horizon == NOW + 16 * HOUR + HOUR // 2


@settings(max_examples=examples(200, quick=25), deadline=None)
@given(
    gaps=st.lists(st.floats(1.1, 5), min_size=5, max_size=40),
    cuts=st.sets(st.integers(1, 40), max_size=5),
    lag=st.floats(0, 1),
)
def test_sparse_streams_have_the_clocks_of_their_last_rows(gaps: list[float], cuts: set[int], lag: float) -> None:
    hours = np.cumsum([0.0, *gaps])
    streams, _ = run(sorted(cuts), hours.tolist(), (hours + lag).tolist())
    last = [NOW + round(float(hours[-1]) * HOUR), NOW + round(float(hours[-1] + lag) * HOUR)]
    assert [stream["clock"] for stream in streams] == last
    assert all(stream["quarantined"] == 0 for stream in streams)
