"""Files with columns that are named as a field of another: read as any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braided.storage.file_reader import Bound, FileReader, Part
from braided.storage.fit import Misfit


def _read(reader: FileReader, path: Path) -> list[object]:
    return [row for batch in reader.read(Part(str(path))) for row in batch.to_pylist()]


@pytest.mark.parametrize("order", [["a", "a.b"], ["a.b", "a"]])
def test_statistics_of_a_field_are_not_taken_for_those_of_a_column_with_a_dot(tmp_path: Path, order: list[str]) -> None:
    path = tmp_path / "x.parquet"
    rows = pa.table({"a": pa.array([{"b": 0}, {"b": 1}]), "a.b": [100, 101]}).select(order)
    pq.write_table(rows, path)
    schema = pa.schema([("a.b", pa.int64())])
    reader = FileReader(schema, ("a.b",), bounds=(Bound("a.b", 100, None),))
    assert _read(reader, path) == [{"a.b": 100}, {"a.b": 101}]
    pq.write_table(rows.select(["a.b"]), path)
    assert len(_read(reader, path)) == 2
    assert _read(FileReader(schema, ("a.b",), bounds=(Bound("a.b", 102, None),)), path) == []


def test_nanoseconds_are_noticed_in_a_column_with_a_dot(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a.b": pa.array([1_000], pa.timestamp("ns"))}), path)
    with pytest.raises(Misfit, match=r"column 'a\.b' has nanoseconds"):
        _read(FileReader(pa.schema([("a.b", pa.timestamp("us"))]), ("a.b",)), path)
