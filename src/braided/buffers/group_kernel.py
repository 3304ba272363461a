"""The kernel of a buffer that serves several joins: one pass over a sequence of rows, each with a key per join.

A stored row is in one chain per join that it serves. A match in any of them raises its one credit, and the row of
smallest credit gives way, whichever streams and joins are concerned.

Preconditions: as of `braided.buffers.kernel`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from braided.buffers.heap import heap_push, heap_remove, heap_top
from braided.buffers.index import find_entry, index_append, index_remove, new_entry
from braided.buffers.policies.counts import count_occurrence, count_of
from braided.buffers.policies.percentiles import percentile_index, select
from braided.buffers.records import (
    CHAIN,
    ENTRY,
    GDJ,
    HEAP,
    NONE,
    PROB,
    RANDOM,
    ROW,
    SKETCH_ROWS,
    STREAM,
    TOTALS,
    Bytes,
    Ints,
    Links,
    Reals,
    Records,
    Words,
    power_of_two,
)
from braided.compiled import compiled
from braided.routing.kernels import mix

LINK = np.dtype([("entry", np.int32), ("before", np.int32), ("after", np.int32), ("stream", np.int32)])
SETTINGS = np.dtype(
    [
        ("policy", np.int64),
        ("rewards", np.int64),
        ("by_percentile", np.int64),
        ("refresh", np.int64),
        ("seed", np.uint64),
        ("room_bytes", np.int64),
        ("percentile", np.float64),
        ("initial", np.float64),
    ]
)
JOIN = np.dtype([("soonest", np.int64, (2,)), ("latest", np.int64, (2,))])
"""The ages at which a stored row of the left, and of the right, matches."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class GroupState(NamedTuple):
    """Everything the buffer remembers; arrays with a first axis of joins have an index for each.

    `sizes` are the bytes of each row by its id, from outside; empty: no limit in bytes.
    """

    settings: Records
    totals: Records
    joins: Records
    streams: Records
    rows: Records
    keys: Words
    roles: Bytes
    heap: Records
    heap_at: Links
    no_chain: Records
    snapshot: Reals
    link: Records
    table: Links
    entries: Records
    chains: Records
    join_totals: Records
    sketch: Ints
    sizes: Ints


def allocate(capacity: int, streams: int, joins: int, *, sketch_width: int) -> GroupState:
    """Return an empty state."""
    state = GroupState(
        settings=np.zeros(1, SETTINGS),
        totals=np.zeros(1, TOTALS),
        joins=np.zeros(joins, JOIN),
        streams=np.zeros(streams, STREAM),
        rows=np.zeros(capacity, ROW),
        keys=np.zeros((capacity, joins), np.uint64),
        roles=np.full((capacity, joins), NONE, np.int8),
        heap=np.zeros((1, capacity), HEAP),
        heap_at=np.full(capacity, NONE, np.int32),
        no_chain=np.zeros((1, streams), CHAIN),
        snapshot=np.zeros(capacity, np.float64),
        link=np.zeros((joins, capacity), LINK),
        table=np.full((joins, power_of_two(2 * capacity)), NONE, np.int32),
        entries=np.zeros((joins, capacity), ENTRY),
        chains=np.zeros((joins, capacity, 2), CHAIN),
        join_totals=np.zeros((joins, 1), TOTALS),
        sketch=np.zeros((joins, 2, SKETCH_ROWS, sketch_width), np.int64),
        sizes=np.zeros(0, np.int64),
    )
    state.streams["first"] = state.streams["last"] = NONE
    state.totals["at_stream"] = state.totals["at_slot"] = NONE
    state.chains["first"] = state.chains["last"] = NONE
    state.rows["newer"][:-1] = np.arange(1, capacity)
    state.rows["newer"][-1] = NONE
    state.entries["rows"][:, :-1] = np.arange(1, capacity)
    state.entries["rows"][:, -1] = NONE
    return state


@compiled
def remove(state: GroupState, slot: int) -> None:
    """Take a row out of the buffer."""
    rows, streams, totals = state.rows, state.streams, state.totals
    heap_remove(state.heap, state.heap_at, 0, totals[0].rows, slot)
    for j in range(len(state.joins)):
        if state.roles[slot, j] >= 0:
            index_remove(state.table[j], state.link[j], state.entries[j], state.chains[j], state.join_totals[j], slot)
    older, newer, s = rows[slot].older, rows[slot].newer, int(rows[slot].stream)
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
    totals[0].rows -= 1
    if len(state.sizes):
        totals[0].bytes -= state.sizes[rows[slot].row]


