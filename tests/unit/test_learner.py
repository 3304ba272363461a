"""The learning of K: both rules, what is remembered, and that it is the same everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import BraidedError
from braided.sim.slack import slack_rows
from braided.time.lateness import Lateness
from braided.time.learning.delays import Delays
from braided.time.learning.learner import Learner, read_summary
from braided.time.learning.next_delays import NextDelays

SECOND = 1_000_000
LOW, HIGH = -(1 << 63), (1 << 63) - 1
ANY_TIME = st.one_of(st.integers(0, 10**7), st.integers(LOW, HIGH), st.sampled_from([LOW, HIGH]))
SPECS = st.sampled_from(
    [
        Lateness(),
        Lateness(margin=0, floor="0 seconds", memory="1 second"),
        Lateness(recall=0.9, floor="0 seconds", memory="2 seconds"),
        Lateness(recall=0.999, floor="0 seconds"),
        Lateness(measure="next", floor="0 seconds"),
    ]
)


def task_of(times):
    task = Delays()
    task.add(np.array(times, np.int64))
    return task


def next_task_of(times, setting, ceiling=3600 * SECOND):
    task = NextDelays(ceiling)
    task.add(np.array(times, np.int64), np.array(setting, bool))
    return task


def run_batches(learner, batches, clock=None):
    """Give a learner batches of tasks of times, and return the K after each and the last clock."""
    found = []
    for tasks in batches:
        learner.update(clock, [task_of(times) for times in tasks])
        newest = [time for times in tasks for time in times]
        clock = max([*newest, *([] if clock is None else [clock])], default=None)
        found.append(learner.lateness)
    return found, clock


BATCHES = st.lists(st.lists(st.lists(ANY_TIME, max_size=6), max_size=3), max_size=8)


def test_figure_3_of_the_paper():
    """A0, A2, C1, A4, B3, A6 with K = 0 at first and A setting the clock: C1 is 3 late when A4 comes, then K = 3."""
    times, setting = [0, 2, 1, 4, 3, 6], [True, True, False, True, False, True]
    spec = Lateness(margin=0, floor="0 seconds", measure="next")
    run = slack_rows(np.array(times), spec, clock_rows=np.array(setting))
    names = ["A0", "A2", "C1", "A4", "B3", "A6"]
    assert [names[row] for row in run.released] == ["A0", "A2", "C1", "B3", "A4", "A6"]
    assert run.lateness.tolist() == [0, 0, 0, 3, 3, 3]
    assert [names[row] for row in np.flatnonzero(~run.in_order)] == ["C1"]
    assert run.wait[names.index("C1")] == 4 - 2  # until A4
    learner, clock, found = Learner(spec), None, []
    for time, sets in zip(times, setting, strict=True):
        learner.update(clock, [next_task_of([time], [sets])])
        clock = time if sets else clock
        found.append(learner.lateness)
    assert found == [0, 0, 0, 3, 3, 3]


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=80),
    margin=st.sampled_from([0, 1.0]),
)
def test_the_next_measure_in_batches_of_one_row_equals_the_row_at_a_time_kernel(rows, margin):
    spec = Lateness(margin=margin, floor="0 seconds", measure="next")
    times, setting = np.array([t for t, _ in rows], np.int64), np.array([sets for _, sets in rows], bool)
    run = slack_rows(times, spec, clock_rows=setting)
    learner, clock = Learner(spec), None
    waiting, measured, expected = [], [], 0.0
    for row, (time, sets) in enumerate(rows):
        learner.update(clock, [next_task_of([time], [sets])])
        waiting.append(time)
        if sets and (clock is None or time > clock):
            clock = time
            measured += [clock - t for t in waiting]
            expected = max(expected, max(0, *measured) + margin * float(np.std(measured)))
            waiting = []
        assert learner.lateness == run.lateness[row]
        assert abs(learner.lateness - expected) <= 1


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 200), st.booleans()), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    margin=st.sampled_from([0, 1.0]),
)
def test_the_next_measure_is_exact_for_every_cut_where_the_clock_rows_are_in_order(rows, cuts, margin):
    """As in the paper, where one stream sets the clock. The others are early, late, or there before it."""
    spec = Lateness(margin=margin, floor="0 seconds", measure="next")
    clocks = np.cumsum([step for step, _, _ in rows]).astype(np.int64)
    setting = np.array([sets for _, _, sets in rows], bool)
    times = np.where(setting, clocks, clocks + 100 - np.array([late for _, late, _ in rows], np.int64))
    learner, clock, ends = Learner(spec), None, sorted(min(cut, len(rows)) for cut in cuts)
    waiting, measured, expected = [], [], 0.0
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        learner.update(clock, [next_task_of(times[start:end], setting[start:end])])
        learner = Learner.from_json(json.loads(json.dumps(learner.to_json())), spec)
        for time, sets in zip(times[start:end].tolist(), setting[start:end], strict=True):
            waiting.append(time)
            if sets:
                clock = time
                measured += [clock - t for t in waiting]
                waiting = []
        if setting[start:end].any():
            expected = max(expected, max(0, *measured) + margin * float(np.std(measured)))
        assert abs(learner.lateness - expected) <= 1


def test_the_next_measure_learns_nothing_from_an_outage():
    learner = Learner(Lateness(floor="0 seconds", measure="next"))
    learner.update(None, [next_task_of([10 * SECOND, 12 * SECOND, 11 * SECOND], [True, True, False])])
    learner.update(12 * SECOND, [next_task_of([7200 * SECOND, 7201 * SECOND], [True, True])])
    assert (learner.lateness, learner.beyond) == (0, 1)


def test_k_is_primed_by_the_first_batch_and_goes_up_at_once():
    learner = Learner(Lateness(margin=0, floor="0 seconds"))
    assert learner.lateness == 0
    learner.update(None, [task_of([*range(0, 300 * SECOND, SECOND), 290 * SECOND])])
    assert learner.lateness == 9 * SECOND
    learner.update(299 * SECOND, [task_of([279 * SECOND])])
    assert learner.lateness == 20 * SECOND


def test_the_margin_adds_standard_deviations():
    delays = np.random.default_rng(1).integers(0, 10 * SECOND, 2000)
    clock = 10**12
    for margin in (0, 0.5, 2):
        learner = Learner(Lateness(margin=margin, floor="0 seconds"))
        learner.update(clock, [task_of([clock - d]) for d in delays])
        assert learner.lateness - delays.max() == pytest.approx(margin * delays.std(), rel=0.02)


def test_k_stays_between_floor_and_ceiling():
    low = Learner(Lateness())
    low.update(None, [task_of(range(1000))])
    assert low.lateness == 10 * SECOND
    high = Learner(Lateness(margin=100, ceiling="20 seconds"))
    high.update(10**12, [task_of([10**12 - d * SECOND for d in range(19)])])
    assert high.lateness == 20 * SECOND


@pytest.mark.parametrize("recall", [None, 0.99])
@pytest.mark.parametrize("reach", [None, SECOND])
def test_a_clock_broken_beyond_the_ceiling_does_not_move_k(recall, reach):
    good = [list(range(b * 1000 * SECOND, (b * 1000 + 900) * SECOND, SECOND)) for b in range(5)]
    broken = [[*times[:450], times[450] - 7200 * SECOND, *times[450:]] for times in good]
    learners = [Learner(Lateness(recall=recall, floor="0 seconds"), reach) for _ in range(2)]
    assert run_batches(learners[0], [[times] for times in good]) == run_batches(learners[1], [[t] for t in broken])
    assert [learner.beyond for learner in learners] == [0, 5]


def test_k_falls_slowly_when_delays_shrink():
    def batch(number, delay):
        times = np.arange(1000) * 10_000 + number * 10 * SECOND  # 10 seconds of it
        times[500] -= delay
        return [times.tolist()]

    learner = Learner(Lateness(margin=0, floor="0 seconds", memory="80 seconds"))
    found, _ = run_batches(learner, [batch(b, 4 * SECOND if b == 1 else SECOND) for b in range(60)])
    assert found[1] == pytest.approx(4 * SECOND, rel=0.01)
    assert found[8] == found[1]  # not before the memory has passed
    steps = np.array(found[1:])
    assert (np.diff(steps) <= 0).all()
    assert (steps[1:] / steps[:-1] > 0.87).all()
    assert found[-1] == pytest.approx(SECOND, rel=0.02)


def test_a_gap_in_the_stream_forgets_nothing():
    learner = Learner(Lateness(margin=0, floor="0 seconds"))
    _, clock = run_batches(learner, [[[0, 60 * SECOND, 50 * SECOND] * 100]])
    before = learner.lateness
    run_batches(learner, [[[10**15]]], clock)
    assert learner.lateness == before == 60 * SECOND


@settings(deadline=None, max_examples=examples(12))
@given(recall=st.sampled_from([0.8, 0.9, 0.95]), seed=st.integers(0, 20), cut=st.sampled_from([1, 50, 1000]))
def test_a_recall_target_for_rows_is_met_with_a_k_near_the_quantile(recall, seed, cut):
    random = np.random.default_rng(seed)
    learner, clock = Learner(Lateness(recall=recall, floor="0 seconds")), 10**12
    for _ in range(4000 // cut if cut > 1 else 1500):
        delays = random.exponential(SECOND, cut).astype(np.int64)
        learner.update(clock, [task_of([clock - d]) for d in delays])
        clock += 20_000 * cut
    quantile = -np.log(1 - recall) * SECOND
    assert learner.achieved >= recall - 0.04
    assert 0.6 * quantile <= learner.lateness <= 1.7 * quantile


@pytest.mark.parametrize("reach", [SECOND // 10, SECOND, 100 * SECOND])
def test_a_recall_target_for_results_counts_what_a_late_row_still_finds(reach):
    delays = np.random.default_rng(1).exponential(SECOND, 8_000).astype(np.int64)
    learner = Learner(Lateness(recall=0.95, floor="0 seconds"), reach)
    clock = 10**12
    for part in np.split(delays, 20):
        learner.update(clock, [task_of([clock - d]) for d in part])
        clock += 30 * SECOND
        learner.update(clock, [])

    def lost(lateness):
        return np.clip((delays - lateness) / reach, 0, 1).mean()

    assert lost(learner.lateness) <= 0.07
    assert lost(learner.lateness * 0.6 - 0.05 * SECOND) > 0.05 or learner.lateness == 0
    assert learner.achieved >= 0.945


def test_losses_are_made_up_for():
    """After many losses K stays above the quantile until the share of all rows is at the target again."""
    spec, random = Lateness(recall=0.9, floor="0 seconds"), np.random.default_rng(1)
    learner, clock = Learner(spec), 10**12
    found = []
    for batch in range(80):
        delays = random.exponential(SECOND, 100).astype(np.int64) + (8 * SECOND if batch == 20 else 0)
        learner.update(clock, [task_of([clock - d]) for d in delays] + [task_of([clock + 10 * SECOND])])
        clock += 10 * SECOND
        found.append(learner.lateness)
    quantile = -np.log(0.1) * SECOND
    assert found[19] < 1.4 * quantile
    assert found[21] > 2 * quantile
    assert learner.achieved == pytest.approx(0.9, abs=0.02)


def test_losses_that_come_in_bunches_are_kept_in_reserve():
    """The same delays, and as many losses, 150 of the 200 allowed: evenly spread, or six at a time."""
    delays = np.random.default_rng(3).exponential(SECOND, 20_000).astype(np.int64)
    found = []
    for bunched in (False, True):
        learner, clock = Learner(Lateness(recall=0.99, floor="0 seconds")), 10**12
        for batch, part in enumerate(np.split(delays, 200)):
            missed = 6 * (batch % 8 == 0) if bunched else int(batch % 4 > 0)
            learner.update(clock, [task_of(clock - part)], missed=missed)
            clock += SECOND
        found.append(learner.lateness)
        assert learner.achieved == 0.9925
    assert found[1] > 1.2 * found[0]


def test_under_a_target_k_falls_soon_after_a_burst():
    """600 rows may lose 6: after as many rows on time K has left the burst, long before the memory has passed."""
    learner, clock, found = Learner(Lateness(recall=0.99, floor="0 seconds", memory="1 hour")), 10**12, []
    for batch in range(40):
        late = 2 * SECOND if 20 <= batch < 28 else 0
        learner.update(clock, [task_of(clock - late + np.arange(100))], missed=0)
        clock += 1000
        found.append(learner.lateness)
    assert found[27] > 1.9 * SECOND
    assert found[32] > 1.9 * SECOND
    assert found[36] < SECOND // 100


@pytest.mark.parametrize("many", [6, 12])
def test_many_losses_at_once_hold_the_k_of_a_join(many):
    """Rows that begin to come 30 s late when nothing was lost for long, as in minute 5 of the network log."""
    spec = Lateness(recall=0.99, floor="1 second", memory="80 seconds")
    learner, clock = Learner(spec, SECOND), 10**12
    for batch in range(400):
        late = [clock - 30 * SECOND] if 100 <= batch < 100 + many else []
        learner.update(clock, [task_of([clock + i * 10_000 for i in range(10)]), task_of(late)])
        clock += 100_000
        if batch == 200:
            assert (learner.lateness > 29 * SECOND) == (many > 8)
    for _ in range(1200):
        learner.update(clock, [task_of([clock + 100_000])])
        clock += 100_000
    assert learner.lateness == SECOND


@pytest.mark.parametrize("size", [100, 1000, 10_000])
@pytest.mark.parametrize("recall", [None, 0.99])
def test_batches_of_two_tasks_learn_nearly_the_k_of_single_rows_or_less(recall, size):
    random = np.random.default_rng(1)
    times = np.cumsum(random.exponential(2000, 40_000)).astype(np.int64)
    times = times[np.argsort(times + random.integers(5_000, 45_000, len(times)), kind="stable")]
    spec = Lateness(recall=recall, floor="0 seconds")
    learner, clock = Learner(spec), None
    for part in np.split(times, len(times) // size):
        learner.update(clock, [task_of(part[::2]), task_of(part[1::2])])
        clock = int(part.max()) if clock is None else max(clock, int(part.max()))
    alone = int(slack_rows(times, spec).lateness[-1])
    if recall is None:
        assert learner.lateness == pytest.approx(alone, rel=0.12)
    else:  # Rows that are late only within their batch are not lost, so less K is enough.
        assert learner.lateness < 1.12 * alone
        assert learner.achieved >= recall


def test_a_larger_k_does_not_bring_back_the_rows_that_left():
    """What K was when the clock came here decides what is lost, until the clock has moved on by the new K."""
    learner, clock = Learner(Lateness(recall=0.9, floor="0 seconds")), 10**12
    learner.update(clock, [task_of([clock]) for _ in range(300)])
    learner.update(clock, [task_of([clock - SECOND]) for _ in range(100)])
    assert learner.lateness >= SECOND
    learner.update(clock, [task_of([clock - SECOND // 2]) for _ in range(100)])
    assert learner.achieved == pytest.approx(1 - 200 / 500)
    learner.update(clock, [task_of([clock + 2 * SECOND])])
    learner.update(clock + 2 * SECOND, [task_of([clock + SECOND * 3 // 2])])
    assert learner.achieved == pytest.approx(1 - 200 / 502)


def test_misses_that_an_operator_counts_replace_the_estimate():
    learners = [Learner(Lateness(recall=0.9, floor="0 seconds")) for _ in range(2)]
    for learner, missed in zip(learners, (None, 0), strict=True):
        clock = 10**12
        for batch in range(30):
            late = [clock - 1000 * (batch + i) for i in range(40)]
            learner.update(clock, [task_of([t]) for t in late], missed=missed)
    assert learners[0].achieved < 1
    assert learners[1].achieved == 1
    assert learners[1].lateness < learners[0].lateness


@pytest.mark.parametrize("recall", [None, 0.99])
def test_a_hint_holds_until_a_memory_has_passed(recall):
    learner = Learner(Lateness(margin=0, recall=recall, floor="0 seconds", memory="80 seconds"))
    learner.hint(5 * SECOND)
    assert learner.lateness == 5 * SECOND
    batches = [[[b * 10 * SECOND + i * 10_000 for i in range(1000)]] for b in range(40)]
    found, clock = run_batches(learner, batches)
    assert set(found[:8]) == {5 * SECOND}
    assert found[-1] < SECOND // 2
    learner.hint(10**18)
    assert learner.lateness == 3600 * SECOND
    again = Learner.from_json(learner.to_json(), learner.spec)
    again.update(clock, [])
    assert again.lateness == 3600 * SECOND


@settings(deadline=None)
@given(
    spec=SPECS, reach=st.sampled_from([None, 1, 10**6]), batches=BATCHES, cut=st.integers(0, 8), seed=st.integers(0, 9)
)
def test_k_is_a_pure_function_of_the_updates(spec, reach, batches, cut, seed):
    """Restarts, summaries as JSON and the order of the tasks change nothing, at any time of int64."""
    one, other, clock = Learner(spec, reach), Learner(spec, reach), None
    random = np.random.default_rng(seed)
    for number, tasks in enumerate(batches):
        every_second = [[at % 2 == 0 for at in range(len(times))] for times in tasks]
        if spec.measure == "next":
            summaries = [next_task_of(*task) for task in zip(tasks, every_second, strict=True)]
        else:
            summaries = [task_of(times) for times in tasks]
        one.update(clock, summaries)
        if number == cut:
            other = Learner.from_json(json.loads(json.dumps(other.to_json())), spec, reach)
        shuffled = [summaries[i] for i in random.permutation(len(summaries))] if spec.measure != "next" else summaries
        other.update(clock, [read_summary(spec, json.loads(json.dumps(task.to_json()))) for task in shuffled])
        clock = max([t for times in tasks for t in times] + ([] if clock is None else [clock]), default=None)
        assert one.to_json() == other.to_json()
        assert spec.floor_us <= one.lateness <= spec.ceiling_us


@pytest.mark.parametrize("recall", [None, 0.999])
def test_the_state_stays_small(recall):
    learner, clock = Learner(Lateness(recall=recall, floor="0 seconds")), 10**15
    random = np.random.default_rng(1)
    for _ in range(300):
        delays = np.exp(random.uniform(0, np.log(3.6e9), 1000)).astype(np.int64)
        learner.update(clock, [task_of(clock - delays)])
        clock += 10 * SECOND
    assert len(json.dumps(learner.to_json())) < (1000 if recall is None else 6000)


@pytest.mark.parametrize("value", [{}, None, {"state": [1], "maxima": [], "hints": [], "counts": ""}])
def test_damaged_state_is_refused(value):
    with pytest.raises(BraidedError, match="lateness: the state is damaged, or of another version of braided"):
        Learner.from_json(value, Lateness())
