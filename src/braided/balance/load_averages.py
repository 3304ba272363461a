"""A worker's load, averaged over the last 1, 5 and 15 batches.

Synergy (section 3.1) averages the run queue over 1, 5 and 15 minutes. A query has no run queue, and its unit of time
is the batch: load is CPU time divided by one worker's share of the cluster.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError

HORIZONS = (1, 5, 15)  # batches


def worker_loads(cpu_ms: npt.NDArray[np.float64], batch_ms: float, slots: int, in_use: int) -> npt.NDArray[np.float64]:
    """Return each worker's CPU time divided by (batch time x slots / workers in use).

    All workers together cannot use more than ``batch_ms * slots``, so the mean of the workers in use is at most about
    1.0, and in a balanced, saturated cluster every load is 1.0. Spark reports whole milliseconds, so a batch of 0 ms
    counts as 1 ms.

    >>> worker_loads(np.array([900.0, 100.0]), batch_ms=1000, slots=2, in_use=2).tolist()
    [0.9, 0.1]
    >>> worker_loads(np.array([900.0, 100.0]), batch_ms=1000, slots=1, in_use=2).tolist()
    [1.8, 0.2]
    """
    if batch_ms < 0 or slots < 1 or in_use < 1:
        raise BraidedError(
            f"{batch_ms=}, {slots=}, {in_use=}: pass a time of 0 or more, and at least one slot and one worker"
        )
    return np.asarray(cpu_ms, dtype=np.float64) * in_use / (max(batch_ms, 1.0) * slots)


class LoadAverages:
    """The loads of a fixed number of workers over the last 15 batches, as plain moving averages.

    If fewer batches are known, the average is over these; without batches it is zero. Memory: 15 floats per worker.

    >>> averages = LoadAverages(2)
    >>> averages.add(np.array([0.2, 1.0]))
    >>> averages.add(np.array([0.4, 0.0]))
    >>> averages.over(1).tolist(), averages.over(5).round(3).tolist()
    ([0.4, 0.0], [0.3, 0.5])
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise BraidedError(f"{workers=}: pass the number of workers of the query, at least 1")
        self.workers = workers
        self._batches = np.empty((0, workers))

    def add(self, loads: npt.NDArray[np.float64]) -> None:
        """Add one batch: the load of every worker, in the order of their numbers."""
        row = np.asarray(loads, dtype=np.float64)
        if row.shape != (self.workers,) or not np.isfinite(row).all() or (row < 0).any():
            raise BraidedError(f"loads={loads!r}: pass {self.workers} finite loads of 0 or more")
        self._batches = np.vstack((self._batches, row))[-HORIZONS[-1] :]

    def over(self, batches: int) -> npt.NDArray[np.float64]:
        """Return each worker's average over the last ``batches`` (1, 5 or 15)."""
        if batches not in HORIZONS:
            raise BraidedError(f"{batches=}: unknown average; use 1, 5 or 15 batches")
        if not len(self._batches):
            return np.zeros(self.workers)
        average: npt.NDArray[np.float64] = self._batches[-batches:].mean(axis=0)
        return average
