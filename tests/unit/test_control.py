"""The control directory: files that appear once and whole, one table per batch, and nothing damaged is believed."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.routing_cases import apply, changes

from braided.errors import BraidedError, ControlError
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.control_directory import ControlDir
from braided.routing.edit import TableEdit
from braided.routing.grid import even_grid
from braided.routing.start import first_table
from braided.routing.table import BUCKETS, GRIDS, MAX_LIVE, RoutingTable
from braided.storage.files import RemoteFiles, files_at
from braided.time.clocks import Window

QUERY, JOIN = "query-1", "join-1"


@pytest.fixture(params=["path", "memory"])
def control(request: pytest.FixtureRequest, tmp_path: Path) -> ControlDir:
    """An empty directory, on the local file system and elsewhere."""
    here = tmp_path / "control" if request.param == "path" else f"memory://control-{uuid.uuid4().hex}"
    return ControlDir(str(here))


def table_of(version: int, workers: int = 4) -> RoutingTable:
    """A table that is told apart from others of its version by its number of workers."""
    return replace(RoutingTable.hashed(workers), version=version)


def write(control: ControlDir, name: str, content: bytes) -> None:
    """Put a file where the directory's own methods never would."""
    system, root = fsspec.core.url_to_fs(control.location)
    path = f"{root}/{name}"
    system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    system.pipe_file(path, content)


def read(control: ControlDir, name: str) -> bytes:
    system, root = fsspec.core.url_to_fs(control.location)
    return bytes(system.cat_file(f"{root}/{name}"))


# Publishing.


def test_a_version_is_published_once_and_its_first_content_stays(control: ControlDir) -> None:
    assert control.publish(table_of(1, 4))
    assert not control.publish(table_of(1, 7))
    assert control.table(1).workers == 4
    assert control.versions() == [1]


def test_the_newest_table_is_the_one_with_the_highest_version(control: ControlDir) -> None:
    for version in (9, 10, 2):
        assert control.publish(table_of(version))
    assert control.versions() == [2, 9, 10]
    assert control.newest().version == 10


def test_a_directory_without_tables_says_what_to_do(control: ControlDir) -> None:
    with pytest.raises(
        BraidedError, match="there is no routing table; restore it from a copy, or start with a new checkpoint"
    ):
        control.newest()
    with pytest.raises(BraidedError, match=r"tables/000000000003\.json is missing; restore it"):
        control.table(3)


