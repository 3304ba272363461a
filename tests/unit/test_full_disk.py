"""A full disk: what was begun is removed, and the message says where there is no room and what to do."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braided.errors import ControlError, TopicError
from braided.storage.files import files_at
from braided.storage.writing import FileTarget


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file of this process may grow beyond 4 KB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("option", "kind"), [("control", ControlError), ("path", TopicError)])
def test_a_small_file_is_whole_or_not_there(
    tmp_path: Path, full_disk: None, option: str, kind: type[Exception]
) -> None:
    files = files_at(str(tmp_path), option)
    assert files.create("pins/1.json", b"fits")
    for write in (files.create, files.replace):
        with pytest.raises(
            kind, match=rf"{option}='.*': cannot write pins/2.json: .*; free some space, then start the query"
        ):
            write("pins/2.json", bytes(10_000))
    assert os.listdir(tmp_path / "pins") == ["1.json"]


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        files_at(str(tmp_path)).create("a", b"1")
    assert os.listdir(tmp_path) == []


def test_files_of_results_are_removed(tmp_path: Path, full_disk: None) -> None:
    schema = pa.schema([("id", pa.int64())])
    writer = FileTarget(str(tmp_path / "data")).writer("0", 0, schema)
    writer.write(pa.record_batch([np.random.default_rng(1).integers(0, 2**60, 50_000)], schema=schema))
    with pytest.raises(
        TopicError, match=r"data: cannot write: .*; free some space or fix the cause, then start the query"
    ):
        writer.close()
    writer.discard()
    assert os.listdir(tmp_path / "data" / "0") == []
