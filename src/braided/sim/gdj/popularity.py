"""Figures 2.1a, 2.1b and 2 of the GreedyDual-Join paper: why rows of a stream are worth keeping, and for how long."""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.eviction.records import Bytes, Ints
from braided.sim.figure import Figure, Panel
from braided.sim.gdj.data import Data
from braided.sim.gdj.evaluation import Setting
from braided.sim.gdj.locality import Locality, locality

SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_UNITS = 120


def popularity(setting: Setting) -> Figure:
    """Figure 2.1a: how often each key occurs by its rank, both as logarithms."""
    panels = []
    for data in setting.sets():
        setting.tell(data.name)
        counts = np.sort(np.unique(data.events.keys, return_counts=True)[1])[::-1]
        ranks = np.unique(np.geomspace(1, len(counts), 40).astype(int))
        series = {"occurrences": np.log10(counts[ranks - 1]).round(6).tolist()}
        panels.append(Panel(data.name, "rank of the key", "log10 of occurrences", ranks.tolist(), series, log_x=True))
    return Figure("2.1a", "2_1a_popularity", "popularity of keys", panels)


def distances(setting: Setting) -> Figure:
    """Figure 2.1b: the distribution of stack distances, of the trace and of its rows in random order."""
    panels = []
    for data in setting.sets():
        setting.tell(data.name)
        report = locality(data.events.keys.view(np.int64))
        series = {"trace": report.trace.round(6).tolist(), "permuted": report.permuted.round(6).tolist()}
        label = "stack distance, keys"
        panels.append(Panel(data.name, label, "share of rows", report.sizes.tolist(), series, log_x=True))
    return Figure("2.1b", "2_1b_distances", "stack distances", panels)


def best_ages(setting: Setting) -> Figure:
    """Figure 2: the distribution of k_opt over keys: the age at which matches per unit of storage time are most."""
    panels = []
    for data in setting.sets():
        setting.tell(data.name)
        shares = best_age_shares(data)
        bins = np.histogram(shares, bins=20, range=(0.0, 1.0))[0] / max(1, len(shares))
        x = [round(0.05 * (number + 1), 2) for number in range(20)]
        series = {"share of keys": bins.round(6).tolist()}
        panels.append(Panel(data.name, "k_opt / window, up to", "share of keys", x, series))
    return Figure("2", "2_best_ages", "distribution of k_opt", panels)


def localities(setting: Setting) -> dict[str, Locality]:
    """Return the locality of each data set, and its hit rates at shares of all keys (section 2.2)."""
    return {data.name: locality(data.events.keys.view(np.int64)) for data in setting.sets()}


def hit_rates(report: Locality, share: float) -> tuple[float, float]:
    """Return the hit rates, of the trace and permuted, of a cache for a share of the keys; linear between sizes."""
    size = share * report.sizes[-1] / 2
    return tuple(float(np.interp(size, report.sizes, curve)) for curve in (report.trace, report.permuted))  # type: ignore[return-value]


def best_age_shares(data: Data) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return k_opt of every key with a match, as a share of the window: where C(k) / k is largest (section 3.2).

    C(k) counts the matches of the key's rows up to age k. The window is cut into 120 units.
    """
    codes = np.unique(data.events.keys, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    events = data.events
    met = _matches_by_age(codes, order, events.times, events.streams, data.within, int(codes.max()) + 1)
    met = met[met.sum(axis=1) > 0]
    rate = met.cumsum(axis=1) / np.arange(1, _UNITS + 1)
    return np.asarray((rate.argmax(axis=1) + 1) / _UNITS)


@compiled
def _matches_by_age(codes: Ints, order: Ints, times: Ints, streams: Bytes, within: int, domain: int) -> Ints:
    met = np.zeros((domain, _UNITS), np.int64)
    for a in range(len(order)):
        i = order[a]
        for b in range(a + 1, len(order)):
            j = order[b]
            age = times[j] - times[i]
            if codes[j] != codes[i] or age > within:
                break
            if streams[j] != streams[i]:
                met[codes[i], min(_UNITS - 1, age * _UNITS // within)] += 1
    return met
