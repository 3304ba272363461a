"""The common part of the bounded-memory figures: policies by name, recall, the future, distortion."""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.compiled import compiled
from braided.eviction.buffer import Buffer, Events, Share
from braided.eviction.policies.age import AGE
from braided.eviction.policies.auto import AUTO
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.eviction.policies.recent import RECENT
from braided.eviction.tuning.adaptive import make_buffer
from braided.sim.gdj.clairvoyant import foresee
from braided.sim.gdj.data import Data

POLICIES: dict[str, Policy] = {
    "GDJ": GDJ(),
    "PROB": PROB(),
    "AGE": AGE(per_row=True),
    "FIFO": FIFO(),
    "RAND": RAND(),
    "RECENT": RECENT(),
}
"""GDJ is METHOD 1, tuned on line; AGE knows each row's best age from the future, as in the paper."""
MORE: dict[str, Policy] = {**POLICIES, "AGE, learned": AGE(), "auto": AUTO()}

_exact: dict[tuple[int, int], int] = {}
_hints: dict[tuple[int, int], Any] = {}


def exact(data: Data) -> int:
    """Return the pairs of the exact join."""
    key = (id(data.events.keys), data.within)
    if key not in _exact:
        everything = Buffer(len(data.events.keys), FIFO(), window=data.window, streams=data.streams)
        _exact[key] = everything.count(data.events)
        _keep.append(data)
    return _exact[key]


_keep: list[Data] = []  # keeps arrays alive, so that ids stay unique


def pairs(data: Data, policy: Policy, capacity: int, share: Share = "unified") -> int:
    """Return the number of pairs that a policy finds with room for `capacity` rows."""
    events = data.events
    if isinstance(policy, AGE) and policy.per_row:
        events = events._replace(hints=best_ages(data))
    buffer = make_buffer(capacity, policy, window=data.window, streams=data.streams, share=share)
    return buffer.count(events)


def recall(data: Data, policy: Policy, capacity: int, share: Share = "unified") -> float:
    """Return the pairs that a policy finds, divided by those of the exact join."""
    return pairs(data, policy, capacity, share) / max(1, exact(data))


def limit(data: Data, capacity: int) -> float:
    """Return the recall that no policy can exceed, even if it knows the future."""
    future = foresee(data.events, capacity=capacity, window=data.window, streams=data.streams)
    return future.limit / max(1, future.exact)


def best_ages(data: Data) -> Any:
    """Return each row's own best age, at which its matches so far divided by its age are largest; 0 if it has none."""
    key = (id(data.events.keys), data.within)
    if key not in _hints:
        codes = np.unique(data.events.keys, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        _hints[key] = _best_ages(codes, order, data.events.times, data.events.streams, data.within)
        _keep.append(data)
    return _hints[key]


@compiled
def _best_ages(codes: Any, order: Any, times: Any, streams: Any, within: int) -> Any:
    out = np.zeros(len(codes))
    for a in range(len(order)):
        i = order[a]
        found, best = 0, 0.0
        for b in range(a + 1, len(order)):
            j = order[b]
            age = times[j] - times[i]
            if codes[j] != codes[i] or age > within:
                break
            if streams[j] != streams[i]:
                found += 1
                if found / (age + 1.0) > best:
                    best = found / (age + 1.0)
                    out[i] = age
    return out


def shed(events: Events, share: float, seed: int) -> Events:
    """Drop a share of the rows at random: by a hash of their content and a seed."""
    with np.errstate(over="ignore"):
        mixed = (events.contents ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return events.pick((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53 >= share)


def results_by_key(events: Events, policy: Policy, capacity: int, window: tuple[int, int], codes: Any) -> Any:
    """Return the number of results per key code; `codes` gives that of each row by its number."""
    buffer = make_buffer(capacity, policy, window=window)
    result = buffer.run(events, room=1 << 20)
    return np.bincount(codes[events.rows[result.pair_event]], minlength=int(codes.max()) + 1)


def distortion(found: Any, wanted: Any) -> tuple[float, float]:
    """Return the sum of squared errors, and the KL distance in nats, of two histograms, each scaled to 1."""
    p, q = found / max(1, found.sum()), wanted / max(1, wanted.sum())
    seen = p > 0
    return float(np.sum((p - q) ** 2)), float(np.sum(p[seen] * np.log(p[seen] / q[seen])))


def combinations(data: Data, policy: Policy, capacity: int) -> int:
    """Return the number of results of the join of all streams that the stored rows give.

    An event completes as many results as the product, over the other streams, of the stored rows of its key.
    """
    events, n = data.events, data.streams
    buffer = make_buffer(capacity, policy, window=data.window, streams=n, results="combinations")
    stream_of = np.empty(int(events.rows.max()) + 1, np.int64)
    stream_of[events.rows] = events.streams
    total = 0
    for at in range(0, len(events.keys), 20_000):
        part = events.part(at, at + 20_000)
        result = buffer.run(part, room=1 << 20)
        size = len(part.keys)
        met = np.bincount(result.pair_event * n + stream_of[result.pair_row], minlength=size * n).reshape(size, n)
        met[np.arange(size), part.streams] = 1
        total += int(met.prod(axis=1).sum())
    return total
