"""Rows come into a buffer and leave it: slots, the streams' order of age, heap and index in one step each."""

from __future__ import annotations

import numpy as np

from braided.buffers.heap import BEHIND, current_credit, heap_push, heap_raise, heap_remove
from braided.buffers.index import find_entry, index_append, index_remove, new_entry
from braided.buffers.records import NONE, Bytes, Ints, Reals, Records, State, Words
from braided.compiled import in_place


@in_place
def pool_of(pools: Records, stream: int) -> int:
    """Return the pool that rows of a stream compete in."""
    return stream if len(pools) > 1 else 0


@in_place
def remove_row(state: State, slot: int) -> None:
    """Take a row out of the buffer."""
    totals, pools, streams, rows, sizes = state.totals, state.pools, state.streams, state.rows, state.sizes
    s = int(rows[slot].stream)
    pool = pool_of(pools, s)
    heap_remove(state.heap, state.heap_at, pool, pools[pool].rows, slot)
    after = rows[slot].after if totals[0].alike and rows[slot].before < 0 else NONE
    index_remove(state.table, rows, state.entries, state.chains, totals, slot)
    if after >= 0:
        credit = current_credit(rows, state.chains, after)
        heap_raise(state.heap, state.heap_at, pool, credit, rows[after].seq, after)
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


@in_place
def insert_row(state: State, key: np.uint64, time: int, stream: int, id_: int, credit: float) -> int:
    """Put a row into a free slot, of which there must be one, and return it."""
    totals, pools, streams, rows, sizes = state.totals, state.pools, state.streams, state.rows, state.sizes
    entries, chains = state.entries, state.chains
    slot = totals[0].free_row
    row = rows[slot]
    totals[0].free_row = row.newer
    entry = find_entry(state.table, entries, key)
    if entry < 0:
        entry = new_entry(state.table, entries, chains, totals, key)
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
    heap_push(state.heap, state.heap_at, pool, pools[pool].rows, standing, row.seq, slot)
    index_append(rows, entries, chains, entry, slot)
    pools[pool].rows += 1
    if len(sizes):
        pools[pool].bytes += sizes[id_]
        totals[0].bytes += sizes[id_]
    totals[0].rows += 1
    return int(slot)


@in_place
def fill_rows(state: State, keys: Words, times: Ints, streams: Bytes, ids: Ints, credits: Reals) -> None:
    """Put rows, oldest first, with their credits into an empty buffer."""
    for i in range(len(keys)):
        s = int(streams[i])
        slot = insert_row(state, keys[i], times[i], s, ids[i], credits[i])
        if state.totals[0].alike:
            state.rows[slot].credit = 0.0
            state.chains[state.rows[slot].entry, s].gained = credits[i]


def slots_by_age(state: State) -> Ints:
    """Return the slots of the stored rows, oldest first."""
    parts = [state.heap[p, : pool["rows"]]["slot"] for p, pool in enumerate(state.pools)]
    slots = np.concatenate(parts)
    return slots[np.argsort(state.rows["seq"][slots])]
