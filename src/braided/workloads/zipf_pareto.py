"""Streams with both sources of locality: Zipf popularity over long times, Pareto gaps over short ones.

After the synthetic streams of the GreedyDual-Join paper (sections 2 and 5.1.1): the frequency of a key falls with
its rank as rank ** -alpha; the gaps between two arrivals of one key follow a Pareto distribution::

    pareto=None   x    x   x x    x     x   x   x    x      evenly at random: no correlation
    pareto=0.8    xxx x          x          xxxx xx         short gaps in bursts, and a few long ones

How many rows a key has does not depend on `pareto`, so two streams that differ in it alone have one popularity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.compiled import compiled
from braided.errors import BraidedError
from braided.workloads.calls import ORIGIN

__all__ = ["Locality", "locality", "stack_distances", "zipf_pareto"]

Ints = npt.NDArray[np.int64]

_SECOND = 1_000_000


def zipf_pareto(
    *,
    rows: int,
    rate: float,
    domain: int = 100,
    alpha: float = 0.75,
    pareto: float | None = 1.0,
    streams: int = 1,
    seed: int = 1,
) -> pa.Table:
    """Generate rows of one or several streams, in order of time.

    Parameters
    ----------
    rows, rate:
        How many, and how many of them a second, all streams together.
    domain, alpha:
        Different keys, 0 the most frequent, and the skew of their popularity; 0 is even.
    pareto:
        The shape of the gaps between arrivals of a key: the smaller, the more they come in bursts. ``None``:
        no correlation at all.
    streams:
        Every arrival belongs to one of them at random: they share keys, popularity and bursts. Streams that
        share nothing are two tables of different seeds.
    seed:
        The same arguments give the same table.

    Returns
    -------
    pa.Table
        ``key`` (int64), ``stream`` (int8), ``time`` (timestamp, UTC, microseconds, rising).

    Cost: at most a third of a microsecond and 40 bytes a row.

    >>> table = zipf_pareto(rows=1000, rate=100, domain=50, pareto=0.8)
    >>> table.column_names, table.num_rows
    (['key', 'stream', 'time'], 1000)
    """
    for name, value, least in (("rows", rows, 0), ("domain", domain, 1), ("streams", streams, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BraidedError(f"{name}={value!r}: write a whole number, {least} or more")
    if not rate > 0:
        raise BraidedError(f"rate={rate!r}: not a rate; write a number of rows a second above 0")
    if not alpha >= 0:
        raise BraidedError(f"alpha={alpha!r}: write a skew of 0 or more")
    if pareto is not None and not pareto > 0:
        raise BraidedError(f"pareto={pareto!r}: write a shape above 0, or None")
    rng = np.random.default_rng([seed, 2])
    popularity = np.arange(1, domain + 1) ** -float(alpha)
    of_key = rng.multinomial(rows, popularity / popularity.sum())
    keys = np.repeat(np.arange(domain), of_key)
    share = rng.random(rows) if pareto is None else _pareto_times(rng, of_key, pareto)
    order = np.argsort(share, kind="stable")
    time = ORIGIN + (share[order] * (rows / rate * _SECOND)).astype(np.int64)
    return pa.table(
        {
            "key": keys[order],
            "stream": rng.integers(0, streams, rows, dtype=np.int8),
            "time": pa.array(time, pa.timestamp("us", tz="UTC")),
        }
    )


def _pareto_times(rng: np.random.Generator, of_key: Ints, shape: float) -> npt.NDArray[np.float64]:
    """Return, key after key, times in [0, 1) whose gaps are Pareto, on a circle turned at random per key."""
    rows = int(of_key.sum())
    gaps = 1.0 + rng.pareto(shape, rows)
    ends = np.cumsum(gaps)
    present = of_key > 0
    last = np.cumsum(of_key)[present] - 1
    totals = np.diff(ends[last], prepend=0.0)
    before = ends[last] - totals
    times = (ends - np.repeat(before, of_key[present])) / np.repeat(totals, of_key[present])
    return (times + np.repeat(rng.random(len(of_key)), of_key)) % 1.0


@dataclass(frozen=True)
class Locality:
    """Where a stream's locality comes from (section 2.1): compare `trace` with `permuted`.

    sizes : numbers of keys that a cache could hold.
    trace : share of rows whose key was among the last `size` different ones: the hit rate of such a cache.
    permuted : the same for the rows in random order, which keeps popularity and destroys correlation.
    slope : -d log(frequency) / d log(rank): Zipf's alpha, of the keys that occur at least twice.
    """

    sizes: Ints
    trace: npt.NDArray[np.float64]
    permuted: npt.NDArray[np.float64]
    slope: float

    @property
    def correlation(self) -> float:
        """The largest difference between the two hit rates: 0 without short-term correlation, below 1."""
        return float(np.max(self.trace - self.permuted, initial=0.0))


def locality(keys: npt.NDArray[np.int64], *, seed: int = 1) -> Locality:
    """Report the locality of a sequence of keys.

    >>> report = locality(np.repeat(np.arange(50), 20))
    >>> report.sizes.tolist(), round(report.correlation, 1)
    ([1, 2, 4, 8, 16, 32, 64], 0.9)
    """
    codes, counts = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    sizes = 2 ** np.arange(max(1, len(counts).bit_length() + 1), dtype=np.int64)
    shuffled = np.random.default_rng([seed, 3]).permutation(codes)
    curves = []
    for sequence in (codes, shuffled):
        distances = np.sort(stack_distances(sequence))
        first = np.searchsorted(distances, 0)
        curves.append((np.searchsorted(distances, sizes) - first) / max(1, len(keys)))
    repeated = np.sort(counts[counts > 1])[::-1]
    slope = 0.0
    if len(repeated) > 1:
        slope = float(-np.polyfit(np.log(np.arange(1, len(repeated) + 1)), np.log(repeated), 1)[0])
    return Locality(sizes, curves[0], curves[1], slope)


def stack_distances(keys: npt.NDArray[np.int64]) -> Ints:
    """Return, per row, the different keys seen since its key was last seen; -1 where it was not seen before.

    >>> stack_distances(np.array([5, 5, 7, 9, 7, 5])).tolist()
    [-1, 0, -1, -1, 1, 2]
    """
    codes = np.unique(keys, return_inverse=True)[1]
    return _stack_distances(codes.astype(np.int64), int(codes.max(initial=-1)) + 1)


@compiled
def _stack_distances(codes: Ints, domain: int) -> Ints:
    """Count, with a Fenwick tree over positions, the keys whose last occurrence lies after this key's."""
    n = len(codes)
    tree = np.zeros(n + 1, np.int64)
    last = np.full(domain, -1, np.int64)
    out = np.full(n, -1, np.int64)
    seen = 0
    for i in range(n):
        before = last[codes[i]]
        if before >= 0:
            up_to = 0
            at = before + 1
            while at > 0:
                up_to += tree[at]
                at -= at & -at
            out[i] = seen - up_to
            at = before + 1
            while at <= n:
                tree[at] -= 1
                at += at & -at
        else:
            seen += 1
        at = i + 1
        while at <= n:
            tree[at] += 1
            at += at & -at
        last[codes[i]] = i
    return out
