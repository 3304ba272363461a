"""The common part of PROB and RECENT: a row's credit is how often its key has occurred in the other streams.

All rows of one key and stream have the same credit, so it is stored in their chain: an occurrence raises it for all of
them at once. PROB counts all occurrences equally; in RECENT older occurrences count less (`counts` and `fading` in
`braided.eviction.policies`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from braided.compiled import compiled, in_place
from braided.eviction.heap import heap_rebuild
from braided.eviction.policies.counts import place_of
from braided.eviction.policies.policy import Policy, Stored
from braided.eviction.records import Bytes, Ints, Reals, Records, State, UInt64s, power_of_two
from braided.eviction.sections import Facts, Reader, Writer, require

HEAD = np.dtype([("keys", np.int64), ("time", np.int64), ("looked", np.int64), ("noted", np.int64)])
"""The number of keys in the table; for fading counts, the last time at which counts faded, and the occurrences."""


class KeyCounts(NamedTuple):
    """Counts of keys; each stream has one column, or one per memory.

    mask : the bits of a key that are used. most : the largest number of keys for fading counts. weights, factors : per
        memory, the weight of an occurrence since the last fading, and the factor from a count to a credit.
    """

    head: Records
    keys: UInt64s
    counts: Ints
    mask: np.uint64
    most: int
    span: int
    only_long: int
    refresh: int
    weights: Ints
    factors: Reals


def new_counts(streams: int, keys: int) -> KeyCounts:
    """Return empty counts that do not fade, in a table for this number of keys."""
    places = power_of_two(2 * keys)
    return KeyCounts(
        head=np.zeros(1, HEAD),
        keys=np.zeros(places, np.uint64),
        counts=np.zeros((places, streams), np.int64),
        mask=~np.uint64(0),
        most=keys,
        span=0,
        only_long=0,
        refresh=1,
        weights=np.ones(1, np.int64),
        factors=np.ones(1, np.float64),
    )


@in_place
def worth_at(counts: Ints, factors: Reals, at: int, stream: int) -> float:
    """Return how often the key at a place of the table has occurred in the other streams."""
    memories = len(factors)
    total = 0.0
    for j in range(memories):
        seen = -counts[at, stream * memories + j]
        c = j
        while c < counts.shape[1]:  # a range with this step would need a division
            seen += counts[at, c]
            c += memories
        total += float(seen) * factors[j]
    return total


@compiled
def worth_of_rows(seen: KeyCounts, keys: UInt64s, streams: Bytes) -> Reals:
    """Return the credits of rows."""
    out = np.empty(len(keys), np.float64)
    for i in range(len(keys)):
        at = place_of(seen.keys, seen.counts, keys[i] & seen.mask)
        out[i] = worth_at(seen.counts, seen.factors, at, int(streams[i]))
    return out


@in_place
def _set_chains(chains: Records, entry: int, counts: Ints, factors: Reals, at: int) -> None:
    """Set the credits of a key's rows, for each stream at once."""
    for q in range(chains.shape[1]):
        chains[entry, q].gained = worth_at(counts, factors, at, q)


@in_place
def _read_all(state: State, seen: KeyCounts) -> None:
    """Set the credits of all stored rows after counts have fallen."""
    pools, rows, heap = state.pools, state.rows, state.heap
    for p in range(len(pools)):
        for at in range(pools[p].chains):
            chain = state.chain_list[heap[p, at].item]
            if chain.gained > 0.0:  # a credit of 0 stays 0 unless the key occurs
                row = rows[chain.least]
                place = place_of(seen.keys, seen.counts, state.entries[row.entry].key & seen.mask)
                chain.gained = worth_at(seen.counts, seen.factors, place, int(row.stream))
            heap[p, at].credit, heap[p, at].seq = chain.gained, state.order[chain.least].seq
        heap_rebuild(heap, state.heap_at, p, pools[p].chains)


@in_place
def read_again(state: State, seen: KeyCounts, key: np.uint64, entry: int, fallen: bool) -> None:
    """Set the credits of a key that has occurred, and of all stored rows if other counts have `fallen`."""
    if entry >= 0:
        at = place_of(seen.keys, seen.counts, key & seen.mask)
        _set_chains(state.chains, entry, seen.counts, seen.factors, at)
    if fallen:
        _read_all(state, seen)


@in_place
def newcomer(
    state: State, learned: KeyCounts, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    """Return the row's credit, also as the bar: it evicts no row with a higher credit."""
    at = place_of(learned.keys, learned.counts, key & learned.mask)
    seen = worth_at(learned.counts, learned.factors, at, stream)
    return seen, seen


@in_place
def stored(state: State, learned: KeyCounts, slot: int, key: np.uint64) -> None:
    """Store the credit in the chain: the next occurrence raises it for every row of the key."""
    at = place_of(learned.keys, learned.counts, key & learned.mask)
    _set_chains(state.chains, int(state.rows[slot].entry), learned.counts, learned.factors, at)


@in_place
def _restore(head: Records, count_key: UInt64s, counts: Ints, keys: UInt64s, values: Ints) -> None:
    for i in range(len(keys)):
        at = place_of(count_key, counts, keys[i])
        count_key[at] = keys[i]
        for s in range(counts.shape[1]):
            counts[at, s] = values[i, s]
    head[0].keys = len(keys)


class CountingPolicy(Policy):
    """A policy whose credits follow from counts, so that rows are saved without credits."""

    alike = True

    def save(self, learned: KeyCounts, write: Writer) -> Facts:
        """Write the counts in ascending order of keys."""
        used = np.zeros(len(learned.counts), np.bool_)
        for s in range(learned.counts.shape[1]):  # 5 times as fast as any(axis=1)
            used |= learned.counts[:, s] != 0
        at = np.flatnonzero(used)
        at = at[np.argsort(learned.keys[at])]
        write.rising(learned.keys[at])
        for s in range(learned.counts.shape[1]):
            write.sparse(learned.counts[at, s])
        head = learned.head[0]
        return {name: int(head[name]) for name in ("time", "looked", "noted")}

    def load(self, learned: KeyCounts, facts: Facts, read: Reader) -> KeyCounts:
        keys = read.rising(np.uint64)
        counts = [read.sparse() for _ in range(learned.counts.shape[1])]
        require({len(a) for a in counts} == {len(keys)} and 2 * len(keys) <= len(learned.keys), "its counts")
        for name in ("time", "looked", "noted"):
            learned.head[name] = int(facts[name])
        _restore(learned.head, learned.keys, learned.counts, keys, np.stack(counts, axis=1))
        return learned

    def save_credits(self, learned: KeyCounts, rows: Stored, credits: Reals, write: Writer) -> None:
        """Write the credits that differ from the counts: of keys that share their bits with another key."""
        other = np.flatnonzero(credits != worth_of_rows(learned, rows.keys, rows.streams))
        write.rising(other)
        write.reals(credits[other])

    def load_credits(self, learned: KeyCounts, rows: Stored, read: Reader) -> Reals:
        """Return the credits from the counts, except for the written ones."""
        other, written = read.rising(np.int64), read.reals()
        credits = worth_of_rows(learned, rows.keys, rows.streams)
        credits[other] = written
        return credits
