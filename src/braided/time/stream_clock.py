"""The time of one stream: its clock, its lateness, and whether it is idle. Every worker has it in its state.

All router tasks send the same summaries to all workers, so every worker computes the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from braided.storage.topic_progress import Progress, read_progress
from braided.time.clocks import MIN_TIME, clamp
from braided.time.gaps import SPARSE, Gaps
from braided.time.lateness import Lateness
from braided.time.learning.delays import Delays
from braided.time.learning.learner import Learner
from braided.time.learning.next_delays import NextDelays
from braided.time.quarantine import StreamProgress
from braided.time.trust import JUMP, QUORUM, Cluster, Trust

# How many changes of K are kept for the report.
_HISTORY = 32


@dataclass
class StreamTime:
    """The summary of one input from all router tasks of a batch."""

    rows: int = 0
    null_times: int = 0
    null_keys: int = 0
    shed: int = 0
    clusters: list[Cluster] = field(default_factory=list)
    delays: list[Delays | NextDelays] = field(default_factory=list)
    propagated_delay: int | None = None
    """How late the results of a previous operator may be, as that operator reports it."""
    top: int | None = None
    """The largest time of all rows, including rows that set no clock."""
    promise: Progress | None = None
    """The progress of the stream, if it is read from a topic whose writer reports it."""

    @property
    def last(self) -> int | None:
        """The largest time, trusted or not."""
        known = [time for time in (self.top, self.clusters[-1].last if self.clusters else None) if time is not None]
        return max(known, default=None)


def lateness_options(lateness: Sequence[int | Lateness]) -> list[int | str]:
    """Return the lateness of streams for an operator's options; for a function only that there is one."""
    return [
        k if isinstance(k, int) else repr(replace(k, clock_rows=None)) + " with clock_rows" * (k.clock_rows is not None)
        for k in lateness
    ]


def jump_of(lateness: int | Lateness) -> int:
    """Return how far ahead of every clock a time must be to be doubted; it is never shorter than the lateness."""
    return max(JUMP, lateness) if isinstance(lateness, int) else lateness.ceiling_us


class StreamClock:
    """One stream's clock and lateness K, from batch to batch.

    A topic contains the progress of its stream. If the lateness would be learned, without a recall target, this promise
    is the clock, and K is 0: no row is doubted and no lateness is learned, for any times of the rows. This ends with a
    batch whose rows come without a promise; then clock and K follow the rows.

    lateness : K in microseconds, or how to learn it.
    reach : for a join, the span of its window, which learning with a recall target needs.
    idle : after how many microseconds without rows other streams do not wait for this one any longer.
    """

    def __init__(self, lateness: int | Lateness, reach: int | None = None, idle: int | None = None) -> None:
        self._fixed = lateness if isinstance(lateness, int) else None
        self._learner = None if isinstance(lateness, int) else Learner(lateness, reach)
        self._reach, self._idle_after = reach, idle
        self.jump = jump_of(lateness)
        self.trust = Trust()
        self.gaps = Gaps()
        self.silent = 0
        self._heard: int | None = None
        self._history: list[list[int | None]] = []
        self.promise: Progress | None = None
        """The progress that the stream's writer reported in the last batch."""

    @property
    def clock(self) -> int | None:
        """The largest trusted time seen, or the promised time."""
        if self.promise is not None:
            return None if self.promise.until == MIN_TIME else self.promise.until
        return self.trust.clock

    @property
    def settled(self) -> bool:
        """Whether the clock counts: rows expire and leave by it, and it confirms the times of other streams."""
        return self.promise is not None or self.trust.settled

    @property
    def counted(self) -> int | None:
        """The clock if it counts, or else None."""
        return self.clock if self.settled else None

    @property
    def progress(self) -> StreamProgress:
        """How far the stream has continued, row by row."""
        return self.trust.gone

    @property
    def lateness(self) -> int:
        """K after the last batch."""
        if self._fixed is not None:
            return self._fixed
        if self.promise is not None:
            return 0
        assert self._learner is not None
        return self._learner.lateness

    @property
    def idle(self) -> bool:
        """Whether the stream has been silent for so long that other streams do not wait for it."""
        return self._idle_after is not None and self.silent >= self._idle_after

    @property
    def safe(self) -> int:
        """The time before which no row that is not late can come any more."""
        return MIN_TIME if self.counted is None else clamp(self.counted - self.lateness)

    @property
    def limit(self) -> int:
        """The last time that the stream confirms."""
        if self.promise is not None:
            known = [self.promise.until, *([] if self.trust.top is None else [self.trust.top])]
            return clamp(max(known) + self.jump)
        return self.trust.limit(self.jump)

    @property
    def spread(self) -> int:
        """How far behind the largest time seen a row may be; K, unless the clock is a promise."""
        if self.promise is None:
            return self.lateness
        ahead = 0 if self.trust.top is None or self.clock is None else self.trust.top - self.clock
        return max(self.promise.spread, ahead)

    def update(
        self,
        seen: StreamTime,
        moment: int | None = None,
        others: int | None = None,
        missed: int | None = None,
        wide: int | None = None,
    ) -> None:
        """Update the clock with the summary of a batch; `moment` is when the batch ran, if that is known.

        `others` is the largest clock of the other streams that counts, `wide` is how far ahead a row may be in a sparse
        stream, and `missed` is how many of its rows came too late, if one worker sees all rows.
        """
        takes = self._learner is not None and self._learner.spec.recall is None
        if takes and (seen.promise is not None or seen.rows):
            self.promise = seen.promise
        before = self.clock
        self.trust.update(seen.clusters, self.jump, others, wide)
        if seen.last is not None:
            # Rows that set no clock are stored too, and an assignment is alive as long as they can match.
            self.trust.top = seen.last if self.trust.top is None else max(self.trust.top, seen.last)
        if self._learner is not None and seen.propagated_delay is not None:
            self._learner.hint(seen.propagated_delay)
        self._learn(before, seen.delays, missed)
        if moment is not None:
            if seen.clusters or seen.promise is not None or self._heard is None:
                self._heard = moment
            self.silent = max(0, moment - self._heard)

    def _learn(self, before: int | None, tasks: list[Delays | NextDelays], missed: int | None) -> None:
        """Learn K from tasks whose times are near the clock, or from all tasks until a row has set the clock."""
        if self.promise is not None:
            return
        tasks = [task for task in tasks if self.clock is None or task.largest <= self.limit]
        if self._learner is None or not tasks:
            return
        known = self._learner.lateness
        self._learner.update(before, tasks, missed=missed)
        if self._learner.lateness != known or not self._history:
            self._history = [*self._history, [self.clock, self._learner.lateness]][-_HISTORY:]

    def restore(self, state: dict[str, Any]) -> None:
        self.trust = Trust.from_json(state["trust"])
        self.gaps = Gaps(state.get("gaps", ()))
        self._heard, self.silent, self._history = state["heard"], state["silent"], state["history"]
        promise = state.get("promise")
        self.promise = None if promise is None else read_progress(promise)
        if self._learner is not None:
            self._learner = Learner.from_json(state["learner"], self._learner.spec, self._reach)

    def to_json(self) -> dict[str, Any]:
        return {
            "trust": self.trust.to_json(),
            "gaps": self.gaps.recent,
            "heard": self._heard,
            "silent": self.silent,
            "history": self._history,
            "learner": None if self._learner is None else self._learner.to_json(),
            **({} if self.promise is None else {"promise": asdict(self.promise)}),
        }

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = {"clock": self.clock, "lateness": self.lateness}
        report["trust"] = {"settled": self.settled, "top": self.trust.top, "limit": self.limit, "gone": self.progress}
        if self._learner is not None:
            report["lateness_history"] = self._history
        if self.promise is not None:
            report["spread"] = self.spread
        if self._idle_after is not None:
            report |= {"silent": self.silent, "idle": self.idle}
        return report


