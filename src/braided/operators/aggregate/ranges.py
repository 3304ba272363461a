"""Totals of a join's pairs without the pairs: ranges of sorted runs, and sums over them.

The matches of a row are a range of a run that is sorted by (key hash, time). So a count is the range's length, a sum of
the row's own column is its value times that, and a sum of the other's a difference of running sums:

```
 a row, at t      |----- its matches -----|
 other run    [ . . . . . . . . . . . . . . . . ]   sorted by time within the key
 panes        |       |       |       |       |      where the other time is windowed, ranges are cut at panes
```

A hundred million pairs of ten thousand rows on either side are ten thousand totals. All groups must be of one side (or
of the key, which both have); a predicate on pairs needs the pairs. All other aggregates are computed from pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.operators.aggregate.range_kernels import best_of_ranges, count_before, cut_at_panes, sum_ranges, whole_sums
from braided.operators.join.arrivals import OutputColumn
from braided.operators.join.emit import find_ranges
from braided.operators.join.runs import Run
from braided.operators.join.window_join import WindowJoin

if TYPE_CHECKING:
    from collections.abc import Callable

    from braided.operators.aggregate.measures import Measure
    from braided.operators.aggregate.partial import PartialAggregate

Index = npt.NDArray[np.int64]
# Sums up to this cannot overflow, even if two of them are added.
_SAFE = 1 << 62
# Work on all rows between the first match and the last pays off from this many pairs per row on.
_PAIRS_PER_ROW = 0.25
# If panes cut ranges into more pieces per pair than this, making pairs is no more work.
_PIECES_PER_PAIR = 0.5
_ALL = np.empty(0, np.bool_)


@dataclass(frozen=True)
class Layout:
    """Where an aggregate's groups and measures are found in the two runs of a probe.

    drive : the side whose rows have the groups; None if both have them.
    """

    time_side: int
    drive: int | None
    keys: tuple[OutputColumn, ...]
    measures: tuple[tuple[Measure, OutputColumn | None], ...]

    @classmethod
    def of(cls, aggregate: PartialAggregate) -> Layout | None:
        """Return the layout of an aggregate over a join; None if pairs are needed."""
        join = aggregate.inner
        if not isinstance(join, WindowJoin) or join.where is not None or join.where_text is not None:
            return None
        if join.preserved:  # must know which rows have matched
            return None
        if aggregate.computed:
            return None
        columns = {column.name: column for column in join.columns}
        time = columns[aggregate.time]
        if time.source != join.times[time.side]:
            return None
        keys = tuple(columns[name] for name in aggregate.keys)
        sides = {column.side for column in keys if not _is_shared(column, join)}
        if len(sides) > 1:
            return None
        measures = tuple((m, None if m.source is None else columns[m.source]) for m in aggregate.measures)
        if not all(column is None or _can(measure, _type(column, join)) for measure, column in measures):
            return None
        return cls(time.side, next(iter(sides), None), keys, measures)


def _type(column: OutputColumn, join: WindowJoin) -> pa.DataType:
    return join.inputs[column.side].field(column.source).type


def _is_shared(column: OutputColumn, join: WindowJoin) -> bool:
    """Whether both rows of a pair have the same value: keys do, but equal doubles may look different."""
    return column.source in join.keys[column.side] and not pa.types.is_floating(_type(column, join))


def _can(measure: Measure, kind: pa.DataType) -> bool:
    if measure.kind == "count":
        return True
    if measure.timed:
        return False
    whole = bool(pa.types.is_integer(kind)) and kind != pa.uint64()
    if measure.kind == "sum":
        return whole or bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))
    return whole or bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_boolean(kind))


class RangeTotals:
    """Takes the matches of one batch as ranges, and passes on totals by pane and keys."""

    def __init__(
        self, aggregate: PartialAggregate, layout: Layout, horizon: int, take: Callable[[pa.RecordBatch], None]
    ) -> None:
        assert isinstance(aggregate.inner, WindowJoin)
        self._join = aggregate.inner
        self._aggregate = aggregate
        self._layout = layout
        self._horizon = horizon
        self._take = take
        self.late = 0

    def take(self, side: int, probe: Run, stored: Run, rows: Index, starts: Index, ends: Index) -> int | None:
        """See `Ranges`. If both sides have the groups, the probe's side is tried first: its matches are known."""
        total = int(ends[-1])
        for drive in (side, 1 - side) if self._layout.drive is None else (self._layout.drive,):
            if drive == side:
                past = starts + np.diff(ends, prepend=0)
                taken = self._take_of(drive, probe, stored, total, rows, starts, past)
            elif total >= _PAIRS_PER_ROW * len(stored.times):
                taken = self._take_of(drive, stored, probe, total, *self._matches(drive, stored, probe))
            else:
                taken = None
            if taken is not None:
                return taken
        return None

    def _take_of(
        self, drive: int, mine: Run, other: Run, total: int, rows: Index, starts: Index, past: Index
    ) -> int | None:
        """Take the ranges of rows of one side in a run of the other."""
        low, high = int(starts.min()), int(past.max())
        if total < _PAIRS_PER_ROW * (high - low) and self._reads_all(drive, other):
            return None
        if self._collide(drive, other, low, high):
            return None
        same = self._same_key(drive, mine, other, rows, starts)
        if same is not None:
            rows, starts, past = rows[same], starts[same], past[same]
        if not len(rows):
            return 0
        results = int((past - starts).sum())
        panes = self._aggregate.panes
        if self._layout.time_side == drive:
            times = mine.times[rows]
            late = int((past - starts)[times < self._horizon].sum())
        else:
            owners, starts, past = cut_at_panes(starts, past, other.times, low, high, panes.width, panes.offset)
            if len(owners) > _PIECES_PER_PAIR * results:
                return None
            rows, times = rows[owners], other.times[starts]
            late = count_before(other.times, starts, past, self._horizon)
        totals = self._totals(drive, mine, other, rows, starts, past, (low, high), times)
        if totals is None:
            return None
        self.late += late
        self._take(totals)
        return results

    def _matches(self, side: int, probe: Run, stored: Run) -> tuple[Index, Index, Index]:
        """Return the rows of a run with matches in another, and their ranges there."""
        rows, starts, ends = find_ranges(probe, stored, *self._join.window.reach(side))
        return rows, starts, starts + np.diff(ends, prepend=0)

    def _reads_all(self, drive: int, other: Run) -> bool:
        """Whether more of the other run is read than the ends of its ranges."""
        return (
            self._layout.time_side != drive
            or other.tags is not None
            or not self._join.hasher.exact
            or any(column is not None and column.side != drive for _, column in self._layout.measures)
        )

    def _collide(self, drive: int, other: Run, low: int, high: int) -> bool:
        """Whether neighbours with one hash have different keys, or lie under different grids."""
        hasher = self._join.hasher
        if other.tags is None and hasher.exact:
            return False
        next_to = other.hashes[low + 1 : high] == other.hashes[low : high - 1]
        differ = np.zeros(len(next_to), np.bool_)
        if other.tags is not None:
            differ |= other.tags[low + 1 : high] != other.tags[low : high - 1]
        if not hasher.exact and len(next_to):
            columns = [other.rows.column(name) for name in self._join.keys[1 - drive]]
            size = high - low - 1
            differ |= ~hasher.equal([c.slice(low + 1, size) for c in columns], [c.slice(low, size) for c in columns])
        return bool((next_to & differ).any())

    def _same_key(self, drive: int, mine: Run, other: Run, rows: Index, starts: Index) -> npt.NDArray[np.bool_] | None:
        """Return which ranges have their row's key (hashes may collide) and grid; None: all of them."""
        same = None
        if mine.tags is not None or other.tags is not None:
            own, others = (
                np.zeros(len(at), np.int32) if run.tags is None else run.tags[at]
                for run, at in ((mine, rows), (other, starts))
            )
            same = own == others
        if not self._join.hasher.exact:
            at, there = pa.array(rows), pa.array(starts)
            names = self._join.keys[drive], self._join.keys[1 - drive]
            equal = self._join.hasher.equal(
                [mine.rows.column(name).take(at) for name in names[0]],
                [other.rows.column(name).take(there) for name in names[1]],
            )
            same = equal if same is None else same & equal
        return same

    def _totals(
        self,
        drive: int,
        mine: Run,
        other: Run,
        rows: Index,
        starts: Index,
        past: Index,
        span: tuple[int, int],
        times: Index,
    ) -> pa.RecordBatch | None:
        """Return totals with their pane, keys and measures; None where sums might overflow."""
        panes, layout = self._aggregate.panes, self._layout
        taking = pa.array(rows), pa.array(starts)
        kind = self._join.inputs[layout.time_side].field(self._join.times[layout.time_side]).type
        arrays = [panes.of(pa.array(times).view(kind))]
        for column in layout.keys:
            run, at = (mine, taking[0]) if column.side == drive else (other, taking[1])
            arrays.append(run.rows.column(column.source).take(at))
        sizes = past - starts
        for measure, source in layout.measures:
            if source is None:
                total: pa.Array[Any] | None = pa.array(sizes)
            elif source.side == drive:
                total = _own(measure, mine.rows.column(source.source).take(taking[0]), sizes)
            else:
                total = _others(measure, other.rows.column(source.source), starts, past, span)
            if total is None:
                return None
            arrays.append(total)
        names = [str(number) for number in range(len(arrays))]
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _own(measure: Measure, column: pa.Array[Any], sizes: Index) -> pa.Array[Any] | None:
    """Return the total of a column whose values each stand for so many pairs; None where it might overflow."""
    if measure.kind in ("min", "max"):
        return column
    valid = _valid(column)
    if measure.kind == "count":
        return pa.array(sizes if not len(valid) else np.where(valid, sizes, 0))
    values = _numbers(column)
    if values.dtype == np.int64 and _largest(values) * int(sizes.max()) >= _SAFE:
        return None
    return pa.array(values * sizes, mask=None if not len(valid) else ~valid)