@compiled
def insert(state: GroupState, keys: Words, roles: Bytes, time: int, stream: int, id_: int, credit: float) -> None:
    """Put a row into a free slot, of which there must be one."""
    rows, streams, totals = state.rows, state.streams, state.totals
    slot = int(totals[0].free_row)
    row = rows[slot]
    totals[0].free_row = row.newer
    row.time, row.stream, row.row, row.credit, row.entry = time, stream, id_, credit, 0
    row.seq = totals[0].seq
    totals[0].seq += 1
    last = streams[stream].last
    row.older, row.newer = last, NONE
    if last < 0:
        streams[stream].first = slot
    else:
        rows[last].newer = slot
    streams[stream].last = slot
    heap_push(state.heap, state.heap_at, 0, totals[0].rows, credit, row.seq, slot)
    totals[0].rows += 1
    if len(state.sizes):
        totals[0].bytes += state.sizes[id_]
    for j in range(len(state.joins)):
        state.keys[slot, j] = keys[j]
        state.roles[slot, j] = roles[j]
        if roles[j] >= 0:
            table, entries, chains = state.table[j], state.entries[j], state.chains[j]
            entry = find_entry(table, entries, keys[j])
            if entry < 0:
                entry = new_entry(table, entries, chains, state.join_totals[j], keys[j])
            state.link[j][slot].stream = roles[j]
            index_append(state.link[j], entries, chains, entry, slot)


@compiled
def _count(state: GroupState, no_keys: Words, no_counts: Ints, j: int, key: np.uint64, role: int) -> None:
    """Count an occurrence for PROB, and raise the credits of the rows that it makes more likely to match."""
    count_occurrence(no_keys, no_counts, state.sketch[j], state.join_totals[j], key, role)
    entry = find_entry(state.table[j], state.entries[j], key)
    if entry >= 0:
        slot = int(state.chains[j][entry, 1 - role].first)
        while slot >= 0:
            state.rows[slot].credit += 1.0
            slot = int(state.link[j][slot].after)


@compiled
def _newcomer(
    state: GroupState, no_keys: Words, no_counts: Ints, keys: Words, roles: Bytes, content: np.uint64
) -> float:
    """Return the credit that a row starts with."""
    settings = state.settings[0]
    if settings.policy == RANDOM:
        return float(mix(content ^ (settings.seed * _SPREAD)) >> np.uint64(11))
    if settings.policy == PROB:
        seen = 0
        for j in range(len(roles)):
            if roles[j] >= 0:
                seen += count_of(no_keys, no_counts, state.sketch[j], keys[j], 1 - int(roles[j]))
        return float(seen)
    return float(settings.initial)


@compiled
def _refresh(state: GroupState) -> None:
    """Take a percentile of the credits as they are now, for newcomers."""
    n = int(state.totals[0].rows)
    for at in range(n):
        state.snapshot[at] = state.rows[state.heap[0, at].slot].credit
    state.settings[0].initial = (
        select(state.snapshot, n, percentile_index(state.settings[0].percentile, n)) if n > 0 else 0.0
    )


@compiled
def step(
    state: GroupState,
    keys: Words,
    roles: Bytes,
    times: Ints,
    event_streams: Bytes,
    contents: Words,
    ids: Ints,
    start: int,
    pair_event: Ints,
    pair_join: Bytes,
    pair_row: Ints,
) -> tuple[int, int]:
    """Process rows from `start` until the end or until the outputs are full.

    Returns the first row not finished and the pairs written. Stopped among the matches of a row, it goes on there.
    """
    settings, totals, rows, streams = state.settings, state.totals, state.rows, state.streams
    no_keys, no_counts = np.empty(0, np.uint64), np.empty((0, 2), np.int64)
    policy = settings[0].policy
    capacity = len(rows)
    pairs = 0
    for i in range(start, len(times)):
        time, s = times[i], int(event_streams[i])
        if totals[0].at_stream < 0:  # not stopped among its matches
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
                slot = int(state.chains[j][entry, other].last) if entry >= 0 else NONE
            soonest, latest = state.joins[j].soonest[other], state.joins[j].latest[other]
            while slot >= 0:
                age = time - rows[slot].time
                if age > latest:
                    break  # from the newest back: the rest is older still
                if age >= soonest:
                    if pairs == len(pair_row):
                        totals[0].at_stream = j
                        totals[0].at_slot = slot
                        return i, pairs
                    pair_event[pairs], pair_join[pairs], pair_row[pairs] = i, j, rows[slot].row
                    pairs += 1
                    totals[0].pairs += 1
                    if settings[0].rewards:
                        rows[slot].credit += 1.0
                slot = int(state.link[j][slot].before)
        totals[0].at_stream = totals[0].at_slot = NONE
        if policy == PROB:
            for j in range(len(state.joins)):
                if roles[i, j] >= 0:
                    _count(state, no_keys, no_counts, j, keys[i, j], int(roles[i, j]))
        elif policy == GDJ and settings[0].by_percentile and totals[0].events % settings[0].refresh == 0:
            _refresh(state)
        credit = _newcomer(state, no_keys, no_counts, keys[i], roles[i], contents[i])
        size = state.sizes[ids[i]] if len(state.sizes) else 0
        most = settings[0].room_bytes if len(state.sizes) else size
        stored = streams[s].retention >= 0 and size <= most
        while stored and (totals[0].rows == capacity or totals[0].bytes + size > most):
            victim = heap_top(state.heap, state.heap_at, rows, state.no_chain, 0, totals[0].rows)
            if (policy in (PROB, RANDOM)) and state.heap[0, 0].credit > credit:
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


@compiled
def fill(state: GroupState, keys: Words, roles: Bytes, times: Ints, streams: Links, ids: Ints, credits: Reals) -> None:
    """Put rows, oldest first, with their credits into an empty state."""
    for i in range(len(times)):
        insert(state, keys[i], roles[i], times[i], int(streams[i]), ids[i], credits[i])
