"""Independent answers to what a join must give: a nested loop in plain Python, and DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]


def nested_loop(
    left: Sequence[Row],
    right: Sequence[Row],
    key: Sequence[str],
    lo: int,
    hi: int,
    accept: Callable[[Row, Row], bool] = lambda _l, _r: True,
) -> Counter[tuple[int, int]]:
    """Return the bag of (l.id, r.id) with equal keys and lo <= r.t - l.t <= hi; null keys and times never match."""
    pairs: Counter[tuple[int, int]] = Counter()
    for a in left:
        for b in right:
            if a["t"] is None or b["t"] is None or any(a[k] is None or b[k] is None for k in key):
                continue
            if all(a[k] == b[k] for k in key) and lo <= b["t"] - a["t"] <= hi and accept(a, b):
                pairs[a["id"], b["id"]] += 1
    return pairs
