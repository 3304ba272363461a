"""Joins of three or more streams with the same key and the same window become one join of many streams.

```
 a.k = b.k AND b.k = c.k  AND  |a.ts - b.ts| <= w AND |a.ts - c.ts| <= w AND |b.ts - c.ts| <= w
   ->  keys (a.k, b.k, c.k), all times of a combination within w of each other
```

Every two streams must have bounds, and all bounds must be equal. In a chain (a with b, b with c), a and c can be
further apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from braided.sqltext.conditions import Bound, bound, equality, limits
from braided.sqltext.joins import Cut, Source

MOST_STREAMS = 8
_Name = tuple[str, str]


@dataclass(frozen=True)
class Common:
    """Streams with a common key, the time of each, the bounds on every two times, and the other conditions."""

    streams: tuple[str, ...]
    times: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    """For each key, its column in every stream."""
    bounds: tuple[Bound, ...]
    rest: tuple[exp.Expression, ...]

    def within(self, value: Callable[[Bound], int]) -> int | None:
        """Return the common window of every two streams, given the values of bounds; None if there is none."""
        spans = set()
        for one, other in combinations(self.streams, 2):
            both = [each for each in self.bounds if {each.plus.table, each.minus.table} == {one, other}]
            lo, hi = limits([(each, value(each)) for each in both], {one})
            if lo is None or hi is None or lo != -hi or hi < 0:
                return None
            spans.add(hi)
        return spans.pop() if len(spans) == 1 else None


def find_common(cut: Cut, sources: Mapping[str, Source]) -> Common | None:
    """Return the common key and bounds of the streams of a SELECT; None if they are joined one after the other."""
    streams = (cut.first, *(step.right for step in cut.steps))
    times: dict[str, str] = {}
    for step in cut.steps:
        for time in step.times:
            if times.setdefault(time.table, time.name) != time.name:
                return None
    if not 3 <= len(streams) <= MOST_STREAMS or set(times) != set(streams):
        return None

    def is_time(column: exp.Column) -> bool:
        return sources[column.table].is_time(column.name)

    bounds, equal, rest = [each for step in cut.steps for each in step.bounds], [], []
    equal += [pair for step in cut.steps for pair in step.keys]
    for part in (part for step in cut.steps for part in step.rest):
        time_bound, pair = bound(part, is_time), equality(part)
        if time_bound is not None and all(
            times[time.table] == time.name for time in (time_bound.plus, time_bound.minus)
        ):
            bounds.append(time_bound)
        elif pair is not None:
            equal.append(pair)
        else:
            rest.append(part)
    keys, left = _keys(equal, streams)
    if not keys:
        return None
    return Common(streams, tuple(times[alias] for alias in streams), keys, tuple(bounds), (*rest, *left))


def _keys(
    equal: list[tuple[exp.Column, exp.Column]], streams: tuple[str, ...]
) -> tuple[tuple[tuple[str, ...], ...], list[exp.Expression]]:
    """Return the keys with one column in every stream, and the other equalities."""
    classes: list[set[_Name]] = []
    for pair in equal:
        new = {(column.table, column.name) for column in pair}
        for known in [known for known in classes if known & new]:
            classes.remove(known)
            new |= known
        classes.append(new)
    whole = [members for members in classes if sorted(alias for alias, _ in members) == sorted(streams)]
    keys = tuple(tuple(dict(members)[alias] for alias in streams) for members in whole)
    left = [
        exp.EQ(this=one.copy(), expression=other.copy())
        for one, other in equal
        if not any((one.table, one.name) in members for members in whole)
    ]
    return keys, left
