"""The state of learning a stream's delays, as arrays for the kernels, and a `Lateness` as numbers for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.time.learning.delay_buckets import BUCKETS, MOST, Ints
from braided.time.learning.pending import FIELDS

SLICES = 8
"""The number of parts of the memory; the oldest part is removed at a time."""

ROW = 64
"""The weight of one row in `counts`; it fades to fractions of a row."""

LEARNED = np.dtype(
    [
        *FIELDS,
        ("lateness", np.int64),  # K
        ("lag", np.int64),  # how far the horizon is behind the clock: K, or more after K has grown
        ("clock", np.int64),
        ("first_clock", np.int64),
        ("slice_start", np.int64),
        ("slice", np.int64),
        ("weight", np.int64),  # the sum of `counts`
        ("held", np.float64),  # the value below which K may not fall yet
        ("lost", np.float64),  # rows, or parts of their results, lost so far
        ("losing", np.float64),  # the same for the current batch
        ("block", np.float64),  # the same for the last rows: a block has as many rows as may lose one
        ("block_rows", np.int64),
        ("blocks", np.float64),  # the sum of the blocks' losses, and of losses * (losses - allowed losses)
        ("bunched", np.float64),
        ("recent", np.int64),  # which part of `recent` is filled now
        ("recent_rows", np.int64),
        ("batch_rows", np.int64),
    ]
)
Learned = npt.NDArray[Any]


class Rule(NamedTuple):
    """A `Lateness` as numbers for the kernels; `loss` is 1 - recall, or 0 without a target."""

    margin: float
    loss: float
    floor: int
    ceiling: int
    slice: int
    slice_rows: int
    reach: int
    prime: int


def new_learned() -> tuple[Learned, Ints, Ints, Ints, Ints]:
    """Return (state, maxima, hints, recent, counts) for a stream without rows."""
    state = np.zeros(1, LEARNED)
    state[0]["lag"] = MOST
    sizes = (SLICES + 1, SLICES + 1, SLICES, BUCKETS)
    maxima, hints, recent, counts = (np.zeros(size, np.int64) for size in sizes)
    return state, maxima, hints, recent, counts
