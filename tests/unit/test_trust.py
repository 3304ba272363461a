"""Which times move a clock: those of the crowd, whatever a few broken devices send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braided.time.trust import JUMP, Cluster, Trust, clusters_of, merge_clusters

YEAR = 365 * 86_400_000_000
NOW = 1_700_000_000_000_000
EDGES = st.sampled_from([-(1 << 63), (1 << 63) - 1, 0, NOW])


def plain_clusters(times: list[int], jump: int) -> list[Cluster]:
    out: list[list[int]] = []
    for time in sorted(times):
        if out and time - out[-1][-1] <= jump:
            out[-1].append(time)
        else:
            out.append([time])
    return [Cluster(group[0], group[-1], len(group)) for group in out]


@given(st.lists(st.integers(0, 60) | EDGES, max_size=25), st.integers(1, 9))
def test_clusters_are_what_a_plain_loop_finds(times: list[int], jump: int) -> None:
    assert clusters_of(np.array(times, np.int64), jump) == plain_clusters(times, jump)


@given(st.lists(st.lists(st.integers(0, 80), max_size=12), max_size=4), st.integers(1, 9))
def test_clusters_of_tasks_merge_into_those_of_all_rows(tasks: list[list[int]], jump: int) -> None:
    parts = [cluster for task in tasks for cluster in clusters_of(np.array(task, np.int64), jump)]
    assert merge_clusters(parts, jump) == plain_clusters([time for task in tasks for time in task], jump)


def test_the_number_of_clusters_is_bounded() -> None:
    wild = np.arange(1000, dtype=np.int64) * YEAR // 7
    found = clusters_of(wild, JUMP)
    assert len(found) == 32
    assert sum(cluster.rows for cluster in found) == 1000
    assert len(merge_clusters([Cluster(i * YEAR, i * YEAR, 1) for i in range(90)], JUMP)) == 32


def batches(trust: Trust, *groups: list[int]) -> list[int | None]:
    seen = []
    for group in groups:
        trust.update(clusters_of(np.array(group, np.int64), JUMP), JUMP)
        seen.append(trust.clock)
    return seen


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_a_gateway_years_off_moves_no_clock(size: int, ahead: bool) -> None:
    trust = Trust()
    wrong = NOW + 3 * YEAR if ahead else NOW - 3 * YEAR
    rows = [wrong + i if i % 10 == 9 else NOW + 1000 * i for i in range(2000)]
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        trust.update(clusters_of(np.array(part, np.int64), JUMP), JUMP)
    assert trust.clock == NOW + 1000 * 1998
    assert trust.limit(JUMP) == trust.clock + JUMP


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_after_an_outage_the_clock_follows_the_stream(size: int) -> None:
    trust = Trust()
    rows = [NOW + 1000 * i + (5 * JUMP if i >= 500 else 0) for i in range(1500)]
    for start in range(0, len(rows), size):
        trust.update(clusters_of(np.array(rows[start : start + size], np.int64), JUMP), JUMP)
    assert trust.clock == rows[-1]


def test_a_clock_that_started_wrong_is_taken_back() -> None:
    trust = Trust()
    seen = batches(trust, [NOW + YEAR], [NOW, NOW + 1], *([NOW + 10 + i] for i in range(100)))
    assert seen[0] == NOW + YEAR
    assert seen[-1] == NOW + 109


def test_few_rows_do_not_decide() -> None:
    trust = Trust()
    assert batches(trust, [NOW], [NOW + YEAR] * 3, [NOW + 5]) == [NOW, NOW, NOW + 5]


def test_a_sparse_stream_may_go_where_the_others_are() -> None:
    trust = Trust()
    trust.update([Cluster(NOW, NOW, 1)], JUMP)
    trust.update([Cluster(NOW + 5 * JUMP, NOW + 5 * JUMP, 1)], JUMP, others=NOW + 2 * JUMP)
    assert trust.clock == NOW
    trust.update([Cluster(NOW + 5 * JUMP, NOW + 5 * JUMP, 1)], JUMP, others=NOW + 5 * JUMP)
    assert trust.clock == NOW + 5 * JUMP


def test_a_long_backlog_without_gaps_moves_the_clock_to_its_end() -> None:
    trust = Trust()
    trust.update(clusters_of(np.arange(100, dtype=np.int64) * (JUMP // 2), JUMP), JUMP)
    assert trust.clock == 99 * (JUMP // 2)
