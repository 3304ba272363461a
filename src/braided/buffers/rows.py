"""Rows come into a buffer and leave it: slots, the streams' order of age, heap and index in one step each."""

from __future__ import annotations

import numpy as np

from braided.buffers.heap import BEHIND, current_credit, heap_push, heap_raise, heap_remove
from braided.buffers.index import find_entry, index_append, index_remove, new_entry
from braided.buffers.records import NONE, Ints, Links, Records
from braided.compiled import compiled


@compiled
def pool_of(pools: Records, stream: int) -> int:
    """Return the pool that rows of a stream compete in."""
    return stream if len(pools) > 1 else 0


@compiled
def remove_row(
    totals: Records,
    pools: Records,
    streams: Records,
    rows: Records,
    heap: Records,
    heap_at: Links,
    table: Links,
    entries: Records,
    chains: Records,
    sizes: Ints,
    slot: int,
) -> None:
    """Take a row out of the buffer."""
    s = int(rows[slot].stream)
    pool = pool_of(pools, s)
    heap_remove(heap, heap_at, pool, pools[pool].rows, slot)
    after = rows[slot].after if totals[0].alike and rows[slot].before < 0 else NONE
    index_remove(table, rows, entries, chains, totals, slot)
    if after >= 0:
        heap_raise(heap, heap_at, pool, current_credit(rows, chains, after), rows[after].seq, after)
    older, newer = rows[slot].older, rows[slot].newer
    if older < 0:
        streams[s].first = newer
    else:
        rows[older].newer = newer
    if newer < 0:
        streams[s].last = older
    else:
        rows[newer].older = older
    rows[slot].newer = totals[0].free_row
    totals[0].free_row = slot
    pools[pool].rows -= 1
    if len(sizes):
        pools[pool].bytes -= sizes[rows[slot].row]
        totals[0].bytes -= sizes[rows[slot].row]
    totals[0].rows -= 1


@compiled
def insert_row(
    totals: Records,
    pools: Records,
    streams: Records,
    rows: Records,
    heap: Records,
    heap_at: Links,
    table: Links,
    entries: Records,
    chains: Records,
    sizes: Ints,
    key: np.uint64,
    time: int,
    stream: int,
    id_: int,
    credit: float,
) -> int:
    """Put a row into a free slot, of which there must be one, and return it."""
    slot = totals[0].free_row
    row = rows[slot]
    totals[0].free_row = row.newer
    entry = find_entry(table, entries, key)
    if entry < 0:
        entry = new_entry(table, entries, chains, totals, key)
    row.key, row.time, row.stream, row.row = key, time, stream, id_
    row.credit = credit - chains[entry, stream].gained
    row.seq = totals[0].seq
    totals[0].seq += 1
    last = streams[stream].last
    row.older, row.newer = last, NONE
    if last < 0:
        streams[stream].first = slot
    else:
        rows[last].newer = slot
    streams[stream].last = slot
    pool = pool_of(pools, stream)
    standing = BEHIND if totals[0].alike and chains[entry, stream].first >= 0 else credit
    heap_push(heap, heap_at, pool, pools[pool].rows, standing, row.seq, slot)
    index_append(rows, entries, chains, entry, slot)
    pools[pool].rows += 1
    if len(sizes):
        pools[pool].bytes += sizes[id_]
        totals[0].bytes += sizes[id_]
    totals[0].rows += 1
    return int(slot)
