"""The rules by which K follows the delays: one compiled step, the same for a batch and for a single row.

The memory is cut into slices of event time; a slice also lasts for a least number of rows, so that a gap in the
stream forgets nothing:

```
 maxima   | slice 0 | slice 1 | ... | slice 8 |     largest delay of each; the oldest is overwritten
 counts   delays by bucket; each new slice takes 1/8 off
```

Without a recall target, K is the largest of the maxima plus margin standard deviations, and falls by at most 1/8
a slice. With a target, K is the smallest that keeps the share of losses in `counts` below an allowed one. That
share is corrected by what was lost, as in adaptive conformal inference (Gibbs and Candes, 2021): with x the
losses left to spend until now over what chance alone may take, it is the target's times

```
 x * x, at most 10        where x >= 1: more was kept than asked for
 1 / (1 + 3 * (1 - x))    below: stricter, yet one bad hour does not fix K at the largest delay
```

Integers and plain float64 sums only, so that every machine computes the same K.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.order.buckets import BUCKETS, MOST, Ints, bucket_lower, bucket_of, bucket_upper, gap
from braided.order.pending import FIELDS

SLICES = 8
SLICE_ROWS = 64
PRIME_ROWS = 256
TARGET_PRIME_ROWS = 32
"""Until so many rows are seen nothing is let go: K reaches back to before the earliest row."""

TARGET_SLICE_ROWS = 1.0
"""With a recall target, a slice lasts for at least this many rows that may be lost."""

CREDIT_ROWS, CREDIT_LOSSES, CREDIT_END = 3200.0, 32.0, 16000.0
"""Losses allowed in advance, those of so many rows and at most so many, and by which row they are paid back:
streams start worse than they go on."""

STRICTNESS = 3.0
"""How strongly the allowed share answers to losses above the target."""

BEYOND_SEEN = 1.1
"""K over the largest delay remembered, where the target asks for more than that has shown."""

ROW = 64
"""One row in `counts`; fractions of a row are left when most of it is forgotten."""

LEARNED = np.dtype(
    [
        *FIELDS,
        ("lateness", np.int64),  # K
        ("lag", np.int64),  # how far the horizon is behind the clock: K, or more after K has grown
        ("clock", np.int64),
        ("first_clock", np.int64),
        ("slice_start", np.int64),
        ("slice", np.int64),
        ("weight", np.int64),  # the sum of `counts`
        ("held", np.float64),  # K may not fall below this yet
        ("lost", np.float64),  # rows, or parts of their results, lost so far
        ("losing", np.float64),  # the same of the batch at hand
        ("batch_rows", np.int64),
    ]
)
Learned = npt.NDArray[Any]


class Rule(NamedTuple):
    """A `Lateness` as numbers for the kernels; `loss` is 1 - recall, or 0 without a target."""

    margin: float
    loss: float
    floor: int
    ceiling: int
    slice: int
    slice_rows: int
    reach: int
    prime: int


def new_learned() -> tuple[Learned, Ints, Ints, Ints]:
    """Return (state, maxima, hints, counts) of a stream of which no row was seen."""
    state = np.zeros(1, LEARNED)
    state[0]["lag"] = MOST
    return state, np.zeros(SLICES + 1, np.int64), np.zeros(SLICES + 1, np.int64), np.zeros(BUCKETS, np.int64)


@compiled
def take_delay(state: Learned, counts: Ints, rule: Rule, bucket: int, rows: int) -> None:
    """Learn from rows whose delay is in one bucket."""
    now = state[0]
    lower, upper = bucket_lower(bucket), bucket_upper(bucket)
    middle = lower + (upper - lower) // 2
    now.rows += rows
    now.slice_rows += rows
    now.batch_rows += rows
    now.moment0 += rows
    now.moment1 += rows * float(middle)
    now.moment2 += rows * float(middle) * float(middle)
    if rule.loss > 0.0:
        counts[bucket] += rows * ROW
        now.weight += rows * ROW


@compiled
def take_delays(state: Learned, counts: Ints, rule: Rule, buckets: Ints, rows: Ints) -> None:
    """Learn from a batch: how many rows have their delay in each of the buckets."""
    for at in range(len(buckets)):
        take_delay(state, counts, rule, buckets[at], rows[at])


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
def settle(state: Learned, maxima: Ints, hints: Ints, counts: Ints, rule: Rule, clock: int, largest: int) -> None:
    """End a batch: `clock` is the clock after it, `largest` its largest delay."""
    now = state[0]
    if now.lag == MOST:
        now.first_clock = now.slice_start = now.clock = clock
    maxima[now.slice] = max(maxima[now.slice], largest)
    now.lost += now.losing
    now.losing = 0.0
    if now.slice_rows >= rule.slice_rows and gap(clock, now.slice_start) >= rule.slice:
        _next_slice(state, maxima, hints, counts)
        now.slice_start = clock
    wanted = _kept_share(state, counts, rule) if rule.loss > 0.0 else _kept_largest(state, maxima, rule)
    now.batch_rows = 0
    wanted = max(wanted, hints.max())
    if now.rows < rule.prime:
        span, largest = gap(clock, now.first_clock), maxima.max()
        wanted = max(wanted, span + largest + 1 if span < MOST - largest else MOST)
    now.lateness = min(rule.ceiling, max(rule.floor, wanted))
    moved = gap(clock, now.clock)
    now.clock = max(now.clock, clock)
    now.lag = now.lateness if now.lag > MOST - moved else min(now.lateness, now.lag + moved)


@compiled
def _next_slice(state: Learned, maxima: Ints, hints: Ints, counts: Ints) -> None:
    now = state[0]
    now.slice = (now.slice + 1) % (SLICES + 1)
    now.slice_rows = 0
    maxima[now.slice] = hints[now.slice] = 0
    keep = 1.0 - 1.0 / SLICES
    now.held *= keep
    now.moment0 *= keep
    now.moment1 *= keep
    now.moment2 *= keep
    if now.weight > 0:
        now.weight = 0
        for bucket in range(len(counts)):
            counts[bucket] -= (counts[bucket] + SLICES - 1) // SLICES
            now.weight += counts[bucket]


@compiled
def _kept_largest(state: Learned, maxima: Ints, rule: Rule) -> int:
    """Return the largest delay remembered plus the margin, not far below the K before."""
    now = state[0]
    mean = now.moment1 / max(now.moment0, 1.0)
    spread = np.sqrt(max(now.moment2 / max(now.moment0, 1.0) - mean * mean, 0.0))
    wanted = min(float(rule.ceiling), float(maxima.max()) + rule.margin * spread)
    now.held = max(now.held, wanted)
    return int(now.held)


@compiled
def _allowed(state: Learned, rule: Rule) -> float:
    """Return the share of losses to allow from now on."""
    now = state[0]
    credit = min(CREDIT_LOSSES, rule.loss * CREDIT_ROWS) * max(0.0, 1.0 - now.rows / CREDIT_END)
    left = rule.loss * now.rows + credit - now.lost
    x = left / (1.0 + np.sqrt(rule.loss * now.rows))
    share = rule.loss * (min(10.0, x * x) if x >= 1.0 else 1.0 / (1.0 + STRICTNESS * (1.0 - x)))
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
