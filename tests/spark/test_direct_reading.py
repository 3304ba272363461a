"""Files read by our own tasks hold what Spark's own reader finds in them: types, columns, rows, refusals."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from braided.errors import BraidedError
from braided.spark.arrow_types import arrow_of
from braided.storage.file_reader import Bound, FileReader, Part
from braided.storage.files import local_path

D = decimal.Decimal
pytestmark = pytest.mark.usefixtures("spark")  # Spark reads the DDL of schemas


def _reader(schema: StructType, **options: bool) -> FileReader:
    promised = arrow_of(schema, "path")
    return FileReader(promised, tuple(promised.names), **options)


def _ours(folder: Path, schema: StructType, **options: bool) -> list[object]:
    reader = _reader(schema, **options)
    rows: list[object] = []
    for path in sorted(folder.rglob("*.parquet")):
        for batch in reader.read(Part(str(path))):
            rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows


def _sparks(spark: SparkSession, folder: Path, schema: StructType) -> list[object]:
    return spark.read.schema(schema).parquet(str(folder)).toArrow().to_pylist(maps_as_pydicts="strict")


def _same(one: list[object], other: list[object]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))


UTC = dt.UTC
ARROW = {
    "bytes": pa.array([1, None, -128], pa.int8()),
    "shorts": pa.array([1, None, -32768], pa.int16()),
    "ints": pa.array([1, None, 2**31 - 1], pa.int32()),
    "longs": pa.array([1, None, -(2**63)], pa.int64()),
    "u8": pa.array([1, None, 255], pa.uint8()),
    "u16": pa.array([1, None, 65535], pa.uint16()),
    "u32": pa.array([1, None, 2**32 - 1], pa.uint32()),
    "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "floats": pa.array([1.5, None, float("nan")], pa.float32()),
    "doubles": pa.array([1.5, None, float("-inf")], pa.float64()),
    "flags": pa.array([True, None, False]),
    "text": pa.array(["a", None, "ü\U0001f40d"]),
    "large": pa.array(["a", None, "b"], pa.large_string()),
    "coded": pa.array(["x", None, "x"]).dictionary_encode(),
    "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "dates": pa.array([dt.date(2024, 2, 29), None, dt.date(1500, 1, 1)]),
    "micros": pa.array([dt.datetime(2024, 1, 1, tzinfo=UTC), None, dt.datetime(1600, 1, 1, tzinfo=UTC)]),
    "millis": pa.array([1_700_000_000_123, None, -5], pa.timestamp("ms", "UTC")),
    "berlin": pa.array([1_700_000_000_123_456, None, -5], pa.timestamp("us", "Europe/Berlin")),
    "local": pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(1969, 1, 1)], pa.timestamp("us")),
    "small_decimal": pa.array([D("1.25"), None, D("-999.99")], pa.decimal128(5, 2)),
    "middle_decimal": pa.array([D("1.25"), None, D("-12345678.99")], pa.decimal128(12, 2)),
    "large_decimal": pa.array([D("1.25"), None, D("-1234567890123456789.99")], pa.decimal128(30, 2)),
    "lists": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "maps": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "deep": pa.array([[{"t": dt.datetime(2024, 1, 1, tzinfo=UTC), "m": [("a", [1.5])]}], None, [None]],
                     pa.list_(pa.struct([("t", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.string(), pa.list_(pa.float64())))]))),
}  # fmt: skip


def test_every_type_of_arrow_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table(ARROW), tmp_path / "a.parquet")
    schema = spark.read.parquet(str(tmp_path)).schema
    assert len(schema) == len(ARROW)
    assert _same(_ours(tmp_path, schema), _sparks(spark, tmp_path, schema))


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"])
def test_files_that_spark_wrote_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, times: str) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    spark.sql(
        """select id, timestamp_micros(id * 1000123) as t, timestamp_ntz '2024-01-01 00:00:01.5' as n,
             date_add(date '1970-01-01', cast(id as int)) as d, cast(id as decimal(20, 3)) as m,
             array(struct(timestamp_micros(id) as t, id as x)) as s, map(cast(id as string), timestamp_micros(-id)) as p,
             if(id % 3 = 0, null, named_struct('a', id, 'b', array(id))) as o, cast(null as int) as e
           from range(1000)"""
    ).repartition(3).write.mode("overwrite").parquet(str(tmp_path / "in"))
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    assert _same(_ours(tmp_path / "in", schema), _sparks(spark, tmp_path / "in", schema))


def test_columns_are_found_by_name_and_missing_ones_are_null(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": [1, 2], "A": ["x", "y"], "s": [{"p": 1}, {"p": 2}]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["z"], "c": [1.5], "s": [{"q": 3}]}), tmp_path / "2.parquet")
    schema = StructType.fromDDL("a string, b bigint, c double, d date, s struct<p: bigint, q: bigint>")
    assert _same(_ours(tmp_path, schema), _sparks(spark, tmp_path, schema))
    spark.conf.set("spark.sql.caseSensitive", "true")
    assert _same(_ours(tmp_path, schema, case_sensitive=True), _sparks(spark, tmp_path, schema))


def test_narrower_types_are_widened_as_spark_widens_them(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({
            "i": pa.array([1, -2], pa.int32()),
            "s": pa.array([1, -2], pa.int16()),
            "f": pa.array([1.1, -2.5], pa.float32()),
            "d": pa.array([D("1.25"), D("-3.75")], pa.decimal128(5, 2)),
        }),
        tmp_path / "a.parquet",
    )  # fmt: skip
    schema = StructType.fromDDL("i bigint, s int, f double, d decimal(20, 4)")
    assert _same(_ours(tmp_path, schema), _sparks(spark, tmp_path, schema))


def test_what_does_not_fit_stops_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "a b.parquet"
    pq.write_table(pa.table({"x": ["a"], "n": pa.array([1], pa.timestamp("ns")), "y": [1]}), path)
    with pytest.raises(BraidedError, match=r"a b\.parquet: column 'x' is string, but int64 was expected; Spark's own"):
        _ours(tmp_path, StructType.fromDDL("x bigint"))
    with pytest.raises(BraidedError, match=r"column 'n' has nanoseconds"):
        _ours(tmp_path, StructType.fromDDL("n timestamp_ntz"))
    with pytest.raises(BraidedError, match=r"column 'y' is int64, but int32 was expected"):
        _ours(tmp_path, StructType.fromDDL("y int"))
    assert _ours(tmp_path, StructType.fromDDL("y bigint")) == [{"y": 1}]


def test_ambiguous_columns_are_refused_as_spark_refuses_them(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "A": [2]}), tmp_path / "a.parquet")
    schema = StructType.fromDDL("a bigint")
    with pytest.raises(BraidedError, match=r"columns a, A are all 'a' if case is ignored"):
        _ours(tmp_path, schema)
    with pytest.raises(Exception, match="duplicate"):
        _sparks(spark, tmp_path, schema)


def test_missing_and_damaged_files_stop_or_are_ignored(tmp_path: Path) -> None:
    schema = StructType.fromDDL("a bigint")
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "good.parquet")
    content = (tmp_path / "good.parquet").read_bytes()
    for name, broken in (("cut", content[: len(content) // 2]), ("empty", b""), ("text", b"not parquet at all")):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(broken)
        with pytest.raises(BraidedError, match=rf"{name}\.parquet: the file is not valid Parquet .*ignoreCorruptFiles"):
            list(_reader(schema).read(Part(str(path))))
        assert list(_reader(schema, ignore_damaged=True).read(Part(str(path)))) == []
    gone = Part(str(tmp_path / "gone.parquet"))
    with pytest.raises(BraidedError, match=r"gone\.parquet: the file is missing; .*ignoreMissingFiles"):
        list(_reader(schema).read(gone))
    assert list(_reader(schema, ignore_missing=True).read(gone)) == []


@pytest.mark.parametrize("cut", [100, 1000, 5000, 10**9])
def test_parts_of_a_file_are_its_rows_once(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": list(range(5000)), "b": ["x" * 20] * 5000}), path, row_group_size=300)
    reader = _reader(StructType.fromDDL("a bigint, b string"))
    rows = []
    for start in range(0, path.stat().st_size, cut):
        rows += [
            row for batch in reader.read(Part(str(path), start, start + cut)) for row in batch.column("a").to_pylist()
        ]
    assert sorted(rows) == list(range(5000))


def test_batches_are_small_whatever_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["x" * 1000] * 100_000}), path, row_group_size=100_000, use_dictionary=False)
    batches = list(_reader(StructType.fromDDL("a string")).read(Part(str(path))))
    assert sum(batch.num_rows for batch in batches) == 100_000
    assert max(batch.nbytes for batch in batches) < 12 << 20


def test_paths_of_spark_are_local_paths() -> None:
    assert local_path("file:/tmp/a b") == local_path("file:///tmp/a b") == local_path("/tmp/a b") == "/tmp/a b"


def test_row_groups_that_no_filter_lets_through_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = list(range(3000))
    times = pa.array([value * 1000 for value in values], pa.timestamp("ms", "UTC"))
    pq.write_table(
        pa.table({"a": values, "t": times}), path, row_group_size=1000, compression="none", use_dictionary=False
    )
    second = pq.ParquetFile(path).metadata.row_group(1)
    content = bytearray(path.read_bytes())
    for column in range(2):
        start = second.column(column).data_page_offset
        content[start : start + second.column(column).total_compressed_size] = (
            b"\xff" * second.column(column).total_compressed_size
        )
    path.write_bytes(content)
    reader = _reader(StructType.fromDDL("a bigint, t timestamp"))
    with pytest.raises(BraidedError, match="the file is not valid Parquet"):
        list(reader.read(Part(str(path))))
    for bound in (
        Bound("a", 2000, None),
        Bound("t", 2_000_000_000, None),
        Bound("a", None, 999),
        Bound("a", 2999, 2999),
    ):
        rows = sum(batch.num_rows for batch in replace(reader, bounds=(bound,)).read(Part(str(path))))
        assert rows == 1000
    with pytest.raises(BraidedError, match="the file is not valid Parquet"):
        list(replace(reader, bounds=(Bound("a", None, 1000),)).read(Part(str(path))))