def test_a_table_that_a_store_shows_late_is_looked_for_again(
    control: ControlDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.publish(table_of(1))
    files, seen = files_at(control.location), []
    read = files.read

    def late(name: str) -> bytes | None:
        seen.append(name)
        return None if len(seen) == 1 else read(name)

    monkeypatch.setattr("braided.routing.control_directory._AGAIN", 0.0)
    monkeypatch.setattr(files, "read", late)
    assert control.table(1).version == 1
    assert seen == ["tables/000000000001.json"] * 2


def test_a_directory_that_is_started_anew_is_read_anew(tmp_path: Path) -> None:
    control = ControlDir(str(tmp_path))
    control.publish(table_of(1, 4))
    assert control.newest().workers == 4
    (tmp_path / "tables" / "000000000001.json").unlink()
    control.publish(table_of(1, 7))
    assert control.newest().workers == 7


def test_no_temporary_file_is_left_behind(tmp_path: Path) -> None:
    control = ControlDir(str(tmp_path))
    control.check()
    control.publish(table_of(1))
    control.publish(table_of(1))
    control.want(3)
    control.pin(0, QUERY)
    names = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert names == ["0.json", "000000000001.json", "wanted.json"]


# Pinning.


def test_the_first_caller_decides_and_later_ones_read_it(control: ControlDir) -> None:
    control.publish(table_of(1))
    assert control.pin(0, QUERY).version == 1
    control.publish(table_of(2))
    assert control.pin(0, QUERY).version == 1
    assert control.pin(1, QUERY).version == 2
    control.publish(table_of(3))
    assert [control.pin(batch, QUERY).version for batch in (1, 2, 2)] == [2, 3, 3]


def test_a_checkpoint_older_than_the_directory_is_refused(control: ControlDir) -> None:
    """What a newer table takes for dead may still be alive in the state of an older checkpoint."""
    control.publish(table_of(1))
    for batch in (4, 5, 6):
        control.pin(batch, QUERY)
    control.pin(6, QUERY)
    with pytest.raises(
        BraidedError, match=r"batch 6 has run already, but this is batch 5, so .*; restore the directory"
    ):
        control.pin(5, QUERY)


def test_a_checkpoint_older_than_all_pins_is_refused(control: ControlDir) -> None:
    control.publish(table_of(1))
    for batch in range(8):
        control.pin(batch, QUERY)
    control.prune(6, 1)
    with pytest.raises(ControlError, match=r"batch [67] has run already, but this is batch 2"):
        control.pin(2, QUERY)
    assert control.pin(8, QUERY).version == 1


def test_threads_that_pin_one_batch_at_once_agree(tmp_path: Path) -> None:
    """Tables appear while they race, so that those who lose the race have read another newest table."""
    threads, batches = 8, 25
    for batch in range(batches):
        control = ControlDir(str(tmp_path / str(batch)))
        control.publish(table_of(1))
        barrier = threading.Barrier(threads)
        found: list[str] = []

        def race(number: int, control: ControlDir = control, barrier: Any = barrier, found: list[str] = found) -> None:
            barrier.wait()
            if number % 2:
                control.publish(table_of(2 + number))
            found.append(control.pin(0, QUERY).digest)

        racers = [threading.Thread(target=race, args=(number,)) for number in range(threads)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(found) == threads
        assert len(set(found)) == 1


def _race(location: str, number: int, barrier: Any, found: Any) -> None:
    control = ControlDir(location)
    digests = []
    for batch in range(20):
        barrier.wait(30)
        control.publish(table_of(2 + 8 * batch + number))
        digests.append(control.pin(batch, QUERY).digest)
    found.put(digests)


def test_processes_that_pin_one_batch_at_once_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    control = ControlDir(str(tmp_path))
    control.publish(table_of(1))
    barrier, found = context.Barrier(3), context.Queue()
    racers = [context.Process(target=_race, args=(control.location, number, barrier, found)) for number in range(3)]
    for racer in racers:
        racer.start()
    digests = [found.get(timeout=50) for _ in racers]
    for racer in racers:
        racer.join()
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests[0])) == 20


def test_a_control_directory_pickles_as_its_location(control: ControlDir) -> None:
    control.publish(table_of(1))
    control.pin(0, QUERY)
    control.publish(table_of(2))
    other = pickle.loads(pickle.dumps(control))
    assert other.location == control.location
    assert other.pin(0, QUERY).version == 1
    assert len(pickle.dumps(control)) < 300


# Owner.


def test_the_owner_may_come_back(control: ControlDir) -> None:
    assert control.owner() is None
    control.claim(QUERY, JOIN)
    control.claim(QUERY, JOIN)
    assert control.owner() == QUERY


@pytest.mark.parametrize(
    ("query", "join", "text"),
    [
        (
            "query-2",
            JOIN,
            r"query 'query-1', but this is query 'query-2'; if the checkpoint .* was deleted, delete the directory",
        ),
        (
            QUERY,
            "join-2",
            r"a join of this query with other options; use one directory .*, or start with a new checkpoint",
        ),
    ],
)
def test_another_query_or_join_is_refused(control: ControlDir, query: str, join: str, text: str) -> None:
    control.claim(QUERY, JOIN)
    with pytest.raises(ControlError, match=text):
        control.claim(query, join)
    assert control.owner() == QUERY


# Damaged and forged files.


