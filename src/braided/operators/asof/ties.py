"""Which of several right rows of one key and time answers: the largest by the values of its columns.

Columns are compared in order, the first that differs decides. Null is less than every value, NaN is the largest number,
strings compare by their bytes, structs field by field. Lists and maps are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.expressions.order_keys import ordered, ranks

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def winners(rows: pa.RecordBatch, places: Index, tied: Mask) -> Mask:
    """Return which of the rows at some places are the largest of their group; a `tied` row belongs to the one before.

    >>> rows = pa.record_batch({"a": [1, 1, 1, 0], "b": [5, None, 7, 9]})
    >>> winners(rows, np.arange(4), np.array([False, True, True, False])).tolist()
    [False, False, True, True]
    """
    together = tied.copy()
    together[:-1] |= tied[1:]
    wins = ~together
    members = np.flatnonzero(together)
    if not len(members):
        return wins
    group = np.cumsum(~tied)[members]
    among = rows.take(pa.array(places[members]))
    keys = [key for column in among.columns for key in _keys(column)]
    order = np.lexsort((*reversed(keys), group))
    last = np.append(group[order][1:] != group[order][:-1], True)
    wins[members[order[last]]] = True
    return wins


def _keys(column: pa.Array[Any]) -> Iterator[Index]:
    """Yield integers that compare as values do, the one that matters most first."""
    if column.null_count:
        yield column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    kind = column.type
    if pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _keys(part)
    elif pa.types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy()
        yield ordered(values)
        yield values.view(np.int64)  # 0.0 and -0.0 are different results
    elif pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        yield column.cast(pa.int64()).fill_null(0).to_numpy()
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        yield column.view(pa.int64()).fill_null(0).to_numpy()
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        yield column.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    elif kind == pa.uint64():
        values = column.fill_null(0).to_numpy()
        yield (values ^ np.uint64(1 << 63)).view(np.int64)
    elif not pa.types.is_nested(kind) and not pa.types.is_null(kind):
        yield ranks(column, column.slice(0, 0))[0]
