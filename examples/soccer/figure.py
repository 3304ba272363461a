"""Figure 5a of the paper: how well order is kept with margin 0 and 0.5, and how late hits are detected, in event time.

The batches are those of a live system: every few milliseconds, whatever has arrived. So that one can see when an event
leaves, this drives the operator batch by batch, as `braided.local.detect` does inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from detectors import hierarchy

from braided.compile.build import build
from braided.compile.stream import Stream
from braided.local.runtime import LocalRuntime
from braided.specs.detect import DetectSpec


@dataclass
class Measured:
    """What a run showed: rows, those further behind than K was before their batch, and those that came too late.

    K is that of the players' stream over time; the latency is how long after a hit it was detected.
    """

    rows: int
    missed: int = 0
    late: int = 0
    k: list[tuple[float, float]] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)

    def line(self, name: str) -> str:
        """Return the run as a line of a table."""
        latency = (
            f"{np.mean(self.latency_ms):7.1f} {np.max(self.latency_ms):7.1f}" if self.latency_ms else "      -       -"
        )
        return f"{name:<22} {self.rows:9,} {self.missed:8,} {self.late:8,} {latency} {len(self.latency_ms):6,}"


def live(streams: dict[str, pa.Table], lateness: Any, tick_ms: int = 10) -> Measured:
    """Run the hierarchy on rows as they arrive, a batch every few milliseconds."""
    plain = {name: rows.drop_columns(["arrival"]) for name, rows in streams.items()}
    spec = DetectSpec(streams=tuple(streams), detectors=hierarchy(), key="match", time="time", lateness=lateness)
    plan = build(spec, [Stream(label, rows.schema) for label, rows in zip(spec.labels, plain.values(), strict=True)])
    runtime = LocalRuntime(plan.operator, 1)
    measured = Measured(sum(rows.num_rows for rows in plain.values()))
    parts = []
    for name, rows in streams.items():
        arrival = rows["arrival"].cast(pa.int64()).to_numpy()
        order = np.argsort(arrival, kind="stable")
        times = rows["time"].cast(pa.int64()).to_numpy()[order]
        behind = np.maximum.accumulate(times) - times
        parts.append((plain[name].take(pa.array(order)).combine_chunks(), arrival[order] // (1000 * tick_ms), behind))
    known = [0] * len(parts)
    for tick in range(int(max(ticks[-1] for _, ticks, _ in parts)) + 1):
        batch = []
        for side, (rows, ticks, behind) in enumerate(parts):
            start, stop = np.searchsorted(ticks, [tick, tick + 1])
            batch.append((side, rows.slice(start, stop - start).to_batches()))
            measured.missed += int((behind[start:stop] > known[side]).sum())
        now = (tick + 1) * tick_ms
        for piece in runtime.run_batch(batch):
            hits = piece.filter(pa.array(np.asarray(piece["type"]) == "hit"))
            measured.latency_ms += (now - hits["time"].cast(pa.int64()).to_numpy() / 1000).tolist()
        told = runtime.report().streams
        known = [stream["lateness"] for stream in told]
        measured.k.append((now / 1000, told[0]["lateness"] / 1000))
        measured.late = sum(stream["late"] for stream in told)
    return measured


def delays(rows: pa.Table, every: int) -> list[tuple[float, float]]:
    """Return how far rows are behind those that came before them: arrival in seconds, and milliseconds."""
    arrival, times = (rows[name].cast(pa.int64()).to_numpy() for name in ("arrival", "time"))
    order = np.argsort(arrival, kind="stable")
    behind = np.maximum.accumulate(times[order]) - times[order]
    seconds = arrival[order][::every] / 1e6
    return list(zip(seconds.tolist(), (behind[::every] / 1000).tolist(), strict=True))