def changed(table: RoutingTable, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A table's file with one thing changed in it, written as the package writes it."""
    value = json.loads(table.to_bytes())
    change(value)
    return json.dumps(value, separators=(",", ":")).encode()


def _rich_table() -> RoutingTable:
    """A table with a grid, a moved bucket and a hot key."""
    edit = TableEdit(table_of(4))
    edit.assign(np.array([5]), 3)
    edit.promote((7 << 20) + 17, even_grid(range(4), 2))
    return edit.done()


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an unknown worker in a list": lambda v: v["lists"][0].__setitem__(0, [4, 0]),
    "an unknown grid": lambda v: v["lists"][0].__setitem__(0, [GRIDS + 9, 0]),
    "a worker below zero": lambda v: v["lists"][0].__setitem__(0, [-1, 0]),
    "a worker that is true": lambda v: v["lists"][0].__setitem__(0, [True, 0]),
    "one assignment twice": lambda v: v["lists"].__setitem__(0, [[0, 0], [0, 1]]),
    "an empty list": lambda v: v["lists"].__setitem__(0, []),
    "too many alive": lambda v: v["lists"].__setitem__(0, [[0, 0], [1, 1], [2, 1], [3, 1], [GRIDS, 1]]),
    "a grid with a repeated worker": lambda v: v["grids"][str(GRIDS)].__setitem__("columns", [[0, 1], [2, 0]]),
    "a grid with an unknown worker": lambda v: v["grids"][str(GRIDS)].__setitem__("columns", [[0, 1], [2, 4]]),
    "a grid without weight": lambda v: v["grids"][str(GRIDS)].__setitem__("column_weights", [0, 0]),
    "a grid with a weight too few": lambda v: v["grids"][str(GRIDS)].__setitem__("column_weights", [1]),
    "an empty column": lambda v: v["grids"][str(GRIDS)].update(columns=[[0, 1], []], row_weights=[[1, 1], []]),
    "grids that are a list": lambda v: v.__setitem__("grids", []),
    "a grid's number not yet given": lambda v: v.__setitem__("next_grid", GRIDS),
    "a bucket too few": lambda v: v["buckets"].pop(),
    "a list that is not there": lambda v: v["buckets"].__setitem__(0, 99),
    "no worker in use": lambda v: v.__setitem__("in_use", []),
    "an unknown worker in use": lambda v: v.__setitem__("in_use", [0, 4]),
    "another scheme": lambda v: v.__setitem__("scheme", "magic"),
    "another format": lambda v: v.__setitem__("format", 99),
    "a missing part": lambda v: v.pop("keys"),
    "a key that is no hash": lambda v: v["keys"][0].__setitem__(0, "not hex"),
    "a key beyond 64 bits": lambda v: v["keys"][0].__setitem__(0, "1" + "0" * 16),
    "a key twice": lambda v: v["keys"].append(v["keys"][0]),
    "an addition": lambda v: v.__setitem__("more", 1),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_table_is_never_a_table(tmp_path: Path, what: str) -> None:
    table = _rich_table()
    assert RoutingTable.from_bytes(changed(table, lambda v: None)).digest == table.digest
    control = ControlDir(str(tmp_path))
    write(control, "tables/000000000005.json", changed(table, FORGERIES[what]))
    for read_it in (lambda: control.table(5), control.newest, lambda: control.pin(0, QUERY)):
        with pytest.raises(BraidedError, match=r"tables/000000000005\.json is damaged"):
            read_it()
    assert not (tmp_path / "pins").exists()


NONSENSE = {
    "empty": b"",
    "not JSON": b"{nonsense",
    "not text": b"\xff\xfe\x00\x01",
    "a number": b"5",
    "a list": b"[]",
    "deep": b"[" * 200_000,
    "another object": b"{}",
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_refused_whatever_file_it_is_in(control: ControlDir, what: str) -> None:
    content = NONSENSE[what]
    control.publish(table_of(1))
    for name in ("tables/000000000002.json", "pins/0.json", "owner.json", "wanted.json"):
        write(control, name, content)
    for name, read_it in (
        (r"tables/000000000002\.json", control.newest),
        (r"pins/0\.json", lambda: control.pin(0, QUERY)),
        (r"pins/0\.json", lambda: control.oldest_pinned(0)),
        (r"owner\.json", control.owner),
        (r"wanted\.json", control.wanted),
    ):
        with pytest.raises(BraidedError, match=name):
            read_it()
    with pytest.raises(
        BraidedError, match=r"owner\.json is damaged; delete it, and it is written again|belongs to query None"
    ):
        control.claim(QUERY, JOIN)


def test_a_truncated_table_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    content = _rich_table().to_bytes()
    control = ControlDir(str(tmp_path))
    for end in (0, 1, len(content) // 2, len(content) - 1):
        write(control, "tables/000000000005.json", content[:end])
        with pytest.raises(BraidedError, match=r"tables/000000000005\.json is damaged"):
            control.newest()
    write(control, "tables/000000000005.json", content)
    assert control.newest().digest == _rich_table().digest


def test_a_table_under_another_version_s_name_is_refused(control: ControlDir) -> None:
    write(control, "tables/000000000003.json", table_of(2).to_bytes())
    with pytest.raises(BraidedError, match=r"tables/000000000003\.json has version 2"):
        control.newest()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"digest": "0" * 32}, r"table 1 is not the one that pins/0\.json names"),
        ({"digest": None}, r"table 1 is not the one that pins/0\.json names"),
        ({"query": "query-2"}, r"pins/0\.json is damaged or belongs to another query"),
        ({"version": "1"}, r"pins/0\.json is damaged"),
        ({"version": True}, r"pins/0\.json is damaged"),
        ({"version": 7}, r"tables/000000000007\.json is missing"),
    ],
)
def test_a_forged_pin_is_refused(control: ControlDir, change: dict[str, Any], text: str) -> None:
    control.publish(table_of(1))
    control.pin(0, QUERY)
    write(control, "pins/0.json", json.dumps(json.loads(read(control, "pins/0.json")) | change).encode())
    with pytest.raises(BraidedError, match=text):
        control.pin(0, QUERY)


