"""What writes and reads tables without their libraries: partitions, files, statistics, positions in a log."""

from __future__ import annotations

import datetime
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import OptionError, TableError
from braided.spark.tasks import file_rows, files_of
from braided.storage import table_writing, tables
from braided.storage.delta_log import AddedFile, DeltaLog, Position
from braided.storage.delta_table import statistics
from braided.storage.table_writing import Partition, TableTarget, TableWriter, split
from braided.storage.writing import DataFile, TableFile

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NAMES = st.lists(st.sampled_from(["a", "b", "", "é/%", None]), min_size=0, max_size=40)


@settings(max_examples=examples(200), deadline=None)
@given(NAMES, st.randoms(use_true_random=False))
def test_rows_are_split_by_every_combination_of_values(names: list[str | None], random: Any) -> None:
    numbers = [random.choice([1, 2, None]) for _ in names]
    wanted: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for at, values in enumerate(zip(names, numbers, strict=True)):
        wanted[values].append(at)
    found = split([pa.array(names, pa.string()), pa.array(numbers, pa.int64())])
    assert {values: rows.tolist() for values, rows in found} == wanted
    assert len(found) == len(wanted)


@settings(max_examples=examples(200), deadline=None)
@given(  # the years that datetime knows, 1 to 9999
    st.lists(st.one_of(st.none(), st.integers(-6 * 10**16, 25 * 10**16)), min_size=1), st.sampled_from(["UTC", None])
)
def test_parts_of_a_time_are_counted_from_1970(micros: list[int | None], zone: str | None) -> None:
    stamps = pa.array(micros, pa.timestamp("us", zone))
    moments = [None if each is None else EPOCH + datetime.timedelta(microseconds=each) for each in micros]
    days = pa.array([None if each is None else each.date() for each in moments], pa.date32())
    reference = {
        "year": lambda at: at.year - 1970,
        "month": lambda at: (at.year - 1970) * 12 + at.month - 1,
        "day": lambda at: (at - EPOCH).days,
        "hour": lambda at: (at - EPOCH) // datetime.timedelta(hours=1),
    }
    for transform, of in reference.items():
        wanted = [None if at is None else of(at) for at in moments]
        assert Partition("t", transform).values(stamps).to_pylist() == wanted
        if transform != "hour":
            assert Partition("t", transform).values(days).to_pylist() == wanted
    assert Partition("t").values(days).to_pylist() == [None if at is None else (at - EPOCH).days for at in moments]


def _target(folder: Path, file_bytes: int = 1 << 30) -> TableTarget:
    schema = pa.schema([("v", pa.int64())])
    return TableTarget(str(folder), schema, (Partition("part", as_text=True),), "none", file_bytes)


