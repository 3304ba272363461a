"""Keys of different types: equal numbers and moments meet, others do not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braided import local
from braided.errors import BraidedError
from braided.routing.key_hashes import KeyHasher, common_key_type

SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [pa.decimal128(5, 0), pa.decimal128(20, 0), pa.decimal128(22, 2)]
CORNERS = sorted(
    {sign * (2**bits + d) for bits in (0, 7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0, 1) for sign in (1, -1)}
)


def fits(value: int, kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return abs(value) < 10 ** (kind.precision - kind.scale)
    low = -(2 ** (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else 0
    return low <= value < low + 2**kind.bit_width


def column(values: list[int], kind: pa.DataType) -> pa.Array:
    return pa.array(values if pa.types.is_integer(kind) else [Decimal(value) for value in values], kind)


@given(st.data())
def test_numbers_are_equal_whatever_their_types(data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from(SIGNED + UNSIGNED + DECIMALS)) for _ in range(2)]
    numbers = st.sampled_from(CORNERS) | st.integers(-(2**64), 2**64)
    sides = [data.draw(st.lists(numbers.filter(lambda n, kind=kind: fits(n, kind)), max_size=20)) for kind in kinds]
    hasher = KeyHasher((common_key_type(kinds[0], kinds[1], ("k", "k")),))
    columns = [column(values, kind) for values, kind in zip(sides, kinds, strict=True)]
    hashes = [hasher.hash([array], len(array)) for array in columns]
    i, j = (part.ravel() for part in np.indices([len(array) for array in columns]))
    met = hashes[0][i] == hashes[1][j]
    if not hasher.exact and len(met):
        met &= hasher.equal([columns[0].take(i)], [columns[1].take(j)])
    assert met.tolist() == [x == y for x in sides[0] for y in sides[1]]


@pytest.mark.parametrize("kind", UNSIGNED)
@pytest.mark.parametrize("other", SIGNED)
def test_unsigned_keys_join(kind: pa.DataType, other: pa.DataType) -> None:
    top = 2**kind.bit_width - 1  # has the bits of -1

    def rows(values: list[int], of: pa.DataType) -> pa.Table:
        return pa.table({"k": pa.array(values, of), "ts": pa.array(range(len(values)), pa.timestamp("us"))})

    unsigned, signed = rows([1, top, 7], kind), rows([-1, 7, 1], other)
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second"}
    assert sorted(local.join(unsigned, signed, **options).table["k"].to_pylist()) == [1, 7]
    assert sorted(local.join(signed, unsigned, **options, memory=100).table["k"].to_pylist()) == [1, 7]
    assert sorted(local.join(unsigned, unsigned, **options, workers=3).table["k"].to_pylist()) == [1, 7, top]
    many = local.multijoin([unsigned, signed, unsigned, signed], **options).table
    assert (sorted(many["k"].to_pylist()), many.schema.field("k").type) == ([1, 7], kind)
    assert local.order(unsigned, time="ts", key="k").table.num_rows == 3


def test_zoned_keys_are_moments() -> None:
    zones = [pa.timestamp("us", zone) for zone in ("Europe/Berlin", "Asia/Tokyo")]
    tables = [pa.table({"k": pa.array([5, 6], zone), "ts": pa.array([0, 0], pa.timestamp("us"))}) for zone in zones]
    found = local.join(*tables, on="k", time="ts", within="1 second").table
    assert (found.num_rows, found.schema.field("k").type) == (2, zones[0])


def test_types_that_cannot_meet_are_refused_as_they_are() -> None:
    for left, right in [
        (pa.int64(), pa.float64()),
        (pa.uint64(), pa.decimal128(38, 20)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    ]:
        with pytest.raises(BraidedError) as caught:
            common_key_type(left, right, ("a", "b"))
        assert f"on=('a', 'b'): key types do not match, {left} on the left and {right} on the right" in str(
            caught.value
        )
