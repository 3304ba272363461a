"""The kernel of `braided.eviction.recall.key_recall`: the keys in the sample, the times of their rows, and their sums.

Preconditions: events are sorted by (time, stream, content); no event is earlier than a previous one.
"""

from __future__ import annotations

import numpy as np

from braided.compiled import compiled
from braided.eviction.key_index import home
from braided.eviction.records import NONE, Bytes, Ints, Links, Reals, Records, UInt64s
from braided.routing.hash_kernels import mix

GROUPS = 64
QUARTERS = 4  # parts of a window for which rows are counted by bucket
ROOM = 64  # nodes above the maximum, so that there are always enough for one event
PANES = 32
_FADE = 0.5
_SEED = np.uint64(0x6A09E667F3BCC909)
_GROUP_SEED = np.uint64(0xBB67AE8584CAA73B)
_WHOLE = float(1 << 53)

_i8, _i4, _f8, _u8 = np.int64, np.int32, np.float64, np.uint64
NODE = np.dtype([("first", _i8), ("last", _i8), ("next", _i4), ("slot", _i4), ("count", _i4), ("stream", _i4)])
SLOT = np.dtype([("key", _u8), ("next", _i4), ("nodes", _i4)])
CHAIN = np.dtype([("first", _i4), ("last", _i4), ("rows", _i8)])
HEAD = np.dtype(
    [
        ("oldest", _i8), ("end", _i8), ("live", _i8), ("used", _i8), ("free", _i8), ("events", _i8), ("quarter", _i8),
        ("share", _f8),
    ]
)  # fmt: skip
# The probability with which a bucket of keys is in the sample, its rows in the window, and the key of most of these
# rows: each row of this key is a vote for it, each row of another key a vote against it.
BUCKET = np.dtype([("held", _f8), ("rows", _i8), ("key", _u8), ("votes", _i8)])
# Weighted sums over the keys in the sample: combinations, and returned ones; and all returned combinations.
SUMS = np.dtype([("matches", _f8), ("found", _f8), ("pairs", _f8)])


@compiled
def _slot_of(slots: Records, table: Links, key: np.uint64) -> int:
    slot = int(table[home(key, len(table))])
    while slot >= 0 and slots[slot].key != key:
        slot = int(slots[slot].next)
    return slot


@compiled
def _new_slot(head: Records, slots: Records, chains: Records, table: Links, key: np.uint64) -> int:
    slot = int(head[0].free)
    head[0].free = slots[slot].next
    head[0].used += 1
    at = home(key, len(table))
    slots[slot].key, slots[slot].next, slots[slot].nodes = key, table[at], 0
    table[at] = slot
    for q in range(chains.shape[1]):
        chains[slot, q].first = chains[slot, q].last = NONE
        chains[slot, q].rows = 0
    return slot


@compiled
def _free_slot(head: Records, slots: Records, table: Links, slot: int) -> None:
    at = home(slots[slot].key, len(table))
    if table[at] == slot:
        table[at] = slots[slot].next
    else:
        before = int(table[at])
        while slots[before].next != slot:
            before = int(slots[before].next)
        slots[before].next = slots[slot].next
    slots[slot].next = head[0].free
    head[0].free = slot
    head[0].used -= 1


@compiled
def _append(head: Records, nodes: Records, slots: Records, chains: Records, slot: int, q: int, time: int) -> None:
    """Add a node with one row; there must be room for it."""
    at = head[0].end
    node = nodes[at]
    node.first, node.last, node.next, node.slot, node.count, node.stream = time, time, NONE, slot, 1, q
    if chains[slot, q].last < 0:
        chains[slot, q].first = at
    else:
        nodes[chains[slot, q].last].next = at
    chains[slot, q].last = at
    chains[slot, q].rows += 1
    slots[slot].nodes += 1
    head[0].end += 1
    head[0].live += 1


@compiled
def _drop_first(
    head: Records, nodes: Records, slots: Records, chains: Records, table: Links, slot: int, q: int
) -> None:
    """Remove the oldest node of a key and stream; with the last node of a key, free its slot."""
    at = int(chains[slot, q].first)
    chains[slot, q].first = nodes[at].next
    if nodes[at].next < 0:
        chains[slot, q].last = NONE
    chains[slot, q].rows -= nodes[at].count
    nodes[at].slot = NONE
    head[0].live -= 1
    slots[slot].nodes -= 1
    if slots[slot].nodes == 0:
        _free_slot(head, slots, table, slot)


@compiled
def _expire(head: Records, nodes: Records, slots: Records, chains: Records, table: Links, horizon: int) -> None:
    """Remove nodes before the horizon, up to the first one that is not."""
    while head[0].oldest < head[0].end:
        at = head[0].oldest
        if nodes[at].slot >= 0:
            if nodes[at].last >= horizon:
                break
            _drop_first(head, nodes, slots, chains, table, int(nodes[at].slot), int(nodes[at].stream))
        head[0].oldest += 1


