"""Checkpoints of epochs: clones that keep what they were made of, whatever a former owner does; by links and by copies."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from braided.errors import PeerError
from braided.fleet.checkpoints import CheckpointFolder, Checkpoints
from braided.storage.files import Files, files_at


@pytest.fixture(params=["links", "copies"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a component's checkpoints are: in a folder, or in a store of objects in memory."""
    return str(tmp_path / "hits") if request.param == "links" else f"memory://{secrets.token_hex(8)}/hits"


def _files(place: str | CheckpointFolder) -> Files:
    return files_at(place if isinstance(place, str) else place.location, "checkpoint")


def _batch(folder: CheckpointFolder, number: int, text: str = "") -> None:
    """Write a batch as Spark does: its plan, its state, the note that it is committed."""
    for kind in ("offsets", "state/0", "commits"):
        _files(folder).replace(f"{kind}/{number}", f"{text}{number}".encode())


def _content(folder: CheckpointFolder | str) -> dict[str, str]:
    place = folder if isinstance(folder, str) else folder.location
    system, path = fsspec.core.url_to_fs(place)
    return {name[len(path) + 1 :]: system.cat_file(name).decode() for name in system.find(path)}


def _before_each(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Let something happen before a file is linked, or copied by the store; it gets the new name."""
    link, copy = os.link, fsspec.implementations.memory.MemoryFileSystem.cp_file

    def linked(source: Path, target: Path) -> None:
        act(str(target))
        link(source, target)

    def copied(self: Any, source: str, target: str, **options: Any) -> None:
        act(target)
        copy(self, source, target, **options)

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cp_file", copied)


def test_a_clone_has_everything_and_is_not_touched_by_the_former_owner(root: str) -> None:
    checkpoints = Checkpoints(root)
    first = checkpoints.open(0)
    assert _content(first) == {}
    _batch(first, 0)
    _files(first).replace("metadata", b"id")
    second = checkpoints.open(3)
    before = _content(first)
    assert _content(second) == before
    if "://" not in root:
        assert len({os.stat(f"{one.location}/state/0/0").st_ino for one in (first, second)}) == 1  # no copy
    _batch(first, 0, "late ")
    _batch(first, 1, "late ")
    _files(first).delete("metadata")
    assert _content(second) == before
    assert checkpoints.epochs() == [0, 3]


def test_an_epoch_begins_once_and_clones_the_newest_before_it(root: str) -> None:
    checkpoints = Checkpoints(root)
    for epoch in (0, 2):
        _batch(checkpoints.open(epoch), epoch)
    with pytest.raises(PeerError, match="this epoch has started before; take a new one"):
        checkpoints.open(2)
    assert _content(checkpoints.open(1)) == {"offsets/0": "0", "state/0/0": "0", "commits/0": "0"}
    assert len(_content(checkpoints.open(5))) == 6


def test_a_rehearsal_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "not" / "there"))
    with checkpoints.rehearsal() as folder:
        assert Path(folder.location).is_dir()
    assert list(tmp_path.iterdir()) == []
    with checkpoints.rehearsal():
        (tmp_path / "not" / "other").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["not", "other"]
    with checkpoints.rehearsal():
        checkpoints.open(0)
    assert checkpoints.epochs() == [0]
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PeerError, match="file/c': Not a directory; give another"),
        Checkpoints(str(tmp_path / "file" / "c")).rehearsal(),
    ):
        pass


def test_a_clone_that_was_cut_short_does_not_count(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(root)
    _batch(checkpoints.open(0), 0)

    def dies(target: str) -> None:
        if "/state/" in target:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        _before_each(patch, dies)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.open(1)
    assert checkpoints.epochs() == [0]
    assert len(_content(checkpoints.open(2))) == 3
    checkpoints.clean(2, keep=1)
    assert "000000000001/" not in "".join(_content(root)), "what it left of an epoch is gone"


def test_whatever_is_noted_as_committed_has_its_state_and_its_plan_in_the_clone(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner goes on while it is cloned: a whole batch more with every file."""
    checkpoints = Checkpoints(root)
    first = checkpoints.open(0)
    for number in range(3):
        _batch(first, number)
    written = [3]

    def slow(target: str) -> None:
        if "000000000001" in target:
            number = written[0]
            written[0] += 1
            _batch(first, number)

    _before_each(monkeypatch, slow)
    second = _files(checkpoints.open(1))
    kinds = {kind: set(second.names(kind)) for kind in ("commits", "state/0", "offsets")}
    assert {"0", "1", "2"} <= kinds["commits"] <= kinds["state/0"] <= kinds["offsets"]
    assert written[0] > 3


def test_files_that_vanish_while_they_are_cloned_are_left_out(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(root)
    first = checkpoints.open(0)
    for number in range(3):
        _batch(first, number)
    _before_each(monkeypatch, lambda target: _files(first).delete("state/0/0"))
    assert "state/0/0" not in _content(checkpoints.open(1))
    assert "state/0/1" in _content(checkpoints.open(2))


def test_a_rehearsal_leaves_nothing_and_keeps_what_its_owner_deletes(root: str) -> None:
    checkpoints = Checkpoints(root)
    with checkpoints.rehearsal() as empty:
        assert _content(empty) == {}
    first = checkpoints.open(0)
    _batch(first, 0)
    with checkpoints.rehearsal() as clone:
        assert _content(clone) == (before := _content(first))
        _batch(clone, 1)
        assert checkpoints.epochs() == [0]
        _files(clone).delete("offsets/0")
        assert _content(first) == before
        _files(first).delete("state/0/0")
        assert _content(clone)["state/0/0"] == "0"
    assert {name.removesuffix(".whole") for name in _files(root).names("")} == {"000000000000"}
    assert len(_content(first)) == 2


def test_old_epochs_are_deleted_but_never_one_after_the_holders(root: str) -> None:
    checkpoints = Checkpoints(root)
    for epoch in range(6):
        _batch(checkpoints.open(epoch), epoch)
    checkpoints.clean(4)
    assert checkpoints.epochs() == [3, 4, 5]
    checkpoints.clean(3)  # a former owner that has woken up
    assert checkpoints.epochs() == [3, 4, 5]
    assert {name.split("/")[0].removesuffix(".whole") for name in _content(root)} == {f"{n:012d}" for n in (3, 4, 5)}


def test_what_a_death_left_of_a_rehearsal_goes_after_a_day(root: str) -> None:
    checkpoints = Checkpoints(root)
    _batch(checkpoints.open(0), 0)
    old, new = (f".rehearsal-{int(time.time()) - days * 86400}-ab" for days in (2, 0))
    for name in (old, new):
        _files(root).replace(f"{name}/offsets/0", b"0")
    if "://" not in root:
        os.utime(f"{root}/{old}", (0, 0))
    checkpoints.clean(0)
    assert {name.split("/")[0] for name in _content(root) if name.startswith(".")} == {new}


def test_a_store_that_cannot_create_exclusively_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(f"memory://{secrets.token_hex(8)}/hits")
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "pipe_file", lambda *_, **__: None)
    with pytest.raises(PeerError, match="this file system cannot create a file exclusively; use another one"):
        checkpoints.open(0)


def test_a_clone_names_its_own_schema_files_and_needs_no_earlier_epoch(root: str) -> None:
    checkpoints = Checkpoints(root)
    first = checkpoints.open(0)
    scheme = "" if "://" in root else "file:"
    schema, metadata = "state/0/_stateSchema/default/0_abc", "state/0/_metadata/v2"
    files = _files(first)
    files.replace(schema, b"schema")
    before = f'v2\n{{"stateSchemaFilePaths":["{scheme}{first.location}/{schema}"]}}'
    files.replace(f"{metadata}/7", before.encode())
    files.replace(f"{metadata}/.7.crc", b"checksum")
    files.replace(f"{metadata}/8", b"nothing to change")
    second = checkpoints.open(1)
    moved = _content(second)[f"{metadata}/7"]
    assert moved == before.replace("/000000000000/", "/000000000001/")
    assert moved.split('["')[1].split('"')[0] == f"{scheme}{second.location}/{schema}"
    if scheme:
        assert f"{metadata}/.7.crc" not in _content(second)
    assert _content(first)[f"{metadata}/7"] == before
    with checkpoints.rehearsal() as clone:
        assert f"/hits/{clone.name}/state/" in _content(clone)[f"{metadata}/7"]
    third = checkpoints.open(2)
    checkpoints.clean(2, keep=1)
    assert checkpoints.epochs() == [2]
    assert "/hits/000000000002/state/" in _content(third)[f"{metadata}/7"]
    assert _content(third)[schema] == "schema"
