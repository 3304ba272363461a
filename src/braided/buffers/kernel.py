"""The kernel of a bounded buffer: one pass over a sequence of events, in the order a policy sees them.

Per event: rows out of the window go; the event joins what is stored; credits of what it matched rise; then it
is stored, in place of the row that the policy gives up, or is itself refused. Every phase can stop when an
output array is full, and goes on exactly there in the next call.

Preconditions: events are sorted by (time, stream, content); no event is earlier than one before it.
"""

from __future__ import annotations

import numpy as np

from braided.buffers.heap import BEHIND, current_credit, heap_rebuild, heap_top
from braided.buffers.index import find_entry
from braided.buffers.policies.ages import age_bin, learn_ages
from braided.buffers.policies.counts import count_occurrence
from braided.buffers.policies.fading import SCALES, look_at_clock, note_occurrence, set_weights, worth
from braided.buffers.policies.percentiles import percentile_index, select, shell_sort, values_below
from braided.buffers.records import (
    AGE,
    CLAIRVOYANT,
    DECAY_NONE,
    DECAY_ONE,
    GAIN_NONE,
    GAIN_ONE,
    GAIN_RANK,
    GDJ,
    NONE,
    PROB,
    RANDOM,
    Bytes,
    Ints,
    Links,
    Reals,
    Records,
    State,
    Words,
)
from braided.buffers.rows import insert_row, pool_of, remove_row
from braided.compiled import compiled
from braided.routing.kernels import mix

WENT_EXPIRED, WENT_EVICTED, WENT_REFUSED = 0, 1, 2

_BEGIN, _EXPIRE, _MATCH, _STORE = range(4)
_EVERYTHING = float("inf")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FRACTION = 1048576.0  # decrements are multiples of 2**-20, so that sums of credits are exact


@compiled
def _end_units(settings: Records, totals: Records, pools: Records, time: int) -> None:
    """Decrease all credits for the units of time that ended before this event, by raising `decayed`."""
    decay = settings[0].decay
    if decay == DECAY_NONE:
        return
    unit = time // settings[0].unit
    passed = unit - totals[0].unit
    if totals[0].unit_seen and passed > 0:
        for p in range(len(pools)):
            if decay == DECAY_ONE:
                pools[p].decayed += passed
            elif pools[p].rows > 0:
                pools[p].decayed += np.floor(pools[p].added / pools[p].rows * _FRACTION) / _FRACTION
            pools[p].added = 0.0
    totals[0].unit = unit
    totals[0].unit_seen = 1


@compiled
def _refresh(settings: Records, pools: Records, rows: Records, heap: Records, chains: Records, snapshot: Reals) -> None:
    """Take the credits of each pool as they are now, for the percentile (and, sorted, for ranks)."""
    for p in range(len(pools)):
        n = pools[p].rows
        for at in range(n):
            snapshot[p, at] = current_credit(rows, chains, heap[p, at].slot)
        pools[p].snapshot = n
        pools[p].initial = pools[p].decayed
        if settings[0].gain == GAIN_RANK:
            shell_sort(snapshot[p], n)
        if n > 0 and settings[0].by_percentile:
            pools[p].initial = select(snapshot[p], n, percentile_index(settings[0].percentile, n))


@compiled
def _initial(settings: Records, pools: Records, pool: int) -> float:
    """Return GDJ's credit of a newcomer: a percentile of the pool's credits, or a constant."""
    if settings[0].by_percentile:
        return float(pools[pool].initial)
    return float(settings[0].constant + pools[pool].decayed)


@compiled
def _reward(
    settings: Records, pools: Records, rows: Records, chains: Records, snapshot: Reals, pool: int, slot: int
) -> None:
    """Raise the credit of one row that found a match."""
    before = current_credit(rows, chains, slot)
    gain = settings[0].gain
    if gain == GAIN_ONE:
        added = 1.0
    elif gain == GAIN_RANK:
        added = 1.0 + values_below(snapshot[pool], pools[pool].snapshot, before)
    else:
        added = max(0.0, _initial(settings, pools, pool) - before)
    rows[slot].credit += added
    pools[pool].added += added


