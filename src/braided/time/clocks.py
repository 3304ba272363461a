"""The clock of each stream, and the horizons before which stored rows cannot match any more.

```
 left rows  l.t ------------------------------> r.t in [l.t + lo, l.t + hi]
            |<-------- lo ... hi ------->|
 a left row leaves when   l.t + hi < clock_right - K_right
 a right row leaves when  r.t - lo < clock_left  - K_left
```

Precondition: all times are int64 microseconds. If a clock moves back, because it started with a wrong row, the
horizons of an inner join move back too; expired rows do not come back. Those of other joins stay (`JoinState`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_TIME = -(1 << 63)
MAX_TIME = (1 << 63) - 1
Times = npt.NDArray[np.int64]


class _Stays:
    """How long rows are stored, for any time condition."""

    lateness: tuple[int, ...]

    def retention(self, side: int) -> int:
        """How far behind another stream's clock a stored row of this side may be and still match."""
        raise NotImplementedError

    def patience(self, side: int) -> int:
        """How far a stream must continue before its doubted rows are discarded (`braided.time.quarantine`)."""
        return self.retention(side) + self.lateness[side]


@dataclass(frozen=True)
class Window(_Stays):
    """The time condition of a join, lo <= r.t - l.t <= hi, and each stream's lateness K."""

    lo: int
    hi: int
    lateness: tuple[int, ...]

    @property
    def span(self) -> int:
        """How far apart the times of rows that match the same row may be."""
        return self.hi - self.lo

    def reach(self, probe: int) -> tuple[int, int]:
        """Return (low, high): a probe row of that side at t meets stored rows from t + low to t + high."""
        return (self.lo, self.hi) if probe == 0 else (-self.hi, -self.lo)

    def meets(self, side: int) -> tuple[int, int]:
        """Return (low, high): stored rows of this side from t + low to t + high meet a probe at t."""
        return self.reach(1 - side)

    def retention(self, side: int) -> int:
        return self.reach(side)[1] + self.lateness[1 - side]

    def horizon(self, side: int, clocks: tuple[int | None, ...]) -> int:
        """Return the oldest time at which a row of this side can still match a row that is not late."""
        other = clocks[1 - side]
        return MIN_TIME if other is None else clamp(other - self.retention(side))

    def apart(self, side: int) -> tuple[int, int]:
        """How far this side's time is from the left one in a result, at least and at most."""
        return (self.lo, self.hi) if side else (0, 0)

    def result_delay(self, side: int) -> int:
        """How far behind the largest result time seen a result's time of this side may be.

        A result is returned when the later of its two rows arrives. If that is this side's row, it is at most K
        behind its own stream. If it is the other side's row, at time o, it is at most K_other behind that stream.
        This side's time is then within [o + low, o + high], so it is behind the largest by at most the window's span.
        """
        return max(self.lateness[side], self.lateness[1 - side] + self.hi - self.lo)

    def watermark_reach(self, side: int) -> int:
        """How much older than a newly arrived row of this side the other row of a result may be."""
        return max(0, -self.reach(side)[0])


@dataclass(frozen=True)
class Span(_Stays):
    """The time condition of a join of n streams, max(t) - min(t) <= within, and each stream's lateness K.

    A stored row x can be part of a new result as long as some *other* stream j can still bring a row that is not late,
    at clock_j - K_j or after, and is close enough to x. So x leaves when no other stream can::

        x.t + within < clock_j - K_j   for every other stream j
    """

    within: int
    lateness: tuple[int, ...]

    @property
    def span(self) -> int:
        return 2 * self.within

    def meets(self, side: int) -> tuple[int, int]:
        return -self.within, self.within

    def retention(self, side: int) -> int:
        return self.within + max(self._others(side))

    def horizon(self, side: int, clocks: tuple[int | None, ...]) -> int:
        oldest = MAX_TIME
        for other, clock in enumerate(clocks):
            if other != side:
                if clock is None:
                    return MIN_TIME
                oldest = min(oldest, clock - self.lateness[other])
        return clamp(oldest - self.within)

    def apart(self, side: int) -> tuple[int, int]:
        """How far this side's time is from the first one in a result, at least and at most."""
        return (-self.within, self.within) if side else (0, 0)

    def result_delay(self, side: int) -> int:
        """How far behind the largest result time seen a result's time of this side may be, as for `Window`."""
        return max(self.lateness[side], max(self._others(side)) + 2 * self.within)

    def watermark_reach(self, side: int) -> int:
        """How much older than a newly arrived row of this side another row of a result may be."""
        return self.within

    def _others(self, side: int) -> list[int]:
        return [late for other, late in enumerate(self.lateness) if other != side]


