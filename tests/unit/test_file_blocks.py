"""State in files: what is deleted when, and a crash at every write, rename, delete and commit."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.folder_store import folder_stores
from support.operators import join_operator
from support.profiles import size

from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.runtime import buffer_file, file_blocks
from braided.runtime.file_blocks import FileBlocks, StateFolder
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
BATCHES = 9


@lru_cache(maxsize=1)
def _runtime() -> LocalRuntime:
    return LocalRuntime(join_operator(SCHEMA, Window(-50, 50, (5, 5))), workers=2)


def a_batch(number: int) -> list[tuple[int, list[pa.RecordBatch]]]:
    rng = np.random.default_rng(number)
    sides = []
    for side in (0, 1):
        times = np.sort(number * 40 + rng.integers(0, 40, 25))
        columns = [pa.array(rng.integers(0, 4, 25)), pa.array(times, pa.timestamp("us")), pa.array(times * 2 + side)]
        sides.append((side, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
    return sides


def folder(tmp_path: Path, batch: int, retained: int = 3) -> StateFolder:
    return StateFolder(tmp_path, "home", 0, batch, retained)


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "home" / "0").iterdir()}


def test_a_dropped_file_stays_as_long_as_spark_may_go_back_to_it(tmp_path: Path) -> None:
    book: dict[str, Any] = {"blocks": {}}
    name = FileBlocks(folder(tmp_path, 0), book).put(0, [pa.py_buffer(b"rows"), pa.py_buffer(b"index")], "")
    assert files(tmp_path) == {name}
    book["blocks"] = {"0": name, "next": 1}
    store = FileBlocks(folder(tmp_path, 4), book)
    assert [part.to_pybytes() for part in store.get(0, name, lambda _: ())[0]] == [b"rows", b"index"]
    del book["blocks"]["0"]
    store.delete(0, name)
    assert book["dropped"] == [[name, 4]]
    # Batch 9 can be followed by a rollback to batch 5, which loads what batch 4 left: there the file is dropped.
    for batch in range(5, 10):
        FileBlocks(folder(tmp_path, batch), json.loads(json.dumps(book)))
        assert files(tmp_path) == {name}, batch
    FileBlocks(folder(tmp_path, 10), book)
    assert files(tmp_path) == set()
    assert book["dropped"] == []


def test_files_that_no_bookkeeping_names_are_swept_when_no_attempt_can_need_them(tmp_path: Path) -> None:
    path = tmp_path / "home" / "0"
    path.mkdir(parents=True)
    orphans = {f"{batch}-{batch}-{batch:016x}" for batch in (0, 26, 27)} | {".26-7-00000000000000aa.123"}
    live, dropped = "1-1-" + "1" * 16, "2-2-" + "2" * 16
    for name in (*orphans, live, dropped, "notes.txt"):
        (path / name).write_bytes(b"")
    book = {"blocks": {"1": live, "next": 2}, "dropped": [[dropped, 31]]}
    for batch in (31, 33):
        FileBlocks(folder(tmp_path, batch), json.loads(json.dumps(book)))
        assert orphans <= files(tmp_path)
    FileBlocks(folder(tmp_path, 32), book)
    assert files(tmp_path) == {live, dropped, "notes.txt", "27-27-000000000000001b"}


@pytest.mark.parametrize("damage", ["missing", "empty", "a flipped bit", "another file"])
def test_a_file_that_is_not_what_was_written_stops_the_query_with_its_name(damage: str) -> None:
    [store] = folder_stores(1)
    runtime = LocalRuntime(join_operator(SCHEMA, Window(-50, 50, (5, 5))), stores=[store])
    list(runtime.run_batch(a_batch(0)))
    first, *others = sorted(store.path.iterdir())
    if damage == "missing":
        first.unlink()
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "another file":
        first.write_bytes(others[0].read_bytes())
    else:
        content = bytearray(first.read_bytes())
        content[-100] ^= 4
        first.write_bytes(content)
    said = rf"worker 0: the file {first} is (missing|damaged); restore the checkpoint from a copy"
    with pytest.raises(StateError, match=said):
        list(runtime.run_batch(a_batch(1)))


class CrashError(Exception):
    """The process dies."""


class Fuse:
    """Lets the process die at one of the places where something on disk or in the state store changes."""

    def __init__(self, at: int | None) -> None:
        self.at, self.passed = at, 0

    def burn(self) -> None:
        self.passed += 1
        if self.passed - 1 == self.at:
            raise CrashError


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    """Every write, rename, delete, update of the bookkeeping and commit passes this fuse."""
    found = Fuse(None)
    replace, unlink = os.replace, os.unlink

    def renamed(source: Any, target: Any) -> None:
        found.burn()  # what is written has not got its name
        replace(source, target)
        found.burn()

    def removed(self: Path, missing_ok: bool = False) -> None:
        found.burn()
        unlink(self)
        found.burn()

    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", removed)
    monkeypatch.setattr(file_blocks, "SWEEP_EVERY", 2)
    return found


class StateStore:
    """What Spark does: a version of every bookkeeping for each batch, of which the last few are retained."""

    def __init__(self, fuse: Fuse, retained: int) -> None:
        self.runtime = _runtime()  # remembers nothing but its stores
        self.stores = folder_stores(2, retained)
        self.fuse, self.retained = fuse, retained
        self.versions: dict[int, list[bytes | None]] = {-1: [None, None]}
        self.results: dict[int, Counter[str]] = {}

    def run(self, batch: int) -> None:
        """Run a batch from the version before it, and commit it."""
        buffer_file._checked.clear()
        stores = [pickle.loads(pickle.dumps(store)) for store in self.stores]
        for store, book in zip(stores, self.versions[batch - 1], strict=True):
            store.book = book
        self.runtime.stores = list(stores)
        found: Counter[str] = Counter()
        for piece in self.runtime.run_batch(a_batch(batch)):
            found.update(map(str, piece.to_pylist()))
        self.fuse.burn()
        self.versions[batch] = [store.book for store in stores]
        self.results[batch] = found
        self.versions.pop(batch - self.retained - 2, None)
        self.stores = stores
        self.fuse.burn()

    def go_on(self, batch: int, until: int) -> None:
        """Run batches to the end; the process may die, and starts again with what was committed."""
        while batch < until:
            try:
                self.run(batch)
            except CrashError:
                batch = max(self.versions)
            batch += 1

    def leftovers(self) -> set[str]:
        """Return the files that nobody names."""
        return set().union(*(store.files() - store.named() for store in self.stores))


def test_a_crash_at_every_step_and_a_rollback_lose_nothing(fuse: Fuse) -> None:
    wanted = StateStore(fuse, retained=1)
    wanted.go_on(0, BATCHES + 6)
    assert not wanted.leftovers()
    assert sum(map(Counter.total, wanted.results.values())) > 1000
    steps = fuse.passed
    assert steps > 100
    for at in range(0, steps, size(quick=67, slow=1)):
        fuse.at, fuse.passed = at, 0
        spark = StateStore(fuse, retained=1)
        spark.go_on(0, BATCHES)
        assert {batch: spark.results[batch] for batch in range(BATCHES)} == {
            batch: wanted.results[batch] for batch in range(BATCHES)
        }, f"after a crash at step {at}"
        fuse.at = None
        # The oldest batch that Spark may run again loads what the one before it left.
        oldest = min(spark.versions) + 1
        spark.go_on(oldest, BATCHES + 6)
        assert spark.results == wanted.results, f"after a crash at step {at} and a rollback to batch {oldest}"
        assert not spark.leftovers(), f"after a crash at step {at}"


def test_after_many_batches_no_file_is_left_that_nobody_names(fuse: Fuse) -> None:
    """With crashes all along; once the last one is behind what Spark retains, a sweep leaves no leftover."""
    batches, retained = size(quick=60, slow=1000), 3
    rng = np.random.default_rng(8)
    spark = StateStore(fuse, retained)
    most = 0
    while (batch := max(spark.versions) + 1) < batches:
        fuse.passed, fuse.at = 0, int(rng.integers(0, 60)) if rng.random() < 0.5 and batch < batches - 12 else None
        with contextlib.suppress(CrashError):
            spark.run(batch)
        files_now = sum(len(store.files()) for store in spark.stores)
        most = max(most, files_now)
    assert fuse.at is None
    assert not spark.leftovers()
    named = set().union(*(store.named() for store in spark.stores))
    assert sum(len(store.files()) for store in spark.stores) == len(named), "a file that is named is missing"
    assert most < 250, "files pile up"


def test_two_attempts_of_one_task_at_the_same_time_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with speculation: the second begins while the first is in the middle, and either may commit."""
    monkeypatch.setattr(file_blocks, "SWEEP_EVERY", 2)
    wanted = StateStore(Fuse(None), retained=0)
    spark = StateStore(Fuse(None), retained=0)
    for batch in range(BATCHES):
        wanted.run(batch)
        first = StateStore(Fuse(batch * 3 + 1), 0)
        first.stores, first.versions = spark.stores, dict(spark.versions)
        with contextlib.suppress(CrashError):
            first.run(batch)
        spark.run(batch)
        assert spark.results == wanted.results
