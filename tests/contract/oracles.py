"""What each kind of spec must give, read naively: nested loops and sorting over plain rows. Knows no operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from histories import SCHEMA, Row

from braided.specs.group import GroupSpec
from braided.specs.join import JoinSpec
from braided.specs.multijoin import MultiJoinSpec
from braided.specs.order import OrderSpec

Streams = Sequence[Sequence[Row]]
Bag = Counter[tuple[Any, ...]]
Names = Sequence[Sequence[str]]

# Predicates as SQL has them: a null is no.
WHERE: dict[str, Callable[[Row, Row], bool]] = {
    "l.k < r.k": lambda a, b: None not in (a["k"], b["k"]) and a["k"] < b["k"],
    "abs(l.id - r.id) <= 9": lambda a, b: abs(a["id"] - b["id"]) <= 9,
    "l.k = r.k OR l.id = 3": lambda a, b: (a["k"] is not None and a["k"] == b["k"]) or a["id"] == 3,
    "l.k <> r.k AND l.id >= r.id - 1": lambda a, b: (
        None not in (a["k"], b["k"]) and a["k"] != b["k"] and a["id"] >= b["id"] - 1
    ),
}


def names_of(on: Any, streams: int) -> list[list[str]]:
    """Return the key columns of each stream."""
    parts = [] if on is None else [on] if isinstance(on, str) else on
    each = [(part,) * streams if isinstance(part, str) else part for part in parts]
    return [[names[stream] for names in each] for stream in range(streams)]


def key_of(row: Row, names: Sequence[str]) -> tuple[Any, ...] | None:
    """Return a row's key; None where part of it is null."""
    key = tuple(row[name] for name in names)
    return None if None in key else key


def beside(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """Return a row without its key."""
    return tuple(row[name] for name in SCHEMA.names if name not in names)


def pairs(
    left: Sequence[Row],
    right: Sequence[Row],
    keys: Names,
    times: Sequence[str],
    bounds: tuple[int, int],
    where: str | None,
) -> Bag:
    """Return the rows of a window join: the key, the rest of the left row, the rest of the right one."""
    found: Bag = Counter()
    accept = (lambda a, b: True) if where is None else WHERE[where]
    for a, b in product(left, right):
        key, start, end = key_of(a, keys[0]), a[times[0]], b[times[1]]
        if start is None or end is None or key is None or key != key_of(b, keys[1]):
            continue
        if bounds[0] <= end - start <= bounds[1] and accept(a, b):
            found[*key, *beside(a, keys[0]), *beside(b, keys[1])] += 1
    return found


def join(spec: JoinSpec, streams: Streams) -> Bag:
    """Return all pairs."""
    times = [str(spec.time_of(side)) for side in (0, 1)]
    return pairs(streams[0], streams[1], names_of(spec.on, 2), times, spec.bounds, spec.where)


def multijoin(spec: MultiJoinSpec, streams: Streams) -> Bag:
    """Return all combinations."""
    found: Bag = Counter()
    keys = names_of(spec.on, spec.streams)
    times = [str(spec.time_of(side)) for side in range(spec.streams)]
    timed = [[row for row in rows if row[time] is not None] for rows, time in zip(streams, times, strict=True)]
    for key in {key_of(row, keys[0]) for row in timed[0]} - {None}:
        mine = [[row for row in rows if key_of(row, names) == key] for rows, names in zip(timed, keys, strict=True)]
        for rows in product(*mine):
            moments = [row[time] for row, time in zip(rows, times, strict=True)]
            if max(moments) - min(moments) <= spec.span:
                rest = [beside(row, names) for row, names in zip(rows, keys, strict=True)]
                found[*key, *(value for values in rest for value in values)] += 1  # type: ignore[misc]
    return found


def join_group(spec: GroupSpec, streams: Streams) -> Bag:
    """Return all pairs of all joins, each after the name of its join."""
    found: Bag = Counter()
    by_name = dict(zip(spec.streams, streams, strict=True))
    for one in spec.joins:
        times = [str(spec.time_of(spec.streams.index(name))) for name in (one.left, one.right)]
        keys = names_of(one.on, 2)
        for row, count in pairs(by_name[one.left], by_name[one.right], keys, times, one.bounds, None).items():
            found[one.name, *row] = count
    return found


def order(spec: OrderSpec, streams: Streams) -> Bag:
    """Return all rows that have a time; `lines` says in which order."""
    return Counter(tuple(row.values()) for rows in streams for row in rows if row[spec.time] is not None)
