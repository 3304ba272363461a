"""Change the policy of a buffer: it keeps its rows, and the new policy sets their credits."""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.eviction.buffer import Buffer
from braided.eviction.policies.counting_policy import KeyCounts
from braided.eviction.policies.policy import Adopted, Policy, Stored
from braided.eviction.policies.recent import seen_recently
from braided.eviction.stored_rows import fill_rows, row_keys, slots_by_age

_MOVED = ("events", "pairs", "results", "expired", "evicted", "refused", "too_large")


def switched(old: Buffer, policy: Policy, *, counts: KeyCounts, shadow: Any, now: int) -> Buffer:
    """Return a buffer with the rows and totals of `old`, and another policy.

    counts : RECENT's counts of the same events. shadow : the state of a small buffer with the new policy.
    """
    alike: dict[str, Any] = {"streams": len(old.state.streams), "share": old.share, "results": old.results}
    new = Buffer(old.capacity, policy, window=old.window, **alike)
    before, after = old.state, new.state
    for name in _MOVED:
        after.totals[name] = before.totals[name]
    after.streams["arrived"] = before.streams["arrived"]
    after.settings["room"] = before.settings["room"]
    slots = slots_by_age(before)
    rows = before.rows[slots]
    stored = Stored(row_keys(before, slots), rows["time"].copy(), rows["stream"].astype(np.int8))
    others = len(before.streams) - 1 if before.settings["combining"][0] else 1
    seen = seen_recently(counts, stored.keys, stored.streams)
    adopted = Adopted(stored, seen, counts.span, others, now, counts, shadow)
    fill_rows(after, *stored, rows["row"].copy(), policy.adopt(new.learned, adopted))
    new.last_time = old.last_time
    return new
