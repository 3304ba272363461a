"""Log-scaled buckets of delays over all of int64: 32 per octave, so each is at most 1/32 wide; integers only.

```
 value   0 1 2 ... 63 | 64 66 ... 126 | 128 132 ... 252 | ...
 width   1            | 2             | 4               |
 bucket  0 ...     63 | 64 ...     95 | 96 ...      127 | ...
```
"""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.errors import BraidedError

Ints = npt.NDArray[np.int64]

BUCKETS = 32 * 57 + 64
"""The number of buckets for 0 .. 2**63 - 1."""

MOST = (1 << 63) - 1


@compiled
def bucket_of(value: int) -> int:
    """Return the bucket of a value; negative values are in bucket 0."""
    if value < 64:
        return max(value, 0)
    shift, rest = 0, value >> 6
    step = 32
    while step > 0:
        if rest >> step:
            rest >>= step
            shift += step
        step >>= 1
    shift += 1
    return 32 * shift + (value >> shift)


@compiled
def bucket_lower(bucket: int) -> int:
    """Return the smallest value in a bucket."""
    if bucket < 64:
        return bucket
    shift = bucket // 32 - 1
    return (bucket - 32 * shift) << shift


@compiled
def bucket_upper(bucket: int) -> int:
    """Return the largest value in a bucket."""
    if bucket < 64:
        return bucket
    shift = bucket // 32 - 1
    return bucket_lower(bucket) + ((1 << shift) - 1)


@compiled
def gap(later: int, earlier: int) -> int:
    """Return later - earlier, limited to the range from 0 to the largest int64."""
    if later <= earlier:
        return 0
    if earlier < 0 and later > MOST + earlier:
        return MOST
    return later - earlier


@compiled
def count_buckets(values: Ints) -> Ints:
    """Return how many values are in each bucket."""
    counts = np.zeros(BUCKETS, np.int64)
    for value in values:
        counts[bucket_of(value)] += 1
    return counts


def encode_counts(counts: Ints, limit: int, *, upward: bool = True) -> str:
    """Write the counts above 0 in at most `limit` bytes of text.

    If they do not fit, 2, 4, ... neighbouring buckets are merged into the uppermost of them, or the lowest.
    """
    at = np.flatnonzero(counts)
    values = counts[at]
    for level in range(12):
        raw = _varints(np.diff(at, prepend=0), values)
        if -(-len(raw) // 3) * 4 <= limit:
            return base64.b64encode(raw).decode()
        span = (2 << level) - 1
        merged_at = np.minimum(at | span, len(counts) - 1) if upward else at & ~span
        at, where = np.unique(merged_at, return_inverse=True)
        merged = np.zeros(len(at), np.int64)
        np.add.at(merged, where, values)
        values = merged
    raise BraidedError(f"delays: the summary does not fit into {limit} bytes; raise the limit")


def decode_counts(text: str, length: int) -> Ints:
    counts = np.zeros(length, np.int64)
    try:
        numbers = _read_varints(base64.b64decode(text, validate=True))
        steps, values = numbers[::2], numbers[1::2]
        counts[np.cumsum(np.array(steps, np.int64))] = np.array(values, np.int64)
    except (ValueError, IndexError, OverflowError) as error:
        raise BraidedError("delays: the summary is damaged, or of another version of braided; restore it") from error
    return counts


def _varints(steps: Ints, values: Ints) -> bytes:
    out = bytearray()
    for pair in zip(steps.tolist(), values.tolist(), strict=True):
        for number in pair:
            while number > 127:
                out.append(number & 127 | 128)
                number >>= 7  # noqa: PLW2901
            out.append(number)
    return bytes(out)


def _read_varints(raw: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in raw:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number, shift = 0, 0
    if shift:
        raise ValueError("cut short")
    return numbers
