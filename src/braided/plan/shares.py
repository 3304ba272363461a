"""Divide processors among the stages of a query by their measured cost: StreamCloud's instantiator (III.G)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The cost of a stage so far: milliseconds of its batches, and the rows that it read."""

    ms: float = 0.0
    rows: int = 0

    @property
    def us_per_row(self) -> float:
        """Microseconds per row."""
        return 1000 * self.ms / self.rows if self.rows else 0.0


def shares_of(names: Sequence[str], processors: int, costs: Mapping[str, Cost]) -> dict[str, int]:
    """Return how many partitions each stage gets: in proportion to its cost, at least one, `processors` in total.

    >>> shares_of(["1-where", "2-join"], 8, {"1-where": Cost(100, 10), "2-join": Cost(700, 10)})
    {'1-where': 1, '2-join': 7}
    """
    known = [costs[name].ms for name in names if name in costs and costs[name].ms > 0]
    mean = sum(known) / len(known) if known else 1.0
    loads = [costs[name].ms if name in costs and costs[name].ms > 0 else mean for name in names]
    free = processors - len(names)
    exact = [max(0.0, load * processors / sum(loads) - 1) for load in loads]
    scale = free / sum(exact) if sum(exact) else 0.0
    whole = [int(part * scale) for part in exact]
    order = sorted(range(len(names)), key=lambda at: whole[at] - exact[at] * scale)
    for at in order[: free - sum(whole)]:
        whole[at] += 1
    return {name: 1 + part for name, part in zip(names, whole, strict=True)}
