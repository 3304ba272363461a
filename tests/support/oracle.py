"""An independent answer to what a join of two or more streams must give: a nested loop in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]


def nested_loop(
    streams: Sequence[Sequence[Row]],
    key: Sequence[str],
    lo: int,
    hi: int,
    accept: Callable[..., bool] = lambda *_: True,
) -> Counter[tuple[int, ...]]:
    """Return the bag of ids of one row from each stream, with equal keys and lo <= b.t - a.t <= hi for a before b.

    Null keys and times never match.
    """
    found: Counter[tuple[int, ...]] = Counter()
    for value in {tuple(row[name] for name in key) for row in streams[0]}:
        if None in value:
            continue
        alike = [
            [row for row in rows if row["t"] is not None and tuple(map(row.get, key)) == value] for rows in streams
        ]
        for rows in product(*alike):
            if all(lo <= b["t"] - a["t"] <= hi for a, b in combinations(rows, 2)) and accept(*rows):
                found[tuple(row["id"] for row in rows)] += 1
    return found
