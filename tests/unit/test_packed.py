"""Packed numbers come back as they were, and damaged ones are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braided.errors import BraidedError
from braided.eviction.packed import (
    pack_each,
    pack_reals,
    pack_rising,
    pack_sparse,
    unpack_each,
    unpack_reals,
    unpack_rising,
    unpack_sparse,
)

WORDS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
LISTS = st.lists(WORDS, max_size=20)
KINDS = {
    "each": (pack_each, lambda facts, data: unpack_each(facts, data, 2)),
    "rising": (lambda a: pack_rising(np.sort(a)), lambda facts, data: unpack_rising(facts, data, 2, np.uint64)),
    "sparse": (lambda a: pack_sparse((a >> 1).view(np.int64)), lambda facts, data: unpack_sparse(facts, data, 2)),
    "reals": (lambda a: pack_reals(a.astype(np.float64)), lambda facts, data: unpack_reals(facts, data, 2)),
}


@given(values=LISTS, kind=st.sampled_from(sorted(KINDS)))
def test_numbers_come_back_and_short_bytes_are_refused(values, kind):
    pack, unpack = KINDS[kind]
    array = np.array(values, np.uint64)
    wanted = {"each": array, "rising": np.sort(array), "sparse": array >> 1, "reals": array.astype(np.float64)}[kind]
    facts, data = pack(array)
    got, end = unpack(facts, b"ab" + data + b"more")
    assert got.tolist() == wanted.tolist()
    assert end == 2 + len(data)
    if data:
        with pytest.raises(BraidedError, match="incomplete"):
            unpack(facts, b"ab" + data[:-1])


@given(least=st.integers(-(2**40), 2**40), above=st.lists(st.integers(0, 100), min_size=1, max_size=9))
def test_small_differences_take_a_byte_each(least, above):
    times = least + np.cumsum(np.array(above))
    for _, data in (pack_rising(times), pack_reals(times.min() + np.array([0.0, *above]))):
        assert len(data) <= len(above) + 1
    assert unpack_rising(*pack_rising(times), 0, np.int64)[0].tolist() == times.tolist()


@pytest.mark.parametrize(
    ("facts", "data"),
    [([1, 1], b"\x80"), ([2, 1], b"\x01"), ([1, 2], b"\x01\x01"), ([0, 1], b"\x81"), ([-1, 0], b"")],
)
def test_counts_that_do_not_fit_the_bytes_are_refused(facts, data):
    with pytest.raises(BraidedError, match="incomplete"):
        unpack_each(facts, data, 0)
