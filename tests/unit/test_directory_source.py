"""A directory of Parquet files as a source of `format("braided")`, without Spark: each file once, and the same again."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from support.profiles import examples

from braided.errors import BraidedError, OptionError
from braided.spark.source import BraidedSource
from braided.storage import file_index
from braided.storage.file_index import FOLDER, FileIndex

LONG = StructType([StructField("x", LongType())])


def _put(root: Path, name: str, *values: int, age: int = 0) -> None:
    """Move a file into a directory, as whole as it must be; it may be older than those that are there."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = root.parent / f"{path.name}.new"
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), hidden)
    os.utime(hidden, (1_700_000_000 - age, 1_700_000_000 - age))
    hidden.rename(path)


class _Stream:
    """A query that reads a directory: its checkpoint holds the offsets; `restart` is another process."""

    def __init__(self, path: Path | str, schema: StructType = LONG, **options: str) -> None:
        self._options = {"path": str(path), **options}
        self._schema = schema
        self.restart()
        self.offsets: list[dict[str, Any]] = [_stored(self._reader.initialOffset())]

    def restart(self) -> None:
        self._reader: Any = BraidedSource(dict(self._options)).streamReader(self._schema)

    def plan(self) -> bool:
        """Store the offset of the next batch; False if there is nothing new."""
        end = _stored(self._reader.latestOffset(self.offsets[-1]))
        if end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        return True

    def rows(self, batch: int) -> list[Any]:
        """Return the rows of a batch: all of them, or the values of a single column."""
        tasks = self._reader.partitions(self.offsets[batch], self.offsets[batch + 1])
        tables = [rows.to_pylist() for task in tasks for rows in self._reader.read(task)]
        return [row["x"] if list(row) == ["x"] else row for table in tables for row in table]

    def everything(self) -> list[Any]:
        while self.plan():
            pass
        return [row for batch in range(len(self.offsets) - 1) for row in self.rows(batch)]


