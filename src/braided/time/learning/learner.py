"""Learn a stream's lateness from its batches; the result depends on the summaries of the batches alone.

Every worker has one `Learner` per stream and makes the same updates, so all workers have the same K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braided.errors import BraidedError
from braided.time.clocks import advance
from braided.time.lateness import Lateness
from braided.time.learning.delay_buckets import BUCKETS, Ints, count_buckets, decode_counts, encode_counts
from braided.time.learning.delays import Delays, batch_delays
from braided.time.learning.learner_state import LEARNED, SLICES, Rule, new_learned
from braided.time.learning.next_delays import NextDelays
from braided.time.learning.pending import measure_pending
from braided.time.learning.rules import (
    PRIME_ROWS,
    SLICE_ROWS,
    TARGET_PRIME_ROWS,
    TARGET_SLICE_ROWS,
    end_batch,
    take_delays,
)
from braided.time.learning.target import lose_all_behind


def rule_of(spec: Lateness, reach: int | None) -> Rule:
    """Return a `Lateness` as numbers for the kernels."""
    loss = 0.0 if spec.recall is None else 1.0 - spec.recall
    return Rule(
        margin=float(spec.margin),
        loss=loss,
        floor=spec.floor_us,
        ceiling=spec.ceiling_us,
        slice=max(1, spec.memory_us // SLICES),
        slice_rows=SLICE_ROWS if spec.recall is None else max(SLICE_ROWS, int(TARGET_SLICE_ROWS / loss)),
        reach=max(0, reach or 0),
        # The paper's own measure begins with K = 0.
        prime=0 if spec.measure == "next" else PRIME_ROWS if spec.recall is None else TARGET_PRIME_ROWS,
    )


def new_summary(spec: Lateness) -> Delays | NextDelays:
    """Return an empty summary for the delays of a task."""
    return NextDelays(spec.ceiling_us) if spec.measure == "next" else Delays(fine=spec.recall is not None)


def read_summary(spec: Lateness, value: dict[str, Any]) -> Delays | NextDelays:
    return NextDelays.from_json(value, spec.ceiling_us) if spec.measure == "next" else Delays.from_json(value)


class Learner:
    """The lateness K of one stream, learned batch by batch.

    `reach` is the span of a join's window, hi - lo: with a recall target, a row with delay d loses
    min(1, (d - K) / reach) of its results. None is for `order`, where a row later than K is out of order.
    State: below 6 KB as JSON with a recall target, below 1 KB without.

    >>> import numpy
    >>> learner = Learner(Lateness(margin=0, floor="0 seconds"))
    >>> task = Delays()
    >>> task.add(numpy.array([*range(300), 5_000_000, 3_000_000]))
    >>> learner.update(None, [task])
    >>> learner.lateness
    2000000
    """

    def __init__(self, spec: Lateness, reach: int | None = None) -> None:
        self.spec = spec
        self._rule = rule_of(spec, reach)
        self._state, self._maxima, self._hints, self._recent, self._counts = new_learned()
        self._state[0]["lateness"] = spec.floor_us

    @property
    def lateness(self) -> int:
        """K in microseconds."""
        return int(self._state[0]["lateness"])

    @property
    def beyond(self) -> int:
        """The number of rows so far that were later than the ceiling; K is not learned from them."""
        return int(self._state[0]["beyond"])

    @property
    def achieved(self) -> float | None:
        """The share of results, or of rows in order, that was kept so far; None without a recall target."""
        rows = int(self._state[0]["rows"])
        return None if self.spec.recall is None or not rows else 1.0 - float(self._state[0]["lost"]) / rows

    def hint(self, lateness: int) -> None:
        """Keep K at least at a lateness that a previous operator has learned, for the length of the memory."""
        at = int(self._state[0]["slice"])
        self._hints[at] = max(int(self._hints[at]), min(lateness, self._rule.ceiling))
        self._state[0]["lateness"] = max(self.lateness, int(self._hints[at]))

    def update(self, clock: int | None, tasks: Sequence[Delays | NextDelays], *, missed: int | None = None) -> None:
        """Learn from one batch of the stream.

        `clock` is the clock committed before the batch. `missed` is how many of its rows, up to the ceiling, came after
        a later row had left, if one worker sees this for the whole stream. Otherwise all rows count that were behind
        the horizon from before the batch; all workers know this number, which is never smaller.
        """
        after = advance(clock, max((task.clock for task in tasks if task.clock is not None), default=None))
        if self.spec.measure == "next":
            largest = self._take_until_set(clock, [task for task in tasks if isinstance(task, NextDelays)])
        else:
            largest = self._take_arrived(clock, [task for task in tasks if isinstance(task, Delays)], missed)
        if after is not None and largest is not None:
            parts = (self._state, self._maxima, self._hints, self._recent, self._counts)
            end_batch(*parts, self._rule, after, largest)

    def learn(self, delays: Ints, clock: int) -> None:
        """Learn from delays that the caller has measured up to the time `clock`."""
        usable = np.ascontiguousarray(delays[delays <= self._rule.ceiling])
        self._state[0]["beyond"] += len(delays) - len(usable)
        if len(usable):
            counts = count_buckets(usable)
            at = np.flatnonzero(counts)
            take_delays(self._state, self._counts, self._rule, at, counts[at])
            parts = (self._state, self._maxima, self._hints, self._recent, self._counts)
            end_batch(*parts, self._rule, clock, int(usable.max()))

    def _take_arrived(self, clock: int | None, tasks: Sequence[Delays], missed: int | None) -> int:
        batch = batch_delays(tasks, clock, self._rule.ceiling)
        self._state[0]["beyond"] += batch.beyond
        take_delays(self._state, self._counts, self._rule, batch.buckets, batch.counts)
        if missed is not None:
            self._state[0]["losing"] += missed
        elif self.spec.recall is not None:
            lose_all_behind(self._state, self._rule, batch.behind)
        return batch.largest

    def _take_until_set(self, clock: int | None, tasks: Sequence[NextDelays]) -> int | None:
        """Keep the batch's rows; if it has set the clock, measure the rows kept before, and take its own delays."""
        sets = [at for at in (task.first_set(clock) for task in tasks) if at is not None]
        largest = int(measure_pending(self._state, self._rule.ceiling, min(sets))) if sets else 0
        largest = max([largest, *(task.take_into(self._state, clock) for task in tasks)])
        return largest if sets else None

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self._state[0].tolist(),
            "maxima": self._maxima.tolist(),
            "hints": self._hints.tolist(),
            "recent": self._recent.tolist(),
            "counts": encode_counts(self._counts, 1 << 20),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], spec: Lateness, reach: int | None = None) -> Learner:
        learner = cls(spec, reach)
        try:
            learner._state[0] = tuple(value["state"])
            learner._maxima[:] = value["maxima"]
            learner._hints[:] = value["hints"]
            learner._recent[:] = value["recent"]
            learner._counts = decode_counts(value["counts"], BUCKETS)
            if len(value["state"]) != len(LEARNED.names or ()):
                raise ValueError("another number of fields")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BraidedError(
                "lateness: the state is damaged, or of another version of braided; restore it"
            ) from error
        return learner
