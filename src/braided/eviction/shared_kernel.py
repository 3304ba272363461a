"""The kernel of a buffer whose memory several joins share by their average credits (section 4.3, the coarser way).

Every join has a GDJ of its own over the rows that it keeps: credits, a heap, the rows of each stream in order of age. A
row is stored once, for as long as some join keeps it, and the memory that it takes is counted to those joins in equal
parts. Where memory is wanted, the join that is furthest above its share gives up its row of smallest credit.

A join's share follows the results that a row of it was part of since it was stored, on average over its rows. These are
credits without what newcomers start with: that rises without end, and what all rows have more decides nothing.

Preconditions: as of `braided.eviction.buffer_kernel`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.eviction.group_kernel import JOIN, SETTINGS
from braided.eviction.heap import heap_push, heap_remove, heap_sink
from braided.eviction.key_index import find_entry, index_append, index_remove, new_entry
from braided.eviction.policies.gdj import Credits, gain_of, initial_credit, look_at
from braided.eviction.records import (
    CHAIN,
    ENTRY,
    HEAP,
    NONE,
    TOTALS,
    Bytes,
    Ints,
    Links,
    Reals,
    Records,
    UInt64s,
    power_of_two,
)

ROW = np.dtype([("time", np.int64), ("row", np.int64), ("seq", np.int64), ("stream", np.int32), ("keepers", np.int32)])
"""A free row has no keepers, and names the next free one as `row`."""
LINK = np.dtype([(name, np.int32) for name in ("entry", "before", "after", "stream", "older", "newer")])
AGES = np.dtype([("first", np.int32), ("last", np.int32)])

LEAST_SHARE = 1 / 16
"""The part of the memory that is divided evenly, so that a join without results can find some again."""

_FRACTION = 1048576.0  # shares are multiples of 2**-20, so that which join is furthest above its share is exact


class SharedState(NamedTuple):
    """Everything the buffer remembers but what GDJ has learned; arrays with an axis of joins come after `joins`.

    What is named as in `GroupState` means the same. `roles` are those in the joins that keep a row, and NONE in others.
    `ages` has the rows of each join and role in order of time. `used` is the memory of each join in parts of a row (or
    of a byte) that every number of keepers divides; `whole` of them are one.
    `shares` add up to about 1.
    """

    settings: Records
    totals: Records
    rows: Records
    sizes: Ints
    whole: int
    joins: Records
    keys: UInt64s
    roles: Bytes
    credits: Reals
    started: Reals
    used: Ints
    shares: Reals
    link: Records
    ages: Records
    heap: Records
    heap_at: Links
    table: Links
    entries: Records
    join_chains: Records
    join_totals: Records


def allocate(capacity: int, joins: int) -> SharedState:
    state = SharedState(
        settings=np.zeros(1, SETTINGS),
        totals=np.zeros(1, TOTALS),
        rows=np.zeros(capacity, ROW),
        sizes=np.zeros(0, np.int64),
        whole=int(np.lcm.reduce(np.arange(1, joins + 1))),
        joins=np.zeros(joins, JOIN),
        keys=np.zeros((capacity, joins), np.uint64),
        roles=np.full((capacity, joins), NONE, np.int8),
        credits=np.zeros((capacity, joins), np.float64),
        started=np.zeros((capacity, joins), np.float64),
        used=np.zeros(joins, np.int64),
        shares=np.full(joins, 1 / joins, np.float64),
        link=np.zeros((joins, capacity), LINK),
        ages=np.zeros((joins, 2), AGES),
        heap=np.zeros((joins, capacity), HEAP),
        heap_at=np.full((joins, capacity), NONE, np.int32),
        table=np.full((joins, power_of_two(2 * capacity)), NONE, np.int32),
        entries=np.zeros((joins, capacity), ENTRY),
        join_chains=np.zeros((joins, capacity, 2), CHAIN),
        join_totals=np.zeros((joins, 1), TOTALS),
    )
    state.totals["at_stream"] = state.totals["at_slot"] = NONE
    state.join_chains["first"] = state.join_chains["last"] = NONE
    state.ages["first"] = state.ages["last"] = NONE
    for free in (state.rows["row"], state.entries["rows"]):
        free[..., :-1] = np.arange(1, capacity)
        free[..., -1] = NONE
    return state


@in_place
def weight_of(state: SharedState, id_: int) -> int:
    """Return the memory of a row in parts: of its bytes where the budget is in bytes, else of a row."""
    return state.whole * (int(state.sizes[id_]) if len(state.sizes) else 1)


@in_place
def _append_age(state: SharedState, join: int, slot: int, role: int) -> None:
    link, ages = state.link[join], state.ages[join]
    last = ages[role].last
    link[slot].older, link[slot].newer = last, NONE
    if last < 0:
        ages[role].first = slot
    else:
        link[last].newer = slot
    ages[role].last = slot


@in_place
def _remove_age(state: SharedState, join: int, slot: int) -> None:
    link, ages, role = state.link[join], state.ages[join], state.link[join][slot].stream
    older, newer = link[slot].older, link[slot].newer
    if older < 0:
        ages[role].first = newer
    else:
        link[older].newer = newer
    if newer < 0:
        ages[role].last = older
    else:
        link[newer].older = older


@in_place
def give_up(state: SharedState, join: int, slot: int) -> bool:
    """Let a join no longer keep a row; return whether no other one does, so that its memory is free."""
    rows, totals = state.rows, state.totals
    total = state.join_totals[join]
    heap_remove(state.heap, state.heap_at[join], join, total[0].rows, slot)
    index_remove(state.table[join], state.link[join], state.entries[join], state.join_chains[join], total, slot)
    _remove_age(state, join, slot)
    total[0].rows -= 1
    weight, keepers = weight_of(state, int(rows[slot].row)), int(rows[slot].keepers)
    state.used[join] -= weight // keepers
    state.roles[slot, join] = NONE
    rows[slot].keepers = keepers - 1
    if keepers > 1:
        for other in range(len(state.joins)):
            if state.roles[slot, other] >= 0:
                state.used[other] += weight // (keepers - 1) - weight // keepers
        return False
    totals[0].rows -= 1
    if len(state.sizes):
        totals[0].bytes -= state.sizes[rows[slot].row]
    rows[slot].row = totals[0].free_row
    totals[0].free_row = slot
    return True


@in_place
def insert(
    state: SharedState,
    keys: UInt64s,
    roles: Bytes,
    time: int,
    stream: int,
    id_: int,
    keepers: int,
    credits: Reals,
    started: Reals,
) -> None:
    """Put a row into a free slot, of which there must be one, for the joins in which it has a role."""
    rows, totals = state.rows, state.totals
    slot = int(totals[0].free_row)
    totals[0].free_row = rows[slot].row
    rows[slot].time, rows[slot].stream, rows[slot].row, rows[slot].keepers = time, stream, id_, keepers
    rows[slot].seq = totals[0].seq
    totals[0].seq += 1
    totals[0].rows += 1
    if len(state.sizes):
        totals[0].bytes += state.sizes[id_]
    part = weight_of(state, id_) // keepers
    for j in range(len(state.joins)):
        state.roles[slot, j] = roles[j]
        if roles[j] < 0:
            continue
        state.keys[slot, j], state.credits[slot, j], state.started[slot, j] = keys[j], credits[j], started[j]
        total, table, entries, chains = state.join_totals[j], state.table[j], state.entries[j], state.join_chains[j]
        heap_push(state.heap, state.heap_at[j], j, total[0].rows, credits[j], rows[slot].seq, slot)
        entry = find_entry(table, entries, keys[j])
        if entry < 0:
            entry = new_entry(table, entries, chains, total, keys[j])
        state.link[j][slot].stream = roles[j]
        index_append(state.link[j], entries, chains, entry, slot)
        _append_age(state, j, slot, int(roles[j]))
        total[0].rows += 1
        state.used[j] += part


@in_place
def least_row(state: SharedState, join: int) -> int:
    """Return the slot of smallest (credit, seq) of a join; credits in the heap may lag behind, but that of the top."""
    heap, rows = state.heap, state.rows
    while True:
        slot = int(heap[join, 0].item)
        if state.credits[slot, join] == heap[join, 0].credit:
            return slot
        size = state.join_totals[join][0].rows
        heap_sink(heap, state.heap_at[join], join, size, state.credits[slot, join], rows[slot].seq)


@in_place
def furthest_above(state: SharedState, roles: Bytes, keepers: int, weight: int) -> int:
    """Return which join with rows is furthest above its share, once it keeps a newcomer with these roles too."""
    total = weight
    for j in range(len(state.joins)):
        total += state.used[j]
    worst, most = NONE, 0.0
    for j in range(len(state.joins)):
        mine = state.used[j] + (weight // keepers if roles[j] >= 0 else 0)
        above = float(mine) - state.shares[j] * float(total)
        if state.join_totals[j][0].rows > 0 and (worst < 0 or above > most):
            worst, most = j, above
    return worst


@in_place
def share_out(state: SharedState, learned: Credits) -> None:
    """Look at the credits of all joins: what newcomers start with, and the share of each."""
    joins = len(state.joins)
    together = 0.0
    for j in range(joins):
        n, gained = 0, 0.0
        for slot in range(len(state.rows)):
            if state.roles[slot, j] >= 0:
                gained += state.credits[slot, j] - state.started[slot, j]
                if learned.snapshot.shape[1] > 0:
                    learned.snapshot[j, n] = state.credits[slot, j]
                n += 1
        if learned.snapshot.shape[1] > 0:
            look_at(learned, j, n)
        state.shares[j] = gained / n if n > 0 else 0.0
        together += state.shares[j]
    for j in range(joins):
        part = state.shares[j] / together if together > 0.0 else 1.0 / joins
        share = LEAST_SHARE / joins + (1.0 - LEAST_SHARE) * part
        state.shares[j] = np.floor(share * _FRACTION + 0.5) / _FRACTION


@in_place
def step(
    state: SharedState,
    learned: Credits,
    keys: UInt64s,
    roles: Bytes,
    times: Ints,
    event_streams: Bytes,
    ids: Ints,
    start: int,
    pair_event: Ints,
    pair_join: Bytes,
    pair_row: Ints,
    kept: Bytes,
    credits: Reals,
) -> tuple[int, int]:
    """Process rows from `start` until the end or until the outputs are full; `kept` and `credits` are room to work in.

    Returns the first row not finished and the pairs written. Stopped among the matches of a row, it goes on there.
    """
    totals, rows, joins = state.totals, state.rows, len(state.joins)
    pairs = 0
    for i in range(start, len(times)):
        time = times[i]
        if totals[0].at_stream < 0:  # not stopped among its matches
            for j in range(joins):
                for role in range(2):
                    while state.ages[j, role].first >= 0:
                        slot = int(state.ages[j, role].first)
                        if time - rows[slot].time <= state.joins[j].latest[role]:
                            break
                        totals[0].expired += give_up(state, j, slot)
        resumed = int(totals[0].at_stream)
        for j in range(max(0, resumed), joins):
            if roles[i, j] < 0:
                continue
            other = 1 - int(roles[i, j])
            if j == resumed:
                slot = int(totals[0].at_slot)
            else:
                entry = find_entry(state.table[j], state.entries[j], keys[i, j])
                slot = int(state.join_chains[j][entry, other].first) if entry >= 0 else NONE
            while slot >= 0:
                if time - rows[slot].time < state.joins[j].soonest[other]:
                    break  # from the oldest on: the rest is younger still
                if pairs == len(pair_row):
                    totals[0].at_stream = j
                    totals[0].at_slot = slot
                    return i, pairs
                pair_event[pairs], pair_join[pairs], pair_row[pairs] = i, j, rows[slot].row
                pairs += 1
                totals[0].pairs += 1
                state.credits[slot, j] += gain_of(learned, j, state.credits[slot, j])
                slot = int(state.link[j][slot].after)
        totals[0].at_stream = totals[0].at_slot = NONE
        if totals[0].events % learned.refresh == 0:
            share_out(state, learned)
        keepers = 0
        for j in range(joins):
            kept[j] = NONE
            if roles[i, j] >= 0 and state.joins[j].latest[int(roles[i, j])] >= 0:
                kept[j] = roles[i, j]
                keepers += 1
            credits[j] = initial_credit(learned, j)
        size = state.sizes[ids[i]] if len(state.sizes) else 0
        most = state.settings[0].room_bytes if len(state.sizes) else size
        if size > most:
            totals[0].too_large += 1
        elif keepers == 0:
            totals[0].refused += 1
        else:
            while totals[0].rows == len(rows) or totals[0].bytes + size > most:
                join = furthest_above(state, kept, keepers, weight_of(state, ids[i]))
                totals[0].evicted += give_up(state, join, least_row(state, join))
            insert(state, keys[i], kept, time, int(event_streams[i]), ids[i], keepers, credits, credits)
        totals[0].events += 1
    return len(times), pairs


@in_place
def fill(
    state: SharedState,
    keys: UInt64s,
    roles: Bytes,
    times: Ints,
    streams: Bytes,
    ids: Ints,
    credits: Reals,
    started: Reals,
) -> None:
    """Put rows, oldest first, with their credits into an empty state."""
    for i in range(len(times)):
        keepers = 0
        for j in range(len(state.joins)):
            keepers += roles[i, j] >= 0
        insert(state, keys[i], roles[i], times[i], int(streams[i]), ids[i], keepers, credits[i], started[i])
