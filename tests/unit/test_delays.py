"""Summaries of delays against a plain count of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braided.errors import BraidedError
from braided.time.learning.delay_buckets import (
    BUCKETS,
    MOST,
    bucket_lower,
    bucket_of,
    bucket_upper,
    decode_counts,
    encode_counts,
)
from braided.time.learning.delays import Delays, batch_delays
from braided.time.learning.next_delays import NextDelays

LOW, HIGH = -(1 << 63), (1 << 63) - 1
NEAR = st.integers(0, 3000)
ANY = st.one_of(NEAR, st.integers(LOW, HIGH), st.sampled_from([LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH]))


def summary(times):
    task = Delays()
    task.add(np.array(times, np.int64))
    return task


def delays_of(times, clock):
    seen, out = clock, []
    for time in times:
        seen = time if seen is None else max(seen, time)
        out.append(seen - time)
    return out


@settings(deadline=None)
@given(value=st.one_of(st.integers(0, MOST), st.integers(0, 62).map(lambda e: 1 << e), st.integers(0, 5000)))
def test_a_bucket_holds_its_values_and_is_a_32nd_wide(value):
    bucket = bucket_of(value)
    lower, upper = int(bucket_lower(bucket)), int(bucket_upper(bucket))
    assert lower <= value <= upper
    assert (upper - lower) * 32 <= max(lower, 31)
    assert 0 <= bucket < BUCKETS
    assert bucket == 0 or bucket_upper(bucket - 1) == lower - 1


@settings(deadline=None)
@given(times=st.lists(ANY, max_size=40), clock=st.none() | ANY)
def test_counts_and_extremes_are_exact_at_every_edge(times, clock):
    task = summary(times)
    assert task.rows == len(times)
    if times:
        assert (task.smallest, task.largest) == (min(times), max(times))
        assert task.largest_delay(clock) == min(MOST, max(delays_of(times, clock)))
    batch = batch_delays([task], clock, MOST)
    assert int(batch.counts.sum()) == batch.rows == len(times)
    assert (batch.counts > 0).all()


@settings(deadline=None)
@given(times=st.lists(NEAR, min_size=1, max_size=40), clock=st.none() | NEAR)
def test_the_distribution_lies_between_its_bounds(times, clock):
    batch = batch_delays([summary(times)], clock, MOST)
    within = delays_of(times, None)
    against_clock = [0 if clock is None else max(0, clock - time) for time in times]
    for x in range(0, 3100, 7):
        later = int(batch.counts[[bucket_lower(b) > x for b in batch.buckets]].sum())
        slack = x + x // 15 + 2  # two buckets' width
        assert later <= max(sum(d > x for d in within), sum(d > x for d in against_clock))
        assert later <= sum(d > x for d in delays_of(times, clock))
        assert later >= sum(d > slack for d in within)


@settings(deadline=None)
@given(times=st.lists(ANY, min_size=1, max_size=20), clock=ANY)
def test_with_one_row_a_task_all_is_exact_up_to_a_bucket(times, clock):
    batch = batch_delays([summary([time]) for time in times], clock, MOST)
    expected = np.zeros(BUCKETS, np.int64)
    for time in times:
        expected[bucket_of(min(MOST, max(0, clock - time)))] += 1
    assert batch.buckets.tolist() == np.flatnonzero(expected).tolist()
    assert batch.counts.tolist() == expected[expected > 0].tolist()


@settings(deadline=None)
@given(times=st.lists(ANY, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_pieces_of_a_task_add_up_whatever_the_cuts(times, cuts):
    task = Delays()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(times)], strict=True):
        task.add(np.array(times[start:end], np.int64))
    assert task.to_json() == summary(times).to_json()


@settings(deadline=None)
@given(parts=st.lists(st.lists(NEAR, max_size=9), max_size=6), clock=st.none() | NEAR, seed=st.integers(0, 9))
def test_parts_of_a_task_show_the_delays_of_as_many_tasks_in_any_order(parts, clock, seed):
    task = Delays()
    for at in np.random.default_rng(seed).permutation(len(parts)):
        task.begin_part()
        task.add(np.array(parts[at], np.int64))
    assert task.largest_delay(clock) == max((summary(part).largest_delay(clock) for part in parts if part), default=0)
    assert task.rows == sum(map(len, parts))


@settings(deadline=None)
@given(parts=st.lists(st.lists(NEAR, min_size=1, max_size=9), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_parts_set_the_next_clock_wherever_the_earliest_of_them_does(parts, seed):
    task = NextDelays(MOST)
    for at in np.random.default_rng(seed).permutation(len(parts)):
        task.begin_part()
        task.add(np.array(sorted(parts[at]), np.int64), None)
    assert (task.first_set(None), task.clock) == (min(map(min, parts)), max(map(max, parts)))


@settings(deadline=None)
@given(tasks=st.lists(st.lists(NEAR, max_size=9), max_size=6), clock=st.none() | NEAR, seed=st.integers(0, 9))
def test_the_order_of_tasks_does_not_matter(tasks, clock, seed):
    one = batch_delays([summary(times) for times in tasks], clock, 1000)
    order = np.random.default_rng(seed).permutation(len(tasks))
    other = batch_delays([summary(tasks[i]) for i in order], clock, 1000)
    assert (one.rows, one.beyond, one.largest) == (other.rows, other.beyond, other.largest)
    assert one.counts.tolist() == other.counts.tolist()
    assert one.rows + one.beyond == sum(map(len, tasks))


def test_rows_beyond_the_ceiling_are_counted_and_left_out():
    batch = batch_delays([summary([10_000_000, 9_000_000, 1_000_000])], None, 2_000_000)
    assert (batch.rows, batch.beyond) == (2, 1)
    assert 1_000_000 <= batch.largest <= 1_032_000
    assert batch_delays([summary([10_000_000, 1_000_000])], None, 2_000_000).largest == 0
    assert batch_delays([], 5, 2_000_000).rows == 0


@settings(deadline=None)
@given(times=st.lists(ANY, max_size=60), clock=st.none() | ANY)
def test_json_keeps_everything_while_it_fits(times, clock):
    task = summary(times)
    again = Delays.from_json(json.loads(json.dumps(task.to_json())))
    assert again.to_json() == task.to_json()
    one, other = batch_delays([task], clock, MOST), batch_delays([again], clock, MOST)
    assert one.buckets.tolist() == other.buckets.tolist()
    assert one.counts.tolist() == other.counts.tolist()


def test_json_stays_small_and_errs_to_the_safe_side():
    times = (np.random.default_rng(1).random(200_000) * 60 - 30) ** 13
    task = summary(np.clip(times, -9e18, 9e18).astype(np.int64))
    text = json.dumps(task.to_json())
    assert len(text) < 4096
    again = Delays.from_json(json.loads(text))
    assert again.rows == task.rows
    assert again.largest_delay(None) == task.largest_delay(None)
    full, short = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    task.count_into(task.count_behind(None), full)
    again.count_into(again.count_behind(None), short)
    assert full.sum() == short.sum() == 200_000
    assert (np.cumsum(short) <= np.cumsum(full)).all()  # coarser delays are never smaller ones
    assert (np.cumsum(short) >= np.cumsum(full)[np.maximum(np.arange(BUCKETS) - 31, 0)] - full[0]).any()


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 1 << 50), max_size=64), limit=st.integers(40, 400), upward=st.booleans())
def test_encoded_counts_keep_their_sum(counts, limit, upward):
    counts = np.array(counts, np.int64)
    text = encode_counts(counts, limit, upward=upward)
    assert len(text) <= limit
    assert decode_counts(text, len(counts)).sum() == counts.sum()
    if limit >= 10 * 4 * len(counts) // 3 + 4:
        assert decode_counts(text, len(counts)).tolist() == counts.tolist()


@settings(deadline=None)
@given(rows=st.lists(st.tuples(ANY, st.booleans()), max_size=20), cut=st.integers(0, 20))
def test_delays_at_the_next_clock_add_up_in_pieces_and_as_json(rows, cut):
    def add(task, part):
        task.add(np.array([t for t, _ in part], np.int64), np.array([sets for _, sets in part], bool))

    whole, task = NextDelays(MOST), NextDelays(MOST)
    add(whole, rows)
    for part in (rows[:cut], rows[cut:]):
        add(task, part)
    assert task.to_json() == whole.to_json()
    assert len(json.dumps(task.to_json())) < 1024
    again = NextDelays.from_json(json.loads(json.dumps(task.to_json())), MOST)
    assert again.to_json() == whole.to_json()
    assert again.clock == max((t for t, sets in rows if sets), default=None)
    assert (again.rows, again.largest) == (len(rows), max((t for t, _ in rows), default=0))


@pytest.mark.parametrize("value", [{}, {"numbers": [1]}, {"numbers": [0] * 6, "within": "!", "around": ""}, None])
def test_damaged_summaries_are_refused(value):
    with pytest.raises(BraidedError, match="delays: the summary is damaged, or of another version of braided"):
        Delays.from_json(value)
    with pytest.raises(BraidedError, match="delays: the summary is damaged, or of another version of braided"):
        NextDelays.from_json(value, MOST)


def test_a_coarse_summary_is_short_and_keeps_the_largest_delay():
    random = np.random.default_rng(4)
    times = np.cumsum(random.integers(0, 5000, 50_000)) - random.integers(0, 30_000_000, 50_000)
    task, coarse = Delays(), Delays(fine=False)
    task.add(times)
    coarse.add(times)
    short = json.dumps(coarse.to_json())
    assert len(short) < 1200 < len(json.dumps(task.to_json()))
    again = Delays.from_json(json.loads(short))
    clock = int(times.max()) + 5
    assert again.largest_delay(clock) == task.largest_delay(clock)
    assert (again.rows, again.largest, again.smallest) == (task.rows, task.largest, task.smallest)