@dataclass(frozen=True)
class AsofSpan:
    """The times of an as-of join, and each stream's lateness K.

    reach : how far the right horizon must at most be after a left row before the row leaves.
    tolerance : how far apart two rows of a result may be; None for any distance.
    back : whether a right row may be before its left row.
    """

    reach: int
    tolerance: int | None
    back: bool
    lateness: tuple[int, ...]

    def apart(self, side: int) -> tuple[int, int] | None:
        """How far this side's time is from the left one in a result, at least and at most; None for any distance."""
        if side == 0:
            return 0, 0
        return None if self.tolerance is None else (-self.tolerance * self.back, self.tolerance * (self.reach > 0))

    def result_delay(self, side: int) -> int:
        """How far behind the largest result time seen a result's time of this side may be.

        A left row that leaves is at most K behind its own stream if it has just arrived. If it has waited, it is at
        most `reach` behind the right horizon, because earlier rows have left. Its right row is within the tolerance.
        """
        left = max(self.lateness[0], self.reach)
        spread = (self.tolerance or 0) * (self.back + (self.reach > 0))
        return left if side == 0 else left + spread

    def watermark_reach(self, side: int) -> int:
        """How much older than rows that this stream brings at its horizon the rows of a result may be."""
        older = (self.tolerance or 0) if self.back else 0
        return older if side == 0 else older + self.reach


@dataclass(frozen=True)
class GroupSpan(_Stays):
    """The time conditions of several joins, each as (left stream, right stream, lo, hi), and each stream's lateness K.

    A stored row leaves when it can leave in every join of its stream.
    """

    joins: tuple[tuple[int, int, int, int], ...]
    lateness: tuple[int, ...]

    def retention(self, side: int) -> int:
        return max(window.retention(role) for window, role, _ in self._serving(side))

    def horizon(self, side: int, clocks: tuple[int | None, ...]) -> int:
        return min(window.horizon(role, (clocks[other],) * 2) for window, role, other in self._serving(side))

    def _serving(self, side: int) -> list[tuple[Window, int, int]]:
        """Return the window, the stream's side in it and the other stream, for each join of a stream."""
        return [
            (
                Window(lo, hi, (self.lateness[left], self.lateness[right])),
                int(side == right),
                left if side == right else right,
            )
            for left, right, lo, hi in self.joins
            if side in (left, right)
        ]


def clamp(time: int) -> int:
    """Keep a computed time inside int64."""
    return max(MIN_TIME, min(MAX_TIME, time))


def advance(clock: int | None, seen: int | None) -> int | None:
    """Move a clock to the largest time seen; it never moves back."""
    if clock is None or seen is None:
        return seen if clock is None else clock
    return max(clock, seen)


def late_in_task(
    times: Times, running_max: int, lateness: int, top: int = MAX_TIME
) -> tuple[npt.NDArray[np.bool_] | None, int]:
    """Return which rows are more than `lateness` behind the running maximum of times up to `top`, and that maximum.

    None means no row, which is the usual case.
    """
    if not len(times):
        return None, running_max
    trusted = times if int(times.max()) <= top else np.where(times <= top, times, MIN_TIME)
    seen = np.maximum.accumulate(np.maximum(trusted, running_max))
    times = np.minimum(times, seen)
    late = seen.astype(np.float64) - times > lateness if _wide(seen, times) else seen - times > lateness
    return (late if late.any() else None), int(seen[-1])


def _wide(seen: Times, times: Times) -> bool:
    """Whether a difference of these times could overflow int64."""
    return int(seen[-1]) - int(times.min()) > MAX_TIME
