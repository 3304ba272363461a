"""What the demo knows of each batch: the numbers that are shown, summed up and drawn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import braided
from braided.runtime.operator import Json


@dataclass(frozen=True)
class WorkerLoad:
    """One worker in one batch."""

    rows: int
    cpu_ms: int
    stored_rows: int
    stored_bytes: int


@dataclass(frozen=True)
class Batch:
    """One batch with data: its rows and seconds, the totals after it, and its workers."""

    rows: int
    seconds: float
    results: int
    late: int
    clocks: tuple[int, int]
    workers: tuple[WorkerLoad, ...]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def stored_rows(self) -> int:
        """Rows in state after this batch."""
        return sum(worker.stored_rows for worker in self.workers)

    @property
    def stored_bytes(self) -> int:
        """Bytes in state after this batch."""
        return sum(worker.stored_bytes for worker in self.workers)

    def to_dict(self) -> Json:
        """Return plain JSON values."""
        return asdict(self)


def read_batch(query: Any, progress: Any) -> Batch:
    """Turn one progress event of a query into a batch, by way of the report that it carries."""
    # `report` reads the newest event of a query; this is a query whose only event is the given one.
    report = braided.report(SimpleNamespace(id=query.id, recentProgress=[progress])).to_dict()
    clocks = [stream.get("clock") or 0 for stream in report["streams"]]
    return Batch(
        rows=sum(stream["last_rows"] for stream in report["streams"]),
        seconds=max(progress.durationMs["triggerExecution"], 1) / 1000,
        results=report["query"]["results"],
        late=sum(stream["late"] for stream in report["streams"]),
        clocks=(clocks[0], clocks[1]),
        workers=tuple(
            WorkerLoad(**{name: worker["last"][name] for name in WorkerLoad.__dataclass_fields__})
            for worker in report["workers"]
        ),
    )


def share_of_rows(batches: Sequence[Batch]) -> list[float]:
    """Return each worker's share of the rows of some batches.

    >>> loads = (WorkerLoad(30, 1, 0, 0), WorkerLoad(10, 1, 0, 0))
    >>> share_of_rows([Batch(40, 1.0, 0, 0, (0, 0), loads)])
    [0.75, 0.25]
    """
    sums = [sum(loads) for loads in zip(*([w.rows for w in batch.workers] for batch in batches), strict=True)]
    return [rows / max(sum(sums), 1) for rows in sums]


def median_rate(batches: Sequence[Batch]) -> float:
    """Return the rows a second of the middle batch: the first ones include the warm-up of JVM and workers."""
    return statistics.median(batch.rate for batch in batches)
