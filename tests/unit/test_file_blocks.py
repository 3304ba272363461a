"""State in files: what is deleted when, and a crash at every write, rename, delete and commit."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.folder_store import FolderStore, ObjectStore, folder_stores
from support.operators import join_operator
from support.profiles import size

from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.operators.join import arrivals
from braided.operators.join.window_join import WindowJoin
from braided.runtime import buffer_file, file_blocks, object_blocks
from braided.runtime.contract import Block, BlockFile
from braided.runtime.file_blocks import FileBlocks, StateFolder
from braided.storage.files import RemoteFiles
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
BATCHES = 9


@lru_cache(maxsize=2)
def _runtime(reach: int = 50) -> LocalRuntime:
    return LocalRuntime(join_operator(SCHEMA, Window(-reach, reach, (5, 5))), workers=2)


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
    bookkeeping: dict[str, Any] = {"blocks": {}}
    name = FileBlocks(folder(tmp_path, 0), bookkeeping).put(0, [pa.py_buffer(b"rows"), pa.py_buffer(b"index")], "")
    assert files(tmp_path) == {name}
    bookkeeping["blocks"] = {"0": name, "next": 1}
    store = FileBlocks(folder(tmp_path, 4), bookkeeping)
    assert [part.to_pybytes() for part in store.get(0, name, lambda _: ())[0]] == [b"rows", b"index"]
    del bookkeeping["blocks"]["0"]
    store.delete(0, name)
    assert bookkeeping["dropped"] == [[name, 4]]
    # Batch 9 can be followed by a rollback to batch 5, which loads what batch 4 left: there the file is dropped.
    for batch in range(5, 10):
        FileBlocks(folder(tmp_path, batch), json.loads(json.dumps(bookkeeping)))
        assert files(tmp_path) == {name}, batch
    FileBlocks(folder(tmp_path, 10), bookkeeping)
    assert files(tmp_path) == set()
    assert bookkeeping["dropped"] == []


def test_files_that_no_bookkeeping_names_are_swept_when_no_attempt_can_need_them(tmp_path: Path) -> None:
    path = tmp_path / "home" / "0"
    path.mkdir(parents=True)
    orphans = {f"{batch}-{batch}-{batch:016x}" for batch in (0, 26, 27)} | {".26-7-00000000000000aa.123"}
    live, dropped = "1-1-" + "1" * 16, "2-2-" + "2" * 16
    for name in (*orphans, live, dropped, "notes.txt"):
        (path / name).write_bytes(b"")
    bookkeeping = {"blocks": {"1": live, "next": 2}, "dropped": [[dropped, 31]]}
    for batch in (31, 33):
        FileBlocks(folder(tmp_path, batch), json.loads(json.dumps(bookkeeping)))
        assert orphans <= files(tmp_path)
    FileBlocks(folder(tmp_path, 32), bookkeeping)
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
    """Every write, rename, link, delete, update of the bookkeeping and commit passes this fuse."""
    found = Fuse(None)
    replace, unlink, link = os.replace, os.unlink, os.link

    def renamed(source: Any, target: Any) -> None:
        found.burn()  # what is written has not got its name
        replace(source, target)
        found.burn()

    def removed(self: Path, missing_ok: bool = False) -> None:
        found.burn()
        unlink(self)
        found.burn()

    def linked(source: Any, target: Any) -> None:
        found.burn()
        link(source, target)
        found.burn()

    def deleted(path: Any, **options: Any) -> None:
        found.burn()
        unlink(path, **options)

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "unlink", deleted)
    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", removed)

    def around(name: str) -> None:
        plain = getattr(RemoteFiles, name)

        def request(*arguments: Any) -> None:
            found.burn()
            plain(*arguments)
            found.burn()

        monkeypatch.setattr(RemoteFiles, name, request)

    around("replace")
    around("delete")
    for module in (file_blocks, object_blocks):
        monkeypatch.setattr(module, "SWEEP_EVERY", 2)
    monkeypatch.setattr(object_blocks, "INLINE", 330)
    return found


class StateStore:
    """What Spark does: a version of every bookkeeping for each batch, of which the last few are retained."""

    def __init__(
        self, fuse: Fuse, retained: int, *, in_files: bool = False, kind: type[FolderStore] = FolderStore
    ) -> None:
        """Where `in_files`, blocks cross the shuffle in files, in a folder for each run of the query."""
        self.runtime = _runtime(400 if in_files else 50)  # remembers nothing but its stores
        self.in_files = in_files
        self.stores = folder_stores(2, retained, kind)
        self.fuse, self.retained = fuse, retained
        self.versions: dict[int, list[bytes | None]] = {-1: [None, None]}
        self.results: dict[int, Counter[str]] = {}

    def run(self, batch: int) -> None:
        """Run a batch from the version before it, and commit it."""
        buffer_file._checked.clear()
        stores = [pickle.loads(pickle.dumps(store)) for store in self.stores]
        for store, bookkeeping in zip(stores, self.versions[batch - 1], strict=True):
            store.bookkeeping = bookkeeping
        self.runtime.stores = list(stores)
        self.runtime.shuffle = stores[0].shuffle(batch) if self.in_files else None
        found: Counter[str] = Counter()
        for piece in self.runtime.run_batch(a_batch(batch)):
            found.update(map(str, piece.to_pylist()))
        self.fuse.burn()
        self.versions[batch] = [store.bookkeeping for store in stores]
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
                self.fuse.at = None
                shutil.rmtree(self.stores[0].root / "blocks", ignore_errors=True)
            batch += 1

    def adopted(self) -> list[set[str]]:
        """Return the files of each worker that were adopted from routers."""
        return [{name for name in store.files() if f"{name}.index" in store.files()} for store in self.stores]

    def leftovers(self) -> set[str]:
        """Return the files that nobody names."""
        return set().union(*(store.files() - store.named() for store in self.stores))


@pytest.mark.parametrize(
    ("kind", "in_files"),
    [(FolderStore, False), (FolderStore, True), (ObjectStore, False)],
    ids=["", "adopts", "objects"],
)
def test_a_crash_at_every_step_and_a_rollback_lose_nothing(fuse: Fuse, kind: type[FolderStore], in_files: bool) -> None:
    wanted = StateStore(fuse, 1, in_files=in_files, kind=kind)
    wanted.go_on(0, BATCHES + 6)
    assert not wanted.leftovers()
    assert sum(map(Counter.total, wanted.results.values())) > 1000
    assert (max(map(len, wanted.adopted())) > 2) == in_files
    steps = fuse.passed
    assert steps > 60
    for at in range(0, steps, size(quick=steps // 8, slow=1)):
        fuse.at, fuse.passed = at, 0
        spark = StateStore(fuse, 1, in_files=in_files, kind=kind)
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


@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_after_many_batches_no_file_is_left_that_nobody_names(fuse: Fuse, in_files: bool) -> None:
    """With crashes all along; once the last one is behind what Spark retains, a sweep leaves no leftover."""
    batches, retained = size(quick=60, slow=1000), 3
    rng = np.random.default_rng(8)
    spark = StateStore(fuse, retained, in_files=in_files)
    most = 0
    while (batch := max(spark.versions) + 1) < batches:
        fuse.passed, fuse.at = 0, int(rng.integers(0, 60)) if rng.random() < 0.5 and batch < batches - 12 else None
        with contextlib.suppress(CrashError):
            spark.run(batch)
        files_now = sum(len(store.files()) for store in spark.stores)
        most = max(most, files_now)
    assert fuse.at is None
    assert not spark.leftovers()
    named = {name for store in spark.stores for name in store.named() if not name.endswith(".index")}
    there = [name for store in spark.stores for name in store.files() if not name.endswith(".index")]
    assert len(there) == len(named), "a file that is named is missing"
    assert most < 250, "files pile up"


@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_two_attempts_of_one_task_at_the_same_time_do_not_disturb_each_other(fuse: Fuse, in_files: bool) -> None:
    """As with speculation: the second begins while the first is in the middle, and either may commit."""
    wanted = StateStore(Fuse(None), 0, in_files=in_files)
    spark = StateStore(fuse, 0, in_files=in_files)
    for batch in range(BATCHES):
        fuse.at = None
        wanted.run(batch)
        first = StateStore(fuse, 0, in_files=in_files)
        first.stores, first.versions = spark.stores, dict(spark.versions)
        fuse.at, fuse.passed = batch * 3 + 1, 0
        with contextlib.suppress(CrashError):
            first.run(batch)
        fuse.at = None
        spark.run(batch)
        assert spark.results == wanted.results


def of_one_batch(**arguments: Any) -> StateStore:
    spark = StateStore(Fuse(None), 1, in_files=True, **arguments)
    spark.run(0)
    return spark


def test_a_block_of_a_router_is_adopted_and_its_bytes_are_written_once() -> None:
    spark = of_one_batch()
    for store in spark.stores:
        sent = {path.stat().st_ino for path in (store.root / "blocks" / str(store.worker)).iterdir()}
        stored = {path.stat().st_ino for path in store.path.iterdir() if path.suffix != ".index"}
        assert stored == sent
        assert len(sent) == 2, "one of each side"
    # The routers' names are deleted with the next batch, and the rows are still here.
    spark.run(1)
    assert {path.name[0] for path in (spark.stores[0].root / "blocks").glob("*/*")} == {"1"}
    wanted = StateStore(Fuse(None), 1)
    wanted.runtime = spark.runtime
    wanted.run(0)
    wanted.run(1)
    assert wanted.adopted() == [set(), set()]
    assert spark.results == wanted.results


@pytest.mark.parametrize("damage", ["missing", "empty", "a flipped bit", "of another file"])
def test_an_index_of_an_adopted_file_is_computed_again(damage: str) -> None:
    wanted, spark = of_one_batch(), of_one_batch()
    for store in spark.stores:
        indexes = sorted(store.path.glob("*.index"))
        before = [path.read_bytes() for path in indexes]
        for path, content, other in zip(indexes, before, reversed(before), strict=True):
            match damage:
                case "missing":
                    path.unlink()
                case "empty":
                    path.write_bytes(b"")
                case "of another file":
                    path.write_bytes(other)
                case _:
                    path.write_bytes(content[:70] + bytes([content[70] ^ 4]) + content[71:])
    spark.run(1)
    wanted.run(1)
    assert spark.results == wanted.results
    for store in spark.stores:
        restored = [path.read_bytes() for path in sorted(store.path.glob("0-*.index"))]
        same = wanted.stores[store.worker].path.glob("0-*.index")
        assert restored == [path.read_bytes() for path in sorted(same)]


def test_an_adopted_file_that_is_damaged_stops_the_query_with_its_name() -> None:
    spark = of_one_batch()
    [first, *_] = sorted(path for path in spark.stores[0].path.iterdir() if path.suffix != ".index")
    content = bytearray(first.read_bytes())
    content[-100] ^= 4
    first.write_bytes(content)
    with pytest.raises(StateError, match=rf"worker 0: the file {first} is damaged; restore the checkpoint"):
        spark.run(1)


@pytest.mark.parametrize("cause", ["no links", "the router's file is gone"])
def test_a_file_that_cannot_be_linked_is_written_under_the_same_name(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: Path, _: Path) -> None:
        if cause == "no links":
            raise PermissionError
        os.unlink(source)
        raise FileNotFoundError

    wanted = of_one_batch()
    monkeypatch.setattr(os, "link", fails)
    spark = of_one_batch()
    assert [store.files() for store in spark.stores] == [store.files() for store in wanted.stores]
    for batch in (1, 2):
        spark.run(batch)
        wanted.run(batch)
    assert spark.results == wanted.results


def test_a_file_whose_rows_are_not_in_order_is_sorted_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a router whose task had several pieces."""
    wanted = of_one_batch()
    monkeypatch.setattr(WindowJoin, "by_hash", False)
    spark = of_one_batch()
    assert [len(each.adopted()[0]) for each in (wanted, spark)] == [2, 0]
    for batch in (1, 2):
        spark.run(batch)
        wanted.run(batch)
    assert spark.results == wanted.results


