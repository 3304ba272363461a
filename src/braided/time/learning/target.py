"""K under a recall target: the smallest that keeps the share of losses in the remembered delays below an allowed one.

That share is corrected by what was lost, as in adaptive conformal inference (Gibbs and Candes, 2021): with x the
losses left to spend until now over what chance alone may take, it is the target's times

```
 x * x, at most 10          where x >= 1: more was kept than asked for
 1 / (1 + 1.5 * (1 - x))    below: stricter, yet one bad hour does not fix K at the largest delay
```

Chance takes the square root of n * D of n losses that come in bunches of D rows, as when a phone stalls: where losses
are bunched more is kept in reserve.

In `order`, while there is something to spend, K is at most twice the largest delay of the rows among which 6 were to be
lost (`recent`): it falls soon after a burst, however many rows were late in it. In a join the stored rows that K let
go do not come back until the clock has moved on by K: there, many losses at once hold K at the largest recent delay
for a memory, however much there is to spend.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.time.learning.delay_buckets import MOST, Ints, bucket_lower, bucket_of, bucket_upper
from braided.time.learning.learner_state import SLICES, Learned, Rule

CREDIT_ROWS, CREDIT_LOSSES, CREDIT_END = 3200.0, 32.0, 15000.0
"""Losses allowed in advance, those of so many rows and at most so many, and by which row they are paid back:
streams start worse than they go on."""

STRICTNESS, JOIN_STRICTNESS = 1.5, 3.0
"""How strongly the allowed share answers to losses above the target, in `order` and in joins."""

BEYOND_SEEN = 1.1
"""K over the largest delay remembered, where the target asks for more than that has shown."""

RECENT_LOSSES, RECENT_FACTOR = 6.0, 2
"""In `order`, K is at most this multiple of the largest delay among as many rows as may have so many losses."""

MANY_LOSSES = 8.0
"""In a join, so many times the losses allowed in a block hold K at the largest recent delay."""


@compiled
def lose_behind(state: Learned, rule: Rule, bucket: int, rows: int) -> None:
    """Count what rows lose that are so far behind the clock before the batch: all, or the part beyond the horizon."""
    now = state[0]
    lower, upper = bucket_lower(bucket), bucket_upper(bucket)
    if rows > 0 and lower > now.lag:
        middle = float(lower + (upper - lower) // 2)
        now.losing += rows * (min(1.0, (middle - now.lag) / rule.reach) if rule.reach > 0 else 1.0)


@compiled
def lose_all_behind(state: Learned, rule: Rule, rows: Ints) -> None:
    """Count what a batch loses: how many of its rows are in each bucket behind the clock before it."""
    for bucket in range(len(rows)):
        lose_behind(state, rule, bucket, rows[bucket])


@compiled
def kept_target(state: Learned, hints: Ints, recent: Ints, counts: Ints, rule: Rule, largest: int) -> int:
    """Count what the batch lost, `largest` being its largest delay, and return the K that the target asks for."""
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
    """Note the batch's largest delay among those of the last rows."""
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
    # The next batch goes by this share to its end: it may not spend all that is left.
    return float(min(0.5, share, rule.loss + max(0.0, left) / (4.0 * max(1, now.batch_rows))))


@compiled
def _kept_share(state: Learned, counts: Ints, rule: Rule) -> int:
    """Return the smallest upper end of a bucket as K for which losses in `counts` are within the allowed share.

    Going down from the largest delay: `whole` is the weight of the rows at least `reach` later than K, which
    lose everything, `part` that of the others later than K and `sum` their delays.
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
