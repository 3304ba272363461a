"""What a hot spot is: a worker overloaded now and for long, while another has room, and not just once.

A worker here is a worker of a query, or a peer of a fleet: whatever has a number and a load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from braided.balance.loads import HORIZONS
from braided.errors import BraidedError


class Averages(Protocol):
    """Loads by number, averaged: `LoadAverages`, or what peers have reported."""

    @property
    def workers(self) -> int:
        """How many numbers there are."""

    def over(self, batches: int) -> npt.NDArray[np.float64]:
        """Return the averages over the last 1, 5 or 15 reports."""


@dataclass(frozen=True)
class HotSpot:
    """A worker to take load from, the least loaded one, and the measurements that say so."""

    worker: int
    coldest: int
    load: float
    average: float
    spread: float
    reason: str


class HotSpotRule:
    """Synergy's two criteria and its check for persistence (section 3.1), in our units.

    A worker is overloaded when its load exceeds ``min(high, relative * mean of the workers in use)`` and
    ``floor``. Load can be levelled when the most and the least loaded worker differ by more than
    ``spread * mean``. Both must hold for ``persistence`` reports in a row, and the worker be overloaded on
    average over ``horizon`` too. Give it every batch once; ``judge`` takes a few passes over the workers.

    high : 1.2, an absolute load. The mean never exceeds about 1.0 (see ``worker_loads``), so 1.2 is
        implied by ``relative``; lower it to act on saturated workers earlier. The paper's 2.0 counts
        processes in a run queue and has no meaning here.
    relative : 1.2 times the mean. A stream that does not saturate has loads far below 1, and with as
        many workers as slots no load exceeds 1, however uneven: only a multiple of the mean shows it. Moves
        end at 1.1 (``choose_moves``) and we tolerate 1.25, so 1.2 acts in time and not at once again.
    spread : 0.2 of the mean. A worker 1.2 times above the mean implies it; it matters when
        ``high`` has fired: workers that are all equally busy need more workers, not moves.
    floor : 0.05. Below 5% of its share a worker has nothing to gain, and noise is large beside its load.
    horizon : 5 batches; 15 waits for a slow drift, 1 is the paper's most nervous setting.
    persistence : 3 reports, the majority of 5: one outlier cannot carry the average.
    period : what a report is of, for the words of the reason.

    >>> from braided.balance.loads import LoadAverages
    >>> rule, averages = HotSpotRule(persistence=2), LoadAverages(3)
    >>> for _ in range(2):
    ...     averages.add(np.array([0.9, 0.3, 0.1]))
    ...     found = rule.judge(averages, in_use=[0, 1, 2])
    >>> found.reason
    'worker 0: load 0.900 and 0.900 over 5 batches, above 0.520 and 0.520; spread 0.800 to worker 2; 2 reports'
    """

    def __init__(
        self,
        *,
        high: float = 1.2,
        relative: float = 1.2,
        spread: float = 0.2,
        floor: float = 0.05,
        horizon: int = 5,
        persistence: int = 3,
        period: str = "batches",
        streaks: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        limits = {"high": high, "relative": relative, "spread": spread, "floor": floor}
        for name, value in limits.items():
            if not 0 <= value < float("inf"):
                raise BraidedError(f"{name}={value}: write a finite number, not below 0")
        if relative < 1:
            raise BraidedError(f"{relative=}: a multiple of the mean load; write 1.0 or more, such as 1.2")
        if horizon not in HORIZONS:
            raise BraidedError(f"{horizon=}: loads are averaged over 1, 5 or 15 batches")
        if persistence < 1:
            raise BraidedError(f"{persistence=}: write the number of reports a hot spot must last, at least 1")
        self.high, self.relative, self.spread, self.floor = high, relative, spread, floor
        self.horizon, self.persistence, self.period = horizon, persistence, period
        self._streaks = dict(streaks)

    def judge(
        self, averages: Averages, in_use: Sequence[int], name: Callable[[int], str] = "worker {}".format
    ) -> HotSpot | None:
        """Take one report; return the most loaded worker whose overload has lasted, if there is one.

        It is returned at every report while it lasts: whether another migration may begin is for
        ``Migrations`` to say. Ties go to the lowest worker.
        """
        workers = np.array(sorted(set(in_use)), dtype=np.int64)
        if len(workers) < 2:
            self._streaks = {}
            return None
        if workers[0] < 0 or workers[-1] >= averages.workers:
            raise BraidedError(f"{in_use=}: workers are numbered 0 to {averages.workers - 1}")
        now, longer = averages.over(1)[workers], averages.over(self.horizon)[workers]
        limit_now, limit_longer = self._limit(float(now.mean())), self._limit(float(longer.mean()))
        spread = float(now.max() - now.min())
        overloaded = (now > limit_now) & (spread > self.spread * float(now.mean()))
        self._streaks = {int(w): min(self._streaks.get(int(w), 0) + 1, self.persistence) for w in workers[overloaded]}
        lasting = (longer > limit_longer) & np.array(
            [self._streaks.get(int(w), 0) >= self.persistence for w in workers]
        )
        if not lasting.any():
            return None
        hot, cold = int(np.where(lasting, now, -1.0).argmax()), int(now.argmin())
        reason = (
            f"{name(int(workers[hot]))}: load {now[hot]:.3f} and {longer[hot]:.3f} over {self.horizon} {self.period}, "
            f"above {limit_now:.3f} and {limit_longer:.3f}; spread {spread:.3f} to {name(int(workers[cold]))}; "
            f"{self.persistence} reports"
        )
        return HotSpot(int(workers[hot]), int(workers[cold]), float(now[hot]), float(longer[hot]), spread, reason)

    def _limit(self, mean: float) -> float:
        return max(self.floor, min(self.high, self.relative * mean))

    def to_json(self) -> dict[str, Any]:
        """Return the settings and the reports counted so far, as plain numbers."""
        streaks = {"streaks": {str(worker): reports for worker, reports in self._streaks.items()}}
        return {name: value for name, value in vars(self).items() if name != "_streaks"} | streaks

    @classmethod
    def from_json(cls, value: Any) -> HotSpotRule:
        """Return the rule that ``to_json`` wrote."""
        try:
            streaks = {int(worker): int(reports) for worker, reports in value["streaks"].items()}
            return cls(**(value | {"streaks": streaks}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BraidedError(f"not a hot-spot rule ({type(error).__name__}: {error}): {str(value)[:200]}") from error