def test_each_partition_has_files_of_its_own_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writing, "_WAITING_BYTES", 20_000)
    monkeypatch.setattr(table_writing, "_OPEN_FILES", 3)
    rng = np.random.default_rng(1)
    writer = _target(tmp_path).writer("7", 4, pa.schema([]))
    assert isinstance(writer, TableWriter)
    wanted: dict[str | None, list[int]] = defaultdict(list)
    for start in range(0, 20_000, 1000):
        parts = [None if part == 0 else f"p {part}/é" for part in rng.integers(0, 9, 1000)]
        for part, value in zip(parts, range(start, start + 1000), strict=True):
            wanted[part].append(value)
        writer.write(pa.record_batch({"part": parts, "v": np.arange(start, start + 1000)}))
        assert sum(each.waiting_bytes for each in writer._writers.values()) <= 20_000
        assert sum(each.is_open for each in writer._writers.values()) <= 3
    found = defaultdict(list)
    files = writer.close()
    for file in files:
        assert isinstance(file, TableFile)
        assert file.name.rpartition("/")[2].startswith("7-00004-")
        read = pq.read_table(tmp_path / file.name, partitioning=None)
        assert (read.num_rows, (tmp_path / file.name).stat().st_size) == (file.rows, file.bytes)
        assert pq.read_metadata(io.BytesIO(file.footer)).num_rows == file.rows
        found[file.values[0]] += read["v"].to_pylist()
    assert found == wanted  # in order, too
    assert (tmp_path / "part=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert (tmp_path / "part=p%201%2F%C3%A9").is_dir()
    assert files_of([*file_rows(files).to_pylist(), {"name": None}]) == sorted(files, key=lambda file: file.name)
    plain: list[DataFile] = [DataFile("0/a.parquet", 1, 2)]
    assert files_of(file_rows(plain).to_pylist()) == plain


def test_files_end_near_a_size_and_a_failed_attempt_leaves_none(tmp_path: Path) -> None:
    values = pa.array(np.random.default_rng(2).integers(0, 1 << 60, 30_000))
    for end in ("close", "discard"):
        writer = _target(tmp_path / end, 40_000).writer("0", 0, pa.schema([]))
        for start in range(0, 30_000, 1000):
            writer.write(pa.record_batch({"part": ["a"] * 1000, "v": values.slice(start, 1000)}))
        if end == "discard":
            writer.discard()
            assert list((tmp_path / end).rglob("*.parquet")) == []
            continue
        sizes = [file.bytes for file in writer.close()]
        assert len(sizes) > 3
        assert all(40_000 <= size < 90_000 for size in sizes[:-1])


def test_statistics_are_what_duckdb_finds(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 5_000
    stamps = rng.integers(-(10**15), 10**15, n)
    rows = pa.table({
        "k": pa.array(rng.integers(-5, 1 << 40, n), mask=rng.random(n) < 0.1),
        "day": pa.array(rng.integers(-9000, 9000, n), pa.int32()).cast(pa.date32()),
        "t": pa.array(stamps, pa.timestamp("us", "UTC")),
        "n": pa.array(stamps, pa.timestamp("us")),
        "s": [f"é{value}" for value in rng.integers(0, 1000, n)],
        "long": ["x" * 40] * n,
        "f": np.where(rng.random(n) < 0.5, np.nan, 1.0),
        "tags": [[1]] * n,
        "far": pa.array([400_000_000_000_000_000] * n, pa.timestamp("us", "UTC")),
        "none": pa.nulls(n, pa.int64()),
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1000)
    footer = io.BytesIO()
    pq.read_metadata(tmp_path / "a.parquet").write_metadata_file(footer)
    found = json.loads(statistics(footer.getvalue()))
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        db.register("rows", rows)
        iso = "strftime({0}({1}), '%Y-%m-%dT%H:%M:%S.%f{2}')"
        for name, which in (("minValues", "min"), ("maxValues", "max")):
            query = f"""select {which}(k), {which}(day)::varchar, {iso.format(which, "t", "Z")}, {iso.format(which, "n", "")}, {which}(s) from rows"""
            [wanted] = db.execute(query).fetchall()
            assert found[name] == dict(zip(["k", "day", "t", "n", "s"], wanted, strict=True))
        [(nulls,)] = db.execute("select count(*) from rows where k is null").fetchall()
    assert found["numRecords"] == n
    assert (found["nullCount"]["k"], found["nullCount"]["none"], found["nullCount"]["f"]) == (nulls, n, 0)


class _Log(DeltaLog):
    """A log whose versions have so many files."""

    def __init__(self, counts: list[int]) -> None:
        self.id, self.name = "t", "table='delta:t'"
        self._counts = counts

    def files(self, version: int, whole: bool) -> list[AddedFile]:
        count = 3 if whole else self._counts[version]
        return [AddedFile(f"{'whole' if whole else version}/{at}", 1, ()) for at in range(count)]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.one_of(st.none(), st.integers(1, 7)), max_size=9)
)
def test_however_a_log_is_cut_into_batches_each_file_comes_once(counts: list[int], cuts: list[int | None]) -> None:
    log = _Log(counts)
    start = Position("t", 0, whole=True)
    wanted = [*log.files(0, True), *(file for version in range(1, len(counts)) for file in log.files(version, False))]
    found: list[AddedFile] = []
    for newest, most in [*((min(at, len(counts) - 1), most) for at, most in enumerate(cuts)), (len(counts) - 1, None)]:
        end = log.end(start, newest, most)
        batch = log.between(start, end)
        assert most is None or len(batch) <= most
        found += batch
        start = end
    assert found == wanted
    assert log.end(start, len(counts) - 1, 5) == log.end(start, len(counts) - 1, None) == start
    with pytest.raises(TableError, match="is not the table that the checkpoint has read from"):
        log.between(Position("other", 0), start)


def test_what_a_call_says_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.split_name("delta:s3://b/c") == ("delta", "s3://b/c")
    for table in ("delta:", "/data/x", "hudi:x", "", 3):
        with pytest.raises(OptionError, match=r"write 'delta:<path or URL>', as in 'delta:/data/calls', or 'iceberg:"):
            tables.split_name(table)  # type: ignore[arg-type]
    assert [tables.parse_size(size, "file_size") for size in ("1.5 KB", "2MiB", 7)] == [1500, 2 << 20, 7]
    for size in ("0 MB", "12", "much", -1, True, None):
        with pytest.raises(OptionError, match="not a file size; write '128 MB', or a number of bytes"):
            tables.parse_size(size, "file_size")  # type: ignore[arg-type]
    assert tables.check_columns("t", {"a": "int", "b": "int"}, {"a": "int", "c": "int"}, add_columns=True) == ["b"]
    pauses: list[float] = []
    monkeypatch.setattr(tables.time, "sleep", pauses.append)
    with pytest.raises(TableError, match="t: other writers were faster 60 times; start the query again"):
        tables.attempts("t", lambda: None)
    assert len(pauses) == 60
    assert max(pauses) <= 2
    answers = iter((None, None, True))
    assert tables.attempts("t", lambda: next(answers)) is True