def test_a_block_of_which_rows_were_taken_away_has_no_file() -> None:
    rows = a_batch(0)[0][1][0]
    block = Block(0, rows, 0, file=BlockFile(rows, rows.serialize(), Path("file")))
    assert block.own_file is block.file
    assert replace(block, rows=rows.slice(1)).own_file is None
    assert replace(block, tags=np.zeros(rows.num_rows, np.int32)).own_file is None


def test_more_blocks_than_the_state_would_keep_are_merged() -> None:
    spark = StateStore(Fuse(None), 1, in_files=True)
    rows = [(side, [part]) for side, [batch] in a_batch(0) for part in _cut(batch, arrivals._MOST_ADOPTED + 1)]
    spark.runtime.stores, spark.runtime.shuffle = list(spark.stores), spark.stores[0].shuffle(0)
    list(spark.runtime.run_batch(rows))
    assert spark.adopted() == [set(), set()]
    assert [len(store.files()) for store in spark.stores] == [2, 2]


def _cut(batch: pa.RecordBatch, parts: int) -> Iterator[pa.RecordBatch]:
    """Yield parts that have rows for every worker."""
    many = pa.concat_batches([batch] * 8)
    for numbers in np.array_split(np.arange(many.num_rows), parts):
        yield many.slice(int(numbers[0]), len(numbers))