@compiled
def _combinations(chains: Records, entry: int, s: int, q: int) -> int:
    """Return the choices of a stored row of a key from each stream but two; all of them are in the window."""
    total = 1
    for r in range(chains.shape[1]):
        if r != s and r != q:  # noqa: PLR1714 - numba has no tuple of different integers
            total *= chains[entry, r].rows
    return total


@compiled
def _crowded(
    totals: Records, pools: Records, streams: Records, capacity: int, most: int, stream: int, size: int
) -> int:
    """Return the pool that must give up a row before one of `stream`, of `size` bytes, is stored, or NONE.

    With a pool per stream, each has room in proportion to the stream's arrivals.
    """
    full = totals[0].rows >= capacity or totals[0].bytes + size > most
    if len(pools) == 1:
        return 0 if full else NONE
    total = 0
    for s in range(len(streams)):
        total += streams[s].arrived
    worst, excess = NONE, -capacity - 1
    for s in range(len(streams)):
        part = streams[s].arrived / max(1, total)
        over = pools[s].rows - max(1, capacity * streams[s].arrived // max(1, total))
        if s == stream and (over >= 0 or (pools[s].rows > 0 and pools[s].bytes + size > most * part)):
            return stream
        if over > excess and pools[s].rows > 0:
            worst, excess = s, over
    return worst if full else NONE


@compiled
def _arrive(pools: Records, streams: Records, capacity: int, stream: int) -> None:
    """Count an arrival for the streams' shares; old arrivals fade."""
    if len(pools) == 1:
        return
    streams[stream].arrived += 1
    total = 0
    for s in range(len(streams)):
        total += streams[s].arrived
    if total >= 16 * capacity:
        for s in range(len(streams)):
            streams[s].arrived >>= 1


@compiled
def _count(
    settings: Records,
    totals: Records,
    pools: Records,
    rows: Records,
    heap: Records,
    heap_at: Links,
    entries: Records,
    chains: Records,
    count_key: Words,
    counts: Ints,
    sketch: Ints,
    weights: Ints,
    factors: Reals,
    key: np.uint64,
    time: int,
    stream: int,
    entry: int,
) -> None:
    """Count an occurrence, and for PROB raise the credits of the rows that it makes more likely to match."""
    span = settings[0].span
    if span > 0:
        looking = totals[0].events % settings[0].refresh == 0
        if looking:
            look_at_clock(totals, count_key, counts, span, time)
            set_weights(weights, factors, span, settings[0].only_long, time)
        most = settings[0].count_keys
        fallen = note_occurrence(totals, count_key, counts, weights, most, key, stream) or looking
    else:
        fallen = count_occurrence(count_key, counts, sketch, totals, key, stream)
    if settings[0].policy != PROB:
        return  # another policy is in charge, and this one may follow it
    if entry >= 0:
        for q in range(chains.shape[1]):
            chains[entry, q].gained = worth(count_key, counts, sketch, factors, key, q)
    if fallen:
        for p in range(len(pools)):
            for at in range(pools[p].rows):
                slot = heap[p, at].slot
                e, q = rows[slot].entry, rows[slot].stream
                if chains[e, q].first != slot:
                    heap[p, at].credit = BEHIND
                    continue
                if chains[e, q].gained > 0.0:  # what was worth nothing still is, unless its key came
                    chains[e, q].gained = worth(count_key, counts, sketch, factors, entries[e].key, q)
                heap[p, at].credit = current_credit(rows, chains, slot)
            heap_rebuild(heap, heap_at, p, pools[p].rows)


@compiled
def _credit_of_newcomer(
    settings: Records,
    totals: Records,
    streams: Records,
    count_key: Words,
    counts: Ints,
    sketch: Ints,
    factors: Reals,
    key: np.uint64,
    time: int,
    stream: int,
    content: np.uint64,
    hint: float,
) -> tuple[float, float]:
    """Return a newcomer's credit and the bar: a stored row gives way if its credit is at most the bar."""
    policy = settings[0].policy
    if policy == RANDOM:
        drawn = float(mix(content ^ (settings[0].seed * _SPREAD)) >> np.uint64(11))
        return drawn, drawn
    if policy == PROB:
        seen = worth(count_key, counts, sketch, factors, key, stream)
        return seen, seen
    if policy == AGE:
        keep = float(streams[stream].keep)
        if settings[0].hinted:
            keep = hint
        elif mix(content) & settings[0].explore == np.uint64(0):
            keep = float(streams[stream].retention)
        return time + keep, min(time + keep, float(time))
    if policy == CLAIRVOYANT:
        return hint, min(hint, float(totals[0].events))
    return 0.0, _EVERYTHING


@compiled
def step(  # noqa: PLR0915 - phases share a dozen arrays; passing them on at each event is what costs
    state: State,
    keys: Words,
    times: Ints,
    event_streams: Bytes,
    contents: Words,
    ids: Ints,
    hints: Reals,
    start: int,
    pair_event: Ints,
    pair_row: Ints,
    gone_row: Ints,
    gone_why: Bytes,
    counting: bool,
    reporting: bool,
) -> tuple[int, int, int]:
    """Process events from `start` until the end or until an output array is full.

    Returns the first event not finished, the pairs written, the rows reported as gone. With `counting`, pairs
    are only counted; without `reporting`, rows that go are.
    """
    settings, totals, pools, streams, rows = state.settings, state.totals, state.pools, state.streams, state.rows
    heap, heap_at, table, entries, chains = state.heap, state.heap_at, state.table, state.entries, state.chains
    count_key, counts, sketch, snapshot = state.count_key, state.counts, state.sketch, state.snapshot
    age_matches, age_exits, sizes, probes = state.age_matches, state.age_exits, state.sizes, state.probes
    policy, gain = settings[0].policy, settings[0].gain
    scales = SCALES if settings[0].span > 0 else 0
    weights, factors = np.empty(scales, np.int64), np.empty(scales, np.float64)
    set_weights(weights, factors, settings[0].span, settings[0].only_long, totals[0].unit)
    learning = policy == AGE
    rewarding = policy == GDJ and gain != GAIN_NONE
    refreshing = policy == GDJ and snapshot.shape[1] > 0
    many = settings[0].combining != 0
    pairs, gone = 0, 0
    for i in range(start, len(keys)):
        key, time, s = keys[i], times[i], int(event_streams[i])
        if totals[0].phase == _BEGIN:
            _end_units(settings, totals, pools, time)
            totals[0].phase = _EXPIRE
        if totals[0].phase == _EXPIRE:
            for q in range(len(streams)):
                while streams[q].first >= 0:
                    slot = streams[q].first
                    if time - rows[slot].time <= streams[q].retention:
                        break
                    if reporting:
                        if gone == len(gone_row):
                            return i, pairs, gone
                        gone_row[gone] = rows[slot].row
                        gone_why[gone] = WENT_EXPIRED
                        gone += 1
                    if learning:
                        age_exits[q, age_bin(streams[q].retention, streams[q].retention)] += 1.0
                    remove_row(totals, pools, streams, rows, heap, heap_at, table, entries, chains, sizes, slot)
                    totals[0].expired += 1
            totals[0].phase = _MATCH
        if totals[0].phase == _MATCH:
            entry = find_entry(table, entries, key)
            if entry >= 0:
                probing = len(probes) > 0 and probes[ids[i]] != 0
                resumed = totals[0].at_stream
                if many and resumed < 0:
                    totals[0].results += _combinations(chains, entry, s, s)
                for q in range(max(0, resumed), len(streams)):
                    if q == s:
                        continue
                    # A row is part of as many results as there are choices of the others.
                    shares = float(_combinations(chains, entry, s, q)) if many else 1.0
                    soonest = streams[q].soonest
                    pool = pool_of(pools, q)
                    # A match with every row of the chain is one addition to the chain.
                    together = soonest <= 0 and not probing and (not rewarding or gain == GAIN_ONE)
                    if together and rewarding and q != resumed:
                        chains[entry, q].gained += shares
                        pools[pool].added += shares * chains[entry, q].rows
                    if counting and together and not learning:
                        totals[0].pairs += chains[entry, q].rows
                        continue
                    slot = totals[0].at_slot if q == resumed else int(chains[entry, q].first)
                    while slot >= 0:
                        age = time - rows[slot].time
                        if age < soonest:
                            break  # the chain is in order of time: the rest is younger still
                        if probing and probes[rows[slot].row] != 0:
                            slot = int(rows[slot].after)
                            continue
                        if not counting:
                            if pairs == len(pair_row):
                                totals[0].at_stream = q
                                totals[0].at_slot = slot
                                return i, pairs, gone
                            pair_event[pairs] = i
                            pair_row[pairs] = rows[slot].row
                            pairs += 1
                        totals[0].pairs += 1
                        if rewarding and not together and shares > 0.0:
                            _reward(settings, pools, rows, chains, snapshot, pool, slot)
                        elif learning:
                            age_matches[q, age_bin(age, streams[q].retention)] += 1.0
                        slot = int(rows[slot].after)
            totals[0].at_stream = NONE
            _arrive(pools, streams, len(rows), s)
            if len(count_key) or sketch.shape[2]:
                _count(
                    settings,
                    totals,
                    pools,
                    rows,
                    heap,
                    heap_at,
                    entries,
                    chains,
                    count_key,
                    counts,
                    sketch,
                    weights,
                    factors,
                    key,
                    time,
                    s,
                    entry,
                )
            if refreshing and totals[0].events % settings[0].refresh == 0:
                _refresh(settings, pools, rows, heap, chains, snapshot)
            totals[0].phase = _STORE
        hint = hints[i] if len(hints) else 0.0
        credit, bar = _credit_of_newcomer(
            settings, totals, streams, count_key, counts, sketch, factors, key, time, s, contents[i], hint
        )
        size = sizes[ids[i]] if len(sizes) else 0
        most = settings[0].room_bytes if len(sizes) else size
        stored = streams[s].retention >= 0 and size <= most
        while stored:
            pool = _crowded(totals, pools, streams, settings[0].room, most, s, size)
            if pool < 0:
                break
            victim = heap_top(heap, heap_at, rows, chains, pool, pools[pool].rows)
            # A row of another stream that is over its share gives way without a contest.
            stored = (len(pools) > 1 and pool != s) or heap[pool, 0].credit <= bar
            if stored:
                if reporting:
                    if gone == len(gone_row):
                        return i, pairs, gone
                    gone_row[gone] = rows[victim].row
                    gone_why[gone] = WENT_EVICTED
                    gone += 1
                if learning:
                    q = int(rows[victim].stream)
                    age_exits[q, age_bin(time - rows[victim].time, streams[q].retention)] += 1.0
                remove_row(totals, pools, streams, rows, heap, heap_at, table, entries, chains, sizes, victim)
                totals[0].evicted += 1
        if stored:
            if policy == GDJ:
                credit = _initial(settings, pools, pool_of(pools, s))
            slot = insert_row(
                totals, pools, streams, rows, heap, heap_at, table, entries, chains, sizes, key, time, s, ids[i], credit
            )
            if policy == PROB:
                # All of it is the chain's: the next occurrence raises it for every row of the key.
                rows[slot].credit = 0.0
                for q in range(len(streams)):
                    chains[rows[slot].entry, q].gained = worth(count_key, counts, sketch, factors, key, q)
        else:
            if reporting:
                if gone == len(gone_row):
                    return i, pairs, gone
                gone_row[gone] = ids[i]
                gone_why[gone] = WENT_REFUSED
                gone += 1
            if size > most:
                totals[0].too_large += 1
            else:
                totals[0].refused += 1
        totals[0].phase = _BEGIN
        totals[0].events += 1
        if learning and totals[0].events % settings[0].period == 0:
            learn_ages(streams, age_matches, age_exits)
    return len(keys), pairs, gone
