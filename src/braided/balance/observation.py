"""The controller's summary of one batch: the reports of all routers and workers, added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.routing.assignment_expiry import Ahead, Clocks
from braided.routing.tally import unpack
from braided.time.clocks import MIN_TIME
from braided.time.quarantine import StreamProgress

Loads = npt.NDArray[np.float64]


@dataclass
class Observation:
    """One batch. Work is counted in rows received plus results."""

    batch: int
    version: int
    batch_ms: float
    clocks: Clocks
    """The clock of each stream, if it counts."""
    lateness: tuple[int, ...]
    cpu_ms: Loads
    work: Loads
    """Rows received and results, per worker."""
    rows: tuple[int, int]
    """Rows of the left and the right stream, before any copy."""
    row_bytes: tuple[float, float]
    """The mean size of a row of each stream."""
    results: int
    buckets: Loads
    grids: dict[int, tuple[float, float, float]]
    """For each grid: left rows stored or probing, right rows, results; summed over its workers."""
    keys: dict[int, tuple[float, float, float]]
    """For each heavy key: left rows, right rows, results; each is a lower bound."""
    labels: dict[int, str] = field(default_factory=dict)
    copies: int = 0
    ahead: list[Ahead] | None = None
    """The rows of each stream beyond its clock."""


def observe(
    batch: int, batch_ms: float, work: Iterable[dict[str, Any]], routed: Iterable[dict[str, Any]]
) -> Observation | None:
    """Add up the reports of a batch; None if reports are missing or the batch had no rows."""
    by_worker = {report["worker"]: report for report in work if report.get("load")}
    first = by_worker.get(0)
    if first is None or first["table"] is None or len(by_worker) < first["workers"]:
        return None
    workers = first["workers"]
    cpu, done, buckets = np.zeros(workers), np.zeros(workers), np.zeros(0)
    grids: dict[int, list[float]] = {}
    keys: dict[int, list[float]] = {}
    results = 0
    for worker, report in by_worker.items():
        last, load = report["last"], report["load"]
        cpu[worker] = last["cpu_ms"]
        done[worker] = last["rows"] + last["results"]
        results += last["results"]
        mine = unpack(load["buckets"])
        buckets = mine if not len(buckets) else buckets + mine
        for grid, counts in load["grids"].items():
            known = grids.setdefault(int(grid), [0.0, 0.0, 0.0])
            for at, count in enumerate(counts):
                known[at] += count
        for key, weight in load["keys"]:
            keys.setdefault(int(key, 16), [0.0, 0.0, 0.0])[2] += weight
    rows, sizes, copies = [0, 0], [0, 0], 0
    labels: dict[int, str] = {}
    for report in routed:
        side = min(report["side"], 1)  # with many streams, the first is split and all others are copied
        rows[side] += report["rows"]
        sizes[side] += report["bytes"]
        copies += report["copies"]
        for key, weight in report["keys"]:
            keys.setdefault(int(key, 16), [0.0, 0.0, 0.0])[side] += weight
        labels.update({int(key, 16): text for key, text in report["labels"].items()})
    streams = first["streams"]
    clocks = [_counted(stream) for stream in streams]
    trusts = [stream["trust"] for stream in streams]
    ahead = [Ahead(t["top"], t["limit"] if t["settled"] else MIN_TIME, StreamProgress(*t["gone"])) for t in trusts]
    return Observation(
        batch, first["table"][0], batch_ms, tuple(clocks), tuple(s["lateness"] for s in streams), cpu, done,
        (rows[0], rows[1]), (sizes[0] / max(1, rows[0]), sizes[1] / max(1, rows[1])), results, buckets,
        {grid: (c[0], c[1], c[2]) for grid, c in grids.items()},
        {key: (c[0], c[1], c[2]) for key, c in keys.items()},
        labels, copies, ahead,
    )  # fmt: skip


def _counted(stream: dict[str, Any]) -> int | None:
    """Return a stream's clock if it counts, or its horizon plus lateness for operators that report a horizon."""
    if "horizon" in stream:
        return None if stream["horizon"] is None else int(stream["horizon"] + stream["lateness"])
    return stream["clock"] if stream["trust"]["settled"] else None
