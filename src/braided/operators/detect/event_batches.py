"""Events of several types as one batch, and grouped by key.

```
 group | type  key  time  at | columns of all types, null where an event's type lacks one
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.match.key_groups import by_key
from braided.routing.key_hashes import KeyHasher
from braided.routing.sorting import build_directory, directory_shift, sort_order
from braided.runtime.ordering_stage import merged_order
from braided.time.clocks import MAX_TIME

TYPE, AT, GROUP = "type", "at", "group"
RESERVED = (TYPE, AT, GROUP)
"""Columns that Braided adds to events."""

Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Keys:
    """The key of all events of a hierarchy, and their time column."""

    key: tuple[str, ...]
    time: str
    hasher: KeyHasher

    def hashes(self, rows: pa.RecordBatch) -> Hashes:
        return self.hasher.hash_with_nulls([rows.column(name) for name in self.key], rows.num_rows)


def times_of(rows: pa.RecordBatch, column: str) -> Int64s:
    """Return a column of times as microseconds."""
    times: Int64s = rows.column(column).view(pa.int64()).to_numpy()
    return times


def later(at: Int64s, time: Int64s) -> Int64s:
    """Return how much later triggers are than events, 0 where they are not; no difference overflows."""
    ahead = at > time
    apart = np.where(ahead, at, 0).astype(np.uint64) - np.where(ahead, time, 0).astype(np.uint64)
    return np.minimum(apart, np.uint64(MAX_TIME)).astype(np.int64)


def merge_types(parts: Sequence[tuple[str, pa.RecordBatch]], schema: pa.Schema, time: str) -> pa.RecordBatch:
    """Return events of several types, each in order, as one batch in order of (time, type as listed)."""
    present = [(name, rows) for name, rows in parts if rows.num_rows]
    if not present:
        return pa.RecordBatch.from_pylist([], schema=schema)
    batches = [_widened(name, rows, schema, time) for name, rows in present]
    if len(batches) == 1:
        return batches[0]
    together = pa.concat_batches(batches)
    order = merged_order([times_of(rows, time) for _, rows in present])
    return together if order is None else together.take(pa.array(order))


def _widened(type_: str, rows: pa.RecordBatch, schema: pa.Schema, time: str) -> pa.RecordBatch:
    """Return events of one type with all columns; the events of a stream have no trigger but themselves."""
    own = set(rows.schema.names)
    columns = []
    for field in schema:
        if field.name == TYPE:
            columns.append(pa.repeat(pa.scalar(type_, pa.string()), rows.num_rows))
        elif field.name in own:
            columns.append(rows.column(field.name))
        else:
            columns.append(rows.column(time) if field.name == AT else pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Grouped(NamedTuple):
    """Events by key: rows of a key together in order of time, where keys begin, and the hash of each key."""

    rows: pa.RecordBatch
    bounds: Int64s
    hashes: Hashes

    @property
    def size(self) -> int:
        return len(self.bounds) - 1

    @property
    def groups(self) -> npt.NDArray[np.int32]:
        """The number of each row's key."""
        return np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.bounds))

    def slice(self, start: int, stop: int) -> Grouped:
        """Return the keys from `start` up to `stop`."""
        first, end = int(self.bounds[start]), int(self.bounds[stop])
        bounds = self.bounds[start : stop + 1] - first
        return Grouped(self.rows.slice(first, end - first), bounds, self.hashes[start:stop])


def split(events: Grouped, time: str, gap: int | None) -> tuple[Grouped, Int64s]:
    """Cut the events of each key where two are more than a gap apart; return the parts, and where keys begin.

    >>> batch = pa.record_batch({"t": pa.array([1, 2, 9, 1], pa.timestamp("us"))})
    >>> parts, first = split(Grouped(batch, np.array([0, 3, 4]), np.array([5, 6], np.uint64)), "t", 5)
    >>> parts.bounds.tolist(), first.tolist()
    ([0, 2, 3, 4], [0, 2, 3])
    """
    if gap is None or not events.size:
        return events, np.arange(events.size + 1)
    times = times_of(events.rows, time)
    cuts = np.zeros(len(times) + 1, np.bool_)
    cuts[1:-1] = later(times[1:], times[:-1]) > gap
    cuts[events.bounds] = True
    bounds = np.flatnonzero(cuts)
    first = np.searchsorted(bounds, events.bounds)
    return Grouped(events.rows, bounds, np.repeat(events.hashes, np.diff(first))), first


def group(rows: pa.RecordBatch, keys: Keys) -> Grouped:
    """Group the rows by key hash; within a key they stay in their order."""
    hashes = keys.hashes(rows)
    order = None
    if len(hashes) and (hashes[1:] < hashes[:-1]).any():
        shift = directory_shift(len(hashes))
        # All times are equal, so that rows with equal hashes stay in their order.
        order = sort_order(hashes, np.zeros(len(hashes), np.int64), build_directory(hashes, shift), shift)
        hashes = hashes[order]
    known = np.arange(len(hashes)) if order is None else order
    again, bounds = by_key(rows, known, hashes, keys.key, exact=keys.hasher.exact)
    if again is not None:
        order, hashes = known[again], hashes[again]
    if order is not None:
        rows = rows.take(pa.array(order))
    return Grouped(rows, bounds, hashes[bounds[:-1]])
