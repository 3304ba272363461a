"""Histories of two streams for tests of joins: rows, how they are cut and carried, and what a nested loop finds in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from braided.time.clocks import Window
from support.oracle import nested_loop

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def rows_of(side: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(side, schema=SCHEMA)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Two streams at their own pace, each row at most its stream's lateness behind, cut into batches at random."""
    lo = draw(st.integers(-8, 6))
    hi = draw(st.integers(lo, 8))
    lateness = (draw(st.integers(0, 6)), draw(st.integers(0, 6)))
    keys = draw(st.integers(1, 4))
    streams: list[list[dict[str, Any]]] = []
    for side in (0, 1):
        rows: list[dict[str, Any]] = []
        clock = draw(st.integers(-20, 20))
        for number in range(draw(st.integers(0, 25))):
            clock += draw(st.integers(0, 4))
            time = clock - draw(st.integers(0, lateness[side]))
            key = draw(st.one_of(st.integers(0, keys - 1), st.just(None) if number % 7 == 3 else st.nothing()))
            rows.append({"k": key, "t": None if number % 11 == 5 else time, "id": number})
        streams.append(rows)
    arrivals = [0] * len(streams[0]) + [1] * len(streams[1])
    order = draw(st.permutations(arrivals))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order))), max_size=8)))
    return {
        "streams": streams,
        "order": order,
        "cuts": [0, *cuts, len(order)],
        "window": Window(lo, hi, lateness),
        "workers": draw(st.integers(1, 3)),
        "tasks": draw(st.integers(1, 3)),
        "shuffle": draw(st.integers(0, 1000)),
        "restart": draw(st.booleans()),
    }


def expected(case: dict[str, Any]) -> Counter[tuple[int, ...]]:
    """Return the pairs of ids that a nested loop finds."""
    return nested_loop(case["streams"], ["k"], case["window"].lo, case["window"].hi)
