"""RECENT: the row whose key has recently occurred least in the other streams is evicted (ours: PROB with fading)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from braided.compiled import in_place
from braided.eviction.policies.counting_policy import (
    CountingPolicy,
    KeyCounts,
    new_counts,
    newcomer,
    read_again,
    stored,
    worth_of_rows,
)
from braided.eviction.policies.fading import SCALES, look_at_clock, note_occurrence, set_weights
from braided.eviction.policies.hooks import Hooks
from braided.eviction.policies.policy import Adopted, Shape, check_choice, check_count
from braided.eviction.records import Bytes, Ints, Reals, State, UInt64s
from braided.eviction.sections import Facts, Reader


@in_place
def _note(seen: KeyCounts, key: np.uint64, time: int, stream: int) -> bool:
    """Count an occurrence; return whether other counts have fallen."""
    looking = seen.head[0].noted % seen.refresh == 0
    if looking:
        look_at_clock(seen.head, seen.keys, seen.counts, seen.span, time)
        set_weights(seen.weights, seen.factors, seen.span, seen.only_long, time)
    seen.head[0].noted += 1
    forgotten = note_occurrence(seen.head, seen.keys, seen.counts, seen.weights, seen.most, key & seen.mask, stream)
    return forgotten or looking


@in_place
def note_all(seen: KeyCounts, keys: UInt64s, times: Ints, streams: Bytes) -> None:
    """Count occurrences while another policy is followed, so that RECENT can be followed again."""
    for i in range(len(keys)):
        _note(seen, keys[i], times[i], int(streams[i]))


@in_place
def _arrived(state: State, learned: KeyCounts, key: np.uint64, time: int, stream: int, entry: int) -> None:
    read_again(state, learned, key, entry, _note(learned, key, time, stream))


def _weigh(seen: KeyCounts) -> None:
    set_weights(seen.weights, seen.factors, seen.span, seen.only_long, int(seen.head["time"][0]))


def seen_recently(seen: KeyCounts, keys: UInt64s, streams: Bytes) -> Reals:
    """Return how often the keys of rows have recently occurred in the other streams, in all memories, per window."""
    weights, factors = np.empty_like(seen.weights), np.empty_like(seen.factors)
    set_weights(weights, factors, seen.span, 0, int(seen.head["time"][0]))
    return worth_of_rows(seen._replace(factors=factors), keys, streams)


@dataclass(frozen=True, kw_only=True, repr=False)
class RECENT(CountingPolicy):
    """Keeps the rows of keys that are frequent now: the weight of an occurrence is about 1 / its age.

    PROB uses a key's frequency in the other streams as the rate of a row's future matches. RECENT does too, but its
    rate is the mean of three memories (`braided.eviction.policies.fading`): the shortest detects a burst within a 128th
    of the window, and the longest knows which keys are popular. A newcomer with less credit than every stored row is
    refused; among equal credits the oldest row is evicted, so it is FIFO for keys that do not repeat.

    memory : ``"mixed"`` uses all three memories. ``"long"`` uses only the one of four windows, which is up to 7% better
        if keys keep their popularity, and far worse if they come in bursts.
    refresh : after how many events the clock is updated; default: an 8th of the capacity.
    count_keys : how many different keys are counted; default: the capacity, at least 1,024. If there are more, the
        quarter with the fewest occurrences is removed at a time.

    Cost: 16 bytes and 48 per stream for each of `count_keys`; an update of the clock reads the credit of every stored
    row. When saved, 4 to 8 bytes per counted key, and no credits of rows.

    >>> RECENT(memory="long")
    RECENT(memory='long')
    >>> RECENT(refresh=0)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: refresh=0: write a number above 0
    """

    memory: Literal["mixed", "long"] = "mixed"
    refresh: int | None = None
    count_keys: int | None = None

    name = "recent"
    row_bytes = 360
    stream_bytes = 105

    def __post_init__(self) -> None:
        check_choice("memory", self.memory, {"mixed": 0, "long": 1})
        check_count("refresh", self.refresh)
        check_count("count_keys", self.count_keys)

    @property
    def hooks(self) -> Hooks:
        """The hooks, which count arrivals, and set the credits of rows."""
        return Hooks(arrived=_arrived, newcomer=newcomer, stored=stored)

    def learned(self, shape: Shape) -> KeyCounts:
        """Return empty counts.

        The bits of a key's hash that are used are at least 9 more than are needed to number all keys.
        """
        seen = new_counts(shape.streams * SCALES, self.count_keys or max(1024, shape.capacity))
        seen = seen._replace(
            mask=np.uint64(256 * len(seen.keys) - 1),
            span=max(1, *map(abs, shape.retention)),
            only_long=int(self.memory == "long"),
            refresh=self.refresh or max(1, shape.capacity // 8),
            weights=np.zeros(SCALES, np.int64),
            factors=np.zeros(SCALES, np.float64),
        )
        _weigh(seen)
        return seen

    def load(self, learned: KeyCounts, facts: Facts, read: Reader) -> KeyCounts:
        """Restore the counts, and the weights of the last update of the clock."""
        _weigh(super().load(learned, facts, read))
        return learned

    def adopt(self, learned: KeyCounts, rows: Adopted) -> Reals:
        """Continue with the counts that were made while another policy was followed."""
        for mine, theirs in zip((learned.head, learned.keys, learned.counts), rows.counts, strict=False):
            mine[:] = theirs
        _weigh(learned)
        return worth_of_rows(learned, rows.stored.keys, rows.stored.streams)
