"""Poison in every column type: extreme values pass through a join unharmed, and broken times stop nothing."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from support.streams import UTC as ZONED
from support.streams import file_stream, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)
POISON: dict[str, tuple[str, pa.DataType, Any, list[Any]]] = {
    # name: (type of Spark, of Arrow, a common value, poison)
    "tiny": ("tinyint", pa.int8(), 1, [-(2**7), 2**7 - 1]),
    "small": ("smallint", pa.int16(), 1, [-(2**15), 2**15 - 1]),
    "whole": ("int", pa.int32(), 1, [-(2**31), 2**31 - 1]),
    "long": ("bigint", pa.int64(), 1, [-(2**63), 2**63 - 1]),
    "single": ("float", pa.float32(), 1.0, [float("nan"), float("inf"), float("-inf"), -0.0, 1e-45]),
    "real": ("double", pa.float64(), 1.0, [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324]),
    "exact": ("decimal(38,10)", pa.decimal128(38, 10), Decimal(1), [Decimal("9" * 28 + ".9"), -Decimal("9" * 28)]),
    "text": ("string", pa.string(), "a", ["", "\x00", "x" * 300_000, "\U0001f9f5\u202e", "'; DROP TABLE--", "a\nb\r"]),
    "raw": ("binary", pa.binary(), b"a", [b"", b"\x00" * 300_000, bytes(range(256))]),
    "truth": ("boolean", pa.bool_(), True, [False]),
    "day": ("date", pa.date32(), date(2026, 1, 1), [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10)]),
    "moment": ("timestamp", ZONED, START, [FIRST.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)]),
    "local": ("timestamp_ntz", pa.timestamp("us"), datetime(2026, 1, 1), [FIRST, LAST, datetime(2026, 3, 29, 2, 30)]),
    "many": ("array<string>", pa.list_(pa.string()), ["a"], [[], [None], ["x" * 1000] * 100]),
    "pair": ("struct<a: int, b: string>", pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}, [{"a": None, "b": None}]),
    "named": ("map<string, int>", pa.map_(pa.string(), pa.int32()), [("a", 1)], [[], [("a", None), ("", 2)]]),
}  # fmt: skip
DDL = ", ".join(["k bigint", "ts timestamp", "id bigint", *(f"{name} {kind}" for name, (kind, *_) in POISON.items())])
SCHEMA = pa.schema(
    [("k", pa.int64()), ("ts", ZONED), ("id", pa.int64()), *((name, kind) for name, (_, kind, *_) in POISON.items())]
)


def rows(side: int) -> list[dict[str, Any]]:
    """Rows with one poisoned column each, between rows as they should be."""
    common = {name: value for name, (_, _, value, _) in POISON.items()}
    found: list[dict[str, Any]] = [dict(common)]
    for name, (*_, poison) in POISON.items():
        found += [{**common, name: value} for value in [None, *poison]]
        found.append(dict(common))
    made = [
        {"k": at % 5, "ts": START + timedelta(seconds=at / 4), "id": 1000 * side + at, **row}
        for at, row in enumerate(found)
    ]
    if side == 0:
        for at, time in ((10, None), (20, FIRST.replace(tzinfo=UTC)), (30, LAST.replace(tzinfo=UTC))):
            made[at]["ts"] = time
    made[15 + side]["k"] = None
    made[40 + side]["k"] = 2**63 - 1 if side else -(2**63)
    return made


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return braided.join(left, right, on="k", time="ts", within="3 seconds", lateness="5 seconds", name="poisoned")


def test_poison_in_every_column_type(spark: SparkSession, tmp_path: Path) -> None:
    for name, side in (("left", 0), ("right", 1)):
        made = rows(side)
        for number in range(0, len(made), 25):
            write_batch(tmp_path / name, number, pa.Table.from_pylist(made[number : number + 25], SCHEMA))
    streams = [file_stream(spark, tmp_path / name, DDL) for name in ("left", "right")]
    writer = joined(*streams).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    tables = [spark.read.schema(DDL).parquet(str(tmp_path / name)) for name in ("left", "right")]
    right = joined(*tables)  # of tables, by Spark's own join
    found = spark.read.schema(right.schema).parquet(str(tmp_path / "out"))
    assert Counter(map(repr, found.collect())) == Counter(map(repr, right.collect()))
    assert found.count() > 300
    left = braided.report(query).to_dict()["streams"][0]
    assert left["null_times"] == 1
    assert left["quarantined"] + left["discarded"] == 1
    assert left["late"] == 1
