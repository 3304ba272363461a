"""The index of stored rows: key -> one chain of slots per stream, oldest first.

It uses open addressing with linear probing, with at least twice the capacity. When a key is removed, the keys after it
are moved back, so the table has no tombstones.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import in_place
from braided.eviction.records import NONE, Links, Records

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads keys that differ in few bits


@in_place
def home(key: np.uint64, size: int) -> int:
    """Return where probing for a key starts in a table of `size`, a power of two."""
    return int(np.int64((key * _SPREAD) >> np.uint64(32))) & (size - 1)


@in_place
def find_entry(table: Links, entries: Records, key: np.uint64) -> int:
    """Return the entry of a key, or NONE."""
    size = len(table)
    at = home(key, size)
    while True:
        entry = table[at]
        if entry < 0 or entries[entry].key == key:
            return int(entry)
        at = (at + 1) & (size - 1)


@in_place
def new_entry(table: Links, entries: Records, chains: Records, totals: Records, key: np.uint64) -> int:
    """Return a new entry with empty chains for a key that has no entry."""
    entry = totals[0].free_entry
    totals[0].free_entry = entries[entry].rows
    entries[entry].rows = 0
    entries[entry].key = key
    for s in range(chains.shape[1]):
        chains[entry, s].gained = 0.0
    size = len(table)
    at = home(key, size)
    while table[at] >= 0:
        at = (at + 1) & (size - 1)
    table[at] = entry
    return int(entry)


@in_place
def _drop_entry(table: Links, entries: Records, totals: Records, entry: int) -> None:
    size = len(table)
    at = home(entries[entry].key, size)
    while table[at] != entry:
        at = (at + 1) & (size - 1)
    hole = at
    while True:
        at = (at + 1) & (size - 1)
        other = table[at]
        if other < 0:
            break
        # It may move into the hole unless its own home is after the hole.
        if ((at - home(entries[other].key, size)) & (size - 1)) >= ((at - hole) & (size - 1)):
            table[hole] = other
            hole = at
    table[hole] = NONE
    entries[entry].rows = totals[0].free_entry
    totals[0].free_entry = entry


@in_place
def index_append(rows: Records, entries: Records, chains: Records, entry: int, slot: int) -> None:
    """Append a row to the chain of its entry and stream."""
    chain = chains[entry, rows[slot].stream]
    rows[slot].entry = entry
    rows[slot].before = chain.last
    rows[slot].after = NONE
    if chain.last < 0:
        chain.first = slot
    else:
        rows[chain.last].after = slot
    chain.last = slot
    chain.rows += 1
    entries[entry].rows += 1


@in_place
def index_remove(table: Links, rows: Records, entries: Records, chains: Records, totals: Records, slot: int) -> None:
    """Remove a row from its chain; with the last row of a key, remove the key from the index."""
    entry = rows[slot].entry
    chain = chains[entry, rows[slot].stream]
    before, after = rows[slot].before, rows[slot].after
    if before < 0:
        chain.first = after
    else:
        rows[before].after = after
    if after < 0:
        chain.last = before
    else:
        rows[after].before = before
    chain.rows -= 1
    entries[entry].rows -= 1
    if entries[entry].rows == 0:
        _drop_entry(table, entries, totals, entry)