def update_all(
    clocks: Sequence[StreamClock],
    seen: Sequence[StreamTime],
    moment: int | None,
    missed: Sequence[int] | None = None,
) -> None:
    """Update the clocks of an operator's streams together; each uses the others' clocks from before the batch.

    If one of the streams is not sparse, it confirms the times of the others, and longer gaps are not allowed.
    """
    before = [clock.counted for clock in clocks]
    for clock, stream in zip(clocks, seen, strict=True):
        clock.gaps.take(stream.clusters, clock.jump)
    usual = min((gap for clock in clocks if (gap := clock.gaps.usual()) is not None), default=0)
    for at, (clock, stream) in enumerate(zip(clocks, seen, strict=True)):
        others = [other for i, other in enumerate(before) if i != at and other is not None]
        late = None if missed is None else missed[at]
        clock.update(stream, moment, max(others, default=None), late, SPARSE * usual)
    _confirm_together(clocks, SPARSE * usual)
    furthest = max((clock.counted for clock in clocks if clock.counted is not None), default=None)
    for clock in clocks:
        clock.trust.confirm(clock.jump, furthest)


def _confirm_together(clocks: Sequence[StreamClock], wide: int) -> None:
    """Let clocks that are near each other count when they had enough rows together."""
    known = [(clock.clock, clock) for clock in clocks if clock.clock is not None]
    for at, clock in known:
        near = max(clock.jump, wide)
        clock.trust.settled |= sum(other.trust.near for time, other in known if abs(time - at) <= near) >= QUORUM


def all_idle(clocks: Sequence[StreamClock]) -> bool:
    """Whether all streams are idle, so that waiting rows are released."""
    return all(clock.idle for clock in clocks)


def all_safe(clocks: Sequence[StreamClock]) -> int:
    """Return the time before which no stream that is not idle brings rows any more.

    If all are idle, this is the time after the largest clock that counts, so that no row waits for rows that may never
    come.
    """
    if all_idle(clocks):
        counted = [clock.counted for clock in clocks if clock.counted is not None]
        return clamp(max(counted) + 1) if counted else MIN_TIME
    return min(clock.safe for clock in clocks if not clock.idle)


def safe_of(clocks: Sequence[StreamClock], side: int) -> int:
    """Return the time before which one stream brings no rows any more; if it is idle, that of all streams."""
    return all_safe(clocks) if clocks[side].idle else clocks[side].safe
