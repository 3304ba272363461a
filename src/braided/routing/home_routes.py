"""Routing for joins that must know that a row has no match: its rows have one home, where they meet all matches.

Such a join splits one side, the *preserved* one: each of its rows is stored in one worker. Rows of the other side are
stored in every worker of every *open* assignment of their group. A change has two phases:

```
 a change of a group      live, newest first    preserved row        row of the other side
 before                   [A]                   stored in A          stored in A
 1: B is an opening       [B, A]                stored in A          stored in B and in A
 2: B is the home         [B, A]                stored in B          stored in B, probes A
 A is dead                [B]                   stored in B          stored in B
```

*Why it is exact.* A preserved row meets later rows of the other side at its home, which gets copies of them until its
last preserved row has left. It meets earlier rows there too, because the home changes only when every row of the other
side from before the first batch of phase 1 has left (`braided.routing.assignment_expiry`). It probes nowhere else, so
it meets no match twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from braided.errors import BraidedError
from braided.routing.routes import Index, Part, Routes, copies, join_parts, route
from braided.routing.table import MAX_LIVE, Hashes, RoutingTable


def route_to_homes(
    table: RoutingTable, side: int, split: int, hashes: Hashes, content: Callable[[Index], Hashes]
) -> Routes:
    """Return the copies of rows like `route`, but rows of the split side have one home."""
    if table.plain or not len(hashes):
        return route(table, side, hashes, content)
    groups = table.groups_of(hashes)
    parts: list[Part] = []
    if side == split:
        parts += copies(table, side, table.home[groups], content, stored=True, primary=True)
        if sum(len(rows) for rows, *_ in parts) != len(hashes):
            raise BraidedError(
                f"routing table {table.version}: a grid copies rows that must have one home; use another control "
                "directory"
            )
        return join_parts(parts)
    home_place = table.home_place[groups]
    for place in range(MAX_LIVE):
        assignments = table.live[groups, place]
        if place and (assignments < 0).all():
            break
        is_open = place <= home_place
        for stored in (True, False):
            chosen = np.where(is_open == stored, assignments, np.int32(-1))
            parts += copies(table, side, chosen, content, stored=stored, primary=place == 0)
    return join_parts(parts)
