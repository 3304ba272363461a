"""The heavy-hitter sketch against exact counts: its guarantee, its merges, and what it refuses to read."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import BraidedError
from braided.routing.sketch import HeavyHitters, _largest_but

ROWS = st.lists(st.tuples(st.one_of(st.integers(0, 6), st.integers(0, 2**64 - 1)), st.integers(0, 50)), max_size=400)
Rows = list[tuple[int, int]]


def sketched(rows: Rows, capacity: int, cuts: int = 1) -> HeavyHitters:
    sketch = HeavyHitters(capacity=capacity)
    for part in range(cuts):
        piece = rows[part * len(rows) // cuts : (part + 1) * len(rows) // cuts]
        sketch.update(np.array([h for h, _ in piece], np.uint64), np.array([w for _, w in piece], np.int64))
    return sketch


def exact(rows: Rows) -> Counter[int]:
    counts: Counter[int] = Counter()
    for key, weight in rows:
        counts[key] += weight
    return counts


def check(sketch: HeavyHitters, truth: Counter[int]) -> None:
    total = sum(truth.values())
    found = dict(sketch.top(sketch.capacity + 1))
    assert sketch.total == total
    assert len(found) <= sketch.capacity
    assert sketch.error * (sketch.capacity + 1) <= total
    for key, weight in truth.items():
        estimate = found.get(key, 0)
        assert weight - sketch.error <= estimate <= weight
        if weight * sketch.capacity > total:
            assert key in found
    if len(+truth) <= sketch.capacity:
        assert found == dict(+truth)
    assert all(key in truth for key in found)


@settings(max_examples=examples(200), deadline=None)
@given(ROWS, st.integers(1, 12), st.integers(1, 5))
def test_guarantee_however_the_rows_are_cut(rows: Rows, capacity: int, cuts: int) -> None:
    check(sketched(rows, capacity, cuts), exact(rows))


@settings(max_examples=examples(100), deadline=None)
@given(ROWS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_merges_of_random_splits_in_any_order(rows: Rows, capacity: int, chance: random.Random) -> None:
    parts: list[Rows] = [[], [], [], []]
    for row in rows:
        parts[chance.randrange(4)].append(row)
    sketches = [sketched(part, capacity) for part in parts]
    while len(sketches) > 1:
        chance.shuffle(sketches)
        taken = sketches.pop()
        before = taken.to_json()
        sketches[0].merge(taken)
        assert taken.to_json() == before
    check(sketches[0], exact(rows))


@pytest.mark.parametrize("capacity", [1, 16, 256])
@pytest.mark.parametrize("weighted", [False, True])
def test_guarantee_on_many_rows(capacity: int, weighted: bool) -> None:
    rng = np.random.default_rng(capacity)
    keys = np.where(rng.random(60_000) < 0.5, rng.zipf(1.3, 60_000) % 5000, rng.integers(0, 2**40, 60_000))
    hashes = keys.astype(np.uint64) << np.uint64(20)  # low bits all equal: the table must spread them itself
    weights = rng.integers(0, 1_000_000, 60_000) if weighted else None
    sketch = HeavyHitters(capacity=capacity)
    sketch.update(hashes, weights)
    ones = np.ones(60_000, np.int64)
    check(sketch, exact(list(zip(hashes.tolist(), (ones if weights is None else weights).tolist(), strict=True))))


def test_same_updates_same_sketch_and_ties_by_hash() -> None:
    hashes = np.random.default_rng(3).integers(0, 5000, 40_000).astype(np.uint64)
    first, second = HeavyHitters(), HeavyHitters()
    for sketch in (first, second):
        sketch.update(hashes[:25_000])
        sketch.update(hashes[25_000:])
    assert first.to_json() == second.to_json()
    tied = HeavyHitters(capacity=4)
    tied.update(np.array([9, 3, 2**64 - 1, 3, 9, 5], np.uint64))
    assert tied.top(3) == [(3, 2), (9, 2), (5, 1)]
    assert tied.top(0) == tied.top(-1) == []


def test_empty_and_strided_updates() -> None:
    sketch = HeavyHitters(capacity=3)
    sketch.update(np.empty(0, np.uint64))
    sketch.update(np.empty(0, np.uint64), np.empty(0, np.int64))
    sketch.merge(HeavyHitters(capacity=3))
    assert (sketch.total, sketch.error, sketch.top(5)) == (0, 0, [])
    sketch.update(np.array([1, 2, 1, 3], np.uint64)[::2], np.array([4, 0, 6, 0])[::2])
    assert sketch.top(5) == [(1, 10)]


@given(st.lists(st.integers(1, 2**62), min_size=1, max_size=60), st.data())
@settings(deadline=None)
def test_selection_equals_sorting(values: list[int], data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(values) - 1))
    assert _largest_but(np.array(values), rank) == sorted(values, reverse=True)[rank]


@given(ROWS, st.integers(1, 12))
@settings(max_examples=examples(50), deadline=None)
def test_json_round_trip(rows: Rows, capacity: int) -> None:
    sketch = sketched(rows, capacity)
    text = json.dumps(sketch.to_json())
    again = HeavyHitters.from_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    again.update(np.array([5, 6], np.uint64))
    sketch.update(np.array([5, 6], np.uint64))
    assert again.to_json() == sketch.to_json()


GOOD: dict[str, Any] = {"capacity": 2, "total": 9, "keys": "AQAAAAAAAAACAAAAAAAAAA==", "counts": [4, 5]}


def test_good_json_is_good() -> None:
    assert HeavyHitters.from_json(GOOD).top(2) == [(2, 5), (1, 4)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not iterable"),
        ([], "not the four of a sketch"),
        ("capacity", "not the four of a sketch"),
        (GOOD | {"more": 1}, "not the four of a sketch"),
        (GOOD | {"capacity": 0}, "capacity=0"),
        (GOOD | {"capacity": 10**9}, "1 to 65536"),
        (GOOD | {"capacity": True}, "is not an integer"),
        (GOOD | {"capacity": 1}, "more keys than the capacity"),
        (GOOD | {"total": 8}, "above the total"),
        (GOOD | {"total": 9.0}, "is not an integer"),
        (GOOD | {"total": float("nan")}, "is not an integer"),
        (GOOD | {"total": -1}, "is not an integer"),
        (GOOD | {"counts": [0, 5]}, "counts: 0"),
        (GOOD | {"counts": [2**63, 5]}, "is not an integer"),
        (GOOD | {"counts": ["4", 5]}, "is not an integer"),
        (GOOD | {"counts": [9]}, "not one per count"),
        (GOOD | {"counts": 3}, "TypeError"),
        (GOOD | {"keys": "AgAAAAAAAAABAAAAAAAAAA=="}, "not in order"),
        (GOOD | {"keys": "AQAAAAAAAAABAAAAAAAAAA=="}, "not in order"),
        (GOOD | {"keys": "AQAAAAAA"}, "ValueError"),
        (GOOD | {"keys": "é" * 16}, "ValueError"),
        (GOOD | {"keys": "AQ**"}, "Error"),
        (GOOD | {"keys": None}, "TypeError"),
        (GOOD | {"keys": "A" * 1000}, "more keys than the capacity"),
    ],
)
def test_hostile_json_is_refused(value: Any, text: str) -> None:
    with pytest.raises(BraidedError, match=r"not a heavy-hitter sketch \(") as caught:
        HeavyHitters.from_json(value)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500


def test_bad_arguments_are_named() -> None:
    sketch = HeavyHitters(capacity=3)
    one = np.ones(1, np.uint64)
    with pytest.raises(BraidedError, match="2 for 1 hashes"):
        sketch.update(one, np.ones(2, np.int64))
    with pytest.raises(BraidedError, match="-4 is below 0"):
        sketch.update(one, np.array([-4]))
    with pytest.raises(BraidedError, match="use a larger unit"):
        sketch.update(np.ones(2, np.uint64), np.array([2**62, 2**62]))
    with pytest.raises(BraidedError, match="hashes of int64"):
        sketch.update(np.ones(1, np.int64))  # type: ignore[arg-type]
    with pytest.raises(BraidedError, match="capacity=2: merge a sketch"):
        sketch.merge(HeavyHitters(capacity=2))
    with pytest.raises(BraidedError, match="capacity=0"):
        HeavyHitters(capacity=0)
    assert sketch.total == 0
