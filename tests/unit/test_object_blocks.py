"""State in objects: how many requests a batch makes, what is inline, what is deleted, and damage."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.folder_store import ObjectStore, folder_stores
from support.operators import join_operator

from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.runtime import object_blocks
from braided.runtime.object_blocks import ObjectBlocks, ObjectFolder
from braided.runtime.store import MemoryCache
from braided.storage.files import RemoteFiles, files_at
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def a_batch(number: int, rows: int) -> list[tuple[int, list[pa.RecordBatch]]]:
    rng = np.random.default_rng(number)
    sides = []
    for side in (0, 1):
        times = pa.array(np.sort(number * 40 + rng.integers(0, 40, rows)), pa.timestamp("us"))
        columns = [pa.array(rng.integers(0, 1000, rows)), times, pa.array(np.arange(rows))]
        sides.append((side, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
    return sides


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was asked of the store."""
    found: Counter[str] = Counter()
    for name in ("read", "replace", "delete", "names", "create"):
        plain = getattr(RemoteFiles, name)

        def request(*arguments: Any, name: str = name, plain: Any = plain) -> Any:
            found[name] += 1
            return plain(*arguments)

        monkeypatch.setattr(RemoteFiles, name, request)
    return found


def runtime() -> LocalRuntime:
    stores = folder_stores(2, kind=ObjectStore)
    return LocalRuntime(join_operator(SCHEMA, Window(-100, 100, (5, 5))), stores=stores)


def test_a_batch_writes_one_object_for_each_worker_and_reads_none(requests: Counter[str]) -> None:
    host = runtime()
    for number in range(1, 12):
        list(host.run_batch(a_batch(number, 3000)))
        assert requests["replace"] == 2 * number
    # Batch 0 looks for what earlier attempts left.
    assert requests == {"replace": 22, "names": 2}
    assert all(store.files() == store.named() for store in host.stores if isinstance(store, ObjectStore))


def test_small_blocks_are_in_the_bookkeeping(requests: Counter[str]) -> None:
    host = runtime()
    for number in range(6):
        list(host.run_batch(a_batch(number, 50)))
    assert requests == {"names": 2}
    [size] = {len(store.bookkeeping or b"") // 100_000 for store in host.stores}
    assert size == 0


def test_another_process_reads_each_block_once_and_only_its_bytes(requests: Counter[str]) -> None:
    host = runtime()
    for number in range(3):
        list(host.run_batch(a_batch(number, 3000)))
    for store in host.stores:
        store.cache = MemoryCache()
    requests.clear()
    list(host.run_batch(a_batch(3, 3000)))
    blocks = sum(report["last"]["state_reads"] - report["last"]["cached_reads"] for report in host.reports)
    assert requests == {"read": blocks, "replace": 2}
    assert blocks > 0


@pytest.mark.parametrize("damage", ["missing", "a flipped bit"])
def test_an_object_that_is_not_what_was_written_stops_the_query(damage: str) -> None:
    host = runtime()
    list(host.run_batch(a_batch(0, 3000)))
    store = host.stores[0]
    assert isinstance(store, ObjectStore)
    store.cache = MemoryCache()
    [name] = store.files()
    content = bytearray(store.remote.read(f"join-1/0/{name}") or b"")
    if damage == "missing":
        store.remote.delete(f"join-1/0/{name}")
    else:
        content[len(content) // 3] ^= 1
        store.remote.replace(f"join-1/0/{name}", bytes(content))
    said = rf"the object .*join-1/0/{name} is missing" if damage == "missing" else r"block \d+ is damaged"
    with pytest.raises(StateError, match=rf"worker 0: {said}; restore the checkpoint from a copy"):
        list(host.run_batch(a_batch(1, 3000)))


def test_an_object_is_dropped_with_its_last_block_and_deleted_when_no_version_needs_it() -> None:
    root = "memory://objects-of-one-worker"
    bookkeeping: dict[str, Any] = {"blocks": {}}

    def opened(batch: int) -> ObjectBlocks:
        return ObjectBlocks(ObjectFolder(root, "home", 0, batch, 3), bookkeeping, MemoryCache())

    def objects() -> set[str]:
        return set(files_at(root, "checkpoint").names("home/0"))

    store = opened(1)
    large = [pa.py_buffer(bytes([number]) * object_blocks.INLINE) for number in range(2)]
    names = [store.put(number, [content], "") for number, content in enumerate(large)]
    assert not objects(), "one request, when all are there"
    store.finish()
    [name] = objects()
    assert opened(2).get(1, names[1], lambda _: ())[0] == [large[1]]
    store = opened(2)
    store.delete(0, names[0])
    store.finish()
    assert bookkeeping["dropped"] == []
    store = opened(28)
    store.delete(1, names[1])
    assert bookkeeping["dropped"] == [[name, 28]]
    files_at(root, "checkpoint").replace(f"home/0/3-{7:032x}", b"of an attempt that never committed")
    before = json.dumps(bookkeeping)
    for batch in (31, 33):
        opened(batch)
        assert len(objects()) == 2
    opened(32)  # a rollback to batch 28 would load what batch 27 left, in which the block lives
    assert objects() == {name}
    assert json.dumps(bookkeeping) == before
    opened(64)
    assert objects() == set()
    assert bookkeeping["dropped"] == []
