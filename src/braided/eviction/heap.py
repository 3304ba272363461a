"""A binary heap of numbered items per pool: the smallest (credit, seq) is on top, and each item's position is known.

An item's credit in the heap may be lower than its current credit. The caller updates the top with `heap_sink` until the
credit of the top is current; then the top is the smallest.
"""

from __future__ import annotations

from braided.compiled import in_place
from braided.eviction.records import Links, Records


@in_place
def _rise(heap: Records, heap_at: Links, pool: int, at: int, credit: float, seq: int, item: int) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        p = heap[pool, parent]
        if p.credit < credit or (p.credit == credit and p.seq < seq):
            break
        heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].item = p.credit, p.seq, p.item
        heap_at[p.item] = at
        at = parent
    heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].item = credit, seq, item
    heap_at[item] = at


@in_place
def _sink(heap: Records, heap_at: Links, pool: int, at: int, size: int, credit: float, seq: int, item: int) -> None:
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        # Which child is smaller is not predictable, so a branch would cost more than the comparison.
        c, d = heap[pool, child], heap[pool, min(child + 1, size - 1)]
        child += (d.credit < c.credit) | ((d.credit == c.credit) & (d.seq < c.seq))
        c = heap[pool, child]
        if credit < c.credit or (credit == c.credit and seq < c.seq):
            break
        heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].item = c.credit, c.seq, c.item
        heap_at[c.item] = at
        at = child
    heap[pool, at].credit, heap[pool, at].seq, heap[pool, at].item = credit, seq, item
    heap_at[item] = at


@in_place
def heap_push(heap: Records, heap_at: Links, pool: int, size: int, credit: float, seq: int, item: int) -> None:
    _rise(heap, heap_at, pool, size, credit, seq, item)


@in_place
def heap_lower(heap: Records, heap_at: Links, pool: int, credit: float, seq: int, item: int) -> None:
    """Lower an item to (credit, seq) if it has more."""
    at = heap_at[item]
    h = heap[pool, at]
    if credit < h.credit or (credit == h.credit and seq < h.seq):
        _rise(heap, heap_at, pool, at, credit, seq, item)


@in_place
def heap_remove(heap: Records, heap_at: Links, pool: int, size: int, item: int) -> None:
    """Remove an item from a heap of `size` items."""
    at = heap_at[item]
    last = heap[pool, size - 1]
    credit, seq, moved = last.credit, last.seq, last.item
    if at == size - 1:
        return
    _sink(heap, heap_at, pool, at, size - 1, credit, seq, moved)
    if heap_at[moved] == at:
        _rise(heap, heap_at, pool, at, credit, seq, moved)


@in_place
def heap_sink(heap: Records, heap_at: Links, pool: int, size: int, credit: float, seq: int) -> None:
    """Set the item on top to its current (credit, seq), which is larger."""
    _sink(heap, heap_at, pool, 0, size, credit, seq, heap[pool, 0].item)


@in_place
def heap_rebuild(heap: Records, heap_at: Links, pool: int, size: int) -> None:
    """Restore the order of the heap after all items were set, for the case that some credits have fallen."""
    for at in range(size // 2 - 1, -1, -1):
        h = heap[pool, at]
        _sink(heap, heap_at, pool, at, size, h.credit, h.seq, h.item)
