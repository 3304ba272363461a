"""Insert and remove rows of a buffer: each updates the slots, the order by age of the streams, the heap and the index.

The row with the smallest credit is found in two steps: the heap has the chains by their least row, and each chain has
its rows by credit (`order`). Credits only rise, so a chain's credit in the heap may be too low. Therefore a match or a
removed row costs nothing there until the chain is on top.

If all rows of one key and stream have the same credit (`totals.alike`, PROB), the least row of a chain is its oldest.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import in_place, inlined
from braided.eviction.heap import heap_lower, heap_push, heap_remove, heap_sink
from braided.eviction.key_index import find_entry, index_append, index_remove, new_entry
from braided.eviction.order import order_add, order_least, order_remove
from braided.eviction.records import NONE, Bytes, Ints, Reals, Records, State, UInt64s


@in_place
def pool_of(pools: Records, stream: int) -> int:
    """Return the pool in which the rows of a stream compete."""
    return stream if len(pools) > 1 else 0


@in_place
def current_credit(rows: Records, chains: Records, slot: int) -> float:
    """Return a row's current credit, without the decay of the pool."""
    row = rows[slot]
    return float(row.credit + chains[row.entry, row.stream].gained)


@inlined
def least_row(state: State, pool: int) -> int:
    """Return the slot with the smallest (credit, seq) in a pool with rows; the top of the heap is current then."""
    heap, chain_list, rows, order = state.heap, state.chain_list, state.rows, state.order
    while True:
        top = heap[pool, 0]
        chain = chain_list[top.item]
        slot = order_least(order, rows, int(chain.least))
        chain.least = slot
        credit, seq = rows[slot].credit + chain.gained, order[slot].seq
        if credit == top.credit and seq == top.seq:
            return slot
        heap_sink(heap, state.heap_at, pool, state.pools[pool].chains, credit, seq)


@inlined
def free_slot(rows: Records, streams: Records, totals: Records, slot: int) -> None:
    """Remove a row from its stream's order by age, and add its slot to the free slots."""
    older, newer, s = rows[slot].older, rows[slot].newer, int(rows[slot].stream)
    if older < 0:
        streams[s].first = newer
    else:
        rows[older].newer = newer
    if newer < 0:
        streams[s].last = older
    else:
        rows[newer].older = older
    rows[slot].entry = NONE
    rows[slot].newer = totals[0].free_row
    totals[0].free_row = slot


@inlined
def append_newest(rows: Records, streams: Records, slot: int, stream: int) -> None:
    """Link a row as the newest of its stream."""
    last = streams[stream].last
    rows[slot].older, rows[slot].newer = last, NONE
    if last < 0:
        streams[stream].first = slot
    else:
        rows[last].newer = slot
    streams[stream].last = slot


@inlined
def remove_row(state: State, slot: int) -> None:
    totals, pools, streams, rows, sizes = state.totals, state.pools, state.streams, state.rows, state.sizes
    entry, s = int(rows[slot].entry), int(rows[slot].stream)
    pool = pool_of(pools, s)
    chain = state.chains[entry, s]
    if not totals[0].alike:
        chain.least = order_remove(state.order, int(chain.least), slot)
    index_remove(state.table, rows, state.entries, state.chains, totals, slot)
    if totals[0].alike:
        chain.least = chain.first
    if chain.first < 0:
        heap_remove(state.heap, state.heap_at, pool, pools[pool].chains, entry * len(streams) + s)
        pools[pool].chains -= 1
    free_slot(rows, streams, totals, slot)
    pools[pool].rows -= 1
    if len(sizes):
        pools[pool].bytes -= sizes[rows[slot].row]
        totals[0].bytes -= sizes[rows[slot].row]
    totals[0].rows -= 1


@inlined
def insert_row(state: State, key: np.uint64, time: int, stream: int, id_: int, credit: float) -> int:
    """Put a row into a free slot, and return the slot; there must be one."""
    totals, pools, streams, rows, sizes = state.totals, state.pools, state.streams, state.rows, state.sizes
    entries, chains = state.entries, state.chains
    slot = int(totals[0].free_row)
    row = rows[slot]
    totals[0].free_row = row.newer
    entry = find_entry(state.table, entries, key)
    if entry < 0:
        entry = new_entry(state.table, entries, chains, totals, key)
    chain = chains[entry, stream]
    seq = totals[0].seq
    totals[0].seq += 1
    row.time, row.stream, row.row = time, stream, id_
    row.credit = 0.0 if totals[0].alike else credit - chain.gained
    append_newest(rows, streams, slot, stream)
    pool, item = pool_of(pools, stream), entry * len(streams) + stream
    if chain.first < 0:
        chain.least = order_add(state.order, NONE, slot, row.credit, seq)
        heap_push(state.heap, state.heap_at, pool, pools[pool].chains, credit, seq, item)
        pools[pool].chains += 1
    elif totals[0].alike:
        order_add(state.order, NONE, slot, row.credit, seq)
    else:
        chain.least = order_add(state.order, int(chain.least), slot, row.credit, seq)
        heap_lower(state.heap, state.heap_at, pool, credit, seq, item)
    index_append(rows, entries, chains, entry, slot)
    pools[pool].rows += 1
    if len(sizes):
        pools[pool].bytes += sizes[id_]
        totals[0].bytes += sizes[id_]
    totals[0].rows += 1
    return slot


@in_place
def fill_rows(state: State, keys: UInt64s, times: Ints, streams: Bytes, ids: Ints, credits: Reals) -> None:
    """Insert rows with their credits, oldest first, into an empty buffer."""
    for i in range(len(keys)):
        s = int(streams[i])
        slot = insert_row(state, keys[i], times[i], s, ids[i], credits[i])
        if state.totals[0].alike:
            state.chains[state.rows[slot].entry, s].gained = credits[i]


def slots_by_age(state: State) -> Ints:
    slots = np.flatnonzero(state.rows["entry"] >= 0)
    return slots[np.argsort(state.order["seq"][slots])]


def row_keys(state: State, slots: Ints) -> UInt64s:
    keys: UInt64s = state.entries["key"][state.rows["entry"][slots]]
    return keys
