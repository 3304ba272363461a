"""The row of smallest credit, found lazily: a heap per pool whose credits may lag behind the real ones.

Credits only rise, so a lagging credit is a lower bound. A match then costs nothing here, and the top is right
once it does not lag: until then it is brought up to date and sinks. Equal credits: the oldest row first.

Where all rows of one key and stream have one credit (`totals.alike`, PROB), only the oldest of them has it here; the
others stand behind every other row until they are the oldest. Else each match of a key that fills the buffer would sink
all its rows: 20 times slower on streams with strong bursts, at 4,000 rows.
"""

from __future__ import annotations

from braided.buffers.records import Links, Records
from braided.compiled import in_place

BEHIND = float("inf")


@in_place
def current_credit(rows: Records, chains: Records, slot: int) -> float:
    """Return a row's credit as of now, before what the pool has lost."""
    row = rows[slot]
    return float(row.credit + chains[row.entry, row.stream].gained)


@in_place
def _rise(heap: Records, heap_at: Links, pool: int, at: int, credit: float, seq: int, slot: int) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        p = heap[pool, parent]
        if p.credit < credit or (p.credit == credit and p.seq < seq):
            break
        heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].slot = p.credit, p.seq, p.slot
        heap_at[p.slot] = at
        at = parent
    heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].slot = credit, seq, slot
    heap_at[slot] = at


@in_place
def _sink(heap: Records, heap_at: Links, pool: int, at: int, size: int, credit: float, seq: int, slot: int) -> None:
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        c = heap[pool, child]
        if child + 1 < size:
            d = heap[pool, child + 1]
            if d.credit < c.credit or (d.credit == c.credit and d.seq < c.seq):
                c = d
                child += 1
        if credit < c.credit or (credit == c.credit and seq < c.seq):
            break
        heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].slot = c.credit, c.seq, c.slot
        heap_at[c.slot] = at
        at = child
    heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].slot = credit, seq, slot
    heap_at[slot] = at


@in_place
def heap_push(heap: Records, heap_at: Links, pool: int, size: int, credit: float, seq: int, slot: int) -> None:
    """Add a row to `size` others."""
    _rise(heap, heap_at, pool, size, credit, seq, slot)


@in_place
def heap_raise(heap: Records, heap_at: Links, pool: int, credit: float, seq: int, slot: int) -> None:
    """Give a row that stood behind its credit."""
    _rise(heap, heap_at, pool, heap_at[slot], credit, seq, slot)


@in_place
def heap_remove(heap: Records, heap_at: Links, pool: int, size: int, slot: int) -> None:
    """Take a row out of `size`, wherever it is."""
    at = heap_at[slot]
    last = heap[pool, size - 1]
    credit, seq, moved = last.credit, last.seq, last.slot
    if at == size - 1:
        return
    _sink(heap, heap_at, pool, at, size - 1, credit, seq, moved)
    if heap_at[moved] == at:
        _rise(heap, heap_at, pool, at, credit, seq, moved)


@in_place
def heap_top(heap: Records, heap_at: Links, rows: Records, chains: Records, pool: int, size: int) -> int:
    """Return the slot of smallest (credit, seq) in a pool of `size` rows, at least 1."""
    while True:
        top = heap[pool, 0]
        slot, seq = top.slot, top.seq
        credit = current_credit(rows, chains, slot)
        if credit == top.credit:
            return int(slot)
        _sink(heap, heap_at, pool, 0, size, credit, seq, slot)


@in_place
def heap_rebuild(heap: Records, heap_at: Links, pool: int, size: int) -> None:
    """Put the rows in order again after all their credits here were set anew, for when some have fallen."""
    for at in range(size // 2 - 1, -1, -1):
        h = heap[pool, at]
        _sink(heap, heap_at, pool, at, size, h.credit, h.seq, h.slot)
