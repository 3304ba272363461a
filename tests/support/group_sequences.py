"""Rows of three streams for several joins, as strategies and as the arrays that a buffer takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from braided.eviction.group_buffer import GroupEvents, GroupWindow


@st.composite
def sequences(draw: st.DrawFn) -> dict[str, Any]:
    joins = []
    for left, right in draw(st.lists(st.sampled_from([(0, 1), (1, 2), (2, 0), (0, 1)]), min_size=1, max_size=3)):
        lo = draw(st.integers(-6, 4))
        joins.append(GroupWindow(left, right, lo, draw(st.integers(lo, 8))))
    time, events = 0, []
    for number in range(draw(st.integers(0, 40))):
        time += draw(st.integers(0, 2))
        keys = [draw(st.one_of(st.integers(0, 2), st.just(None))) for _ in joins]
        content = draw(st.integers(0, 2**64 - 1))
        size = draw(st.integers(0, 9))
        row = {"t": time, "s": draw(st.integers(0, 2)), "keys": keys, "id": number, "content": content, "size": size}
        events.append(row)
    most = draw(st.one_of(st.none(), st.integers(5, 30)))
    return {
        "most": most,
        "joins": joins,
        "events": events,
        "capacity": draw(st.integers(1, 8)),
        "room": draw(st.integers(1, 5)),
    }


def arrays(events: list[dict[str, Any]], joins: list[GroupWindow], first: int) -> GroupEvents:
    roles = [
        [
            -1 if e["keys"][j] is None or e["s"] not in (w.left, w.right) else (w.left, w.right).index(e["s"])
            for j, w in enumerate(joins)
        ]
        for e in events
    ]
    keys = [[e["keys"][j] or 0 for j in range(len(joins))] for e in events]
    shape = (len(events), len(joins))
    return GroupEvents(
        np.array(keys, np.uint64).reshape(shape),
        np.array(roles, np.int8).reshape(shape),
        np.array([e["t"] for e in events], np.int64),
        np.array([e["s"] for e in events], np.int8),
        np.array([e["content"] for e in events], np.uint64),
        np.arange(first, first + len(events)),
    )