@compiled
def _compact(head: Records, nodes: Records, chains: Records) -> None:
    """Move the live nodes to the front."""
    for slot in range(len(chains)):
        for q in range(chains.shape[1]):
            chains[slot, q].first = chains[slot, q].last = NONE
    to = 0
    for at in range(head[0].oldest, head[0].end):
        slot, q = int(nodes[at].slot), int(nodes[at].stream)
        if slot >= 0:
            nodes[to] = nodes[at]
            nodes[to].next = NONE
            if chains[slot, q].last < 0:
                chains[slot, q].first = to
            else:
                nodes[chains[slot, q].last].next = to
            chains[slot, q].last = to
            to += 1
    head[0].oldest, head[0].end = 0, to


@compiled
def refill(
    head: Records, nodes: Records, slots: Records, chains: Records, table: Links, keys: UInt64s, firsts: Ints,
    lasts: Ints, counts: Ints, streams: Ints,
) -> None:  # fmt: skip
    for i in range(len(keys)):
        slot = _slot_of(slots, table, keys[i])
        if slot < 0:
            slot = _new_slot(head, slots, chains, table, keys[i])
        _append(head, nodes, slots, chains, slot, int(streams[i]), firsts[i])
        node = nodes[head[0].end - 1]
        node.last, node.count = lasts[i], counts[i]
        chains[slot, streams[i]].rows += counts[i] - 1


@compiled
def _draw(bucket: int) -> float:
    """Return a number from 0 to 1 for a bucket, which is in the sample if this is below its probability."""
    return float(mix(np.uint64(bucket) ^ _SEED) >> np.uint64(11)) / _WHOLE


@compiled
def count_rows(buckets: Records, rows: Links) -> None:
    for at in range(len(buckets)):
        buckets[at].rows = 0
        for quarter in range(rows.shape[0]):
            for s in range(rows.shape[1]):
                buckets[at].rows += rows[quarter, s, at]


@compiled
def _probability(head: Records, buckets: Records, at: int) -> float:
    """Return the probability with which a bucket shall be in the sample: a share per row of the window, at most 1."""
    return float(min(1.0, head[0].share * float(max(1, buckets[at].rows))))


@compiled
def _next_quarter(head: Records, buckets: Records, rows: Links, quarter: int, most: int) -> None:
    """Remove counts outside of the window; sample more if there is room, and slowly less of keys that became rare."""
    for k in range(min(quarter - head[0].quarter, rows.shape[0])):
        rows[(quarter - k) % rows.shape[0]] = 0
    head[0].quarter = quarter
    count_rows(buckets, rows)
    for at in range(len(buckets)):
        buckets[at].votes = min(buckets[at].votes, buckets[at].rows)
    if head[0].live < most // 2 and head[0].share < 1.0:
        head[0].share = min(1.0, 2.0 * head[0].share)
    for at in range(len(buckets)):
        buckets[at].held = min(buckets[at].held, max(_probability(head, buckets, at), 0.5 * buckets[at].held))


@compiled
def _hold_less(
    head: Records, nodes: Records, slots: Records, chains: Records, table: Links, buckets: Records, most: int
) -> None:
    """Halve the share, and drop keys that are no longer in the sample, until a quarter of the room is free."""
    while head[0].live > most - most // 4 or head[0].used > len(slots) - len(slots) // 4:
        head[0].share *= 0.5
        for at in range(len(buckets)):
            buckets[at].held = min(buckets[at].held, _probability(head, buckets, at))
        for place in range(len(table)):
            slot = int(table[place])
            while slot >= 0:
                after = int(slots[slot].next)
                bucket = home(slots[slot].key, len(buckets))
                if _draw(bucket) >= buckets[bucket].held:
                    _drop_key(head, nodes, slots, chains, table, slot)
                slot = after


@compiled
def _drop_key(head: Records, nodes: Records, slots: Records, chains: Records, table: Links, slot: int) -> None:
    for q in range(chains.shape[1]):
        while slots[slot].nodes > 0 and chains[slot, q].first >= 0:
            _drop_first(head, nodes, slots, chains, table, slot, q)


