"""Figure 5a of the paper: how well order is kept with margin 0 and 0.5, and how late hits are detected, in event time.

The batches are those of a live system: every few milliseconds, whatever has arrived. So that one can see when an event
leaves, this drives the operator batch by batch, as `braided.local.detect` does inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from detectors import BALL, Positions, hierarchy

import braided
from braided.local.runtime import LocalRuntime
from braided.operators.detect.spec import DetectSpec
from braided.operators.registry import build
from braided.operators.stream import Stream


@dataclass
class Measured:
    """What a run showed: rows, those further behind than K was before their batch, and those that came too late.

    K is against the clock of the ball, over time; the latency is how long after a hit it was detected.
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
    """Run the hierarchy on positions as they arrive in one stream, a batch every few milliseconds."""
    rows, ticks, behind = together(streams, tick_ms)
    detectors = [Positions("ball"), Positions("player"), *hierarchy()]
    spec = DetectSpec(streams=("position",), detectors=detectors, key="match", time="time", lateness=lateness)
    runtime = LocalRuntime(build(spec, [Stream(spec.labels[0], rows.schema)]).operator, 1)
    measured = Measured(rows.num_rows)
    known = 0
    for tick in range(int(ticks[-1]) + 1):
        start, stop = np.searchsorted(ticks, [tick, tick + 1])
        measured.missed += int((behind[start:stop] > known).sum())
        now = (tick + 1) * tick_ms
        for piece in runtime.run_batch([(0, rows.slice(start, stop - start).to_batches())]):
            hits = piece.filter(pa.array(np.asarray(piece["type"]) == "hit"))
            measured.latency_ms += (now - hits["time"].cast(pa.int64()).to_numpy() / 1000).tolist()
        told = runtime.report().streams[0]
        known, measured.late = told["lateness"], told["late"]
        measured.k.append((now / 1000, known / 1000))
    return measured


def together(streams: dict[str, pa.Table], tick_ms: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Return all positions as they arrive, in which batch, and how far each is behind the clock that the ball sets."""
    rows = pa.concat_tables(streams.values()).combine_chunks()
    order = np.argsort(rows["arrival"].cast(pa.int64()).to_numpy(), kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    times, arrival = (rows[name].cast(pa.int64()).to_numpy() for name in ("time", "arrival"))
    clock = np.maximum.accumulate(np.where(rows["object"].to_numpy() == BALL, times, times[0]))
    return rows.drop_columns(["arrival"]), arrival // (1000 * tick_ms), np.maximum(clock - times, 0)


def learned(margin: float) -> braided.Lateness:
    """Return the paper's way to learn K: from 0 on, against a clock that the ball sets."""
    return braided.Lateness(
        margin=margin, floor="0 seconds", measure="next", clock_rows=lambda rows: rows["object"].to_numpy() == BALL
    )


def delays(streams: dict[str, pa.Table], points: int) -> list[tuple[float, float]]:
    """Return how far some rows are behind the clock: arrival in seconds, and milliseconds."""
    _, milliseconds, behind = together(streams, 1)
    every = max(1, len(behind) // points)
    seconds = milliseconds[::every] / 1000
    return list(zip(seconds.tolist(), (behind[::every] / 1000).tolist(), strict=True))
