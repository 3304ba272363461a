"""AGE: a row is kept until the age with the most matches per time (section 3.2; Srivastava and Widom, 2004).

This age is learned from the ages at which stored rows match. Each stream has two counts per bin of age, with BINS equal
bins of the retention: matches, and rows that left. A row that left in bin j was stored during all bins before j and, on
average, half of j. This gives p(j), the matches of a row in bin j. The best age k is the one for which
p(0) + ... + p(k) divided by k is largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.eviction.policies.hooks import Hooks
from braided.eviction.policies.policy import Adopted, Policy, Shape, Stored, check_count
from braided.eviction.records import Ints, Reals, Records, State
from braided.eviction.sections import Facts, Reader, Writer, require
from braided.routing.hash_kernels import mix

BINS = 128
_EXPLORED = np.uint64(255)  # one row of 256 is kept for the whole window


class Ages(NamedTuple):
    """The state of AGE: for each stream the best age so far, and matches and exits by bin of age."""

    period: int
    hinted: int
    keep: Ints
    matches: Reals
    exits: Reals


@in_place
def age_bin(age: int, retention: int) -> int:
    """Return the bin of an age, at least 0."""
    return min(BINS - 1, int(float(age) * BINS / (float(retention) + 1.0)))


@in_place
def learn_ages(keep: Ints, streams: Records, matches: Reals, exits: Reals) -> None:
    """Set the best age of each stream from the counts, and halve the counts."""
    for s in range(len(keep)):
        lived = 0.0
        for j in range(BINS):
            lived += exits[s, j]
        pairs, best, best_bin = 0.0, 0.0, BINS - 1
        for j in range(BINS):
            exposure = lived - 0.5 * exits[s, j]
            if exposure <= 0.0:
                break
            lived -= exits[s, j]
            pairs += matches[s, j] / exposure
            if pairs / (j + 1) > best:
                best, best_bin = pairs / (j + 1), j
        keep[s] = int((best_bin + 1) * (float(streams[s].retention) + 1.0) / BINS)
        for j in range(BINS):
            exits[s, j] *= 0.5
            matches[s, j] *= 0.5


@in_place
def _left(state: State, learned: Ages, slot: int, time: int) -> None:
    stream = int(state.rows[slot].stream)
    retention = state.streams[stream].retention
    learned.exits[stream, age_bin(min(time - state.rows[slot].time, retention), retention)] += 1.0


@in_place
def _by_chain(learned: Ages) -> bool:
    return False


@in_place
def _row_matched(state: State, learned: Ages, pool: int, slot: int, age: int, shares: float) -> None:
    stream = int(state.rows[slot].stream)
    learned.matches[stream, age_bin(age, state.streams[stream].retention)] += 1.0


@in_place
def _newcomer(
    state: State, learned: Ages, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    keep = float(learned.keep[stream])
    if learned.hinted:
        keep = hint
    elif mix(content) & _EXPLORED == np.uint64(0):
        keep = float(state.streams[stream].retention)
    return time + keep, min(time + keep, float(time))


@in_place
def _ended(state: State, learned: Ages) -> None:
    if state.totals[0].events % learned.period == 0:
        learn_ages(learned.keep, state.streams, learned.matches, learned.exits)


@dataclass(frozen=True, kw_only=True, repr=False)
class AGE(Policy):
    """Keeps every row of a stream for the same time k, then it can be evicted. If no row is older, refuses newcomers.

    k is learned per stream from the ages at which matches happen. A row keeps the k from its arrival. One row of 256,
    chosen by its content, is kept for the whole window, so that matches at ages above k are still seen.

    per_row : use each row's own k from the `hints` of the events, in microseconds. The paper's evaluation does this
        with a known future. For benchmarks.
    period : after how many events k is learned again; default: the capacity, at least 1,024.

    Cost: 180 bytes per row of capacity, and 2 KB per stream.

    >>> AGE(period=5000)
    AGE(period=5000)
    >>> AGE(period=0)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: period=0: write a number of events above 0
    """

    per_row: bool = False
    period: int | None = None

    name = "age"

    def __post_init__(self) -> None:
        check_count("period", self.period, "a number of events above 0")

    @property
    def hooks(self) -> Hooks:
        """The hooks, which count the ages of matches and of removed rows, and learn from them."""
        return Hooks(left=_left, by_chain=_by_chain, row_matched=_row_matched, newcomer=_newcomer, ended=_ended)

    @property
    def hinted(self) -> bool:
        """Whether each event has its own k."""
        return self.per_row

    def learned(self, shape: Shape) -> Ages:
        """Return the state at the start: the best age is the whole retention, and all counts are 0."""
        period = self.period or max(1024, shape.capacity)
        keep = np.maximum(0, np.array(shape.retention, np.int64))
        seen = [np.zeros((shape.streams, BINS), np.float64) for _ in range(2)]
        return Ages(period, int(self.per_row), keep, *seen)

    def save(self, learned: Ages, write: Writer) -> Facts:
        write.reals(learned.matches.ravel())
        write.reals(learned.exits.ravel())
        return {"keep": learned.keep.tolist()}

    def load(self, learned: Ages, facts: Facts, read: Reader) -> Ages:
        for array in (learned.matches, learned.exits):
            values = read.reals()
            require(values.size == array.size, "its ages")
            array[:] = values.reshape(array.shape)
        require(len(facts["keep"]) == len(learned.keep), "its ages")
        learned.keep[:] = facts["keep"]
        return learned

    def save_credits(self, learned: Ages, rows: Stored, credits: Reals, write: Writer) -> None:
        """Write credits, which are times, as ages, because there are only few different ages."""
        write.reals(credits if self.per_row else credits - rows.times)

    def load_credits(self, learned: Ages, rows: Stored, read: Reader) -> Reals:
        """Return the times until which rows are kept."""
        values = read.reals()
        require(len(values) == len(rows.times), "its rows")
        return values if self.per_row else values + rows.times.astype(np.float64)

    def adopt(self, learned: Ages, rows: Adopted) -> Reals:
        """Keep rows for the age that a small buffer has learned."""
        learned.keep[:] = rows.shadow.keep
        until: Reals = rows.stored.times.astype(np.float64) + learned.keep[rows.stored.streams]
        return until
