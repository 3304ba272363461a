"""Map values of any type to integers of the same order as in Spark, so that kernels only compare integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys = npt.NDArray[np.int64]

_MAX = np.iinfo(np.int64).max


def ordered(values: npt.NDArray[Any]) -> Keys:
    """Map floats to integers of the same order: -0.0 becomes 0.0, and NaN is the largest."""
    bits = (values.astype(np.float64) + 0.0).view(np.int64)
    return np.where(values == values, bits ^ ((bits >> 63) & _MAX), _MAX)  # noqa: PLR0124


def ranks(one: pa.Array[Any], other: pa.Array[Any]) -> tuple[Keys, Keys]:
    """Return integers of the same order as the values of two arrays; the integer of a null is undefined."""
    if pa.types.is_decimal(one.type):
        halves = [_halves(array) for array in (one, other)]
        if all((high == low >> 63).all() for low, high in halves):
            return np.ascontiguousarray(halves[0][0]), np.ascontiguousarray(halves[1][0])
    elif pa.types.is_string(one.type) or pa.types.is_large_string(one.type):
        one, other = one.cast(pa.large_string()), other.cast(pa.large_string())
    else:
        one, other = one.cast(pa.large_binary()), other.cast(pa.large_binary())
    coded = pa.concat_arrays([one, other]).dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    places = np.empty(max(len(order), 1), np.int64)
    places[order] = np.arange(len(order))
    rank = places[coded.indices.fill_null(0).to_numpy()]
    return rank[: len(one)], rank[len(one) :]


def _halves(array: pa.Array[Any]) -> tuple[Keys, Keys]:
    """Return the low and high halves of decimals."""
    if not len(array):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :][: 2 * len(array)]
    return words[::2], words[1::2]
