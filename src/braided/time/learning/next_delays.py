"""A task's summary of delays that are measured at the next row that sets the clock, as in the paper.

```
 arrival    A0   A2   C1   A4   B3   A6   C5          A sets the clock
 delay      0    0    3    0    3    0    pending     C1 at A4, B3 at A6; a row that sets the clock is on time
```

The worker knows the clock C before the batch. If the task never passes C, none of its rows set the clock, and all its
rows are pending. If it does, its delays are as measured, and the delay of each row is at least C - time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.errors import BraidedError
from braided.time.clocks import MIN_TIME, Times, clamp
from braided.time.learning.delay_buckets import gap
from braided.time.learning.pending import FIELDS, State, add_pending, measure_pending

SEEN = np.dtype(
    [
        *FIELDS,
        ("seen", np.int64),  # rows, measured or pending
        ("first", np.int64),  # the time of the first of them, the smallest and the largest
        ("smallest", np.int64),
        ("largest", np.int64),
        ("sum1", np.float64),  # sums of the powers of first - time
        ("sum2", np.float64),
        ("sets", np.int64),  # how often the clock was set, and its first and last value
        ("first_set", np.int64),
        ("clock", np.int64),
        ("part_sets", np.int64),  # the same for the current part of the input
        ("part_clock", np.int64),
        ("oldest", np.int64),  # the smallest time and the largest delay of a row that was measured
        ("most", np.int64),
    ]
)


class NextDelays:
    """The delays of one task's rows of one batch and stream, in order of arrival.

    Adding the rows in pieces gives the same result as adding them at once. JSON: below 1 KB.

    >>> task = NextDelays(ceiling=3_600_000_000)
    >>> task.add(np.array([0, 2, 1, 4, 3]), np.array([True, True, False, True, False]))
    >>> task.rows, task.largest, task.first_set(after=None), task.first_set(after=2), task.clock
    (5, 4, 0, 2, 4)
    """

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._state = np.zeros(1, SEEN)

    @property
    def rows(self) -> int:
        """The number of added rows that are not later than the ceiling."""
        return int(self._state[0]["seen"])

    @property
    def largest(self) -> int:
        return int(self._state[0]["largest"])

    @property
    def clock(self) -> int | None:
        """The last value of the clock; None if no row set it."""
        return int(self._state[0]["clock"]) if self._state[0]["sets"] else None

    def first_set(self, after: int | None) -> int | None:
        """Return the value to which the task first moved a clock at `after`, or a lower bound; None if it did not.

        Only the first and the last row that set the clock are known. If the first is not after `after`, the next one is
        somewhere after it.
        """
        if self.clock is None or (after is not None and self.clock <= after):
            return None
        first = int(self._state[0]["first_set"])
        return first if after is None else max(first, after)

    def add(self, times: Times, setting: npt.NDArray[np.bool_] | None) -> None:
        """Add the task's next rows, in order of arrival; `setting` has which of them set the clock, None means all."""
        times = np.ascontiguousarray(times, np.int64)
        mask = np.ones(len(times), np.bool_) if setting is None else np.ascontiguousarray(setting, np.bool_)
        _add(times, mask, self._state, self._ceiling)

    def begin_part(self) -> None:
        self._state[0]["part_sets"] = 0

    def take_into(self, learned: State, clock: int | None) -> int:
        """Add the rows to the learned state, with the clock before the batch; return the largest measured delay."""
        task = self._state[0]
        learned[0]["beyond"] += task["beyond"]
        if clock is not None and gap(clock, self.largest) > self._ceiling:
            learned[0]["beyond"] += self.rows
            return 0
        earliest = MIN_TIME if clock is None else clamp(clock - self._ceiling)
        if self.first_set(clock) is None:
            oldest = max(int(task["smallest"]), earliest)
            add_pending(learned, self.rows, task["first"], oldest, task["sum1"], task["sum2"])
            return 0
        for name in ("rows", "slice_rows", "moment0", "moment1", "moment2"):
            learned[0][name] += task[name]
        oldest = max(int(task["pending_smallest"]), earliest)
        add_pending(learned, task["pending"], task["pending_first"], oldest, task["pending1"], task["pending2"])
        behind = 0 if clock is None or not task["rows"] else int(gap(clock, int(task["oldest"])))
        return max(int(task["most"]), behind if behind <= self._ceiling else 0)

    def to_json(self) -> dict[str, Any]:
        return {"next": self._state[0].tolist()}

    @classmethod
    def from_json(cls, value: dict[str, Any], ceiling: int) -> NextDelays:
        task = cls(ceiling)
        try:
            task._state[0] = tuple(value["next"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BraidedError(
                "delays: the summary is damaged, or of another version of braided; restore it"
            ) from error
        return task


@compiled
def _add(times: Times, setting: npt.NDArray[np.bool_], state: State, ceiling: int) -> None:
    now = state[0]
    for row in range(len(times)):
        time = times[row]
        started = now.part_sets > 0
        now.largest = max(now.largest, time) if now.seen else time
        if started and gap(now.part_clock, time) > ceiling:
            now.beyond += 1
            continue
        add_pending(state, 1, time, time, 0.0, 0.0)
        if now.seen == 0:
            now.first = now.smallest = time
        offset = float(now.first) - float(time)
        now.seen += 1
        now.sum1 += offset
        now.sum2 += offset * offset
        now.smallest = min(now.smallest, time)
        if setting[row] and (not started or time > now.part_clock):
            if now.sets == 0:
                now.first_set = now.clock = time
                now.oldest = now.pending_smallest
            now.first_set = min(now.first_set, time)
            now.oldest = min(now.oldest, now.pending_smallest)
            now.most = max(now.most, measure_pending(state, ceiling, time))
            now.clock = max(now.clock, time)
            now.part_clock = time
            now.sets += 1
            now.part_sets += 1
