"""Joins of two streams on several attributes at once, under one budget: figures 7 (right) and 8 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braided.eviction.buffer import Buffer, Events
from braided.eviction.group_buffer import GroupBuffer, GroupEvents, GroupWindow
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.sim.figure import Figure, Panel
from braided.sim.gdj.data import SECOND, hashed
from braided.sim.gdj.evaluation import SHARE, Setting
from braided.sim.gdj.zipf_pareto import zipf_pareto

DOMAIN = 100
POLICIES: dict[str, Policy] = {"GDJ": GDJ(initial=0.2), "PROB": PROB(), "FIFO": FIFO(), "RAND": RAND()}
_ROOM = 1 << 20


def several_attributes(setting: Setting) -> Figure:
    """Figure 7, right: one to four attributes, of rising skew in one stream and even in the other."""
    numbers = [1.0, 2.0, 3.0, 4.0]
    series: dict[str, list[float]] = {name: [] for name in POLICIES}
    for n in numbers:
        setting.tell(f"{n:g} attributes")
        rows = setting.rows // 4
        skewed = [_attribute(rows, 0.25 + 0.25 * a, 30 + a) for a in range(int(n))]
        even = [_attribute(rows, 0.0, 40 + a) for a in range(int(n))]
        for name, value in _recalls(skewed, even).items():
            series[name].append(value)
    panel = Panel("Zipf 0.25 to 1 with even keys", "attributes", "recall of all joins", numbers, series)
    note = "GDJ starts at percentile 0.2; a buffer for several joins tunes nothing."
    return Figure("7b", "7_attributes", "several attributes", [panel], [note])


def two_attributes(setting: Setting) -> Figure:
    """Figure 8: the first attribute even, the second of a skew that varies in each stream."""
    alphas = setting.some([0.1, 0.5, 0.75, 1.0, 1.25, 1.5])
    rows = setting.rows // 4
    panels = []
    for right in alphas[::2]:
        series: dict[str, list[float]] = {name: [] for name in POLICIES}
        for left in alphas:
            setting.tell(f"alpha {left:g} with {right:g}")
            made = [[_attribute(rows, 0.0, 50 + s), _attribute(rows, a, 60 + s)] for s, a in enumerate((left, right))]
            for name, value in _recalls(*made).items():
                series[name].append(value)
        panels.append(Panel(f"alpha of the right stream {right:g}", "alpha, left", "recall", alphas, series))
    return Figure("8b", "8_two_attributes", "skewness of a second attribute", panels)


def _attribute(rows: int, alpha: float, seed: int) -> Any:
    """Return a column of keys in order of time, with bursts."""
    return zipf_pareto(rows=rows, rate=1000, domain=DOMAIN, alpha=alpha, pareto=0.8, seed=seed)["key"].to_numpy()


def _recalls(left: Sequence[Any], right: Sequence[Any]) -> dict[str, float]:
    """Return every policy's recall over the joins on each attribute, at a budget of 20% of the windows."""
    rows, joins = len(left[0]), len(left)
    step = SECOND // 1000
    within = rows * step // 10
    keys = np.empty((2 * rows, joins), np.uint64)
    for a in range(joins):
        keys[0::2, a], keys[1::2, a] = hashed(left[a], seed=a), hashed(right[a], seed=a)
    streams = np.tile(np.array([0, 1], np.int8), rows)
    roles = np.repeat(streams[:, None], joins, axis=1).copy()
    times = np.repeat(np.arange(rows, dtype=np.int64) * step, 2)
    numbers = np.arange(2 * rows)
    events = GroupEvents(keys, roles, times, streams, hashed(numbers, seed=7), numbers)
    windows = [GroupWindow(0, 1, -within, within)] * joins
    exact = sum(_exact(keys[:, a], times, streams, within) for a in range(joins))
    budget = round(SHARE * 2 * rows / 10)
    return {
        name: _pairs(GroupBuffer(budget, p, streams=2, joins=windows), events) / exact for name, p in POLICIES.items()
    }


def _pairs(buffer: GroupBuffer, events: GroupEvents) -> int:
    event, row, join = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int8)
    at = 0
    while at < len(events.times):
        at, _ = buffer.step(events, at, pair_event=event, pair_join=join, pair_row=row)
    return buffer.counts["pairs"]


def _exact(keys: Any, times: Any, streams: Any, within: int) -> int:
    numbers = np.arange(len(keys))
    events = Events(keys.copy(), times, streams, numbers.astype(np.uint64), numbers)
    return Buffer(len(keys), FIFO(), window=(-within, within)).count(events)
