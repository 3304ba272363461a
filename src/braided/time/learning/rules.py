"""The rules by which K follows the delays: one compiled step, the same for a batch and for a single row.

The memory is divided into slices of event time. A slice also has a minimum number of rows, so that a gap in the stream
does not clear the memory:

```
 maxima   | slice 0 | slice 1 | ... | slice 8 |     largest delay of each; the oldest is overwritten
 counts   delays by bucket; each new slice reduces them by 1/8
```
Without a recall target, K is the largest of the maxima plus `margin` standard deviations, and falls by at most 1/8 per
slice. With a recall target, see `target`.

The code uses only integers and plain float64 sums, so that every machine computes the same K.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.time.learning.delay_buckets import MOST, Ints, bucket_lower, bucket_upper, gap
from braided.time.learning.learner_state import ROW, SLICES, Learned, Rule
from braided.time.learning.target import kept_target

SLICE_ROWS = 64
PRIME_ROWS = 256
TARGET_PRIME_ROWS = 32
"""No row leaves before this many rows have arrived: until then, K reaches back to before the earliest row."""

TARGET_SLICE_ROWS = 1.0
"""With a recall target, a slice lasts for at least this many rows that may be lost."""


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
    """Learn from a batch, given by the number of rows in each bucket of delays."""
    for at in range(len(buckets)):
        take_delay(state, counts, rule, buckets[at], rows[at])


@compiled
def end_batch(
    state: Learned, maxima: Ints, hints: Ints, recent: Ints, counts: Ints, rule: Rule, clock: int, largest: int
) -> None:
    """End a batch: `clock` is the clock after it, and `largest` is its largest delay."""
    now = state[0]
    if now.lag == MOST:
        now.first_clock = now.slice_start = now.clock = clock
    maxima[now.slice] = max(maxima[now.slice], largest)
    if now.slice_rows >= rule.slice_rows and gap(clock, now.slice_start) >= rule.slice:
        _next_slice(state, maxima, hints, counts)
        now.slice_start = clock
    if rule.loss > 0.0:
        wanted = kept_target(state, hints, recent, counts, rule, largest)
    else:
        wanted = _kept_largest(state, maxima, rule)
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
    """Return the largest delay in memory plus the margin, but not far below the previous K."""
    now = state[0]
    mean = now.moment1 / max(now.moment0, 1.0)
    spread = np.sqrt(max(now.moment2 / max(now.moment0, 1.0) - mean * mean, 0.0))
    wanted = min(float(rule.ceiling), float(maxima.max()) + rule.margin * spread)
    now.held = max(now.held, wanted)
    return int(now.held)
