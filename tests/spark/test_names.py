"""Columns of any name: dots, quotes, spaces, letters of other scripts, and names that the runtime uses itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.profiles import some
from support.streams import UTC, file_stream, read_rows, run_to_end, write_batch

import braided
from braided.errors import OptionError

KEY, TIME, TEXT, REPORT, LIST = "a.b", "t.`s", "x y", "__braided_report", "žluť.[0]"
COLUMNS = [KEY, TIME, TEXT, REPORT, LIST]
WITHIN = "1 second"


def rows(offset: int) -> list[tuple[int, int, str, int, list[int]]]:
    return [(number % 3, number * 1_000_000 + offset, "ab"[number % 2], number, [number]) for number in range(12)]


PAIRS = sorted(
    (left[3], right[3])
    for left in rows(0)
    for right in rows(500_000)
    if left[0] == right[0] and abs(left[1] - right[1]) <= 1_000_000
)


def stream(spark: SparkSession, folder: Path, offset: int) -> DataFrame:
    """Two files of plain names; the stream over them has odd ones."""
    for number in (0, 1):
        part = rows(offset)[6 * number : 6 * number + 6]
        columns = [pa.array(values) for values in zip(*part, strict=True)]
        table = pa.table([columns[0], columns[1].cast(UTC), *columns[2:]], list("ktxrl"))
        write_batch(folder, number, table)
    return file_stream(spark, folder, "k long, t timestamp, x string, r long, l array<long>").toDF(*COLUMNS)


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    return stream(spark, tmp_path / "left", 0), stream(spark, tmp_path / "right", 500_000)


def results(spark: SparkSession, result: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Run it into files, whose columns have plain names, and give the rows their names again."""
    run_to_end(result.toDF(*(f"n{at}" for at in range(len(result.columns)))), folder / "checkpoint", folder / "out")
    return [dict(zip(result.columns, row, strict=True)) for row in read_rows(spark, folder / "out")]


def numbers(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row[REPORT], row[f"{REPORT}_right"]) for row in found)


@pytest.mark.parametrize("nested", some([True, False], quick=1))
def test_join(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path, nested: bool) -> None:
    left, right = pair if nested else (frame.drop(F.col(f"`{LIST}`")) for frame in pair)
    left = left.withWatermark("`t.``s`", "5 seconds")
    joined = braided.join(
        left, right, on=KEY, time=TIME, within=WITHIN, where=f"l.`{TEXT}` <> r.`{TEXT}` OR l.`{KEY}` >= 0"
    )
    others = [TIME, TEXT, REPORT, *([LIST] if nested else [])]
    assert joined.columns == [KEY, *others, *(f"{name}_right" for name in others)]
    found = results(spark, joined, tmp_path)
    assert numbers(found) == PAIRS
    assert all(row[KEY] == row[REPORT] % 3 for row in found)
    assert not nested or all(row[LIST] == [row[REPORT]] for row in found)


def test_a_predicate_that_spark_evaluates(
    spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    joined = braided.join(
        *pair, on=KEY, time=TIME, within=WITHIN, where=f"upper(l.`{TEXT}`) = 'A' AND l.`{KEY}` >= r.`{LIST}`[0] - 99"
    )
    assert numbers(results(spark, joined, tmp_path)) == [(left, right) for left, right in PAIRS if left % 2 == 0]


@pytest.mark.slow
def test_multijoin_and_order_after_it(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    """Lateness is learned, so that the join hands its own on in a further column."""
    rule = braided.Lateness(floor="0 seconds")
    joined = braided.multijoin(pair, on=KEY, time=TIME, within=WITHIN, suffixes=("", "_right"), lateness=rule)
    ordered = braided.order(joined, time=TIME, key=KEY, late="flag")
    assert ordered.columns == [*joined.columns, "late"]
    found = numbers(results(spark, ordered, tmp_path))
    assert len(found) >= 3
    assert found == PAIRS[: len(found)]  # the last ones wait


def test_join_group(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    join = braided.Join("odd", left="l.l", right="r r", on=KEY, within=WITHIN)
    streams = dict(zip(("l.l", "r r"), pair, strict=True))
    group = braided.join_group([join], streams=streams, time=TIME, memory=1000, lateness="0 seconds")
    found = results(spark, group.select("odd.*"), tmp_path)
    assert numbers(found)[:6] == PAIRS[:6]


def test_batches(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    left, right = (spark.read.parquet(str(tmp_path / side)).toDF(*COLUMNS) for side in ("left", "right"))
    joined = braided.join(left, right, on=KEY, time=TIME, within=WITHIN, where=f"l.`{KEY}` >= 0")
    assert numbers([row.asDict() for row in joined.collect()]) == PAIRS
    many = braided.multijoin([left, right], on=KEY, time=TIME, within=WITHIN, suffixes=("", "_right"))
    assert numbers([row.asDict() for row in many.collect()]) == PAIRS
    own = left.withColumnRenamed(TEXT, "__braided_input")
    ordered = braided.order(own, time=TIME)
    assert ordered.columns == [KEY, TIME, "__braided_input", REPORT, LIST, "seq", "late"]
    assert [row[REPORT] for row in ordered.collect()] == list(range(12))


def test_a_name_that_carries_a_delay_is_refused(pair: tuple[DataFrame, DataFrame]) -> None:
    frame = pair[0].withColumnRenamed(REPORT, "__braided_delay")
    with pytest.raises(OptionError, match="right: column '__braided_delay': Braided uses this name itself; rename it"):
        braided.join(pair[0], frame, on=KEY, time=TIME, within=WITHIN)
