"""The streams of the order benchmark: event times in order of arrival, real and generated.

Generated ones have 200,000 rows, one every 2 ms on average, each delayed on its own; the order of arrival is that of
time plus delay:

    paper         a third of the rows 1-2 ms, the others uniformly 5-45 ms late (the paper's Figure 5a)
    heavy         Pareto with exponent 1.5 from 10 ms on, at most a minute
    drift         exponential, its mean swinging between 11 and 224 ms, twice
    bursts        exponential, 10 ms on average, and 200 ms in the middle 20 of every 100 seconds
    short_bursts  the same in the middle 5 of every 40 seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

ROWS = 200_000
GENERATED = ("paper", "heavy", "drift", "bursts", "short_bursts")
ADAPTIVE = ("drift", "bursts", "short_bursts")
"""Where a K that adapts must wait less than the best constant one."""

_SECOND = 1_000_000


def all_sets(data: Path | None) -> Iterator[tuple[str, Times]]:
    """Give every set by name; the real ones only where their files are."""
    names = ["disorder_d1", "disorder_d2", "disorder_d3", "zeek_dns", "zeek_ssl"]
    if data is not None:
        names += sorted(path.stem for path in data.glob("trades_*.parquet"))
        for name in names:
            if (data / f"{name}.parquet").exists():
                yield name, read_set(data, name)
    for name in GENERATED:
        yield name, generate(name)


def read_set(data: Path, name: str) -> Times:
    """Read the event times of a file in order of arrival."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / f"{name}.parquet")
    arrival = table["arrival" if "arrival" in table.schema.names else "seq"].to_numpy()
    times: Times = table["time"].cast("int64").to_numpy()[np.argsort(arrival, kind="stable")]
    return times


def generate(name: str, rows: int = ROWS, seed: int = 1) -> Times:
    """Generate a set; the same name and seed give the same times."""
    random = np.random.default_rng([GENERATED.index(name), seed])
    times = np.cumsum(random.exponential(2_000, rows)).astype(np.int64)
    if name == "paper":
        quick = random.integers(0, 3, rows) == 0
        delays = np.where(quick, random.integers(1_000, 2_000, rows), random.integers(5_000, 45_000, rows))
    elif name == "heavy":
        delays = np.minimum(10_000 * random.pareto(1.5, rows), 60 * _SECOND)
    elif name == "drift":
        delays = random.exponential(50_000 * np.exp(1.5 * np.sin(4 * np.pi * np.arange(rows) / rows)))
    else:
        period, burst = (100, 20) if name == "bursts" else (40, 5)
        bursting = abs(times // _SECOND % period - period / 2) < burst / 2
        delays = random.exponential(np.where(bursting, 200_000, 10_000))
    return times[np.argsort(times + delays.astype(np.int64), kind="stable")]
