"""Streams of a simulation: times of rows at rates that change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braided.sim.server_kernel import Floats


def arrivals(rates: Sequence[float], every: float, seed: Sequence[int]) -> Floats:
    """Return the times of a stream's rows; `rates[i]` holds from `i * every` seconds on.

    Gaps are uniform between 1/2r and 2/r (SSP, section 4.1), so their mean is 1.25/r: 0.8 r rows per second.

    >>> times = arrivals([10.0, 20.0], 100.0, (1, 2))
    >>> [int(((times >= a) & (times < a + 100)).sum() / 100) for a in (0, 100)]
    [7, 15]
    """
    random = np.random.default_rng(list(seed))
    parts, start = [], 0.0
    for number, rate in enumerate(rates):
        end = (number + 1) * every
        gaps = random.uniform(0.5 / rate, 2.0 / rate, int(rate * every * 1.2) + 50)
        times = start + np.cumsum(gaps)
        inside = times[times < end]
        parts.append(inside)
        start = float(inside[-1]) if len(inside) else start
        start = max(start, end - 0.5 / rate)
    return np.concatenate(parts)
