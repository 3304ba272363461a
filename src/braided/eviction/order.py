"""The rows of one chain by (credit, seq), with the least row on top: a pairing heap of links between rows.

A gain of the whole chain changes nothing here, so a match is one addition for any number of rows. A newcomer usually
has one of the smallest credits of its chain, so it is put on top, and removed from there, in a few steps.

```
            least                    child: the first row below            prev: the previous sibling; for the
           /  |                      next: the next sibling                first sibling, the row above
      child - next - next
```

A row's own credit only rises. If it has risen since the row was added here, its `standing` is a lower bound.

Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, 1986.
"""

from __future__ import annotations

from braided.compiled import in_place
from braided.eviction.records import NONE, Records


@in_place
def _meld(order: Records, a: int, b: int) -> int:
    """Put one of two trees below the other; return the upper one, whose siblings the caller sets."""
    if order[b].standing < order[a].standing or (
        order[b].standing == order[a].standing and order[b].seq < order[a].seq
    ):
        a, b = b, a
    child = order[a].child
    order[b].next, order[b].prev = child, a
    if child >= 0:
        order[child].prev = b
    order[a].child = b
    return a


@in_place
def _meld_all(order: Records, first: int) -> int:
    """Merge siblings into one tree, or NONE without siblings: pairs from first to last, then the pairs backwards."""
    done = NONE
    while first >= 0:
        tree, other = first, int(order[first].next)
        first = NONE
        if other >= 0:
            first = int(order[other].next)
            tree = _meld(order, tree, other)
        order[tree].prev = done
        done = tree
    if done < 0:
        return NONE
    tree, other = done, int(order[done].prev)
    while other >= 0:
        before = int(order[other].prev)
        tree = _meld(order, tree, other)
        other = before
    order[tree].next = order[tree].prev = NONE
    return tree


@in_place
def order_add(order: Records, least: int, slot: int, credit: float, seq: int) -> int:
    """Add a row to a chain whose least row is `least`, or NONE; return the new least row."""
    order[slot].standing, order[slot].seq = credit, seq
    order[slot].child = order[slot].next = order[slot].prev = NONE
    return slot if least < 0 else _meld(order, least, slot)


@in_place
def order_remove(order: Records, least: int, slot: int) -> int:
    """Remove a row from a chain; return the new least row, or NONE."""
    below = _meld_all(order, int(order[slot].child))
    if slot == least:
        return below
    prev, after = order[slot].prev, order[slot].next
    if order[prev].child == slot:
        order[prev].child = after
    else:
        order[prev].next = after
    if after >= 0:
        order[after].prev = prev
    return least if below < 0 else _meld(order, least, below)


@in_place
def order_least(order: Records, rows: Records, least: int) -> int:
    """Return the least row of a chain by the current credits of its rows."""
    while order[least].standing != rows[least].credit:
        below = _meld_all(order, int(order[least].child))
        least = order_add(order, below, least, rows[least].credit, order[least].seq)
    return least
