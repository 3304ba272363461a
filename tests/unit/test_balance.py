"""The balance rules, one by one: loads, levels, hot spots, migrations, and the choice of moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.balance.bucket_moves import TARGET_RATIO, choose_moves
from braided.balance.hot_spots import HotSpot, HotSpotRule
from braided.balance.levels import OverlappingLevels
from braided.balance.load_averages import LoadAverages, worker_loads
from braided.balance.migrations import Migrations
from braided.errors import BraidedError

Floats = npt.NDArray[np.float64]


# Loads


def test_a_saturated_cluster_has_load_one() -> None:
    assert worker_loads(np.full(8, 500.0), 1000, 4, 8).tolist() == [1.0] * 8
    assert worker_loads(np.array([5.0]), 0, 1, 1).tolist() == [5.0]
    with pytest.raises(BraidedError, match="slots=0"):
        worker_loads(np.ones(2), 1000, 0, 2)


@given(st.lists(st.lists(st.floats(0, 100), min_size=3, max_size=3), max_size=40))
def test_averages_are_plain_means_of_the_last_batches(batches: list[list[float]]) -> None:
    averages = LoadAverages(3)
    for loads in batches:
        averages.add(np.array(loads))
    for horizon in (1, 5, 15):
        expected = np.mean(batches[-horizon:], axis=0) if batches else np.zeros(3)
        assert averages.over(horizon) == pytest.approx(expected)


def test_loads_that_make_no_sense_are_refused() -> None:
    averages = LoadAverages(2)
    for loads in ([1.0], [1.0, float("nan")], [1.0, -0.1]):
        with pytest.raises(BraidedError, match="pass 2 finite loads"):
            averages.add(np.array(loads))
    with pytest.raises(BraidedError, match="batches=2"):
        averages.over(2)


# Levels


def test_a_wobble_around_any_bound_is_silent_and_a_step_is_not() -> None:
    levels = OverlappingLevels()
    for bound in levels.bounds:
        for start in (bound * 0.99, bound * 1.01):
            level = levels.level(start)
            assert {levels.level(bound * (1 + wobble), level) for wobble in (-0.049, -0.01, 0, 0.01, 0.049)} == {level}
        assert levels.level(bound * 1.06, levels.level(bound * 0.99)) == levels.level(bound * 0.99) + 1
        assert levels.level(bound * 0.94, levels.level(bound * 1.01)) == levels.level(bound * 1.01) - 1


def test_ends_of_the_levels() -> None:
    levels = OverlappingLevels()
    last = len(levels.bounds)
    assert levels.level(0.0) == levels.level(0.049) == levels.level(0.0, 0) == 0
    assert 2.0 <= levels.bounds[-1] < 2.4
    assert levels.level(2.4) == levels.level(1e9) == levels.level(1e9, last) == last
    assert levels.level(0.0, last) == 0
    assert levels.level(9.0, 0) == last


@given(st.floats(0, 5), st.integers(0, 20))
def test_a_level_is_kept_or_the_plain_one(load: float, previous: int) -> None:
    levels = OverlappingLevels()
    assert levels.level(load, previous) in (previous, levels.level(load))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"floor": 0}, "floor=0"),
        ({"growth": 1.0}, "growth=1.0"),
        ({"overlap": 0.5}, "overlap=0.5"),
        ({"top": 0.01}, "top=0.01"),
    ],
)
def test_levels_that_cannot_be_are_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(BraidedError, match=text):
        OverlappingLevels(**options)
    with pytest.raises(BraidedError, match="previous=99"):
        OverlappingLevels().level(1.0, 99)


# Hot spots


def judged(
    rule: HotSpotRule, batches: Sequence[Sequence[float]], in_use: Sequence[int] | None = None
) -> list[HotSpot | None]:
    averages = LoadAverages(len(batches[0]))
    found = []
    for loads in batches:
        averages.add(np.array(loads))
        found.append(rule.judge(averages, range(len(loads)) if in_use is None else in_use))
    return found


def test_a_hot_spot_is_found_once_it_has_lasted() -> None:
    found = judged(HotSpotRule(), [[0.5, 0.5, 0.5, 0.5]] * 5 + [[0.5, 1.0, 0.4, 0.5]] * 5)
    assert found[:7] == [None] * 7
    assert found[7] is not None
    assert found[7].worker == 1
    assert found[7].reason == (
        "worker 1: load 1.000 and 0.800 over 5 batches, above 0.720 and 0.672; spread 0.600 to worker 2; 3 reports"
    )
    assert found[9] is not None  # it is reported while it lasts


def test_spikes_are_no_hot_spot() -> None:
    spike, calm = [2.0, 0.5, 0.5], [0.5, 0.5, 0.5]
    assert judged(HotSpotRule(), [calm, spike, calm, calm, calm, spike, spike, calm] * 4) == [None] * 32


def test_the_longer_horizon_must_agree() -> None:
    found = judged(HotSpotRule(), [[0.1, 1.0]] * 5 + [[1.0, 0.55]] * 5)
    # The count of reports alone would name worker 0 at its third, when worker 1 still has more on average.
    assert found[5:9] == [None] * 4
    assert found[9] is not None
    assert found[9].worker == 0


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_a_worker_above_its_share_is_hot_however_idle_the_cluster(scale: float) -> None:
    just_above, just_below = [1.25, 1.0, 1.0, 0.9], [1.18, 1.0, 1.0, 0.9]
    assert judged(HotSpotRule(), [[load * scale for load in just_above]] * 3)[-1] is not None
    assert judged(HotSpotRule(), [[load * scale for load in just_below]] * 9) == [None] * 9


def test_no_gain_no_hot_spot() -> None:
    assert judged(HotSpotRule(), [[0.04, 0.0, 0.0, 0.0]] * 9) == [None] * 9
    assert judged(HotSpotRule(), [[0.06, 0.0, 0.0, 0.0]] * 3)[-1] is not None


def test_equally_busy_workers_need_more_workers_not_moves() -> None:
    """With an absolute threshold that all exceed, the spread decides (the paper's second criterion)."""
    assert judged(HotSpotRule(), [[1.5, 1.35, 1.45]] * 9) == [None] * 9
    assert judged(HotSpotRule(), [[1.5, 1.15, 1.45]] * 3)[-1] is not None


def test_workers_not_in_use_do_not_count() -> None:
    batches = [[1.0, 0.0, 1.0, 5.0]] * 4
    assert judged(HotSpotRule(), batches, [0, 2]) == [None] * 4
    assert judged(HotSpotRule(), batches, [0]) == [None] * 4
    found = judged(HotSpotRule(), batches, [2, 1, 0])[-1]
    assert found is not None
    assert found.worker == 0
    assert "to worker 1" in found.reason


def test_two_workers_that_take_turns_at_the_top_are_both_hot() -> None:
    found = judged(HotSpotRule(), [[1.0, 0.9, 0.1, 0.1], [0.9, 1.0, 0.1, 0.1]] * 2)
    assert [spot.worker if spot else None for spot in found] == [None, None, 0, 1]


def test_workers_that_are_not_there_are_refused() -> None:
    with pytest.raises(BraidedError, match="workers are numbered 0 to 1"):
        HotSpotRule().judge(LoadAverages(2), [0, 2])


# Migrations

LOW_HIGH, HIGH_LOW = np.array([0.2, 0.9, 0.5]), np.array([0.9, 0.2, 0.5])


def test_one_migration_of_a_worker_at_a_time() -> None:
    migrations = Migrations(10)
    migrations.begin(4, [(1, 0, 1), (2, 0, 2)])
    assert migrations.busy == {0, 1, 2}
    level = np.zeros(5)
    assert migrations.allowed([7, 8], 3, 4, level, level).tolist() == [True, True]
    assert not migrations.allowed(7, 3, 0, level, level).any()
    assert not migrations.allowed(7, 2, 4, level, level).any()
    migrations.end(4)
    migrations.end(4)
    assert migrations.busy == set()
    assert migrations.allowed(7, 2, 4, level, level).all()


def test_a_bucket_returns_home_only_when_both_loads_have_turned_round() -> None:
    migrations = Migrations(10)
    migrations.begin(1, [(3, 0, 1)])
    migrations.end(1)
    for current, average, back in [
        (HIGH_LOW, HIGH_LOW, False),
        (LOW_HIGH, HIGH_LOW, False),
        (HIGH_LOW, LOW_HIGH, False),
        (LOW_HIGH, LOW_HIGH, True),
        (np.full(3, 0.5), np.full(3, 0.5), False),
    ]:
        assert migrations.allowed([3, 4], 1, 0, current, average).tolist() == [back, True]
        assert migrations.allowed([3], 1, 2, current, average).tolist() == [True]
        owner = np.ones(10, np.int32)
        assert migrations.barred(owner, current, average).tolist() == [-1] * 3 + [-1 if back else 0] + [-1] * 6


def test_a_second_move_makes_a_new_home() -> None:
    migrations = Migrations(4)
    migrations.begin(1, [(3, 0, 1)])
    migrations.begin(2, [(3, 1, 2)])
    migrations.end(1)
    migrations.end(2)
    assert migrations.allowed(3, 2, 0, HIGH_LOW, HIGH_LOW).all()
    assert not migrations.allowed(3, 2, 1, LOW_HIGH, LOW_HIGH).any()


def test_migrations_that_cannot_be_are_refused() -> None:
    migrations = Migrations(4)
    for move in [(4, 0, 1), (-1, 0, 1), (0, 1, 1), (0, -1, 1)]:
        with pytest.raises(BraidedError, match="pass a bucket and two different workers"):
            migrations.begin(1, [(0, 0, 1), move])
    assert not migrations.busy
    assert migrations.barred(np.ones(4, np.int32), LOW_HIGH, LOW_HIGH).tolist() == [-1] * 4
    migrations.begin(1, [(0, 0, 1)])
    with pytest.raises(BraidedError, match="version=1"):
        migrations.begin(1, [(0, 0, 1)])


# Moves


def after(owner: npt.NDArray[np.int32], moves: list[tuple[int, int, int]]) -> npt.NDArray[np.int32]:
    owner = owner.copy()
    for bucket, source, target in moves:
        assert owner[bucket] == source != target
        owner[bucket] = target
    assert len({bucket for bucket, _, _ in moves}) == len(moves)
    return owner


def loads_of(owner: npt.NDArray[np.int32], bucket_load: Floats, fixed: Floats) -> Floats:
    return fixed + np.bincount(owner, weights=bucket_load, minlength=len(fixed))


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    workers = draw(st.integers(1, 6))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    buckets = draw(st.integers(1, 80))
    return {
        "owner": chance.integers(0, workers, buckets).astype(np.int32),
        "bucket_load": chance.integers(0, 2, buckets) * chance.exponential(1.0, buckets),
        "fixed": chance.integers(0, 2, workers) * chance.exponential(3.0, workers),
        "in_use": sorted(set(chance.integers(0, workers, workers).tolist())),
        "movable": chance.random(buckets) < 0.8,
        "barred": chance.integers(-1, workers, buckets).astype(np.int32),
    }


@settings(max_examples=examples(300))
@given(clusters())
def test_moves_keep_their_promises(case: dict[str, Any]) -> None:
    owner, bucket_load, fixed, in_use = (case[name] for name in ("owner", "bucket_load", "fixed", "in_use"))
    kept = owner.copy()
    moves = choose_moves(**case)
    assert moves == choose_moves(**case)
    assert (owner == kept).all()
    new = after(owner, moves)
    assert all(case["movable"][bucket] for bucket, _, _ in moves)
    assert np.isin(new[case["movable"]], in_use).all()

    leaving = [move for move in moves if move[1] not in in_use]
    balancing = [move for move in moves if move[1] in in_use]
    before = loads_of(after(owner, leaving), bucket_load, fixed)
    end = loads_of(new, bucket_load, fixed)
    bound = TARGET_RATIO * before[in_use].mean()
    for bucket, source, target in balancing:
        assert before[source] > bound
        assert end[target] <= bound + 1e-9
        assert target != case["barred"][bucket]
        assert bucket_load[bucket] > 0


@settings(max_examples=examples(100))
@given(st.integers(2, 40), st.integers(0, 2**32))
def test_many_small_buckets_are_levelled_in_one_decision(workers: int, seed: int) -> None:
    """Greedy fails only when no bucket fits anywhere; buckets below (ratio - 1) x mean always fit somewhere."""
    chance = np.random.default_rng(seed)
    owner = (chance.integers(0, workers, 4000) * chance.integers(0, 2, 4000)).astype(np.int32)
    bucket_load = chance.random(4000) + 0.01
    mean = bucket_load.sum() / workers
    assert bucket_load.max() < (TARGET_RATIO - 1) * mean
    moves = choose_moves(owner, bucket_load, np.zeros(workers), range(workers), np.ones(4000, bool))
    end = loads_of(after(owner, moves), bucket_load, np.zeros(workers))
    assert end.max() <= TARGET_RATIO * mean * (1 + 1e-9)


def test_balanced_workers_move_nothing() -> None:
    owner = (np.arange(4096) % 7).astype(np.int32)
    uneven = np.where(owner == 3, 1.08, 1.0)
    assert choose_moves(owner, uneven, np.zeros(7), range(7), np.ones(4096, bool)) == []
    assert choose_moves(owner, np.zeros(4096), np.zeros(7), range(7), np.ones(4096, bool)) == []


def test_few_moves() -> None:
    """The smallest bucket that is enough, else the largest that fits; not ten small ones."""
    owner = np.array([0] * 14 + [1, 2], np.int32)
    enough = np.array([0.1] * 10 + [1.5, 2.0, 3.0, 4.0, 8.0, 8.0])
    assert choose_moves(owner, enough, np.zeros(3), [0, 1, 2], np.ones(16, bool)) == [(10, 0, 1)]
    fits = np.array([0.1] * 10 + [3.0, 5.0, 4.0, 9.0, 10.0, 10.0])
    expected = [(11, 0, 1), (10, 0, 2)]
    assert choose_moves(owner, fits, np.zeros(3), [0, 1, 2], np.ones(16, bool)) == expected


def test_a_worker_hot_by_a_fixed_load_sheds_what_it_can() -> None:
    owner, fixed = (np.arange(40) % 4).astype(np.int32), np.array([30.0, 0.0, 0.0, 0.0])
    end = loads_of(
        after(owner, choose_moves(owner, np.ones(40), fixed, range(4), np.ones(40, bool))), np.ones(40), fixed
    )
    assert end[0] == 30.0
    assert end[1:].max() <= 1.1 * 17.5


def test_evacuation_is_complete_and_even() -> None:
    chance = np.random.default_rng(5)
    owner = (np.arange(4096) % 8).astype(np.int32)
    bucket_load = np.where(chance.random(4096) < 0.5, 0.0, chance.exponential(1.0, 4096))
    moves = choose_moves(
        owner,
        bucket_load,
        np.zeros(8),
        [0, 3, 5],
        np.ones(4096, bool),
        barred=np.zeros(4096, np.int32),
    )
    new = after(owner, moves)
    assert set(new.tolist()) == {0, 3, 5}
    assert len(moves) == 5 * 512
    end = loads_of(new, bucket_load, np.zeros(8))[[0, 3, 5]]
    assert end.max() <= 1.01 * end.mean()
    counts = np.bincount(new)[[0, 3, 5]]
    assert counts.max() - counts.min() <= 200  # silent buckets are spread too


def test_evacuation_places_the_largest_first() -> None:
    owner, bucket_load = np.full(5, 2, np.int32), np.array([1.0, 1.0, 1.0, 1.0, 4.0])
    moves = choose_moves(owner, bucket_load, np.zeros(3), [0, 1], np.ones(5, bool))
    assert loads_of(after(owner, moves), bucket_load, np.zeros(3)).tolist() == [4.0, 4.0, 0.0]


def test_thousands_of_buckets_move_off_one_worker_in_one_decision() -> None:
    chance = np.random.default_rng(1)
    owner, bucket_load = np.zeros(4096, np.int32), chance.exponential(1.0, 4096)
    moves = choose_moves(owner, bucket_load, np.zeros(200), range(200), np.ones(4096, bool))
    assert len(moves) > 3000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"in_use": []}, "pass at least one worker"),
        ({"in_use": [0, 2]}, "from 0 to 1"),
        ({"owner": np.array([0, 2], np.int32)}, "owner: unknown worker of a bucket"),
        ({"bucket_load": np.array([1.0, np.nan])}, "bucket_load: a load is not finite"),
        ({"bucket_load": np.ones(3)}, "2, 3 and 2 buckets"),
        ({"fixed": np.array([1.0, -1.0])}, "fixed: a load"),
    ],
)
def test_input_that_no_decision_can_be_based_on_is_refused(change: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {
        "owner": np.zeros(2, np.int32),
        "bucket_load": np.ones(2),
        "fixed": np.zeros(2),
        "in_use": [0, 1],
        "movable": np.ones(2, bool),
    }
    assert choose_moves(**good) == [(0, 0, 1)]
    with pytest.raises(BraidedError, match=text):
        choose_moves(**(good | change))


# All rules together


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(2, 12), st.floats(0.1, 1.0), st.integers(0, 2**32))
def test_the_rules_together_end_a_hot_spot_and_then_are_silent(workers: int, scale: float, seed: int) -> None:
    """A simulated cluster with noise of 3% a batch; an old assignment lives for four batches."""
    chance = np.random.default_rng(seed)
    owner = (np.arange(512) % workers).astype(np.int32)
    shares = chance.gamma(4.0, size=512) * np.where(owner == 0, 3.0, 1.0)
    shares *= scale * workers / shares.sum()
    rule, averages, migrations = HotSpotRule(), LoadAverages(workers), Migrations(512)
    decided: list[int] = []
    for batch in range(40):
        noise = chance.normal(1.0, 0.03, workers).clip(0.9, 1.1)
        averages.add(loads_of(owner, shares, np.zeros(workers)) * noise)
        for version in migrations.under_way:
            if version + 4 <= batch:
                migrations.end(version)
        if rule.judge(averages, range(workers)) is None or migrations.busy:
            continue
        barred = migrations.barred(owner, averages.over(1), averages.over(5))
        moves = choose_moves(owner, shares, np.zeros(workers), range(workers), np.ones(512, bool), barred=barred)
        if moves:
            decided.append(batch)
            migrations.begin(batch, moves)
            owner = after(owner, moves)
    end = loads_of(owner, shares, np.zeros(workers))
    assert end.max() <= 1.25 * end.mean()
    assert decided[:1] == [2]
    assert len(decided) <= 2
