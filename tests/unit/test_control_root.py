"""The root of all control directories: a folder for each query, kept as long as its checkpoint may need it."""

from __future__ import annotations

import os
import pickle
import shutil
import time
import uuid
from pathlib import Path

import pytest

from braided.errors import ControlError
from braided.routing.root import ControlRoot, local_folder, user_root
from braided.routing.start import first_table
from braided.runtime.worker import _bring

FIRST = first_table("auto", 4, keyed=True, version=1)


@pytest.fixture
def root(tmp_path: Path) -> ControlRoot:
    return ControlRoot(str(tmp_path / "root"))


def used(root: ControlRoot, checkpoint: Path | str, *, days: float = 0) -> str:
    """Return the id of a query that ran a batch, the given number of days ago, with a checkpoint there."""
    query = str(uuid.uuid4())
    control = root.directory(query, "join-1")
    control.claim(query, "options")
    assert control.pin(0, query, FIRST).digest == FIRST.digest
    root.note(query, str(checkpoint))
    for place, _, _ in os.walk(Path(root.location) / query):
        os.utime(place, (time.time() - days * 86_400,) * 2)
    return query


def test_every_query_and_operator_has_a_directory_of_its_own(root: ControlRoot) -> None:
    queries = [str(uuid.uuid4()) for _ in range(2)]
    places = {root.directory(query, name).location for query in queries for name in ("a", "b")}
    assert len(places) == 4
    assert pickle.loads(pickle.dumps(root)).location == root.location


def test_the_first_table_is_published_once(root: ControlRoot) -> None:
    control = root.directory(str(uuid.uuid4()), "join-1")
    assert control.pin(0, "q", FIRST).version == 1
    assert control.pin(1, "q", first_table("auto", 4, keyed=True, version=2)).version == 1
    assert control.versions() == [1]
    with pytest.raises(ControlError, match="there is no routing table"):
        root.directory(str(uuid.uuid4()), "join-1").pin(0, "q")


def test_directories_go_when_their_checkpoint_is_gone_for_good(root: ControlRoot, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    kept = used(root, here, days=99)
    moved = used(root, tmp_path / "moved", days=29)
    old = used(root, tmp_path / "gone", days=31)
    remote = used(root, "s3a://bucket/check", days=99)
    temporary = used(root, f"file:{tmp_path}/temporary-{uuid.uuid4()}")
    assert set(root.forget_deleted()) == {old, moved, temporary}
    assert set(root.queries()) == {kept, remote}
    root.forget(remote)
    assert root.queries() == [kept]


def test_nothing_is_deleted_that_is_no_query_or_of_another_machine(
    root: ControlRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(root.location) / "notes"
    other.mkdir(parents=True)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    query = used(root, tmp_path / "gone", days=99)
    monkeypatch.undo()
    assert root.forget_deleted() == []
    assert root.queries() == [query]
    for wrong in ("../x", "notes", ""):
        with pytest.raises(ControlError, match="not the id of a query"):
            root.forget(wrong)
    assert other.exists()


def test_a_copy_of_a_checkpoint_is_refused_and_a_moved_one_is_not(root: ControlRoot, tmp_path: Path) -> None:
    checkpoint, copy = tmp_path / "check", tmp_path / "copy"
    checkpoint.mkdir()
    copy.mkdir()
    (tmp_path / "link").symlink_to(checkpoint)
    query = used(root, f"file:{checkpoint}")
    runs = [str(uuid.uuid4()) for _ in range(4)]
    root.notice_start(query, runs[0], str(checkpoint))
    root.notice_start(query, runs[1], f"file://{tmp_path}/link")
    root.notice_start(query, runs[2], f"file:{copy}")
    checkpoint.rename(tmp_path / "elsewhere")
    root.notice_start(query, runs[3], str(copy))
    for run in (runs[0], runs[1], runs[3]):
        root.refuse_copy(query, run)
    with pytest.raises(ControlError, match=rf"{copy}' is a copy of '{checkpoint}', which owns the control directories"):
        root.refuse_copy(query, runs[2])


def test_a_copy_that_has_its_directories_with_it_is_not_refused(tmp_path: Path) -> None:
    """As peers clone a checkpoint to rehearse a move."""
    query = used(ControlRoot(f"{tmp_path}/check/control"), tmp_path / "check")
    shutil.copytree(tmp_path / "check", tmp_path / "copy")
    copied = ControlRoot(f"{tmp_path}/copy/control")
    copied.notice_start(query, "run", f"file:{tmp_path}/copy")
    copied.refuse_copy(query, "run")
    (tmp_path / "link").symlink_to("copy")
    linked = ControlRoot(f"{tmp_path}/link/control")
    linked.notice_start(query, "other", f"file:{tmp_path}/copy")
    linked.refuse_copy(query, "other")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"checkpoint": 7}'])
def test_a_damaged_note_stops_nothing(root: ControlRoot, tmp_path: Path, content: bytes) -> None:
    query = used(root, tmp_path / "gone")
    (Path(root.location) / query / "query.json").write_bytes(content)
    assert root.forget_deleted() == []
    root.notice_start(query, "run", str(tmp_path))
    root.refuse_copy(query, "run")


def test_the_users_root_is_in_the_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = user_root()
    assert found is not None
    assert found.location == f"{tmp_path}/braided/control"


def test_places_on_this_machine_are_known() -> None:
    assert local_folder("file:/a%20b/c") == local_folder("file:///a%20b/c") == local_folder("/a b/c") == Path("/a b/c")
    assert local_folder("hdfs://name/c") is local_folder(None) is local_folder("") is None


def test_a_checkpoint_says_which_directory_it_needs() -> None:
    before = ["/home/ann/.cache/braided/control/7d15/join-1", "tower"]
    assert _bring(None, None) == "set control= to the directory that belongs to the checkpoint"
    assert _bring(before, "/home/bob/7d15/join-1").endswith(
        "'/home/ann/.cache/braided/control/7d15/join-1' of host tower; copy it to '/home/bob/7d15/join-1'"
    )
    assert _bring(before, before[0]).endswith("it is missing or older: restore it")
    assert "set spark.braided.control" in _bring(before, None)
