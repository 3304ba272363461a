"""A small summary of the delays of one task's rows, from which a worker learns K.

A row's delay is max(C, running maximum) - time, where C is the clock committed before the batch. The running maximum is
that of a part of the task's input, such as a file, because only there rows are in order of arrival. The worker knows C,
but the task that reads the rows does not, so the task keeps two histograms:

```
 within   running maximum of the part - time       how late rows are against the task's own rows
 around   time of the first row - time (signed)    the times themselves, finest near the probable C
```
With C, the number of rows more than x late is at most #(within > x) + #(C - time > x), and at least the larger of the
two. The larger one is used: rows that are late in one way are nearly always late in the other way too, so the sum would
count them twice. The largest delay is exact: max(largest within, C - smallest time). With one row per task, everything
is exact up to the width of a bucket (1/32), and a row's time never becomes older than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braided.compiled import compiled
from braided.errors import BraidedError
from braided.time.clocks import MAX_TIME, MIN_TIME, Times
from braided.time.learning.delay_buckets import (
    BUCKETS,
    Ints,
    bucket_lower,
    bucket_of,
    bucket_upper,
    decode_counts,
    encode_counts,
    gap,
)

_TEXT = 1800
_SHORT_TEXT = 450
"""The largest size of one histogram in JSON: two of them and the rest are below 4 KB."""


class Delays:
    """The delays of one task's rows of one batch and stream, in order of arrival.

    Adding the rows in pieces gives the same result as adding them at once. Memory: 45 KB; JSON: below 4 KB. With
    `fine=False` the JSON is smaller, because every task sends it to every worker. This is enough if K follows the
    largest delay, which stays exact.

    >>> task = Delays()
    >>> task.add(np.array([100, 300, 250]))
    >>> task.rows, task.smallest, task.largest, task.largest_delay(None), task.largest_delay(400)
    (3, 100, 300, 50, 300)
    """

    def __init__(self, *, fine: bool = True) -> None:
        self._fine = fine
        self._numbers = np.array([0, 0, MIN_TIME, MAX_TIME, 0, MIN_TIME], np.int64)
        self._within = np.zeros(BUCKETS, np.int64)
        self._around = np.zeros(2 * BUCKETS, np.int64)

    @property
    def rows(self) -> int:
        return int(self._numbers[_ROWS])

    @property
    def largest(self) -> int:
        """The largest time; the smallest int64 if there are no rows."""
        return int(self._numbers[_LARGEST])

    @property
    def smallest(self) -> int:
        """The smallest time; the largest int64 if there are no rows."""
        return int(self._numbers[_SMALLEST])

    @property
    def clock(self) -> int | None:
        """The largest time, to which the task moves the clock; None if there are no rows."""
        return self.largest if self.rows else None

    def largest_delay(self, clock: int | None) -> int:
        """Return the exact largest delay of a row (at most the largest int64)."""
        within = int(self._numbers[_DELAY])
        return within if clock is None or not self.rows else max(within, gap(clock, self.smallest))

    def add(self, times: Times) -> None:
        """Add the task's next rows, in order of arrival."""
        _add(np.ascontiguousarray(times, np.int64), self._numbers, self._within, self._around)

    def begin_part(self) -> None:
        """Begin another part of the input; its rows may have arrived before the rows added so far."""
        self._numbers[_RUNNING] = MIN_TIME

    def count_behind(self, clock: int | None) -> Ints:
        """Return the histogram of clock - time for rows behind the clock from before the batch, if there is a clock."""
        behind = np.zeros(BUCKETS, np.int64)
        if clock is not None:
            _shift(self._around, int(self._numbers[_FIRST]), clock, behind)
        return behind

    def count_into(self, behind: Ints, out: Ints) -> None:
        """Add the rows to a histogram of their delays behind the larger of the clock and the running maximum."""
        later = np.maximum(_tail(self._within), _tail(behind))
        out[0] += self.rows - later[0]
        out[1:] += later - np.append(later[1:], 0)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values, less than 4 KB; less than 1.2 KB if not fine."""
        text = _TEXT if self._fine else _SHORT_TEXT
        return {
            "numbers": self._numbers.tolist(),
            "within": encode_counts(self._within, text),
            "around": encode_counts(self._around, text, upward=False),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Delays:
        task = cls()
        try:
            task._numbers[:] = value["numbers"]
            task._within = decode_counts(value["within"], BUCKETS)
            task._around = decode_counts(value["around"], 2 * BUCKETS)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BraidedError(
                "delays: the summary is damaged, or of another version of braided; restore it"
            ) from error
        return task


@dataclass(frozen=True)
class BatchDelays:
    """The delays of all rows of a batch: those to learn from, and how many are above the ceiling.

    `behind` counts rows by their distance from the clock before the batch: a row that is late only within its batch is
    not lost, because no row leaves before the end of the batch.
    """

    rows: int
    beyond: int
    largest: int
    buckets: Ints
    counts: Ints
    behind: Ints


def batch_delays(tasks: Sequence[Delays], clock: int | None, ceiling: int) -> BatchDelays:
    """Combine the tasks of a batch; their order does not matter."""
    tasks = [task for task in tasks if task.rows]
    counts, behind = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    for task in tasks:
        of_task = task.count_behind(clock)
        task.count_into(of_task, counts)
        behind += of_task
    top = bucket_of(ceiling)
    beyond = int(counts[top + 1 :].sum())
    counts[top + 1 :] = behind[top + 1 :] = 0
    at = np.flatnonzero(counts)
    largest = max((task.largest_delay(clock) for task in tasks), default=0)
    if bucket_of(largest) > top:
        largest = min(ceiling, int(bucket_upper(int(at[-1])))) if len(at) else 0
    return BatchDelays(int(counts.sum()), beyond, largest, at, counts[at], behind)


def _tail(counts: Ints) -> Ints:
    """Return, for every bucket except the last, the count of all buckets above it."""
    above: Ints = np.cumsum(counts[::-1])[::-1][1:]
    return above


_ROWS, _FIRST, _LARGEST, _SMALLEST, _DELAY, _RUNNING = range(6)


@compiled
def _add(times: Times, numbers: Ints, within: Ints, around: Ints) -> None:
    for time in times:
        if numbers[_ROWS] == 0:
            numbers[_FIRST] = time
        numbers[_ROWS] += 1
        numbers[_LARGEST] = max(numbers[_LARGEST], time)
        numbers[_SMALLEST] = min(numbers[_SMALLEST], time)
        numbers[_RUNNING] = max(numbers[_RUNNING], time)
        delay = gap(numbers[_RUNNING], time)
        numbers[_DELAY] = max(numbers[_DELAY], delay)
        within[bucket_of(delay)] += 1
        first = numbers[_FIRST]
        if time <= first:
            around[BUCKETS + bucket_of(gap(first, time))] += 1
        else:
            around[BUCKETS - 1 - bucket_of(gap(time, first))] += 1


@compiled
def _shift(around: Ints, first: int, clock: int, out: Ints) -> None:
    """Convert first - time into clock - time, with the smallest possible delay of each bucket."""
    for at in range(2 * BUCKETS):
        if around[at]:
            if at >= BUCKETS:
                older = bucket_lower(at - BUCKETS)
                if clock >= first:
                    ahead = gap(clock, first)
                    delay = MAX_TIME if older > MAX_TIME - ahead else older + ahead
                else:
                    delay = gap(older, gap(first, clock))
            else:
                delay = gap(gap(clock, first), bucket_upper(BUCKETS - 1 - at))
            out[bucket_of(delay)] += around[at]
