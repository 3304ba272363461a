"""The kernel of a bounded buffer: one pass over a sequence of events, in the order in which a policy gets them.

For each event, rows outside of the window are removed. Then the event is joined with the stored rows, and the credits
of matched rows rise. Then the event is stored, and evicts the row that the policy chooses, or it is refused. Every
phase can stop when an output array is full, and continues there in the next call.

Each policy has its own kernel, into which its hooks are compiled (`braided.eviction.policies.hooks`).

Preconditions: events are sorted by (time, stream, content); no event is earlier than a previous one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from braided.compiled import in_place
from braided.eviction.key_index import find_entry
from braided.eviction.policies.hooks import Hooks
from braided.eviction.records import NONE, Bytes, Ints, Reals, Records, State, UInt64s
from braided.eviction.stored_rows import insert_row, least_row, pool_of, remove_row

DROP_EXPIRED, DROP_EVICTED, DROP_REFUSED = 0, 1, 2

_BEGIN, _EXPIRE, _MATCH, _STORE = range(4)

Step = Callable[..., tuple[int, int, int]]


@in_place
def _combinations(chains: Records, entry: int, s: int, q: int) -> int:
    """Return the number of combinations of a key's stored rows from all streams except two; all are in the window."""
    total = 1
    for r in range(chains.shape[1]):
        if r != s and r != q:  # noqa: PLR1714 - numba has no tuple of different integers
            total *= chains[entry, r].rows
    return total


@in_place
def _giving_pool(
    totals: Records, pools: Records, streams: Records, capacity: int, most: int, stream: int, size: int
) -> int:
    """Return the pool that must evict a row before one of `stream`, of `size` bytes, is stored; or NONE.

    If each stream has a pool, its share is in proportion to the stream's arrivals.
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


@in_place
def _arrive(pools: Records, streams: Records, capacity: int, stream: int) -> None:
    """Count an arrival for the shares of the streams; older arrivals count less."""
    if len(pools) == 1:
        return
    streams[stream].arrived += 1
    total = 0
    for s in range(len(streams)):
        total += streams[s].arrived
    if total >= 16 * capacity:
        for s in range(len(streams)):
            streams[s].arrived >>= 1


@cache
def kernel_of(hooks: Hooks) -> Step:  # noqa: PLR0915 - one loop
    """Return the kernel of a policy, compiled on its first call."""
    begin, left, by_chain, chain_matched, row_matched, arrived, newcomer, stored, ended = hooks

    @in_place
    def step(  # noqa: PLR0915 - phases share a dozen arrays; passing them at each event would be slow
        state: State,
        learned: Any,
        keys: UInt64s,
        times: Ints,
        event_streams: Bytes,
        contents: UInt64s,
        ids: Ints,
        hints: Reals,
        start: int,
        pair_event: Ints,
        pair_row: Ints,
        dropped_row: Ints,
        drop_reason: Bytes,
        counting: bool,
        reporting: bool,
    ) -> tuple[int, int, int]:
        """Process events from `start` until the end or until an output array is full.

        Returns the first unfinished event, the number of written pairs and of reported drops. With `counting`, pairs
        are only counted; without `reporting`, removed rows are only counted.
        """
        settings, totals, pools, streams, rows = state.settings, state.totals, state.pools, state.streams, state.rows
        heap, table, entries, chains = state.heap, state.table, state.entries, state.chains
        sizes, probes = state.sizes, state.probes
        many = settings[0].combining != 0
        pairs, drops = 0, 0
        for i in range(start, len(keys)):
            key, time, s = keys[i], times[i], int(event_streams[i])
            if totals[0].phase == _BEGIN:
                begin(state, learned, time)
                totals[0].phase = _EXPIRE
            if totals[0].phase == _EXPIRE:
                for q in range(len(streams)):
                    while streams[q].first >= 0:
                        slot = streams[q].first
                        if time - rows[slot].time <= streams[q].retention:
                            break
                        if reporting:
                            if drops == len(dropped_row):
                                return i, pairs, drops
                            dropped_row[drops] = rows[slot].row
                            drop_reason[drops] = DROP_EXPIRED
                            drops += 1
                        left(state, learned, slot, time)
                        remove_row(state, slot)
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
                        # A row is part of as many results as there are combinations of rows of the other streams.
                        shares = float(_combinations(chains, entry, s, q)) if many else 1.0
                        soonest = streams[q].soonest
                        pool = pool_of(pools, q)
                        # A match with every row of a chain can be one addition to the chain.
                        together = soonest <= 0 and not probing and by_chain(learned)
                        if together and q != resumed:
                            chain_matched(state, learned, pool, entry, q, shares)
                        if counting and together:
                            totals[0].pairs += chains[entry, q].rows
                            continue
                        slot = totals[0].at_slot if q == resumed else int(chains[entry, q].first)
                        while slot >= 0:
                            age = time - rows[slot].time
                            if age < soonest:
                                break  # the chain is in order of time: the rest is younger
                            if probing and probes[rows[slot].row] != 0:
                                slot = int(rows[slot].after)
                                continue
                            if not counting:
                                if pairs == len(pair_row):
                                    totals[0].at_stream = q
                                    totals[0].at_slot = slot
                                    return i, pairs, drops
                                pair_event[pairs] = i
                                pair_row[pairs] = rows[slot].row
                                pairs += 1
                            totals[0].pairs += 1
                            if not together:
                                row_matched(state, learned, pool, slot, age, shares)
                            slot = int(rows[slot].after)
                totals[0].at_stream = NONE
                _arrive(pools, streams, len(rows), s)
                arrived(state, learned, key, time, s, entry)
                totals[0].phase = _STORE
            hint = hints[i] if len(hints) else 0.0
            credit, bar = newcomer(state, learned, key, time, s, contents[i], hint)
            size = sizes[ids[i]] if len(sizes) else 0
            most = settings[0].room_bytes if len(sizes) else size
            stays = streams[s].retention >= 0 and size <= most
            while stays:
                pool = _giving_pool(totals, pools, streams, settings[0].room, most, s, size)
                if pool < 0:
                    break
                victim = least_row(state, pool)
                # A row of another stream that exceeds its share is evicted without comparing credits.
                stays = (len(pools) > 1 and pool != s) or heap[pool, 0].credit <= bar
                if stays:
                    if reporting:
                        if drops == len(dropped_row):
                            return i, pairs, drops
                        dropped_row[drops] = rows[victim].row
                        drop_reason[drops] = DROP_EVICTED
                        drops += 1
                    left(state, learned, victim, time)
                    remove_row(state, victim)
                    totals[0].evicted += 1
            if stays:
                slot = insert_row(state, key, time, s, ids[i], credit)
                stored(state, learned, slot, key)
            else:
                if reporting:
                    if drops == len(dropped_row):
                        return i, pairs, drops
                    dropped_row[drops] = ids[i]
                    drop_reason[drops] = DROP_REFUSED
                    drops += 1
                if size > most:
                    totals[0].too_large += 1
                else:
                    totals[0].refused += 1
            totals[0].phase = _BEGIN
            totals[0].events += 1
            ended(state, learned)
        return len(keys), pairs, drops

    return step
