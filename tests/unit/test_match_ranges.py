"""Which stored rows a probe row meets, with times looked at or not, against every pair."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.operators.join.pair_kernels import match_ranges
from braided.operators.join.runs import Run, all_meet, sorted_run

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), min_size=1, max_size=30)


def run_of(pairs: list[tuple[int, int]]) -> Run:
    hashes, times = np.array(pairs, np.int64).T
    return sorted_run(pa.record_batch({"t": times}), (hashes.astype(np.uint64) + np.uint64(1)) << np.uint64(60), times)


def matches(probe: Run, stored: Run, low: int, high: int) -> list[tuple[int, int]]:
    found, starts, ends = (np.empty(len(probe.times), np.int64) for _ in range(3))
    count = match_ranges(
        probe.hashes, probe.times, stored.hashes, stored.times, stored.directory, stored.filter, stored.shift,
        low, high, all_meet(probe, stored, low, high), found, starts, ends,
    )  # fmt: skip
    past = starts[:count] + np.diff(ends[:count], prepend=0)
    return [(i, j) for i, start, end in zip(found, starts, past, strict=False) for j in range(start, end)]


@settings(max_examples=examples(400), deadline=None)
@given(probe=rows, stored=rows, low=st.integers(-45, 5), span=st.integers(0, 90))
def test_a_probe_row_meets_all_of_its_window_and_no_more(probe, stored, low, span):
    mine, theirs = run_of(probe), run_of(stored)
    expected = [
        (i, j)
        for i in range(len(probe))
        for j in range(len(stored))
        if mine.hashes[i] == theirs.hashes[j] and low <= theirs.times[j] - mine.times[i] <= low + span
    ]
    assert matches(mine, theirs, low, low + span) == expected


def test_all_meet_only_where_the_last_and_the_first_do():
    probe = run_of([(0, 10), (0, 20)])
    assert all_meet(probe, run_of([(0, 15)]), -5, 5)
    assert not all_meet(probe, run_of([(0, 14), (0, 15)]), -5, 5)
    assert not all_meet(probe, run_of([(0, 15), (0, 16)]), -5, 5)
