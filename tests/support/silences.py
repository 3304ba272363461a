"""Streams with silences, bursts, shifts and single rows hours apart, some rows with a wrong clock, and what a nested
loop makes of them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import strategies as st

from braided.local.runtime import LocalRuntime

SECOND = 1_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR
NOW = 1_700_000_000 * SECOND
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])

Times = npt.NDArray[np.int64]
Segment = tuple[int, int, int]
"""A silence, then so many rows so far apart."""

SILENCES = (0, SECOND, HOUR // 2, HOUR, HOUR + 1, 2 * HOUR, 16 * HOUR, 400 * HOUR)
SPACINGS = (0, SECOND, 60 * SECOND, HOUR // 3, HOUR, HOUR + 1, 3 * HOUR)
LATENESS: tuple[int | str, ...] = ("auto", 0, 10 * SECOND, HOUR // 2, 3 * HOUR)
LEARNED = 10 * SECOND
"""What a learned lateness is at least: rows are no later than that."""


@dataclass
class Story:
    """Streams and how they arrive: the time, the arrival and the key of each row, and which clocks were wrong."""

    times: list[Times]
    arrivals: list[Times]
    keys: list[Times]
    wrong: list[npt.NDArray[np.bool_]]
    lateness: int | str
    within: int
    sizes: list[int]
    restart: bool = False
    found: Counter[tuple[int, ...]] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def batches(self) -> Iterator[list[tuple[int, list[pa.RecordBatch]]]]:
        """Yield batches of the given sizes, again and again, in order of arrival."""
        side = np.concatenate([np.full(len(times), at) for at, times in enumerate(self.times)])
        row = np.concatenate([np.arange(len(times)) for times in self.times])
        order = np.argsort(np.concatenate(self.arrivals), kind="stable")
        start = number = 0
        while start < len(order):
            part = order[start : start + self.sizes[number % len(self.sizes)]]
            start, number = start + len(part), number + 1
            picked = [(at, row[part][side[part] == at]) for at in range(len(self.times))]
            yield [(at, [self.batch(at, rows)]) for at, rows in picked if len(rows)]

    def batch(self, side: int, rows: Times) -> pa.RecordBatch:
        """Return rows of a stream."""
        times = pa.array(self.times[side][rows], pa.timestamp("us"))
        return pa.RecordBatch.from_arrays([pa.array(self.keys[side][rows]), times, pa.array(rows)], schema=SCHEMA)

    def pairs(self, left: int = 0, right: int = 1) -> set[tuple[int, ...]]:
        """Return the pairs of two streams, by a nested loop."""
        same = self.keys[left][:, None] == self.keys[right][None]
        close = np.abs(self.times[left][:, None] - self.times[right][None]) <= self.within
        return {(int(i), int(j)) for i, j in np.argwhere(same & close)}

    def triples(self) -> set[tuple[int, ...]]:
        """Return the combinations of three streams, by a nested loop over pairs."""
        first, second, third = self.times
        out: set[tuple[int, ...]] = set()
        for i, j in self.pairs():
            low, high = max(first[i], second[j]) - self.within, min(first[i], second[j]) + self.within
            fits = (self.keys[2] == self.keys[0][i]) & (third >= low) & (third <= high)
            out |= {(i, j, int(k)) for k in np.flatnonzero(fits)}
        return out

    def is_right(self, rows: tuple[int, ...], sides: tuple[int, ...] = (0, 1, 2)) -> bool:
        """Whether none of these rows, one of each side, had a wrong clock."""
        return not any(self.wrong[side][row] for side, row in zip(sides, rows, strict=False))

    def run(self, runtime: LocalRuntime, *, waits: bool) -> list[dict[str, Any]]:
        """Run the batches, keep what comes out, and return what the report says of the streams."""
        for tasks in [*self.batches(), *([[(0, [])]] if waits else [])]:
            final = tasks == [(0, [])]
            for piece in runtime.run_batch(tasks, final=final):
                names = [name for name in piece.schema.names if name.startswith("id")]
                self.found.update(zip(*(piece[name].to_pylist() for name in names), strict=True))
                self.rows += piece.to_pylist()
            if self.restart:
                stores = pickle.loads(pickle.dumps(runtime.stores))
                old, runtime = runtime, LocalRuntime(runtime.operator, stores=stores)
                runtime.table, runtime.reports = old.table, old.reports
        streams: list[dict[str, Any]] = runtime.report().to_dict()["streams"]
        return streams


def times_of(segments: list[Segment]) -> Times:
    """Return the times of a stream in order."""
    gaps = [gap for silence, rows, spacing in segments for gap in (silence, *[spacing] * (rows - 1))]
    return NOW + np.cumsum(np.array(gaps, np.int64))


@st.composite
def segments(draw: st.DrawFn, most: int) -> list[Segment]:
    """Parts of a stream: dense ones of a shift or a burst, and rows hours apart."""
    of_one = st.tuples(st.sampled_from(SILENCES), st.integers(1, most), st.sampled_from(SPACINGS))
    return draw(st.lists(of_one, min_size=1, max_size=5))


@st.composite
def stories(draw: st.DrawFn, streams: int = 2, most: int = 50, wrong: int = 0) -> Story:
    """Streams, none of whose rows is later than the lateness, in batches of any size."""
    lateness = draw(st.sampled_from(LATENESS))
    most_late = LEARNED if isinstance(lateness, str) else lateness
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    shared = times_of(draw(segments(most)))
    times, arrivals, keys, wrongs = [], [], [], []
    for _ in range(streams):
        kind = draw(st.sampled_from(("beside", "sparse", "own")))
        mine = (
            times_of(draw(segments(most)))
            if kind == "own"
            else np.sort(shared + rng.integers(0, 5 * SECOND, len(shared)))
        )
        mine = mine[:: draw(st.integers(1, 30))] if kind == "sparse" else mine
        delays = rng.integers(0, most_late + 1, len(mine)) if draw(st.booleans()) else np.zeros(len(mine), np.int64)
        lag = draw(st.sampled_from((0, 0, SECOND, 5 * HOUR)))
        arrivals.append(mine + delays + lag)
        off = np.zeros(len(mine), np.bool_)
        for _ in range(draw(st.integers(0, wrong))):
            at = draw(st.sampled_from((0, len(mine) - 1, int(rng.integers(len(mine))))))
            mine = mine.copy()
            mine[at] += 0 if off[at] else draw(st.sampled_from((-3, -1, 1, 3))) * YEAR + int(rng.integers(0, 9))
            off[at] = True
        times.append(mine)
        wrongs.append(off)
        keys.append(rng.integers(0, draw(st.sampled_from((1, 3))), len(mine)))
    within = draw(st.sampled_from((0, 2 * SECOND, 100 * SECOND, 2 * HOUR)))
    sizes = draw(st.lists(st.sampled_from((1, 2, 7, 20, 100)), min_size=1, max_size=4))
    if sum(map(len, times)) > 40:
        sizes = [max(3, size) for size in sizes]  # a batch costs milliseconds
    return Story(times, arrivals, keys, wrongs, lateness, within, sizes, draw(st.booleans()))


@st.composite
def shifts(draw: st.DrawFn) -> Story:
    """Bursts of rows with hours between them. Few rows make many pairs, and some rows of each burst match nothing."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    times: list[list[int]] = [[], []]
    keys: list[list[int]] = [[], []]
    start = NOW
    for _ in range(draw(st.integers(2, 4))):
        spacing = draw(st.sampled_from((0, SECOND // 10, SECOND, 60 * SECOND)))
        few, apart = draw(st.sampled_from((1, 2, 5))), draw(st.sampled_from((0, 1, 5)))
        for number in (0, 1):
            rows = draw(st.integers(1, 30))
            times[number] += (start + spacing * np.arange(rows)).tolist()
            keys[number] += (number * apart + rng.integers(0, few, rows)).tolist()
        start = max(max(side) for side in times) + draw(st.sampled_from((HOUR // 2, HOUR + 1, 2 * HOUR, 20 * HOUR)))
    lateness = draw(st.sampled_from((0, 10 * SECOND)))
    arrivals = [np.array(side) + rng.integers(0, lateness + 1, len(side)) for side in times]
    within = draw(st.sampled_from((2 * SECOND, 100 * SECOND, HOUR // 2)))
    sizes = draw(st.lists(st.sampled_from((1, 2, 5, 20)), min_size=1, max_size=3))
    wrong = [np.zeros(len(side), np.bool_) for side in times]
    both = [np.array(side) for side in times], arrivals, [np.array(side) for side in keys]
    return Story(*both, wrong, lateness, within, sizes, draw(st.booleans()))