def test_a_table_changed_after_it_was_pinned_is_refused(control: ControlDir) -> None:
    control.publish(table_of(1, 4))
    control.pin(0, QUERY)
    write(control, "tables/000000000001.json", table_of(1, 5).to_bytes())
    with pytest.raises(BraidedError, match=r"table 1 is not the one that pins/0\.json names"):
        control.pin(0, QUERY)


def test_files_too_large_are_not_even_parsed(tmp_path: Path) -> None:
    control = ControlDir(str(tmp_path))
    large = b'{"workers":2' + b" " * (17 << 20) + b"}"
    write(control, "wanted.json", large)
    write(control, "tables/000000000001.json", large)
    with pytest.raises(BraidedError, match=r"wanted\.json is damaged"):
        control.wanted()
    with pytest.raises(BraidedError, match=r"tables/000000000001\.json has 17825805 bytes, too many"):
        control.newest()


# File systems.


class Overwriting(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose exclusive create is only an ordinary write, as many are."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value, **kwargs)


class Refusing(MemoryFileSystem):  # type: ignore[misc]
    """A file system that knows no exclusive create."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create":
            raise NotImplementedError
        super().pipe_file(path, value, **kwargs)


class ClientError(Exception):
    """What botocore raises: no OSError."""


class Stating(MemoryFileSystem):  # type: ignore[misc]
    """A store that answers a conditional create of a file that exists as `answer` says."""

    cachable = False
    answer: Exception = FileExistsError()
    conflicts = 0

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create":
            if self.conflicts:
                self.conflicts -= 1
                raise OSError("409 ConditionalRequestConflict")
            if self.exists(path):
                raise self.answer
        super().pipe_file(path, value, **kwargs)


class Broken(MemoryFileSystem):  # type: ignore[misc]
    """A store that lets nobody write, or in the end nobody read."""

    cachable = False
    unreadable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise ClientError("403 AccessDenied")

    def cat_file(self, path: str, **kwargs: Any) -> bytes:
        if self.unreadable:
            raise OSError("connection reset")
        return bytes(super().cat_file(path, **kwargs))


def a_store(system: MemoryFileSystem) -> RemoteFiles:
    return RemoteFiles("s3://bucket/control", system, f"/store-{uuid.uuid4().hex}")


@pytest.mark.parametrize(
    "answer",
    [
        FileExistsError("exists"),
        OSError(5, "[Errno 5] An error occurred (412) when calling the PutObject operation: n/a"),
        ClientError("PreconditionFailed"),
        PermissionError("the caller does not have storage.objects.delete access"),
    ],
)
def test_a_store_may_say_in_any_way_that_a_file_exists(answer: Exception) -> None:
    system = Stating()
    system.answer = answer
    files = a_store(system)
    files.check()
    assert files.create("pins/0.json", b"first")
    assert not files.create("pins/0.json", b"second")
    assert files.read("pins/0.json") == b"first"


def test_a_store_that_asks_to_try_again_is_asked_again() -> None:
    system = Stating()
    files = a_store(system)
    system.conflicts = 2
    assert files.create("pins/0.json", b"first")
    system.conflicts = 3
    with pytest.raises(ControlError, match=r"control='s3://bucket/control': cannot create pins/1.json: OSError: 409"):
        files.create("pins/1.json", b"first")


def test_a_store_that_fails_is_named() -> None:
    system = Broken()
    files = a_store(system)
    denied = r"control='s3://bucket/control': cannot {}: ClientError: 403 AccessDenied"
    for act, said in [
        (files.check, "create check-.*"),
        (lambda: files.create("owner.json", b"x"), "create owner.json"),
        (lambda: files.replace("wanted.json", b"x"), "write wanted.json"),
        (lambda: files.append("decisions.jsonl", b"x"), "write decisions.jsonl"),
    ]:
        with pytest.raises(ControlError, match=denied.format(said)):
            act()
    assert files.read("owner.json") is None
    system.unreadable = True
    with pytest.raises(ControlError, match=r"cannot read owner.json: OSError: connection reset"):
        files.create("owner.json", b"x")


@pytest.mark.parametrize("system", [Overwriting, Refusing])
def test_a_file_system_without_exclusive_create_is_refused(system: type[MemoryFileSystem]) -> None:
    files = RemoteFiles("weak://control", system(), f"/weak-{uuid.uuid4().hex}")
    with pytest.raises(BraidedError, match="'weak://control': this file system cannot create a file exclusively"):
        files.check()


def test_a_file_system_with_exclusive_create_is_taken_and_left_clean(control: ControlDir) -> None:
    control.check()
    assert [name for name in files_at(control.location).names("") if "check" in name] == []


def test_a_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BraidedError, match="use a writable directory"):
            ControlDir(str(place)).check()
    with pytest.raises(BraidedError, match="control='nowhere://x'"):
        ControlDir("nowhere://x").check()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def permissions(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in [root, *root.rglob("*")]}


def fill(control: ControlDir) -> None:
    control.check()
    control.claim(QUERY, JOIN)
    control.publish(table_of(1))
    control.pin(0, QUERY)
    control.want(2)
    control.log([{"rule": "split", "key": "+420 600 000 000"}])


NAMES = {"owner.json", "tables/000000000001.json", "pins/0.json", "wanted.json", "decisions.jsonl"}


@pytest.mark.usefixtures("open_umask")
def test_a_directory_that_is_made_is_private(tmp_path: Path) -> None:
    fill(ControlDir(str(tmp_path / "new" / "control")))
    folders = dict.fromkeys((".", "tables", "pins"), "0o700")
    assert permissions(tmp_path / "new" / "control") == folders | dict.fromkeys(NAMES, "0o600")
    assert permissions(tmp_path / "new")["."] == "0o755"


@pytest.mark.usefixtures("open_umask")
def test_a_directory_that_was_made_for_others_too_is_left_so(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control").chmod(0o770)
    fill(ControlDir(str(tmp_path / "control")))
    expected = {".": "0o770", "tables": "0o755", "pins": "0o755"} | dict.fromkeys(NAMES, "0o644")
    assert permissions(tmp_path / "control") == expected


def test_another_users_directory_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ControlError, match=r"this user may not read owner.json; if driver and executors run as"):
        ControlDir(str(tmp_path)).claim(QUERY, JOIN)


# Pruning, decisions, requests.


def test_prune_keeps_what_recent_pins_name_and_deletes_the_rest(control: ControlDir) -> None:
    for batch in range(10):
        if batch % 2 == 0:
            control.publish(table_of(batch + 1))
        control.pin(batch, QUERY)
    control.publish(table_of(99))
    assert control.versions() == [1, 3, 5, 7, 9, 99]
    oldest = control.oldest_pinned(5)
    assert oldest == 5
    control.prune(5, oldest)
    assert control.versions() == [5, 7, 9, 99]
    assert control.pin(9, QUERY).version == 9
    assert sorted(files_at(control.location).names("pins")) == [f"{batch}.json" for batch in range(5, 10)]
    assert control.oldest_pinned(10) is None


def test_prune_never_deletes_the_newest_table(control: ControlDir) -> None:
    for version in (1, 2, 3):
        control.publish(table_of(version))
    control.prune(1000, 1000)
    assert control.versions() == [3]


def test_batches_are_pruned_by_number_and_not_as_text(control: ControlDir) -> None:
    control.publish(table_of(1))
    for batch in (9, 10, 100):
        control.pin(batch, QUERY)
    control.prune(10, 0)
    assert sorted(files_at(control.location).names("pins")) == ["10.json", "100.json"]


def test_the_log_of_events_survives_a_cut_last_line(control: ControlDir) -> None:
    control.claim(QUERY, JOIN)
    assert control.decisions() == []
    control.log([])
    control.log([{"batch": 1}, {"batch": 2}])
    write(control, "decisions.jsonl", read(control, "decisions.jsonl") + b'{"batch": 3, "act')
    assert control.decisions() == [{"batch": 1}, {"batch": 2}]
    control.log([{"batch": 4}])
    assert control.decisions() == [{"batch": 1}, {"batch": 2}, {"batch": 4}]
    assert control.decisions(last=1) == [{"batch": 4}]


@pytest.mark.parametrize("workers", [1, 8, "auto"])
def test_what_is_wanted_is_what_was_asked_last(control: ControlDir, workers: int | str) -> None:
    assert control.wanted() is None
    control.want(3)
    control.want(workers)
    assert control.wanted() == workers


@pytest.mark.parametrize("workers", [0, -1, True, 2.5, "many", None, [3]])
def test_nonsense_that_is_wanted_is_refused(control: ControlDir, workers: Any) -> None:
    write(control, "wanted.json", json.dumps({"workers": workers}).encode())
    with pytest.raises(BraidedError, match=r"wanted\.json requests .* workers; write a number or 'auto'"):
        control.wanted()


# Tables as bytes.


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    """What random edits make of a first table."""
    workers = draw(st.integers(1, 6))
    table = first_table(draw(st.sampled_from(["auto", "hash", "ssp", "grid"])), workers, keyed=True, version=1)
    hashes = [draw(st.integers(0, (1 << 64) - 1)) for _ in range(4)]
    deaths = AssignmentExpiry(Window(-3, 3, (1, 1)))
    for batch in range(draw(st.integers(0, 6))):
        table = apply(table, draw(changes(workers, len(hashes))), hashes, deaths)
        deaths.observe(batch, table.version, (4 * batch, 4 * batch))
    return table


@settings(max_examples=examples(150), deadline=None)
@given(tables())
def test_tables_survive_the_way_through_bytes(table: RoutingTable) -> None:
    other = RoutingTable.from_bytes(table.to_bytes())
    for name in ("version", "workers", "in_use", "next_grid", "scheme", "digest", "plain"):
        assert getattr(other, name) == getattr(table, name)
    assert dict(other.grids) == dict(table.grids)
    for name in ("live", "since", "key_hashes", "key_demoted"):
        np.testing.assert_array_equal(getattr(other, name), getattr(table, name))
        assert getattr(other, name).dtype == getattr(table, name).dtype
    assert table.live.shape == (BUCKETS + len(table.key_hashes), MAX_LIVE)


@settings(max_examples=examples(150), deadline=None)
@given(tables(), st.data())
def test_a_flipped_byte_is_an_error_or_another_digest(table: RoutingTable, data: st.DataObject) -> None:
    content = bytearray(table.to_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 127))
    try:
        other = RoutingTable.from_bytes(bytes(content))
    except BraidedError:
        return
    assert other.digest != table.digest
