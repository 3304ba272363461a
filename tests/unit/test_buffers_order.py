"""The order of the rows of a chain, and the selection of a percentile, against sorted lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.eviction.order import order_add, order_least, order_remove
from braided.eviction.policies.percentiles import select
from braided.eviction.records import NONE, ORDER, ROW

SLOTS = 24


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(200), deadline=None)
def test_the_least_row_of_a_chain_is_always_known(seed):
    steps = np.random.default_rng(seed).integers(0, (4, SLOTS, 5), (300, 3)).tolist()
    order, rows = np.zeros(SLOTS, ORDER), np.zeros(SLOTS, ROW)
    stored: dict[int, tuple[float, int]] = {}
    least = NONE
    for seq, (what, slot, credit) in enumerate(steps):
        if slot not in stored:
            rows[slot]["credit"] = credit
            least = order_add(order, least, slot, float(credit), seq)
            stored[slot] = float(credit), seq
        elif what == 0:  # its own credit rises; the order is told when somebody asks
            rows[slot]["credit"] += credit
            stored[slot] = float(rows[slot]["credit"]), stored[slot][1]
        elif what == 1:
            least = order_remove(order, least, slot)
            del stored[slot]
        elif stored:
            least = order_least(order, rows, least)
            assert least == min(stored, key=lambda s: stored[s])
    while stored:
        least = order_least(order, rows, least)
        assert least == min(stored, key=lambda s: stored[s])
        del stored[least]
        least = order_remove(order, least, least)
    assert least == NONE


@given(
    seed=st.integers(0, 1 << 32),
    n=st.integers(1, 6_000),
    kinds=st.sampled_from([1, 3, 40, 10**9]),
    share=st.floats(0, 1),
)
@settings(max_examples=examples(500), deadline=None)
def test_selection_equals_sorting(seed, n, kinds, share):
    values = np.random.default_rng(seed).integers(-kinds, kinds, n).astype(float)
    k = min(n - 1, int(share * n))
    assert select(values.copy(), n, k) == np.sort(values)[k]
