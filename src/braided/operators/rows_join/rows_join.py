"""The join with the last rows of each key: rows enter in order of time, and meet the last rows of the other stream.

```
 left rows  -> ordering stage -> by key, with the last rows of both streams -> pairs: results
 right rows ->                                      |--> the last rows of each key: kept, in blocks
```

Rows of both streams are in one order, that of (time, stream, content), in which left rows are first. A row meets the
last rows of the other stream before it in this order, so that each pair is found once, with its later row. A late row
belongs before rows that were already processed, and is not joined.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.durations import format_duration
from braided.operators.asof.waiting_rows import LEFT, RIGHT, Keyed, RowFormat, together
from braided.operators.join.emit import PIECE_ROWS, Emitter, Ranges
from braided.operators.join.pair_kernels import expand_pairs
from braided.operators.join.window_join import WindowJoin
from braided.operators.match.key_groups import merged_by_key
from braided.operators.match.open_rows import Hashes, OpenRows, StoredRows
from braided.operators.rows_join.last_rows import find_last_rows, keep_last_rows
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Outcome, Work
from braided.runtime.ordering_stage import OrderingStage
from braided.runtime.rows import Rows, in_order
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp

LABELS = ("left", "right")

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Merged(NamedTuple):
    """Rows of both streams in order of (key, time, stream).

    order : places among left and then right rows. bounds : where keys begin. parts : the same, and where they restart
    after they were forgotten. is_new : which rows were not stored before.
    """

    order: Index
    hashes: Hashes
    times: Index
    is_left: Mask
    is_new: Mask
    bounds: Index
    parts: Index


@dataclass(frozen=True)
class RowsJoin(WindowJoin):
    """An inner join of each row with the last rows of the other stream that have its key.

    Cost: a sort of each batch's rows by time and by key, one pass over the rows of the keys that it has, and one copy
    of each result. State: rows that wait to be in order, and of each key the last rows of each stream.
    """

    last: tuple[int, int] = (1, 1)
    """How many left rows a right row meets, and how many right rows a left row meets."""
    any_time: bool = True
    """Whether there is no window of time."""
    forget: int | None = None
    """After this many microseconds without a row, the rows of a key are forgotten."""

    @property
    def options(self) -> Json:
        options = super().options
        window = None if self.any_time else options["between"]
        return {**options, "operator": "rows_join", "between": window, "rows": list(self.last), "forget": self.forget}

    def describe(self) -> str:
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(*self.keys, strict=True))
        left, right = self.last
        count = f"{left}" if left == right else f"{right} right or {left} left"
        lo, hi = format_duration(self.window.lo), format_duration(self.window.hi)
        near = "" if self.any_time else f", {lo} <= r.t - l.t <= {hi}"
        also = f", where {self.where_text}" if self.where_text else ""
        return f"joins each row with the last {count} rows of the other stream{f' on {on}' if on else ''}{near}{also}"

    @cached_property
    def _stored(self) -> RowFormat:
        return RowFormat(*self.inputs, waits=True)

    def process(
        self, work: Work, state: Json | None, blocks: Blocks, ranges: Ranges | None = None
    ) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join the rows that are in order by now."""
        assert ranges is None, "only joins that decide pair by pair start an aggregate in their workers"
        old: Json = state or {"stage": None, "last": None}
        stage = OrderingStage(self, old["stage"], blocks, agreed=True)
        stage.take(work)
        stored = OpenRows(blocks, self._stored.schema, old["last"])
        emitter = Emitter(self)
        for left, right, horizon in self._pieces(stage):
            yield from self._joined(emitter, stored, left, right, horizon)
        waiting, levels = stage.stored(), stored.levels()
        return Outcome(
            {"stage": stage.to_json(), "last": stored.to_json()},
            counts={"results": emitter.results, **stage.counts(LABELS)},
            levels={**{name: waiting[name] + levels[name] for name in waiting}, **stage.levels(LABELS)},
            streams=[{"name": name, **known} for name, known in zip(LABELS, stage.report(), strict=True)],
        )

    def answer_all(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of complete streams. Precondition: all rows have a key and a time."""
        lefts, rights = (
            self._keyed(side, in_order(Rows(rows), self.times_of(side, rows))[0].rows)
            for side, rows in enumerate((left, right))
        )
        yield from self._pairs(Emitter(self), lefts, rights, self._merged(lefts, rights, 0, 0))

    def _pieces(self, stage: OrderingStage) -> Iterator[tuple[Keyed, Keyed, int]]:
        """Yield rows of both streams, piece by piece, and the time before which all arrived; the last may be empty."""
        left, right = (self._keyed(side, Rows.none(schema).rows) for side, schema in enumerate(self.inputs))
        horizon: int | None = None
        for sides in stage.release():
            if horizon is not None:
                yield left, right, horizon
            left, right = (self._keyed(side, rows.rows) for side, rows in enumerate(sides))
            horizon = stage.last + 1
        yield left, right, stage.until

    def _joined(
        self, emitter: Emitter, stored: OpenRows, left: Keyed, right: Keyed, horizon: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of new rows, and keep the last rows of each key."""
        new, among = np.concatenate([left.hashes, right.hashes]), len(left.hashes)
        for leaves, own in stored.touched(new, horizon):
            lefts, rights = left, right
            if own is not None:
                lefts, rights = left.pick(own[own < among]), right.pick(own[own >= among] - among)
            old = self._stored.decode([part for leaf in leaves for part in stored.read(leaf)])
            before = [sum(part.rows.num_rows for part in parts) for parts in old]
            lefts, rights = together([*old[0], lefts]), together([*old[1], rights])
            merged = self._merged(lefts, rights, *before)
            yield from self._pairs(emitter, lefts, rights, merged)
            stored.replace(leaves, *self._kept(lefts, rights, merged, horizon))

    def _merged(self, left: Keyed, right: Keyed, old_left: int, old_right: int) -> Merged:
        """Return rows of both streams in order; the first ones of each stream were stored before."""
        among = left.rows.num_rows
        hashes = np.concatenate([left.hashes, right.hashes])
        times = np.concatenate([self.times_of(0, left.rows), self.times_of(1, right.rows)])
        order, bounds = merged_by_key((left.rows, right.rows), hashes, times, self.keys, self.hasher)
        is_left = order < among
        is_new = order >= np.where(is_left, old_left, among + old_right)
        times, parts = times[order], bounds
        if self.forget is not None and len(order):
            # Stored rows belong to one part, even if rows between them are no longer stored.
            unsigned = times.view(np.uint64)  # so that no difference overflows
            gaps = is_new[1:] & (unsigned[1:] - unsigned[:-1] > np.uint64(self.forget))
            parts = np.union1d(bounds, np.flatnonzero(gaps) + 1)
        return Merged(order, hashes[order], times, is_left, is_new, bounds, parts)

    def _pairs(self, emitter: Emitter, left: Keyed, right: Keyed, merged: Merged) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of new rows, in pieces of bounded size."""
        size = len(merged.order)
        starts, counts = np.zeros(size, np.int64), np.zeros(size, np.int64)
        is_left = merged.is_left
        of_sides = merged.order[is_left], merged.order[~is_left] - left.rows.num_rows
        find_last_rows(
            merged.parts,
            merged.times,
            is_left,
            merged.is_new,
            merged.times[is_left],
            merged.times[~is_left],
            *self.last,
            self.any_time,
            self.window.lo,
            self.window.hi,
            starts,
            counts,
        )
        for side, own in enumerate((is_left, ~is_left)):
            meets = np.flatnonzero(counts[own])
            first, ends = starts[own][meets], np.cumsum(counts[own][meets])
            for at in range(0, int(ends[-1]) if len(ends) else 0, PIECE_ROWS):
                count = min(PIECE_ROWS, int(ends[-1]) - at)
                mine, theirs = np.empty(count, np.int64), np.empty(count, np.int64)
                expand_pairs(meets, first, ends, at, mine, theirs)
                i, j = (mine, theirs) if side == 0 else (theirs, mine)
                pairs = self._accepted(left.rows, right.rows, of_sides[0][i], of_sides[1][j])
                yield from emitter.wait_for_more(left.rows, right.rows, *pairs)
        yield from emitter.flush()

    def _accepted(self, left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index) -> tuple[Index, Index]:
        """Return the pairs that the predicate accepts."""
        if self.where is None:
            return i, j
        mask = self.where.mask(
            {name: left.column(name).take(pa.array(i)) for name in self.where.left},
            {name: right.column(name).take(pa.array(j)) for name in self.where.right},
        )
        return i[mask], j[mask]

    def _kept(self, left: Keyed, right: Keyed, merged: Merged, horizon: int) -> tuple[StoredRows, Mask, Index]:
        """Return the rows that later rows may meet, and when to check each again."""
        parts, times = merged.parts, merged.times
        stays = np.zeros(len(times), np.bool_)
        keep_last_rows(
            parts,
            np.isin(parts[1:], merged.bounds),
            times,
            merged.is_left,
            *self.last,
            MIN_TIME if self.any_time else clamp(horizon - self.window.hi),
            MIN_TIME if self.any_time else clamp(horizon + self.window.lo),
            MIN_TIME if self.forget is None else clamp(horizon - self.forget),
            self.forget is not None,
            stays,
        )
        at = np.flatnonzero(stays)
        is_left, place, among = merged.is_left[at], merged.order[at], left.rows.num_rows
        rows = self._stored.encode(
            right.rows, left.rows, np.where(is_left, -1, place - among), np.where(is_left, place, -1)
        )
        ends = np.repeat(times[parts[1:] - 1], np.diff(parts))[at] if len(times) else times
        marks = np.where(is_left, LEFT, RIGHT).astype(np.uint8)
        due = self._due(times[at], is_left, ends)
        return StoredRows(rows, merged.hashes[at], marks), np.ones(len(at), np.bool_), due

    def _due(self, times: Index, is_left: Mask, ends: Index) -> Index:
        """Return the horizon at which rows are checked for removal, from the last times of their keys.

        This is half as long again after no row can meet them, so that few blocks are read for it.
        """
        due = np.full(len(times), MAX_TIME, np.int64)
        if not self.any_time:
            longest = max(0, self.window.hi, -self.window.lo)
            stay = [max(0, self.window.hi) + longest // 2, max(0, -self.window.lo) + longest // 2]
            due = np.where(is_left, _later(times, stay[0]), _later(times, stay[1]))
        if self.forget is not None:
            due = np.minimum(due, _later(ends, self.forget + self.forget // 2))
        return due

    def _keyed(self, side: int, rows: pa.RecordBatch) -> Keyed:
        return Keyed(rows, self.hashes(side, rows), np.zeros(rows.num_rows, np.bool_))


def _later(times: Index, by: int) -> Index:
    """Return times that are later by `by`, at most the largest time."""
    later: Index = times + np.minimum(min(by, MAX_TIME), MAX_TIME - np.maximum(times, 0))
    return later
