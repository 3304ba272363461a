"""K-slack one row at a time, and the kernel that sorts a batch into the waiting rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.order_reference import LargestDelay, order
from support.profiles import examples

from braided.sim.slack import slack_rows
from braided.time.lateness import Lateness
from braided.time.learning import rules
from braided.time.learning.delays import Delays
from braided.time.learning.learner import Learner

LOW, HIGH = -(1 << 63), (1 << 63) - 1


def disordered(rows, delay, seed, step=1000):
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(0, 2 * step, rows))
    late = np.where(random.random(rows) < 0.3, random.exponential(delay, rows), 0).astype(np.int64)
    return times[np.argsort(times + late, kind="stable")]


def specs():
    return st.builds(
        Lateness,
        margin=st.sampled_from([0, 0.5, 2.0]),
        floor=st.sampled_from(["0 seconds", "3 ms"]),
        memory=st.sampled_from(["1 us", "100 ms", "5 minutes"]),
        ceiling=st.sampled_from(["5 ms", "1 hour"]),
    )


@settings(deadline=None, max_examples=examples(40))
@given(spec=specs(), rows=st.integers(0, 900), delay=st.sampled_from([0, 3000, 100_000]), seed=st.integers(0, 99))
def test_rows_one_at_a_time_equal_the_plain_reference(spec, rows, delay, seed):
    times = disordered(rows, delay, seed)
    run = slack_rows(times, spec)
    plain = LargestDelay(spec.margin, spec.floor_us, spec.memory_us, spec.ceiling_us)
    clock, expected = None, []
    for time in times.tolist():
        late = 0 if clock is None else max(0, clock - time)
        clock = time if clock is None else max(clock, time)
        expected.append(plain.update(clock, late))
    # Sums in another order of operations may differ in the last bit.
    assert np.abs(run.lateness - np.array(expected, np.int64)).max(initial=0) <= 1
    released, in_order, waits = order(times.tolist(), run.lateness.tolist())
    assert run.released.tolist() == released
    assert run.in_order.tolist() == in_order
    assert run.wait.tolist() == waits


@settings(deadline=None, max_examples=examples(30))
@given(
    spec=specs() | st.sampled_from([Lateness(recall=r, floor="0 seconds", memory=m) for r in (0.9, 0.99) for m in ("1 s", "1 h")]),
    reach=st.sampled_from([None, 5000]),
    rows=st.integers(1, 700),
    delay=st.sampled_from([3000, 100_000]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_batches_of_one_row_equal_the_row_at_a_time_kernel(spec, reach, rows, delay, seed):
    times = disordered(rows, delay, seed)
    run = slack_rows(times, spec, reach=reach)
    learner, clock = Learner(spec, reach), None
    for row, time in enumerate(times.tolist()):
        task = Delays()
        task.add(np.array([time]))
        learner.update(clock, [task], missed=int(not run.in_order[row]) if reach is None else None)
        clock = time if clock is None else max(clock, time)
        assert learner.lateness == run.lateness[row]
    released, in_order, _ = order(times.tolist(), run.lateness.tolist())
    assert run.released.tolist() == released
    assert run.in_order.tolist() == in_order


@settings(deadline=None)
@given(times=st.lists(st.integers(-50, 50), max_size=60), extra=st.integers(0, 20))
def test_with_k_at_least_the_largest_delay_the_output_is_the_sorted_input(times, extra):
    array = np.array(times, np.int64)
    largest = int((np.maximum.accumulate(array) - array).max(initial=0))
    run = slack_rows(array, Lateness(), lateness=largest + extra)
    assert run.in_order.all()
    assert run.released.tolist() == np.argsort(array, kind="stable").tolist()


@settings(deadline=None)
@given(times=st.lists(st.one_of(st.integers(LOW, HIGH), st.sampled_from([LOW, HIGH])), max_size=30), spec=specs())
def test_nothing_is_lost_or_doubled_at_any_time(times, spec):
    run = slack_rows(np.array(times, np.int64), spec)
    assert sorted(run.released.tolist()) == list(range(len(times)))
    kept = [times[row] for row in run.released if run.in_order[row]]
    assert (run.wait >= 0).all()
    assert ((run.lateness >= spec.floor_us) & (run.lateness <= spec.ceiling_us)).all()
    assert kept == sorted(kept)


def test_a_miss_raises_k_at_once_and_quiet_lowers_it_slowly():
    times = np.arange(60_000) * 1000
    times[2000] -= 1_500_000
    run = slack_rows(times, Lateness(margin=0, floor="0 seconds", memory="8 seconds"))
    assert run.lateness[1999] == 0
    assert not run.in_order[2000]
    assert run.lateness[2000] == 1_499_000
    assert (run.lateness[2000:9999] == 1_499_000).all()
    assert (np.diff(run.lateness[2001:]) <= 0).all()
    falls = run.lateness[11_000:30_000:1000]
    assert ((falls[1:] / falls[:-1] > 0.87) & (falls[1:] < falls[:-1])).all()


def test_the_first_rows_wait_until_enough_are_seen():
    times = np.arange(1000) * 1000
    times[200:230] -= 100_000
    run = slack_rows(times, Lateness(margin=0, floor="0 seconds"))
    assert run.in_order.all()
    assert run.lateness[199] == 199_001
    assert run.lateness[rules.PRIME_ROWS] == 99_000
