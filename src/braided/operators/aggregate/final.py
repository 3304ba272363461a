"""The second half of an aggregate, in one process: partials of panes become windows once nothing can be added to them.

```
 panes      | 0 | 1 | 2 | 3 | 4 |        a window of three panes that advances by one has
 windows    [---------]                  the partials of three panes, and a pane is in three windows
                [---------]
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braided.durations import format_duration
from braided.errors import BraidedError, OptionError
from braided.operators.aggregate.measures import Measure, grouped
from braided.operators.aggregate.partial import PANE
from braided.time.clocks import MAX_TIME

START = "start"
# A part is a pane in a window. This many parts take seconds and a few gigabytes.
MOST_PARTS = 1 << 26
_AT_ONCE = 1 << 20


def windows_of(
    partials: pa.Table, keys: Sequence[str], measures: Sequence[Measure], *, size: int, slide: int
) -> pa.Table:
    """Return a row for each window and group, in order of time: the window's start, the keys and the measures."""
    for name in keys:
        if pa.types.is_floating(partials.schema.field(name).type):
            at = partials.schema.get_field_index(name)
            partials = partials.set_column(at, name, _normal(partials[name]))
    panes = grouped(partials, [PANE, *keys], measures)
    kind = panes.schema.field(PANE).type
    starts = panes[PANE].combine_chunks().view(pa.int64()).to_numpy()
    # How far into the last window that has it a pane begins, and how many windows have it.
    into = starts % slide
    each = (size - 1 - into) // slide + 1
    total = int(each.sum())
    if total > MOST_PARTS:
        raise OptionError(
            f"every={format_duration(slide)!r}: windows have {total:,} parts, more than {MOST_PARTS:,}, since every "
            f"moment is in {-(-size // slide):,} of them; write a longer one"
        )
    start = START
    while start in keys:
        start += "_"
    names = [start, *keys, *(measure.name for measure in measures)]
    parts = [panes.slice(0, 0).rename_columns(names)]
    ends = np.cumsum(each)
    for low in range(0, total, _AT_ONCE):
        number = np.arange(low, min(low + _AT_ONCE, total))
        at = np.searchsorted(ends, number, side="right")
        back = into[at] + (number - (ends - each)[at]) * slide
        first = starts[at] - back
        if (first > starts[at]).any() or (first > MAX_TIME - size).any():
            raise BraidedError(
                "window: a window begins or ends outside the times that 64 bits can hold; leave such times out"
            )
        chosen = panes.take(pa.array(at)).set_column(0, start, pa.array(first).view(kind))
        parts.append(grouped(chosen, [start, *keys], measures))
    windows = grouped(pa.concat_tables(parts), [start, *keys], measures)
    return windows.sort_by([(start, "ascending")])


def _normal(values: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Return doubles with one zero and one NaN, as groups of SQL have them."""
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    plain = pc.if_else(pc.equal(values, zero), zero, values)
    return pc.if_else(pc.is_nan(plain), nan, plain)
