"""Checkpoints of epochs: clones that keep what they were made of, whatever a former owner does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from braided.errors import PeerError
from braided.fleet.checkpoints import Checkpoints, lead
from braided.storage.files import LocalFiles


def _batch(folder: Path, number: int, text: str = "") -> None:
    """Write a batch as Spark does: its plan, its state, the note that it is committed."""
    files = LocalFiles(folder)
    for kind in ("offsets", "state/0", "commits"):
        files.replace(f"{kind}/{number}", f"{text}{number}".encode())


def _content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_clone_has_everything_and_is_not_touched_by_the_former_owner(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "c"))
    first = checkpoints.open(0)
    assert _content(first) == {}
    _batch(first, 0)
    (first / "metadata").write_text("id")
    second = checkpoints.open(3)
    before = _content(first)
    assert _content(second) == before
    assert os.stat(first / "state/0/0").st_ino == os.stat(second / "state/0/0").st_ino  # no copy
    _batch(first, 0, "late ")
    _batch(first, 1, "late ")
    assert _content(second) == before
    assert checkpoints.epochs() == [0, 3]


def test_an_epoch_begins_once_and_clones_the_newest_before_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    for epoch in (0, 2):
        _batch(checkpoints.open(epoch), epoch)
    with pytest.raises(PeerError, match="this epoch has begun before; take a new one"):
        checkpoints.open(2)
    assert _content(checkpoints.open(1)) == {"offsets/0": "0", "state/0/0": "0", "commits/0": "0"}
    assert len(_content(checkpoints.open(5))) == 6


def test_a_rehearsal_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "not" / "there"))
    with checkpoints.rehearsal() as folder:
        assert folder.is_dir()
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


def test_a_clone_that_was_cut_short_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    _batch(checkpoints.open(0), 0)
    with monkeypatch.context() as patch:

        def dies(*paths: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(os, "link", dies)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.open(1)
    assert checkpoints.epochs() == [0]
    assert len(_content(checkpoints.open(2))) == 3


def test_whatever_is_noted_as_committed_has_its_state_and_its_plan_in_the_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner goes on while it is cloned: a whole batch more with every link."""
    checkpoints = Checkpoints(str(tmp_path))
    first = checkpoints.open(0)
    for number in range(3):
        _batch(first, number)
    link, written = os.link, [3]

    def slow(source: Path, target: Path) -> None:
        link(source, target)
        if Path(target).is_relative_to(tmp_path / ".") and ".000000000001" in str(target):
            number = written[0]
            written[0] += 1
            _batch(first, number)

    monkeypatch.setattr(os, "link", slow)
    second = checkpoints.open(1)
    kinds = {kind: {path.name for path in (second / kind).iterdir()} for kind in ("commits", "state/0", "offsets")}
    assert {"0", "1", "2"} <= kinds["commits"] <= kinds["state/0"] <= kinds["offsets"]
    assert written[0] > 3


def test_files_that_vanish_while_they_are_cloned_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    first = checkpoints.open(0)
    for number in range(3):
        _batch(first, number)
    link = os.link

    def after_cleaning(source: Path, target: Path) -> None:
        (first / "state/0/0").unlink(missing_ok=True)
        link(source, target)

    monkeypatch.setattr(os, "link", after_cleaning)
    assert "state/0/0" not in _content(checkpoints.open(1))
    assert "state/0/1" in _content(checkpoints.open(2))


def test_a_rehearsal_leaves_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    with checkpoints.rehearsal() as empty:
        assert _content(empty) == {}
    first = checkpoints.open(0)
    _batch(first, 0)
    with checkpoints.rehearsal() as clone:
        assert _content(clone) == _content(first)
        _batch(clone, 1)
        assert checkpoints.epochs() == [0]
    assert os.listdir(tmp_path) == ["000000000000"]
    assert len(_content(first)) == 3


def test_old_epochs_are_deleted_but_never_one_after_the_holders(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    for epoch in range(6):
        checkpoints.open(epoch)
    checkpoints.clean(4)
    assert checkpoints.epochs() == [3, 4, 5]
    checkpoints.clean(3)  # a former owner that has woken up
    assert checkpoints.epochs() == [3, 4, 5]


def test_a_link_leads_from_a_clone_to_an_epoch_and_is_no_epoch_itself(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    _batch(checkpoints.open(0), 0)
    with checkpoints.rehearsal() as clone:
        link = checkpoints.stage(clone)
        assert _content(link) == _content(clone)
    assert not link.exists()
    second = checkpoints.open(1)
    lead(link, second)
    (second / "control").mkdir()
    assert (link / "control").is_dir()
    assert checkpoints.epochs() == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([link.name, "000000000000", "000000000001"])


def test_links_go_after_a_day_but_not_those_by_which_the_holder_or_a_later_owner_may_run(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    folders = [checkpoints.open(epoch) for epoch in (0, 1, 2)]
    with checkpoints.rehearsal() as clone:
        links = [checkpoints.stage(folder) for folder in (*folders, clone, folders[0])]
    for link in links[:4]:
        os.utime(link, (0, 0), follow_symlinks=False)
    checkpoints.clean(1)
    assert [link.is_symlink() for link in links] == [False, True, True, False, True]
    shutil.rmtree(folders[0])
    checkpoints.clean(1)
    assert [link.is_symlink() for link in links] == [False, True, True, False, False]
    assert all(folder.is_dir() for folder in folders[1:])


def test_a_url_is_refused() -> None:
    with pytest.raises(PeerError, match=r"checkpoint='s3://b/c': write a path; clones need a file system with hard"):
        Checkpoints("s3://b/c")


def test_a_clone_names_its_own_schema_files_and_needs_no_earlier_epoch(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "hits"))
    first = checkpoints.open(0)
    metadata = first / "state" / "0" / "_metadata" / "v2"
    schema = first / "state" / "0" / "_stateSchema" / "default" / "0_abc"
    for file in (metadata, schema.parent):
        file.mkdir(parents=True)
    schema.write_text("schema")
    (metadata / "7").write_text(f'v2\\n{{"stateSchemaFilePaths":["file:{schema}"]}}')
    (metadata / ".7.crc").write_text("checksum")
    (metadata / "8").write_text("nothing to change")
    before = (metadata / "7").read_text()
    second = checkpoints.open(1)
    moved = (second / "state" / "0" / "_metadata" / "v2" / "7").read_text()
    assert moved == before.replace("/000000000000/", "/000000000001/")
    assert Path(moved.split("file:")[1].split('"')[0]).read_text() == "schema"
    assert not (second / "state" / "0" / "_metadata" / "v2" / ".7.crc").exists()
    assert (metadata / "7").read_text() == before
    with checkpoints.rehearsal() as clone:
        text = (clone / "state" / "0" / "_metadata" / "v2" / "7").read_text()
        assert f"/hits/{clone.name}/state/" in text
    third = checkpoints.open(2)
    checkpoints.clean(2, keep=1)
    assert checkpoints.epochs() == [2]
    assert "/hits/000000000002/state/" in (third / "state" / "0" / "_metadata" / "v2" / "7").read_text()