@compiled
def _begin(
    head: Records, nodes: Records, slots: Records, chains: Records, table: Links, buckets: Records, rows: Links,
    at: int, within: int, key: np.uint64, time: int,
) -> None:  # fmt: skip
    """Add a bucket to the sample; by its votes, estimate how many of its earlier rows are of the key."""
    slot = _slot_of(slots, table, key)
    if slot >= 0:
        _drop_key(head, nodes, slots, chains, table, slot)
    if buckets[at].key != key or buckets[at].votes <= 0:
        return
    slot = NONE
    length = within // QUARTERS + 1
    part = 0.5 + 0.5 * float(buckets[at].votes) / float(buckets[at].rows)
    for q in range(chains.shape[1]):
        for back in range(QUARTERS, -1, -1):
            quarter = head[0].quarter - back
            count = int(np.floor(part * rows[quarter % rows.shape[0], q, at] + 0.5))
            if count > 0:
                if slot < 0:
                    slot = _new_slot(head, slots, chains, table, key)
                first, last = quarter * length, min(time, quarter * length + length - 1)
                if count == 1:
                    first = last = (first + last) // 2
                _append(head, nodes, slots, chains, slot, q, first)
                node = nodes[head[0].end - 1]
                node.last, node.count = last, count
                chains[slot, q].rows += count - 1


@compiled
def _rows_within(nodes: Records, chains: Records, slot: int, q: int, horizon: int) -> float:
    """Return the rows of a key and stream from the horizon on, assuming even distances within the first node."""
    at = int(chains[slot, q].first)
    if at < 0:
        return 0.0
    rows = float(chains[slot, q].rows)
    while at >= 0 and nodes[at].last < horizon:
        rows -= nodes[at].count
        at = int(nodes[at].next)
    if at >= 0 and nodes[at].first < horizon:
        inner = float(nodes[at].count - 2)
        rows -= 1.0 + inner * float(horizon - nodes[at].first) / float(nodes[at].last - nodes[at].first)
    return rows


@compiled
def feed(
    head: Records,
    sums: Records,
    groups: Reals,
    nodes: Records,
    slots: Records,
    chains: Records,
    table: Links,
    buckets: Records,
    rows: Links,
    within: int,
    most: int,
    fade_every: int,
    keys: UInt64s,
    times: Ints,
    streams: Bytes,
    results: Ints,
) -> None:
    """Take events, each with the number of combinations that were returned for it."""
    width = within // PANES + 1
    for i in range(len(keys)):
        key, time, s = keys[i], times[i], int(streams[i])
        quarter = time // (within // QUARTERS + 1)
        if quarter != head[0].quarter:
            _next_quarter(head, buckets, rows, quarter, most)
        _expire(head, nodes, slots, chains, table, time - within)
        if head[0].live >= most or head[0].used >= len(slots):
            _hold_less(head, nodes, slots, chains, table, buckets, most)
        if head[0].end + ROOM > len(nodes):
            _compact(head, nodes, chains)
        at = home(key, len(buckets))
        drawn, before = _draw(at), buckets[at].held
        buckets[at].held = max(before, _probability(head, buckets, at))
        chance = buckets[at].held
        if before <= drawn < chance:
            _begin(head, nodes, slots, chains, table, buckets, rows, at, within, key, time)
        slot = _slot_of(slots, table, key) if drawn < chance else NONE
        for span in range(len(sums)):
            sums[span].pairs += results[i]
        if drawn < chance:
            matches = 1.0 if slot >= 0 else 0.0
            if slot >= 0:
                for q in range(chains.shape[1]):
                    if q != s:
                        matches *= _rows_within(nodes, chains, slot, q, time - within)
            group = int(np.int64(mix(np.uint64(at) ^ _GROUP_SEED) & np.uint64(GROUPS - 1)))
            # A bucket that is certainly in the sample adds no variance, others (1 - p) times their square.
            spread = np.sqrt(1.0 - chance) / chance
            for span in range(len(sums)):
                sums[span].matches += matches / chance
                sums[span].found += results[i] / chance
                groups[span, group, 0] += spread * matches
                groups[span, group, 1] += spread * results[i]
            if slot < 0:
                slot = _new_slot(head, slots, chains, table, key)
            last = int(chains[slot, s].last)
            if last >= 0 and nodes[last].first // width == time // width:
                nodes[last].last = time
                nodes[last].count += 1
                chains[slot, s].rows += 1
            else:
                _append(head, nodes, slots, chains, slot, s, time)
        rows[quarter % rows.shape[0], s, at] += 1
        buckets[at].rows += 1
        if buckets[at].key == key:
            buckets[at].votes += 1
        elif buckets[at].votes > 0:
            buckets[at].votes -= 1
        else:
            buckets[at].key, buckets[at].votes = key, 1
        head[0].events += 1
        if head[0].events % fade_every == 0:
            sums[1].matches *= _FADE
            sums[1].found *= _FADE
            sums[1].pairs *= _FADE
            for group in range(groups.shape[1]):
                groups[1, group, 0] *= _FADE
                groups[1, group, 1] *= _FADE
