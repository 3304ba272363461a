"""Blocks of state: verified on reading, read through the cache, deleted with what the cache has of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.operators import group_operator, join_operator, multijoin_operator, ordering_operator

import braided
from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.operators.bounded.budget import limit
from braided.runtime.blocks import Blocks, parts_of
from braided.runtime.contract import Operator
from braided.runtime.store import MemoryStore, digest_of
from braided.time.clocks import Span, Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
JOIN = braided.Join("j", left="a", right="b", on="k", within="50 us")

OPERATORS: dict[str, Callable[[], Operator]] = {
    "join": lambda: join_operator(SCHEMA, Window(-50, 50, (5, 5))),
    "bounded join": lambda: limit(join_operator(SCHEMA, Window(-50, 50, (5, 5))), 100, "auto", "unified", None),
    "multijoin": lambda: multijoin_operator(SCHEMA, 2, Span(50, (5, 5))),
    "group": lambda: group_operator([JOIN], ("a", "b"), SCHEMA, (5, 5), 100, "gdj"),
    "order": lambda: ordering_operator([SCHEMA, SCHEMA], "t", None, 20),
}


def a_batch(start: int) -> list[tuple[int, list[pa.RecordBatch]]]:
    """No two blocks have the same content: the cache knows blocks by that."""
    times = np.arange(start, start + 40)
    columns = [pa.array(times % 5), pa.array(times, pa.timestamp("us"))]
    ids = [pa.array(times + side * 1000) for side in (0, 1)]
    return [(side, [pa.RecordBatch.from_arrays([*columns, ids[side]], schema=SCHEMA)]) for side in (0, 1)]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_block_of_every_operator_is_cached_while_it_lives(name: str) -> None:
    """What is deleted is gone from the cache too, and one digest in the bookkeeping names each block that is there."""
    runtime = LocalRuntime(OPERATORS[name]())
    for start in range(0, 400, 40):
        list(runtime.run_batch(a_batch(start)))
        (store,) = runtime.stores
        cached: dict[str, list[pa.Buffer]] = store.cache._entries  # type: ignore[attr-defined]
        assert sorted(digest_of(content) for content in store.blocks.values()) == sorted(
            entry.partition("-")[0] for entry in cached
        )


class Counting(MemoryStore):
    """Counts how often a block is read."""

    reads = 0

    def read_block(self, number: int) -> bytes | None:
        self.reads += 1
        return super().read_block(number)


def test_a_block_is_read_and_derived_from_once() -> None:
    store, known = Counting(), dict[str, int | str]()
    blocks = Blocks(store, 0, known)
    plain, indexed = blocks.write(b"rows"), blocks.write(b"rows", [pa.py_buffer(b"index")], "k")
    assert (plain, indexed) == ((0, 4), (1, 4))
    assert known == {"next": 2, "0": digest_of(b"rows"), "1": f"{digest_of(b'rows')}-k"}
    assert [part.to_pybytes() for part in blocks.read(indexed.number)] == [b"rows", b"index"]
    assert store.reads == 0
    again: Any = pickle.loads(pickle.dumps(store))
    blocks = Blocks(again, 0, known)
    derived = []

    def derive(content: pa.Buffer) -> list[pa.Buffer]:
        derived.append(content.to_pybytes())
        return [pa.py_buffer(b"index")]

    for _ in range(2):
        assert [part.to_pybytes() for part in blocks.read(indexed.number, derive)] == [b"rows", b"index"]
    assert derived == [b"rows"]
    assert again.reads == 1
    assert (blocks.reads, blocks.cached) == (2, 1)
    for block in (plain, indexed):
        blocks.delete(block.number)
    assert not again.blocks
    assert known == {"next": 2}
    assert blocks.write(b"more").number == 2


def test_other_bytes_under_a_known_number_are_refused() -> None:
    """As a failed attempt may have left them."""
    store, known = MemoryStore(), dict[str, int | str]()
    stored = Blocks(store, 3, known).write(b"committed")
    again = pickle.loads(pickle.dumps(store))
    again.blocks[0] = b"attempted"
    with pytest.raises(StateError, match="the state of worker 3: block 0 is damaged; restore the checkpoint from a"):
        Blocks(again, 3, known).read(stored.number)


def test_parts_are_bounded_however_rows_differ_in_size() -> None:
    texts = ["x" * (10_000 if row >= 90 else 1) for row in range(100)]
    rows = pa.record_batch({"s": texts})
    parts = list(parts_of(rows, 30_000))
    assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
    assert (parts[0][0], parts[-1][1]) == (0, 100)
    assert max(rows.slice(start, stop - start).nbytes for start, stop in parts) <= 37_500
    assert len(parts) <= 10
    assert list(parts_of(rows.slice(0, 0), 1)) == []
    assert list(parts_of(rows.slice(0, 3), 1)) == [(0, 1), (1, 2), (2, 3)]
