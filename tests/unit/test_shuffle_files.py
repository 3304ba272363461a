"""Blocks that cross the shuffle by name: read as they were written or refused, and deleted with the next batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from braided.runtime.shuffle_files import ShuffleFolder
from braided.runtime.store import UnusableBlockError

BLOCK = pa.py_buffer(bytes(range(256)) * 10)


def test_a_block_is_read_as_it_was_written_and_written_again_under_the_same_name(tmp_path: Path) -> None:
    folder = ShuffleFolder(tmp_path, 3, 1)
    name = folder.write(1, (0, 2, 5, 0), BLOCK)
    assert folder.read(1, name).equals(BLOCK)
    assert folder.write(1, (0, 2, 5, 0), BLOCK) == name
    assert [path.name for path in (tmp_path / "1").iterdir()] == [name]


@pytest.mark.parametrize("damage", ["missing", "a flipped bit", "another block"])
def test_a_block_that_is_not_what_was_written_is_refused_with_its_name(tmp_path: Path, damage: str) -> None:
    folder = ShuffleFolder(tmp_path, 3, 1)
    name = folder.write(0, (0, 0, 0, 0), BLOCK)
    path = tmp_path / "0" / name
    if damage == "missing":
        path.unlink()
    elif damage == "another block":
        (tmp_path / "0" / folder.write(0, (0, 0, 1, 0), pa.py_buffer(b"other"))).rename(path)
    else:
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes(content)
    with pytest.raises(UnusableBlockError, match=rf"the file {path} is (missing|damaged)"):
        folder.read(0, name)


def test_a_worker_deletes_its_own_blocks_of_earlier_batches(tmp_path: Path) -> None:
    names = {batch: ShuffleFolder(tmp_path, batch, 1).write(0, (0, 0, 0, 0), BLOCK) for batch in (8, 9, 10)}
    other = ShuffleFolder(tmp_path, 8, 1).write(1, (0, 0, 0, 0), BLOCK)
    (tmp_path / "0" / "notes.txt").touch()
    ShuffleFolder(tmp_path, 9, 1).clean(0)
    assert {path.name for path in (tmp_path / "0").iterdir()} == {names[9], names[10], "notes.txt"}
    assert [path.name for path in (tmp_path / "1").iterdir()] == [other]
    ShuffleFolder(tmp_path / "none", 9, 1).clean(0)
