"""A buffer goes on under another policy: the same rows, with the credits that the new policy would give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.buffers.buffer import Buffer
from braided.buffers.fading import SCALES, set_weights, worth
from braided.buffers.percentiles import percentile_index
from braided.buffers.policy import Policy
from braided.buffers.saved import fill, slots_by_age
from braided.buffers.state import AGE, GDJ, PROB, RANDOM, Ints, Reals, Records, Words
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
    credit = np.zeros(len(rows))
    span = int(before.settings["span"][0])
    factors = np.empty(SCALES)
    only_long = int(after.settings["only_long"][0])
    set_weights(np.empty(SCALES, np.int64), factors, span, only_long, int(before.totals["unit"][0]))
    if plan.code == PROB:
        credit = _worth(before.count_key, before.counts, before.sketch, factors, rows)
    elif plan.code == GDJ:
        per_window = _LN2 * _worth(before.count_key, before.counts, before.sketch, factors, rows)
        others = len(before.streams) - 1 if before.settings["combining"][0] else 1
        seen = per_window * (now - rows["time"]) / span / others  # in each other stream, on average
        credit = np.floor(others * seen**others)
    elif plan.code == AGE:
        credit = rows["time"] + keep[rows["stream"]].astype(np.float64)
    elif plan.code == RANDOM:
        credit = _drawn(rows["key"].copy(), rows["time"].copy())
    stream = rows["stream"].astype(np.int8)
    fill(after, plan, rows["key"].copy(), rows["time"].copy(), stream, rows["row"].copy(), credit)
    if plan.code == GDJ:
        pool = stream if len(after.pools) > 1 else np.zeros(len(rows), np.int8)
        for p in range(len(after.pools)):
            credits = np.sort(credit[pool == p])
            if len(credits):
                after.pools["initial"][p] = credits[percentile_index(plan.percentile or 0.0, len(credits))]
    new.last_time = old.last_time
    return new


@compiled
def _worth(count_key: Words, counts: Ints, sketch: Ints, factors: Reals, rows: Records) -> Reals:
    out = np.empty(len(rows), np.float64)
    for i in range(len(rows)):
        out[i] = worth(count_key, counts, sketch, factors, rows[i].key, rows[i].stream)
    return out


@compiled
def _drawn(keys: Words, times: Ints) -> Reals:
    out = np.empty(len(keys), np.float64)
    for i in range(len(keys)):
        out[i] = float(mix(keys[i] ^ mix(np.uint64(times[i]))) >> np.uint64(11))
    return out
