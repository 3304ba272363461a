"""The kernel of a buffer for several joins: one pass over a sequence of rows, each with a key per join.

A stored row is in one chain for each of its joins. A match in any of them raises the row's credit. The row with the
smallest credit is evicted, no matter of which stream or join. Each policy has its own kernel, into which its hooks are
compiled (`braided.eviction.policies.hooks`).

Preconditions: those of `braided.eviction.buffer_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.eviction.heap import heap_push, heap_remove, heap_sink
from braided.eviction.key_index import find_entry, index_append, index_remove, new_entry
from braided.eviction.policies.hooks import GroupHooks
from braided.eviction.records import (
    CHAIN,
    ENTRY,
    HEAP,
    NONE,
    POOL,
    STREAM,
    TOTALS,
    Bytes,
    Ints,
    Links,
    Reals,
    Records,
    UInt64s,
    power_of_two,
)
from braided.eviction.stored_rows import append_newest, free_slot

ROW = np.dtype(
    [
        ("time", np.int64),
        ("row", np.int64),
        ("seq", np.int64),
        ("credit", np.float64),
        ("stream", np.int32),
        ("entry", np.int32),
        ("older", np.int32),
        ("newer", np.int32),
    ]
)
LINK = np.dtype([("entry", np.int32), ("before", np.int32), ("after", np.int32), ("stream", np.int32)])
SETTINGS = np.dtype([("room_bytes", np.int64)])
JOIN = np.dtype([("soonest", np.int64, (2,)), ("latest", np.int64, (2,))])
"""The ages at which a stored row of the left, and of the right, matches."""


Step = Callable[..., tuple[int, int]]


class GroupState(NamedTuple):
    """The state of the buffer without that of its policy; the arrays after `joins` have an axis of joins.

    Names that `State` has too mean the same. All rows are in one pool, and in one chain without gains. The items of the
    heap are rows. The caller sets `sizes`, the bytes of each row by its id; if it is empty, there is no limit in bytes.
    """

    settings: Records
    totals: Records
    pools: Records
    streams: Records
    rows: Records
    heap: Records
    heap_at: Links
    chains: Records
    sizes: Ints
    joins: Records
    keys: UInt64s
    roles: Bytes
    link: Records
    table: Links
    entries: Records
    join_chains: Records
    join_totals: Records


def allocate(capacity: int, streams: int, joins: int) -> GroupState:
    state = GroupState(
        settings=np.zeros(1, SETTINGS),
        totals=np.zeros(1, TOTALS),
        pools=np.zeros(1, POOL),
        streams=np.zeros(streams, STREAM),
        rows=np.zeros(capacity, ROW),
        heap=np.zeros((1, capacity), HEAP),
        heap_at=np.full(capacity, NONE, np.int32),
        chains=np.zeros((1, streams), CHAIN),
        sizes=np.zeros(0, np.int64),
        joins=np.zeros(joins, JOIN),
        keys=np.zeros((capacity, joins), np.uint64),
        roles=np.full((capacity, joins), NONE, np.int8),
        link=np.zeros((joins, capacity), LINK),
        table=np.full((joins, power_of_two(2 * capacity)), NONE, np.int32),
        entries=np.zeros((joins, capacity), ENTRY),
        join_chains=np.zeros((joins, capacity, 2), CHAIN),
        join_totals=np.zeros((joins, 1), TOTALS),
    )
    state.streams["first"] = state.streams["last"] = NONE
    state.totals["at_stream"] = state.totals["at_slot"] = NONE
    state.join_chains["first"] = state.join_chains["last"] = NONE
    state.rows["entry"] = NONE
    state.rows["newer"][:-1] = np.arange(1, capacity)
    state.rows["newer"][-1] = NONE
    state.entries["rows"][:, :-1] = np.arange(1, capacity)
    state.entries["rows"][:, -1] = NONE
    return state


@in_place
def remove(state: GroupState, slot: int) -> None:
    rows, streams, totals = state.rows, state.streams, state.totals
    heap_remove(state.heap, state.heap_at, 0, totals[0].rows, slot)
    for j in range(len(state.joins)):
        if state.roles[slot, j] >= 0:
            index_remove(
                state.table[j], state.link[j], state.entries[j], state.join_chains[j], state.join_totals[j], slot
            )
    free_slot(rows, streams, totals, slot)
    totals[0].rows -= 1
    state.pools[0].rows -= 1
    if len(state.sizes):
        totals[0].bytes -= state.sizes[rows[slot].row]


@in_place
def insert(state: GroupState, keys: UInt64s, roles: Bytes, time: int, stream: int, id_: int, credit: float) -> None:
    """Put a row into a free slot; there must be one."""
    rows, streams, totals = state.rows, state.streams, state.totals
    slot = int(totals[0].free_row)
    row = rows[slot]
    totals[0].free_row = row.newer
    row.time, row.stream, row.row, row.credit, row.entry = time, stream, id_, credit, 0
    row.seq = totals[0].seq
    totals[0].seq += 1
    append_newest(rows, streams, slot, stream)
    heap_push(state.heap, state.heap_at, 0, totals[0].rows, credit, row.seq, slot)
    totals[0].rows += 1
    state.pools[0].rows += 1
    if len(state.sizes):
        totals[0].bytes += state.sizes[id_]
    for j in range(len(state.joins)):
        state.keys[slot, j] = keys[j]
        state.roles[slot, j] = roles[j]
        if roles[j] >= 0:
            table, entries, chains = state.table[j], state.entries[j], state.join_chains[j]
            entry = find_entry(table, entries, keys[j])
            if entry < 0:
                entry = new_entry(table, entries, chains, state.join_totals[j], keys[j])
            state.link[j][slot].stream = roles[j]
            index_append(state.link[j], entries, chains, entry, slot)


@in_place
def least_row(state: GroupState) -> int:
    """Return the slot with the smallest (credit, seq). Credits in the heap may be too low, except at the top."""
    heap, rows = state.heap, state.rows
    while True:
        slot = int(heap[0, 0].item)
        if rows[slot].credit == heap[0, 0].credit:
            return slot
        heap_sink(heap, state.heap_at, 0, state.totals[0].rows, rows[slot].credit, rows[slot].seq)


@cache
def kernel_of(hooks: GroupHooks) -> Step:
    """Return the kernel of a policy, compiled on its first call."""
    matched, arrived, newcomer = hooks

    @in_place
    def step(
        state: GroupState,
        learned: Any,
        keys: UInt64s,
        roles: Bytes,
        times: Ints,
        event_streams: Bytes,
        contents: UInt64s,
        ids: Ints,
        start: int,
        pair_event: Ints,
        pair_join: Bytes,
        pair_row: Ints,
    ) -> tuple[int, int]:
        """Process rows from `start` until the end or until the outputs are full.

        Returns the first unfinished row and the number of written pairs. If it stops among the matches of a row, the
        next call continues there.
        """
        totals, rows, streams = state.totals, state.rows, state.streams
        capacity = len(rows)
        pairs = 0
        for i in range(start, len(times)):
            time, s = times[i], int(event_streams[i])
            if totals[0].at_stream < 0:  # the last call did not stop among its matches
                for q in range(len(streams)):
                    while streams[q].first >= 0 and time - rows[streams[q].first].time > streams[q].retention:
                        remove(state, int(streams[q].first))
                        totals[0].expired += 1
            resumed = int(totals[0].at_stream)
            for j in range(max(0, resumed), len(state.joins)):
                if roles[i, j] < 0:
                    continue
                other = 1 - int(roles[i, j])
                if j == resumed:
                    slot = int(totals[0].at_slot)
                else:
                    entry = find_entry(state.table[j], state.entries[j], keys[i, j])
                    slot = int(state.join_chains[j][entry, other].last) if entry >= 0 else NONE
                soonest, latest = state.joins[j].soonest[other], state.joins[j].latest[other]
                while slot >= 0:
                    age = time - rows[slot].time
                    if age > latest:
                        break  # from the newest back: the rest is older
                    if age >= soonest:
                        if pairs == len(pair_row):
                            totals[0].at_stream = j
                            totals[0].at_slot = slot
                            return i, pairs
                        pair_event[pairs], pair_join[pairs], pair_row[pairs] = i, j, rows[slot].row
                        pairs += 1
                        totals[0].pairs += 1
                        matched(state, learned, slot)
                    slot = int(state.link[j][slot].before)
            totals[0].at_stream = totals[0].at_slot = NONE
            arrived(state, learned, keys[i], roles[i])
            credit, bar = newcomer(state, learned, keys[i], roles[i], contents[i])
            size = state.sizes[ids[i]] if len(state.sizes) else 0
            most = state.settings[0].room_bytes if len(state.sizes) else size
            stored = streams[s].retention >= 0 and size <= most
            while stored and (totals[0].rows == capacity or totals[0].bytes + size > most):
                victim = least_row(state)
                if state.heap[0, 0].credit > bar:
                    stored = False
                else:
                    remove(state, victim)
                    totals[0].evicted += 1
            if stored:
                insert(state, keys[i], roles[i], time, s, ids[i], credit)
            elif size > most:
                totals[0].too_large += 1
            else:
                totals[0].refused += 1
            totals[0].events += 1
        return len(times), pairs

    return step


@in_place
def fill(
    state: GroupState, keys: UInt64s, roles: Bytes, times: Ints, streams: Bytes, ids: Ints, credits: Reals
) -> None:
    """Insert rows with their credits, oldest first, into an empty state."""
    for i in range(len(times)):
        insert(state, keys[i], roles[i], times[i], int(streams[i]), ids[i], credits[i])
