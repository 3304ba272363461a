"""K with a recall target: the smallest K for which the share of losses in the remembered delays is below a limit.

The limit is corrected by the losses so far, as in adaptive conformal inference (Gibbs and Candes, 2021). Let x be the
losses that are still allowed, divided by the losses that chance alone may cause. The limit is the target's share times

```
 x * x, at most 10          if x >= 1: more was kept than the target requires
 1 / (1 + 1.5 * (1 - x))    if x < 1: stricter, but one bad hour does not fix K at the largest delay
```
For n losses in bunches of D rows, as when a phone stalls, chance causes about the square root of n * D: the larger the
bunches, the more losses are kept in reserve.

In `order`, while losses are still allowed, K is at most twice the largest delay among the rows of which 6 may be lost
(`recent`). So it falls soon after a burst, no matter how many rows were late in it. In a join, stored rows that a small
K has expired are missing until the clock has advanced by K. So there many losses at once keep K at the largest recent
delay for the length of the memory, no matter how many losses are still allowed.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.time.learning.delay_buckets import MOST, Ints, bucket_lower, bucket_of, bucket_upper
from braided.time.learning.learner_state import SLICES, Learned, Rule

CREDIT_ROWS, CREDIT_LOSSES, CREDIT_END = 3200.0, 32.0, 15000.0
"""The losses allowed in advance: those of this many rows, at most this many, paid back until this row. Streams begin
with more late rows than they have later."""

STRICTNESS, JOIN_STRICTNESS = 1.5, 3.0
"""How strongly losses above the target reduce the allowed share, in `order` and in joins."""

BEYOND_SEEN = 1.1
"""The factor of K over the largest delay in memory, if the target requires more than this delay."""

RECENT_LOSSES, RECENT_FACTOR = 6.0, 2
"""In `order`, K is at most this multiple of the largest delay among as many rows as may have this many losses."""

MANY_LOSSES = 8.0
"""In a join, this many times the allowed losses of a block keep K at the largest recent delay."""


@compiled
def lose_behind(state: Learned, rule: Rule, bucket: int, rows: int) -> None:
    """Count the losses of rows in one bucket behind the clock before the batch: all, or the part past the horizon."""
    now = state[0]
    lower, upper = bucket_lower(bucket), bucket_upper(bucket)
    if rows > 0 and lower > now.lag:
        middle = float(lower + (upper - lower) // 2)
        now.losing += rows * (min(1.0, (middle - now.lag) / rule.reach) if rule.reach > 0 else 1.0)


@compiled
def lose_all_behind(state: Learned, rule: Rule, rows: Ints) -> None:
    """Count the losses of a batch, given by its rows in each bucket behind the clock from before the batch."""
    for bucket in range(len(rows)):
        lose_behind(state, rule, bucket, rows[bucket])


@compiled
def kept_target(state: Learned, hints: Ints, recent: Ints, counts: Ints, rule: Rule, largest: int) -> int:
    """Count the losses of the batch, whose largest delay is `largest`, and return the K that the target requires."""
    now = state[0]
    _next_recent(state, recent, rule, largest)
    if rule.reach > 0:
        allowed = rule.loss * (now.block_rows + now.batch_rows)
        if now.block + now.losing > MANY_LOSSES * max(1.0, allowed):
            hints[now.slice] = max(hints[now.slice], min(recent.max(), rule.ceiling))
    _count_losses(state, rule)
    wanted = _kept_share(state, counts, rule)
    if rule.reach == 0 and now.rows * rule.loss >= RECENT_LOSSES and _left(state, rule) > 0.0:
        wanted = min(wanted, RECENT_FACTOR * min(recent.max(), MOST // RECENT_FACTOR))
    return wanted


@compiled
def _count_losses(state: Learned, rule: Rule) -> None:
    now = state[0]
    now.lost += now.losing
    now.block += now.losing
    now.block_rows += now.batch_rows
    now.losing = 0.0
    if now.block_rows * rule.loss >= 1.0:
        now.blocks += now.block
        now.bunched += now.block * (now.block - rule.loss * now.block_rows)
        now.block = 0.0
        now.block_rows = 0


@compiled
def _next_recent(state: Learned, recent: Ints, rule: Rule, largest: int) -> None:
    """Add the batch's largest delay to those of the last rows."""
    now = state[0]
    recent[now.recent] = max(recent[now.recent], largest)
    now.recent_rows += now.batch_rows
    if now.recent_rows * rule.loss * SLICES >= RECENT_LOSSES:
        now.recent = (now.recent + 1) % SLICES
        now.recent_rows = 0
        recent[now.recent] = 0


@compiled
def _left(state: Learned, rule: Rule) -> float:
    now = state[0]
    credit = min(CREDIT_LOSSES, rule.loss * CREDIT_ROWS) * max(0.0, 1.0 - now.rows / CREDIT_END)
    return float(rule.loss * now.rows + credit - now.lost)


@compiled
def _allowed(state: Learned, rule: Rule) -> float:
    now = state[0]
    left = _left(state, rule)
    bunch = max(1.0, now.bunched / now.blocks) if now.blocks >= 1.0 else 1.0
    x = left / (1.0 + np.sqrt(rule.loss * now.rows * bunch))
    strictness = JOIN_STRICTNESS if rule.reach > 0 else STRICTNESS
    share = rule.loss * (min(10.0, x * x) if x >= 1.0 else 1.0 / (1.0 + strictness * (1.0 - x)))
    # This share is used until the end of the next batch, which must not use up all allowed losses.
    return float(min(0.5, share, rule.loss + max(0.0, left) / (4.0 * max(1, now.batch_rows))))


@compiled
def _kept_share(state: Learned, counts: Ints, rule: Rule) -> int:
    """Return the smallest upper end of a bucket as K for which losses in `counts` are within the allowed share.

    It goes down from the largest delay. `whole` is the weight of the rows at least `reach` later than K, which lose all
    results; `part` is the weight of the other rows later than K, and `total` is the sum of their delays.
    """
    left = _allowed(state, rule) * state[0].weight
    top = bucket_of(rule.ceiling)
    while top > 0 and counts[top] == 0:
        top -= 1
    full = top
    whole = part = total = 0.0
    for bucket in range(top, 0, -1):
        lateness = bucket_upper(bucket - 1)
        if rule.reach > 0:
            part += counts[bucket]
            total += counts[bucket] * float(bucket_upper(bucket))
            while full >= bucket and bucket_upper(full) >= lateness + rule.reach:
                whole += counts[full]
                part -= counts[full]
                total -= counts[full] * float(bucket_upper(full))
                full -= 1
            lost = whole + (total - part * float(lateness)) / rule.reach
        else:
            whole += counts[bucket]
            lost = whole
        if lost > left:
            return bucket_upper(bucket) if bucket < top else int(BEYOND_SEEN * bucket_upper(bucket))
    return 0
