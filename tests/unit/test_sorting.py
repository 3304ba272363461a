"""Times are put in order by digits: the order of a stable sort, for any times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.routing import sorting
from braided.routing.sorting import time_order
from braided.runtime import ordering_stage

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (0, 1), (-3, 3), (0, 4095), (0, 4096), (-(10**15), 10**15), (0, 2**50), (LIMITS.min, LIMITS.max)],
)
@pytest.mark.parametrize("rows", [4_095, 4_096, 5_000, 70_000])
def test_it_is_the_order_of_a_stable_sort(rows: int, low: int, high: int) -> None:
    times = np.random.default_rng(rows).integers(low, high, rows, endpoint=True)
    assert (time_order(times) == np.argsort(times, kind="stable")).all()


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.integers(LIMITS.min, LIMITS.max) | st.integers(-50, 50), min_size=2, max_size=50), st.integers(0, 30)
)
def test_also_of_few_by_the_kernel(values: list[int], shift: int) -> None:
    """Spans that just fit beside the number of a row, or just do not."""
    times = np.array([value >> shift for value in values], np.int64)
    low, bits = int(times.min()), (len(times) - 1).bit_length()
    span = int(times.max()) - low
    if span >> (63 - bits) == 0:
        assert (sorting._radix_order(times, low, span, bits) == np.argsort(times, kind="stable")).all()


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=40), max_size=4))
def test_pieces_are_cut_where_about_as_many_rows_are_up_to(moments: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering_stage, "_PIECE_ROWS", 7)
        cuts = list(ordering_stage._cuts([np.sort(np.array(times, np.int64)) for times in moments]))
    everything = np.sort(np.concatenate(moments)) if moments else np.array([], np.int64)
    wanted = np.unique(everything[[*range(6, len(everything) - 1, 7), len(everything) - 1]]) if moments else everything
    assert cuts == wanted.tolist()
