"""Partial results of a group: counts, sums, the least, largest, first and last value, which merge in any order.

The first value is that of the earliest row; of several at one time it is the least. It is kept with its time:

```
 first  = least    (time, value) of the group's rows          nulls come before all values
 last   = largest  (time, value)
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braided.expressions.order_keys import ordered

Kind = Literal["rows", "count", "sum", "min", "max", "first", "last"]
TIME, VALUE = "time", "value"
MERGED = {
    "rows": "sum",
    "count": "sum",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "first": "min",
    "last": "max",
}


@dataclass(frozen=True)
class Measure:
    """A partial result of a group: of `source`, a column of the rows, or of the rows themselves."""

    name: str
    kind: Kind
    source: str | None
    type: pa.DataType

    @property
    def timed(self) -> bool:
        """Whether it depends on which row is the earlier."""
        return self.kind in ("first", "last")


def timed_type(time: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return the type of a first or last value with its time."""
    return pa.struct([pa.field(TIME, time), pa.field(VALUE, value)])


def timed(times: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    """Return values with their times. Of the two zeros of doubles, which compare equal, only one is used: else the sign
    would depend on the order in which partials are merged."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
    return pa.StructArray.from_arrays([times, values], [TIME, VALUE])


def grouped(rows: pa.Table, keys: list[str], measures: Sequence[Measure], *, partial: bool = True) -> pa.Table:
    """Return a row for each group: its keys and measures.

    The column of a measure has partial results or, if not `partial`, the values of its source (of `rows`: none).
    """
    columns = {name: rows[name] for name in keys}
    wanted: list[tuple[Any, str]] = []
    orders: dict[str, tuple[Any, Any]] = {}
    for measure in measures:
        if not partial and measure.source is None:
            wanted.append(([], "count_all"))
            continue
        column = rows[measure.name]
        if measure.timed:
            values = column.combine_chunks()
            columns[measure.name], order = _ranks(values)
            orders[measure.name] = values, order
        else:
            columns[measure.name] = column
        wanted.append((measure.name, MERGED[measure.kind] if partial or measure.timed else measure.kind))
    groups = pa.TableGroupBy(pa.table(columns), keys, use_threads=False).aggregate(wanted)
    result = [groups[name] for name in keys]
    for measure, (name, how) in zip(measures, wanted, strict=True):
        array = groups[f"{name}_{how}" if name else how]
        if measure.timed:
            values, order = orders[measure.name]
            array = values.take(order.take(array.combine_chunks()))
        result.append(array if array.type == measure.type else array.cast(measure.type))
    return pa.table(result, names=[*keys, *(measure.name for measure in measures)])


def _ranks(values: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the place of each timed value in their order, and that order."""
    times, plain = (pc.struct_field(values, name) for name in (TIME, VALUE))
    if pa.types.is_floating(plain.type):  # Arrow puts NaN where nulls are
        numbers = pc.fill_null(plain, 0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        plain = pa.array(ordered(numbers), mask=plain.is_null().to_numpy(zero_copy_only=False))
    # Nulls come first. The option of pyarrow for this differs from version to version.
    parts = {TIME: times, "known": plain.is_valid().cast(pa.int8()), VALUE: plain}
    order = pc.sort_indices(pa.table(parts), sort_keys=[(name, "ascending") for name in parts])
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return pa.array(ranks), order
