"""Aggregates over windows of a number of rows: StreamCloud's aggregate (II.A), for rows sorted by key and time.

```
 rows of a key      1 2 3 4 5 6 7 8 ...      windows of 4 rows that begin every 2 rows
                   [1 2 3 4] 5               is returned with row 5, which exceeds it
                       [3 4 5 6] 7           with row 7; rows 1 and 2 are not needed any more
```

A window is returned when a row comes that exceeds it, and has the time of its first row, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError
from braided.expressions.order_keys import ordered
from braided.operators.aggregate.range_kernels import best_of_ranges, sum_ranges, whole_sums
from braided.operators.match.match_measures import Matches
from braided.operators.match.matcher import Decided, Sorted
from braided.time.clocks import MIN_TIME, clamp

_PIECE_ROWS = 1 << 17
_PIECE_BYTES = 8 << 20

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowValue:
    """A value of each window: an aggregate of a column, or of the rows themselves."""

    name: str
    kind: str
    source: str | None
    type: pa.DataType


@dataclass(frozen=True)
class RowWindows:
    """Finds the windows of each key that a further row exceeds, and turns them into results.

    Cost: for ``min``, ``max`` and sums of doubles one step per row and window that has the row, else one per row.
    State: of each key at most the rows of one window.
    """

    kind: ClassVar[str] = "row_windows"
    within: ClassVar[None] = None
    numbered: ClassVar[bool] = False
    rest: ClassVar[None] = None

    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    rows: int
    every: int
    values: tuple[RowValue, ...]
    forget: int | None = None
    """After this many microseconds without a row, the rows of a key are forgotten."""

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of the results: the key, the time of the first row, the values."""
        fields = [self.schema.field(name).remove_metadata() for name in (*self.key, self.time)]
        return pa.schema([*fields, *(pa.field(value.name, value.type) for value in self.values)])

    @cached_property
    def read(self) -> list[str]:
        """The columns that the search reads, in order."""
        names = {self.time, *(value.source for value in self.values)}
        return [name for name in self.schema.names if name in names]

    def expired(self, horizon: int) -> int:
        """Return the time before which the last row of a key is forgotten."""
        return MIN_TIME if self.forget is None else clamp(horizon - self.forget)

    def search(self, sorted_rows: Sorted, horizon: int) -> Decided:
        """Return the windows that a further row exceeds, and the rows from each key's next window on."""
        bounds = self._bounds(sorted_rows)
        begins, sizes = bounds[:-1], np.diff(bounds)
        counts = np.where(sizes > self.rows, (sizes - self.rows - 1) // self.every + 1, 0)
        offsets = np.repeat(np.cumsum(counts) - counts, counts)
        first = np.repeat(begins, counts) + (np.arange(len(offsets)) - offsets) * self.every
        needed = begins + counts * self.every
        ends = bounds[1:] - 1
        if self.forget is not None:
            # No row can come soon enough any more. For all but the last row of a key this always holds.
            needed = np.where(sorted_rows.times[ends] < self.expired(horizon), bounds[1:], needed)
        places = np.arange(len(sorted_rows.times))
        stays = places >= np.repeat(needed, sizes)
        opens = stays & np.isin(places, ends)
        return Decided(Matches(first, np.full(len(first), self.rows), np.empty(0, np.int32)), stays, opens)

    def _bounds(self, sorted_rows: Sorted) -> Index:
        """Return where the rows of keys begin, and where they restart after a key was forgotten."""
        if self.forget is None or not len(sorted_rows.times):
            return sorted_rows.bounds
        times = sorted_rows.times.view(np.uint64)  # so that no difference overflows
        gaps = times[1:] - times[:-1] > np.uint64(self.forget)
        return np.union1d(sorted_rows.bounds, np.flatnonzero(gaps) + 1)

    def results(self, sorted_rows: Sorted, matches: Matches) -> Iterator[pa.RecordBatch]:
        """Yield windows as rows of the result, in pieces of bounded size."""
        width = max(1, sorted_rows.rows.nbytes // max(1, sorted_rows.rows.num_rows))
        most = min(_PIECE_ROWS, max(1, _PIECE_BYTES // width))
        for at in range(0, len(matches.first), most):
            first = matches.first[at : at + most]
            index = pa.array(sorted_rows.order[first])
            columns = [sorted_rows.rows.column(name).take(index) for name in self.key]
            columns.append(sorted_rows.columns[self.time].take(pa.array(first)))
            low, high = int(first[0]), int(first[-1]) + self.rows
            for value in self.values:
                source = None if value.source is None else sorted_rows.columns[value.source].slice(low, high - low)
                columns.append(self._value(value, source, first - low))
            yield pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _value(self, value: RowValue, column: pa.Array[Any] | None, first: Index) -> pa.Array[Any]:
        """Return a value of each window; its rows in the column begin at `first`."""
        past = first + self.rows
        if column is None:
            return pa.array(np.full(len(first), self.rows))
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if value.kind in ("min", "max"):
            at = best_of_ranges(_keys(column), valid, first, past, 0, 1 if value.kind == "min" else -1)
            return column.take(pa.array(at, mask=at < 0))
        counts = whole_sums(valid.astype(np.int64), first, past)
        if value.kind == "count":
            return pa.array(counts)
        sums = self.whole_sums(value, column, valid, first, past)
        if value.kind == "avg":
            sums = sums.astype(np.float64) / np.maximum(counts, 1)
        return pa.array(sums, value.type, mask=counts == 0)

    def whole_sums(
        self, value: RowValue, column: pa.Array[Any], valid: npt.NDArray[np.bool_], first: Index, past: Index
    ) -> npt.NDArray[Any]:
        if pa.types.is_floating(column.type):
            return sum_ranges(_filled(column, pa.float64()), valid, first, past, 0)
        numbers = _filled(column, pa.int64())
        # In two halves, so that no sum is wrong, and one that does not fit is detected.
        high, low = whole_sums(numbers >> 32, first, past), whole_sums(numbers & 0xFFFFFFFF, first, past)
        high += low >> 32
        if (np.abs(high + 0.5) > 2.0**31).any() and value.kind == "sum":
            raise BraidedError(
                f"{value.name}: sum({value.source}) of a window does not fit 64 bits; cast the column to double before"
            )
        if value.kind == "avg":
            return high.astype(np.float64) * 2.0**32 + (low & 0xFFFFFFFF)
        return (high << 32) | (low & 0xFFFFFFFF)


def _keys(column: pa.Array[Any]) -> Index:
    """Return whole numbers that compare as values do; any number for a null."""
    if pa.types.is_floating(column.type):
        return ordered(_filled(column, pa.float64()))
    if pa.types.is_date32(column.type):
        return _filled(column.view(pa.int32()), pa.int64())
    return _filled(column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column, pa.int64())


def _filled(column: pa.Array[Any], kind: pa.DataType) -> npt.NDArray[Any]:
    wide = column if column.type == kind else column.cast(kind)
    numbers: npt.NDArray[Any] = pc.fill_null(wide, 0).to_numpy(zero_copy_only=False)
    return numbers
