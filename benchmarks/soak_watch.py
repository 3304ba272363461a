"""What a long run is watched by: the memory of its processes, how long batches take, and whether a series is flat."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from processes import below
from pyspark.sql.streaming.listener import StreamingQueryListener

KINDS = ("driver", "JVM", "workers")
"""The Python process that runs the query, its JVM, and all Python processes that the JVM has started."""


def memory_mb() -> dict[str, float]:
    """Return the memory of this process, its JVM and the JVM's Python workers; pages that are shared count once."""
    found = dict.fromkeys(KINDS, 0.0)
    kinds = {}
    for process in below(os.getpid()):
        kind = (
            "workers"
            if kinds.get(process.parent) in ("JVM", "workers")
            else "JVM"
            if process.name == "java"
            else "driver"
        )
        kinds[process.pid] = kind
        found[kind] += process.memory_mb()
    return found


class Watch(StreamingQueryListener):
    """Collects the progress of a query, and samples memory and `backlog` once a period."""

    def __init__(self, period: float, backlog: Callable[[], float]) -> None:
        self.began = time.monotonic()
        self.batches: list[dict[str, Any]] = []
        self.samples: list[dict[str, float]] = []
        self._period = period
        self._backlog = backlog
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._over.set()
        self._thread.join()

    @property
    def files_done(self) -> int:
        """How many files batches have read so far."""
        return sum(batch["files"] for batch in self.batches)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep the figures of a batch; what Spark keeps of it is bounded."""
        progress = event.progress
        row = progress.observedMetrics.get("soak")
        if progress.numInputRows:
            self.batches.append({
                "minute": (time.monotonic() - self.began) / 60,
                "seconds": progress.batchDuration / 1000,
                "files": progress.numInputRows,
                "count": (row and row["count"]) or 0,
                "checksum": (row and row["checksum"]) or 0,
            })  # fmt: skip

    def _sample(self) -> None:
        while not self._over.wait(self._period):
            minute = (time.monotonic() - self.began) / 60
            self.samples.append({"minute": minute, "behind": self._backlog(), **memory_mb()})


def growth(minutes: Sequence[float], values: Sequence[float]) -> float:
    """Return by which share of its mean a series grows over its last two thirds, by the line of least squares."""
    kept = len(minutes) // 3
    x, y = np.asarray(minutes[kept:], float), np.asarray(values[kept:], float)
    if len(x) < 3 or y.mean() == 0:
        return 0.0
    slope = np.polyfit(x, y, 1)[0]
    return float(slope * (x[-1] - x[0]) / y.mean())


def thinned(values: Sequence[float], points: int = 90) -> list[float]:
    """Return the means of so many equal stretches."""
    parts = np.array_split(np.asarray(values, float), min(points, len(values)))
    return [float(part.mean()) for part in parts]
