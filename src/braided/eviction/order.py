"""The rows of one chain by (credit, seq), the least on top: a pairing heap in links between rows.

What a whole chain gains changes nothing here, so a match is one addition however many rows it has. A newcomer usually
has the least credit of its chain, or one of the least: it is put on top, and taken from there, in a few steps.

```
            least                    child: the first of those below       prev: the sibling before, or for the
           /  |                      next: the sibling after               first of them the row above
      child - next - next
```

A row's own credit only rises. Where it has since the row was put here, its `standing` lags, as a lower bound.

Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, 1986.
"""

from __future__ import annotations

from braided.compiled import in_place
from braided.eviction.records import NONE, Records


@in_place
def _meld(order: Records, a: int, b: int) -> int:
    """Put one of two trees below the other; return the one on top, whose siblings the caller sets."""
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
    """Make one tree of siblings, or NONE of none: pairs from the first on, then these together from the last back."""
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
    """Add a row to a chain whose least row is `least`, or NONE; return the least row now."""
    order[slot].standing, order[slot].seq = credit, seq
    order[slot].child = order[slot].next = order[slot].prev = NONE
    return slot if least < 0 else _meld(order, least, slot)


@in_place
def order_remove(order: Records, least: int, slot: int) -> int:
    """Take a row out of a chain; return the least row now, or NONE."""
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
    """Return the least row of a chain by the credits that its rows really have."""
    while order[least].standing != rows[least].credit:
        below = _meld_all(order, int(order[least].child))
        least = order_add(order, below, least, rows[least].credit, order[least].seq)
    return least
