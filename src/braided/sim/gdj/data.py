"""The streams of the bounded-memory benchmark: the paper's generator, and real streams from a directory if it exists.

A data set is a sequence of events in the order in which a policy sees them, a window, and the mean number of rows in
the windows of all streams together: rows x window / duration, as the paper counts ("based on the average arrival
rate").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braided.eviction.buffer import Events, sorted_events
from braided.routing.hash_kernels import mix
from braided.sim.gdj.zipf_pareto import zipf_pareto

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


@dataclass(frozen=True)
class Data:
    """A data set: its events, how far apart two rows may be, and how many streams there are."""

    name: str
    events: Events
    within: int
    streams: int = 2

    @property
    def window(self) -> tuple[int, int]:
        """The window in the form that a buffer takes."""
        return -self.within, self.within

    @property
    def rows_in_windows(self) -> float:
        """The mean number of rows in the windows of all streams together."""
        times = self.events.times
        return len(times) * min(1.0, self.within / max(1, int(times[-1] - times[0])))

    def first(self, rows: int) -> Data:
        """Return only the first rows."""
        return replace(self, events=self.events.part(0, rows))

    def budget(self, share: float) -> int:
        """Return the number of rows for a share of the windows' mean number."""
        return max(self.streams, round(share * self.rows_in_windows))


def hashed(values: np.ndarray[Any, Any], seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return 64-bit hashes of whole numbers, equal for equal ones."""
    with np.errstate(over="ignore"):
        spread: np.ndarray[Any, np.dtype[np.uint64]] = mix.py_func(  # type: ignore[attr-defined]
            values.astype(np.uint64) + np.uint64(1 + (seed << 40))
        )
    return spread


def events_of(keys: Any, times: Any, streams: Any) -> Events:
    """Return events in the order in which a policy sees them; a row's content is its number."""
    n = len(keys)
    numbers = np.arange(n)
    return sorted_events(
        Events(
            hashed(np.asarray(keys)),
            np.asarray(times, np.int64),
            np.asarray(streams, np.int8),
            hashed(numbers, seed=7),
            numbers,
        )
    )


def synthetic(
    *,
    rows: int,
    windows: float = 10.0,
    domain: int = 1000,
    alpha: float = 0.75,
    pareto: float | None = None,
    streams: int = 2,
    seed: int = 1,
) -> Data:
    """Return Zipf-Pareto streams that share their bursts, `windows` windows long."""
    table = zipf_pareto(rows=rows, rate=1000, domain=domain, alpha=alpha, pareto=pareto, streams=streams, seed=seed)
    kind = "no correlation" if pareto is None else f"Pareto {pareto:g}"
    events = events_of(table["key"].to_numpy(), table["time"].cast("int64").to_numpy(), table["stream"].to_numpy())
    return Data(f"Zipf {alpha:g}, {domain:,} keys, {kind}", events, round(rows / 1000 * SECOND / windows), streams)


def two_joins(*, rows: int, domain: int = 1000, alpha: float = 0.75, pareto: float | None = None) -> Data:
    """Return four streams of two joins: 0 and 1 have the same popular keys, 2 and 3 have opposite ranks.

    The keys of the two joins differ, so one buffer of four streams can run both.
    """
    parts = []
    for stream, (join, reverse) in enumerate([(0, False), (0, False), (1, False), (1, True)]):
        t = zipf_pareto(rows=rows // 4, rate=250, domain=domain, alpha=alpha, pareto=pareto, seed=20 + stream)
        keys = t["key"].to_numpy()
        keys = domain * join + (domain - 1 - keys if reverse else keys)
        parts.append((keys, t["time"].cast("int64").to_numpy(), np.full(len(keys), stream)))
    keys, times, streams = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Data("two joins", events_of(keys, times, streams), round(rows / 1000 * SECOND / 10), 4)


def _micros(column: pa.ChunkedArray) -> Any:
    return column.cast("int64").to_numpy()


def trades(where: Path, *, by: str = "symbol", minutes: float = 2.0) -> Data:
    """Return two days of an exchange's tape as two streams: by symbol, or buyers of one with sellers of the other."""
    tables = [pq.read_table(where / f"trades_2024-07-{day}.parquet") for day in (16, 17)]
    columns = ("symbol", "symbol") if by == "symbol" else ("buyer", "seller")
    values = pa.concat_arrays([t[c].combine_chunks() for t, c in zip(tables, columns, strict=True)])
    codes = pc.dictionary_encode(values).indices.to_numpy()
    times = np.concatenate([_micros(t["time"]) % DAY for t in tables])
    streams = np.repeat([0, 1], [t.num_rows for t in tables])
    return Data(f"trades by {by}", events_of(codes, times, streams), round(minutes * MINUTE))


def dealt_trades(where: Path, *, streams: int, minutes: float = 2.0) -> Data:
    """Return the trades of both days by symbol, distributed at random to several streams."""
    data = trades(where, minutes=minutes)
    dealt = (data.events.contents >> np.uint64(33)) % np.uint64(streams)
    return replace(data, events=sorted_events(data.events._replace(streams=dealt.astype(np.int8))), streams=streams)


def weather(where: Path, *, hours: float = 24.0, step: float = 0.1) -> Data:
    """Return dewpoints of the first quarter of two years as two streams, in steps of a part of a degree."""
    tables = [pq.read_table(where / f"weather_{year}_q1.parquet") for year in (2021, 2022)]
    tables = [t.filter(pc.is_valid(t["dewpoint_c"])) for t in tables]
    points = np.concatenate([np.round(t["dewpoint_c"].to_numpy() / step).astype(np.int64) for t in tables])
    times = np.concatenate([_micros(t["time"]) - _micros(t["time"]).min() for t in tables])
    streams = np.repeat([0, 1], [t.num_rows for t in tables])
    return Data("weather", events_of(points, times, streams), round(hours * 60 * MINUTE))
