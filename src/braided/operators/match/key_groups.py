"""Groups rows by key: sorted by hash, and by key where different keys have one hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.expressions.order_keys import ordered
from braided.routing.key_hashes import KeyHasher
from braided.routing.sorting import build_directory, directory_shift, sort_order

Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def merged_by_key(
    streams: Sequence[pa.RecordBatch],
    hashes: Hashes,
    times: Int64s,
    keys: Sequence[Sequence[str]],
    hasher: KeyHasher,
) -> tuple[Int64s, Int64s]:
    """Return the order by (key, time, stream) of rows of several streams, one after the other, and where keys begin.

    `hashes` and `times` are those of all rows. Rows of one key, time and stream keep their order.
    """
    shift = directory_shift(len(hashes))
    order = sort_order(hashes, times, build_directory(hashes, shift), shift)
    again, bounds = by_key(_key_values(streams, keys, hasher), order, hashes[order], keys[0], exact=hasher.exact)
    return (order if again is None else order[again]), bounds


def _key_values(streams: Sequence[pa.RecordBatch], keys: Sequence[Sequence[str]], hasher: KeyHasher) -> pa.RecordBatch:
    """Return the keys of all rows in one type; if equal hashes mean equal keys, only those of the first stream."""
    if hasher.exact:
        return streams[0].select(list(keys[0]))
    columns = [
        pa.concat_arrays([rows.column(name).cast(kind) for rows, name in zip(streams, names, strict=True)])
        for *names, kind in zip(*keys, hasher.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(keys[0]))


def by_key(
    rows: pa.RecordBatch, order: Int64s, hashes: Hashes, key: Sequence[str], *, exact: bool
) -> tuple[Int64s | None, Int64s]:
    """Return an order in which the rows of a key are together, None if they already are, and where keys begin in it.

    Within a key rows keep their order. Nulls are equal to each other. `order` is that of the rows by hash, in which the
    `hashes` already are; `exact`: equal hashes mean equal keys, unless a key has nulls.
    """
    count = len(hashes)
    if not count:
        return None, np.zeros(1, np.int64)
    differs = hashes[1:] != hashes[:-1]
    if key and not (exact and all(not rows.column(name).null_count for name in key)):
        codes = [_codes(rows.column(name))[order] for name in key]
        other = np.logical_or.reduce([code[1:] != code[:-1] for code in codes])
        if (other & ~differs).any():
            again = np.lexsort((*codes, hashes))
            differs = np.logical_or.reduce([code[again][1:] != code[again][:-1] for code in (*codes, hashes)])
            return again, _bounds(differs, count)
    return None, _bounds(differs, count)


def _bounds(differs: npt.NDArray[np.bool_], count: int) -> Int64s:
    return np.concatenate([[0], np.flatnonzero(differs) + 1, [count]]).astype(np.int64)


def _codes(column: pa.Array[Any]) -> Int64s:
    """Return integers that are equal for equal values, and one for nulls."""
    if pa.types.is_floating(column.type):
        values = ordered(column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64))
        column = pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
    coded = pc.dictionary_encode(column, null_encoding="encode")
    codes: Int64s = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
