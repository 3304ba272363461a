"""K-slack: rows wait until their time plus K is not after the clock, and are then released in event-time order.

`slack_rows` runs a whole stream one row at a time, with K learned after every row: what the operator does when
every batch is one row, for benchmarks and plots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.time.clocks import MAX_TIME, MIN_TIME, Times
from braided.time.lateness import Lateness
from braided.time.learning.delay_buckets import Ints, bucket_of, gap
from braided.time.learning.learner import rule_of
from braided.time.learning.learner_state import Learned, Rule, new_learned
from braided.time.learning.pending import State, add_pending, measure_pending
from braided.time.learning.rules import end_batch, take_delay
from braided.time.learning.target import lose_behind

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SlackRun:
    """The run for each row, by order of arrival."""

    lateness: Ints
    """K after the row."""
    in_order: Flags
    """Whether no later row had been released before this one arrived."""
    released: Ints
    """The rows in the order of their release; rows that still wait at the end are released then."""
    wait: Ints
    """How far the stream's clock moved while the row waited."""


def slack_rows(
    times: Times,
    spec: Lateness,
    *,
    reach: int | None = None,
    clock_rows: Flags | None = None,
    lateness: int | None = None,
) -> SlackRun:
    """Order a stream one row at a time, with K learned by `spec`, or fixed at `lateness`.

    `clock_rows` marks the rows that set the clock, for `measure="next"`; without it all do.

    Cost: a heap of the waiting rows, and with a recall target a scan of the histogram of delays, for every row.

    >>> run = slack_rows(np.array([0, 20, 10, 40, 30, 60]), Lateness(margin=0, floor="0 seconds"), lateness=10)
    >>> run.released.tolist(), run.in_order.all()
    ([0, 2, 1, 4, 3, 5], np.True_)
    """
    times = np.ascontiguousarray(times, np.int64)
    rows = len(times)
    run = SlackRun(
        np.zeros(rows, np.int64), np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    )
    rule = rule_of(spec, reach)
    fixed = -1 if lateness is None else lateness
    setting = np.ones(rows, np.bool_) if clock_rows is None else np.ascontiguousarray(clock_rows, np.bool_)
    _run(
        times,
        rule,
        fixed,
        spec.measure == "next",
        setting,
        *new_learned(),
        run.lateness,
        run.in_order,
        run.released,
        run.wait,
    )
    return run


@compiled
def _run(
    times: Times, rule: Rule, fixed: int, next_clock: bool, setting: Flags,
    state: Learned, maxima: Ints, hints: Ints, recent: Ints, counts: Ints,
    lateness: Ints, in_order: Flags, released: Ints, wait: Ints,
) -> None:  # fmt: skip
    now = state[0]
    now.lateness = rule.floor if fixed < 0 else fixed
    heap = np.empty(len(times), np.int64)
    arrived = np.empty(len(times), np.int64)
    waiting = done = 0
    horizon = last = MIN_TIME
    top = bucket_of(rule.ceiling)
    started, clock = False, MIN_TIME
    for row in range(len(times)):
        time = times[row]
        in_order[row] = time >= last
        sets = setting[row] and (not started or time > clock)
        before = clock if started else time
        if sets:
            started, clock = True, time
        if next_clock:
            _take_pending(state, rule.ceiling, before, time)
            if sets:
                end_batch(
                    state, maxima, hints, recent, counts, rule, clock, measure_pending(state, rule.ceiling, clock)
                )
        elif fixed < 0:
            delay = gap(before, time)
            if bucket_of(delay) > top:
                now.beyond += 1
                delay = 0
            else:
                take_delay(state, counts, rule, bucket_of(delay), 1)
                if rule.reach > 0:
                    lose_behind(state, rule, bucket_of(delay), 1)
                elif not in_order[row]:
                    now.losing += 1.0
            end_batch(state, maxima, hints, recent, counts, rule, clock, delay)
        lateness[row] = now.lateness
        if started and clock >= MIN_TIME + now.lateness:
            horizon = max(horizon, clock - now.lateness)
        arrived[row] = clock if started else MAX_TIME
        _push(heap, waiting, times, row)
        waiting += 1
        while (sets or not next_clock) and waiting and times[heap[0]] <= horizon:
            waiting -= 1
            done = _release(heap, waiting, times, released, done)
            leaver = released[done - 1]
            last = max(last, times[leaver])
            wait[leaver] = gap(clock, arrived[leaver])
    while waiting:
        waiting -= 1
        done = _release(heap, waiting, times, released, done)
        wait[released[done - 1]] = gap(clock, arrived[released[done - 1]])


@compiled
def _before(times: Times, a: int, b: int) -> bool:
    return bool(times[a] < times[b] or (times[a] == times[b] and a < b))


@compiled
def _push(heap: Ints, size: int, times: Times, row: int) -> None:
    at = size
    while at > 0 and _before(times, row, heap[(at - 1) >> 1]):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = row


@compiled
def _release(heap: Ints, size: int, times: Times, released: Ints, done: int) -> int:
    """Take the first row off a heap of size + 1 rows; return how many have been released."""
    released[done] = heap[0]
    row, at = heap[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(times, heap[child + 1], heap[child]):
            child += 1
        if not _before(times, heap[child], row):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = row
    return done + 1


@compiled
def _take_pending(state: State, ceiling: int, before: int, time: int) -> None:
    """Keep a row until the clock, which is at `before`, is next set; a row beyond the ceiling is not kept."""
    if gap(before, time) > ceiling:
        state[0].beyond += 1
    else:
        add_pending(state, 1, time, time, 0.0, 0.0)