def _stored(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def test_each_file_comes_once_and_a_batch_again_is_the_same(tmp_path: Path) -> None:
    root = tmp_path / "in"
    _put(root, "b.parquet", 1, 2)
    _put(root, "a.parquet", 3, age=50)
    (root / "_SUCCESS").touch()
    stream = _Stream(root, max_files="1")
    assert stream.everything() == [3, 1, 2]
    _put(root, "day 1/ä[1]{?}.parquet", 4, age=1000)  # older than all, and a name that is a pattern to Spark
    assert stream.everything() == [3, 1, 2, 4]
    stream.restart()
    _put(root, "c.parquet", 5)
    assert [stream.rows(batch) for batch in range(3)] == [[3], [1, 2], [4]]
    assert stream.everything() == [3, 1, 2, 4, 5]
    assert len(_Stream(root).everything()) == 5, "another stream reads all from the beginning"


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 1 << 30))
def test_streams_of_one_directory_lose_nothing_and_repeat_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Files of any age come and go, beside streams that begin, plan batches, run them again and start again."""
    random = Random(seed)
    with mock.patch.object(file_index, "_MERGED", random.choice((2, 3, 100))):
        _live(random, tmp_path_factory)


def _live(random: Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("files") / "in"
    root.mkdir()
    streams: list[_Stream] = []
    due: list[set[int]] = []
    """What each stream must have read: what was there when it began, and what has come since."""
    there: dict[int, str] = {}
    for number in range(random.randint(5, 40)):
        match random.randint(0, 5):
            case 0 | 1:
                name = f"k={random.randint(0, 2)}/{number}.parquet"
                _put(root, name, number, age=random.randint(0, 1000))
                there[number] = name
                for wanted in due:
                    wanted.add(number)
            case 2 if len(streams) < 3:
                streams.append(_Stream(root, max_files=str(random.randint(1, 4))))
                due.append(set(there))
            case 3 if streams:
                random.choice(streams).plan()
            case 4 if streams:
                random.choice(streams).restart()
            case 5 if there and all(_is_up_to_date(stream) for stream in streams):
                # As a clean-up does with files that everybody has read.
                (root / there.pop(random.choice(list(there)))).unlink()
                for wanted in due:
                    wanted.intersection_update(there)
    for stream, wanted in zip(streams, due, strict=True):
        while stream.plan():
            pass
        again = [number for batch in range(len(stream.offsets) - 1) for number in _existing(stream, batch)]
        assert sorted(number for number in again if number in there) == sorted(wanted)
        assert len(set(again)) == len(again)


def _is_up_to_date(stream: _Stream) -> bool:
    while stream.plan():
        pass
    return True


def _existing(stream: _Stream, batch: int) -> Iterator[int]:
    """Yield the numbers of the files of a batch by their names, since some may have been cleaned up."""
    for task in stream._reader.partitions(stream.offsets[batch], stream.offsets[batch + 1]):
        for name, *_ in task.value:
            yield int(name.rpartition("/")[2].removesuffix(".parquet"))


def test_a_stream_leaves_out_what_is_gone_when_it_begins_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for number in range(4):
        _put(root, f"{number}.parquet", number)
    first = _Stream(root)
    assert first.everything() == [0, 1, 2, 3]
    (root / "1.parquet").unlink()
    second = _Stream(root, max_files="2")
    assert [second.plan(), second.plan(), second.plan()] == [True, True, False]
    assert second.rows(0) == [0, 2]
    first.restart()
    with pytest.raises(BraidedError, match=r"1\.parquet: the file is missing; restore it, or set the option ignoreMi"):
        first.rows(0)
    (root / "3.parquet").unlink()
    with pytest.raises(BraidedError, match=r"3\.parquet: the file is missing"):
        second.rows(1)
    assert _Stream(root, ignoreMissingFiles="true").everything() == [0, 2]


def test_what_changes_under_a_stream_stops_it(tmp_path: Path) -> None:
    root = tmp_path / "in"
    _put(root, "a.parquet", 1)
    stream = _Stream(root)
    assert stream.plan()
    _put(root, "a.parquet", *range(1000))
    with pytest.raises(BraidedError, match=r"a\.parquet: has \d+ bytes, and had \d+ when it was found; files must app"):
        stream.rows(0)
    entry = root / FOLDER / "000000000000.json"
    content = entry.read_text()
    stream.restart()
    entry.write_text(content[:-5])
    with pytest.raises(BraidedError, match=r"_braided_files/000000000000\.json: is damaged"):
        stream.rows(0)
    entry.write_text(content.replace('"format":1', '"format":2'))
    with pytest.raises(BraidedError, match="has format 2, this version reads 1; upgrade braided"):
        stream.rows(0)
    for wrong in (content.replace('"first":0', '"first":1'), '{"format":1}'):
        entry.write_text(wrong)
        with pytest.raises(BraidedError, match=r"_braided_files/000000000000\.json: is damaged, or not of this list"):
            stream.rows(0)
    entry.unlink()
    stream.restart()
    with pytest.raises(BraidedError, match="is not the one that the checkpoint has read from, or entries are missing"):
        stream.plan()
    _put(root, "b.parquet", 2)
    FileIndex(str(root)).begin()
    stream.restart()
    with pytest.raises(BraidedError, match="is not the one that the checkpoint has read from, or entries are missing"):
        stream.rows(0)


class _Late:
    """Files of an index, of which another creates the next entry just before."""

    def __init__(self, files: Any, other: FileIndex) -> None:
        self._files = files
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def create(self, name: str, content: bytes) -> bool:
        self._other.update()
        return bool(self._files.create(name, content))

    def replace(self, name: str, content: bytes) -> None:
        self._other.update()
        self._files.replace(name, content)


def test_two_that_list_a_directory_at_once_number_each_file_once(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for number in range(3):
        _put(root, f"{number}.parquet", number)
    one, two = FileIndex(str(root)), FileIndex(str(root))
    two._files = _Late(two._files, one)  # type: ignore[assignment]
    assert two.update() == one.update() == 3
    _put(root, "3.parquet", 3)
    assert two.update() == one.update() == 4
    assert one.id == two.id
    assert [file.name for file in one._found] == [file.name for file in two._found]
    assert len(list((root / FOLDER).iterdir())) == 2


def test_a_stream_that_starts_reads_few_files_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = FileIndex(str(tmp_path))
    monkeypatch.setattr(file_index, "_MERGED", 5)
    for number in range(23):
        _put(tmp_path, f"{number}.parquet", number)
        index.update()
    again = FileIndex(str(tmp_path))
    names: list[str] = []
    read = again._files.read
    again._files = mock.Mock(wraps=again._files)
    again._files.read.side_effect = lambda name: names.append(name) or read(name)
    assert again.update() == 23
    assert [file.name for file in again._found] == [file.name for file in index._found]
    assert [name.rpartition("/")[2].partition("-")[0] for name in names[:5]] == ["merged"] * 5
    assert len(names) == 4 + 1 + 3 + 1, "the merged ones, none after them, three entries, none after them"
    (tmp_path / FOLDER / "merged-0000000002.json").write_text("[{]")
    with pytest.raises(BraidedError, match=r"merged-0000000002\.json: is damaged, or not of this list"):
        FileIndex(str(tmp_path)).update()


def test_columns_are_those_of_the_oldest_file_and_of_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "in"
    rows = pa.table({
        "x": pa.array([1], pa.uint32()), "t": pa.array([0], pa.timestamp("us", "UTC")), "n": pa.array([0], pa.timestamp("us")),
        "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "s": pa.array(["ä b"]).dictionary_encode(),
        "in ner": pa.array([{"a": [1], "m": None}], pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int8()))])),
    })  # fmt: skip
    place = root / "day=2024-05-01" / "cell=a%2Fb" / "null=__HIVE_DEFAULT_PARTITION__"
    place.mkdir(parents=True)
    pq.write_table(rows, place / "f.parquet")
    schema = BraidedSource({"path": str(root)}).schema()
    assert isinstance(schema, StructType)
    assert schema.simpleString() == (
        "struct<x:bigint,t:timestamp,n:timestamp_ntz,d:decimal(9,2),s:string,"
        "in ner:struct<a:array<int>,m:map<string,tinyint>>,day:string,cell:string,null:string>"
    )
    [row] = _Stream(root, schema).everything()
    epoch = datetime.datetime(1970, 1, 1)
    assert row == {
        "x": 1, "t": epoch.replace(tzinfo=datetime.UTC), "n": epoch, "d": Decimal("1.50"), "s": "ä b",
        "in ner": {"a": [1], "m": None}, "day": "2024-05-01", "cell": "a/b", "null": None,
    }  # fmt: skip
    pq.write_table(rows.select(["t"]), place / "g.parquet")
    narrow = StructType(
        [StructField("X", LongType()), StructField("Cell", StringType()), StructField("new", StringType())]
    )
    found = sorted(_Stream(root, narrow).everything(), key=str)
    assert found == [{"X": 1, "Cell": "a/b", "new": None}, {"X": None, "Cell": "a/b", "new": None}]
    with pytest.raises(BraidedError, match="partition column 'day': the value '2024-05-01' is not of type int32"):
        _Stream(root, StructType([StructField("day", IntegerType())])).everything()


def test_what_is_no_directory_of_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"has no file to take a schema from; write \.schema"):
        BraidedSource({"path": str(tmp_path)}).schema()
    assert _Stream(tmp_path).everything() == []
    (tmp_path / "x.parquet").write_bytes(b"no Parquet")
    with pytest.raises(OptionError, match=r"x\.parquet: cannot be read as Parquet .*; write \.schema"):
        BraidedSource({"path": str(tmp_path)}).schema()
    with pytest.raises(BraidedError, match=r"x\.parquet: the file is not valid Parquet"):
        _Stream(tmp_path).everything()
    assert _Stream(tmp_path, ignoreCorruptFiles="true").everything() == []
    for folder, message in (("delta/_delta_log", "is a Delta table, of which not"), ("ice/metadata", "is an Iceberg")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.metadata.json").touch()
        with pytest.raises(OptionError, match=message):
            BraidedSource({"path": str((tmp_path / folder).parent)}).schema()
    with pytest.raises(
        OptionError, match="not one of: a table, a topic, a directory of Parquet files; use another path"
    ):
        BraidedSource({"path": f"{tmp_path}/none"}).schema()


def test_the_index_may_be_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "in"
    _put(root, "a.parquet", 1)
    stream = _Stream(root, index=f"{tmp_path}/index")
    assert stream.everything() == [1]
    assert not (root / FOLDER).exists()
    assert list((tmp_path / "index").iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(BraidedError, match=r"index='.*/file': is not a directory; use another path"):
        _Stream(root, index=f"{tmp_path}/file")


def test_a_directory_on_another_file_system() -> None:
    system = fsspec.filesystem("memory")
    for name, value in (("b", 1), ("k=1/a", 2), ("_hidden/c", 3)):
        with system.open(f"/store/in/{name}.parquet", "wb") as file:
            pq.write_table(pa.table({"x": [value]}), file)
    try:
        stream = _Stream("memory://store/in")
        assert sorted(stream.everything()) == [1, 2]
        assert sorted(_Stream("memory://store/in").everything()) == [1, 2]
        assert BraidedSource({"path": "memory://store/in"}).schema().simpleString() == "struct<x:bigint>"  # type: ignore[union-attr]
    finally:
        system.rm("/store", recursive=True)
