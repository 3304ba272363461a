"""Find hot spots: a worker that is overloaded now and has been for a while, while another worker has room.

A worker here is a worker of a query or a peer of a fleet: anything with a number and a load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError

# An absolute load. The mean is never above about 1.0 (see `worker_loads`). The paper's 2.0 counts processes in a run
# queue, so it cannot be used here.
HIGH = 1.2
# A multiple of the mean. If a stream does not saturate the cluster, loads are far below 1, and with as many workers as
# slots no load is above 1. Then only a multiple of the mean shows an uneven load. Moves end at 1.1 (`choose_moves`) and
# we tolerate 1.25, so 1.2 acts in time and does not act again at once.
RELATIVE = 1.2
# A part of the mean. It matters if HIGH decides: if all workers are equally busy, more workers are needed, not moves.
SPREAD = 0.2
# In batches: 15 would react only to slow changes, and 1 is the paper's most sensitive setting.
HORIZON = 5
# In reports, the majority of 5, so that a single outlier in the average has no effect.
PERSISTENCE = 3


class Averages(Protocol):
    """Averaged loads by number: `LoadAverages`, or the reports of peers."""

    @property
    def workers(self) -> int:
        """The number of workers."""

    def over(self, batches: int) -> npt.NDArray[np.float64]:
        """Return the averages over the last 1, 5 or 15 reports."""


@dataclass(frozen=True)
class HotSpot:
    """A worker whose load must be reduced, and the measurements that show it."""

    worker: int
    reason: str


class HotSpotRule:
    """Synergy's two criteria and its check for persistence (section 3.1), in our units.

    A worker is overloaded when its load exceeds ``min(HIGH, RELATIVE * mean of the workers in use)`` and ``floor``.
    Load can be balanced when the most and the least loaded worker differ by more than ``SPREAD * mean``. Both must be
    true for ``PERSISTENCE`` reports in a row, and the worker must also be overloaded on average over ``HORIZON``. Pass
    every batch once; ``judge`` takes a few passes over the workers.

    floor : 0.05. A worker below 5% of its share gains nothing from a move, and its load is mostly noise.
    period : the name of a report's period, for the text of the reason.
    overload, imbalance : the paper's thresholds h and l, as loads: they replace the limits from the mean, and the
        floor.
    horizon : the paper's t, in reports. persistence : the number of reports in a row.

    >>> from braided.balance.load_averages import LoadAverages
    >>> rule, averages = HotSpotRule(), LoadAverages(3)
    >>> for _ in range(3):
    ...     averages.add(np.array([0.9, 0.3, 0.1]))
    ...     hot = rule.judge(averages, in_use=[0, 1, 2])
    >>> hot.reason
    'worker 0: load 0.900 and 0.900 over 5 batches, above 0.520 and 0.520; spread 0.800 to worker 2; 3 reports'
    """

    def __init__(
        self,
        *,
        floor: float = 0.05,
        period: str = "batches",
        overload: float | None = None,
        imbalance: float | None = None,
        horizon: int = HORIZON,
        persistence: int = PERSISTENCE,
    ) -> None:
        self.floor, self.period = floor, period
        self._overload, self._imbalance = overload, imbalance
        self._horizon, self._persistence = horizon, persistence
        self._streaks: dict[int, int] = {}

    def judge(
        self, averages: Averages, in_use: Sequence[int], name: Callable[[int], str] = "worker {}".format
    ) -> HotSpot | None:
        """Take one report; return the most loaded worker whose overload has lasted, if there is one.

        It is returned at every report as long as this lasts: ``Migrations`` decides whether another migration may
        begin. Among equal workers, the one with the lowest number is returned.
        """
        workers = np.array(sorted(set(in_use)), dtype=np.int64)
        if len(workers) < 2:
            self._streaks = {}
            return None
        if workers[0] < 0 or workers[-1] >= averages.workers:
            raise BraidedError(f"{in_use=}: workers are numbered 0 to {averages.workers - 1}")
        now, longer = averages.over(1)[workers], averages.over(self._horizon)[workers]
        limit_now, limit_longer = self._limit(float(now.mean())), self._limit(float(longer.mean()))
        spread = float(now.max() - now.min())
        least = SPREAD * float(now.mean()) if self._imbalance is None else self._imbalance
        overloaded, enough = (now > limit_now) & (spread > least), self._persistence
        self._streaks = {int(w): min(self._streaks.get(int(w), 0) + 1, enough) for w in workers[overloaded]}
        lasting = (longer > limit_longer) & np.array([self._streaks.get(int(w), 0) >= enough for w in workers])
        if not lasting.any():
            return None
        hot, cold = int(np.where(lasting, now, -1.0).argmax()), int(now.argmin())
        reason = (
            f"{name(int(workers[hot]))}: load {now[hot]:.3f} and {longer[hot]:.3f} over {self._horizon} {self.period}, "
            f"above {limit_now:.3f} and {limit_longer:.3f}; spread {spread:.3f} to {name(int(workers[cold]))}; "
            f"{enough} reports"
        )
        return HotSpot(int(workers[hot]), reason)

    def _limit(self, mean: float) -> float:
        return max(self.floor, min(HIGH, RELATIVE * mean)) if self._overload is None else self._overload