def _others(
    measure: Measure, column: pa.Array[Any], starts: Index, past: Index, span: tuple[int, int]
) -> pa.Array[Any] | None:
    """Return the total of a column over each range; None where it might overflow."""
    low, high = span
    part = column.slice(low, high - low)
    valid = _valid(part)
    if measure.kind in ("min", "max"):
        keys = part.cast(pa.int32()) if pa.types.is_date32(part.type) else part
        keys = keys.view(pa.int64()) if pa.types.is_timestamp(part.type) else keys
        at = best_of_ranges(_numbers(keys), valid, starts, past, low, 1 if measure.kind == "min" else -1)
        return column.take(pa.array(at, mask=at < 0))
    counts = past - starts if not len(valid) else whole_sums(valid.astype(np.int64), starts - low, past - low)
    if measure.kind == "count":
        return pa.array(counts)
    values = _numbers(part)
    mask = None if not len(valid) else counts == 0
    if values.dtype == np.float64:
        return pa.array(sum_ranges(values, valid, starts, past, low), mask=mask)
    if _largest(values) * len(values) >= _SAFE:
        return None
    return pa.array(whole_sums(values, starts - low, past - low), mask=mask)


def _valid(column: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Return where a column has values; nothing at all where it has no null."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else _ALL


def _numbers(column: pa.Array[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in 64 bits or doubles, nulls as zero."""
    wide = pa.float64() if pa.types.is_floating(column.type) else pa.int64()
    column = column if column.type == wide else column.cast(wide)
    filled = pc.fill_null(column, 0) if column.null_count else column
    numbers: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _largest(values: Index) -> int:
    return max(abs(int(values.max())), abs(int(values.min())))
