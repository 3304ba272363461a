"""A buffer goes on under another policy: the same rows, with the credits that the new policy would give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.buffers.buffer import Buffer
from braided.buffers.policies.percentiles import percentile_index
from braided.buffers.policies.policy import Policy
from braided.buffers.records import AGE, GDJ, PROB, RANDOM, Ints, Reals, Words
from braided.buffers.saved import fill, slots_by_age, worth_now
from braided.compiled import compiled
from braided.routing.kernels import mix

_LN2 = 0.6931471805599453
_MOVED = (
    "events",
    "unit",
    "unit_seen",
    "counted_keys",
    "pairs",
    "results",
    "expired",
    "evicted",
    "refused",
    "too_large",
)


def switched(old: Buffer, policy: Policy, *, keep: Ints, now: int) -> Buffer:
    """Return a buffer with the rows, counts and totals of `old`, which must have counted keys as RECENT does.

    GDJ gives a row the results that it should have had by now, from how often its key was seen of late; AGE
    starts with what `keep` says; RAND draws from the key and time of a row.
    """
    alike: dict[str, Any] = {"streams": len(old.state.streams), "share": old.share, "results": old.results}
    new = Buffer(old.capacity, policy, window=old.window, **alike)
    before, after, plan = old.state, new.state, new.plan
    for name in _MOVED:
        after.totals[name] = before.totals[name]
    after.streams["arrived"] = before.streams["arrived"]
    after.streams["keep"] = keep
    after.settings["room"] = before.settings["room"]
    after.count_key[:] = before.count_key
    after.counts[:] = before.counts
    rows = before.rows[slots_by_age(before)]
    key, time, stream = rows["key"].copy(), rows["time"].copy(), rows["stream"].astype(np.int8)
    credit = np.zeros(len(rows))
    if plan.code == PROB:
        credit = worth_now(after, key, stream)
    elif plan.code == GDJ:
        others = len(before.streams) - 1 if before.settings["combining"][0] else 1
        per_window = _LN2 * worth_now(after, key, stream) / others  # matches in each other stream, on average
        seen = per_window * (now - time) / int(before.settings["span"][0])
        credit = np.floor(others * seen**others)
    elif plan.code == AGE:
        credit = time + keep[stream].astype(np.float64)
    elif plan.code == RANDOM:
        credit = _drawn(key, time)
    fill(after, plan, key, time, stream, rows["row"].copy(), credit)
    if plan.code == GDJ:
        pool = stream if len(after.pools) > 1 else np.zeros(len(rows), np.int8)
        for p in range(len(after.pools)):
            credits = np.sort(credit[pool == p])
            if len(credits):
                after.pools["initial"][p] = credits[percentile_index(plan.percentile or 0.0, len(credits))]
    new.last_time = old.last_time
    return new


def copied(old: Buffer, *, percentile: float, known_by: np.uint64) -> Buffer:
    """Return a buffer that goes on from the rows and credits of `old`, GDJ's, with another percentile.

    Rows have no ids, and keys the bits of `known_by` alone.
    """
    alike: dict[str, Any] = {"streams": len(old.state.streams), "share": old.share, "results": old.results}
    new = Buffer(old.capacity, old.policy, window=old.window, **alike)
    before, after = old.state, new.state
    for name in ("events", "unit", "unit_seen"):
        after.totals[name] = before.totals[name]
    for name in ("decayed", "added", "initial", "snapshot"):
        after.pools[name] = before.pools[name]
    after.streams["arrived"] = before.streams["arrived"]
    after.snapshot[:] = before.snapshot
    after.settings["percentile"] = percentile
    rows = before.rows[slots_by_age(before)]
    credit = rows["credit"] + before.chains["gained"][rows["entry"], rows["stream"]]
    stream, ids = rows["stream"].astype(np.int8), np.zeros(len(rows), np.int64)
    fill(after, new.plan, rows["key"] & known_by, rows["time"].copy(), stream, ids, credit)
    new.last_time = old.last_time
    return new


@compiled
def _drawn(keys: Words, times: Ints) -> Reals:
    out = np.empty(len(keys), np.float64)
    for i in range(len(keys)):
        out[i] = float(mix(keys[i] ^ mix(np.uint64(times[i]))) >> np.uint64(11))
    return out
