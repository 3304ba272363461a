"""A hash of a row's content, and of its ordinal among identical rows, which picks the part of a grid for the row.

Any choice is correct. With a hash of the content, the choice depends on the row alone, and the ordinal spreads
duplicates. Nested columns are left out: rows that differ only there count as identical, with different ordinals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.compiled import compiled
from braided.routing.hash_kernels import hash_bytes, hash_words, mix
from braided.routing.key_hashes import fixed_words, var_width

Words = npt.NDArray[np.uint64]
_NULL = np.uint64(0xD6E8FEB86659FD93)


def content_hashes(rows: pa.RecordBatch) -> Words:
    """Return one 64-bit hash per row; identical rows get different hashes.

    >>> rows = pa.record_batch({"a": [1, 1, 2]})
    >>> len(set(content_hashes(rows).tolist()))
    3
    """
    return with_ordinals(row_hashes(rows))


def row_hashes(rows: pa.RecordBatch) -> Words:
    """Return one 64-bit hash per row, equal for identical rows."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        kind = column.type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            continue
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else None
        if _has_offsets(kind):
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            offsets, data = var_width(column if nulls is None else column.fill_null("" if text else b""))
            hash_bytes(offsets, data, hashes)
        elif kind.bit_width in (1, 8, 16, 32, 64, 128):
            hash_words(fixed_words(column), hashes)
        if nulls is not None:
            # Change only the rows with a null: a hash must not depend on other rows of its batch.
            marked = hashes[nulls]
            hash_words(np.full(len(nulls), _NULL), marked)
            hashes[nulls] = marked
    return hashes


def _has_offsets(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


@compiled
def with_ordinals(hashes: Words) -> Words:
    """Mix into each hash how often it has occurred before, so that equal hashes become different."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    table = np.full(size, -1, np.int64)
    seen = np.zeros(len(hashes), np.int64)
    out = np.empty_like(hashes)
    for i in range(len(hashes)):
        at = np.int64(hashes[i] >> np.uint64(20)) & (size - 1)
        while table[at] >= 0 and hashes[table[at]] != hashes[i]:
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            table[at] = i
        first = table[at]
        out[i] = mix(hashes[i] + np.uint64(seen[first]) * np.uint64(0x9E3779B97F4A7C15))
        seen[first] += 1
    return out
