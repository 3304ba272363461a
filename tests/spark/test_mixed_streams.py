"""What is known of a time after a union of streams, and after joins and aggregates of Spark's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braided
from braided.operators.stream import TimeMarks
from braided.spark.inputs import stream_of
from braided.time.lateness import Lateness


def stream(spark: SparkSession, watermark: str | None) -> DataFrame:
    rows = spark.readStream.format("rate").load().selectExpr("value AS k", "timestamp AS ts")
    return rows if watermark is None else rows.withWatermark("ts", watermark)


def joined(spark: SparkSession, *watermarks: str) -> DataFrame:
    one, other = (stream(spark, watermark) for watermark in watermarks)
    return braided.join(one, other, on="k", time="ts", within="1 second", control=False).select("k", "ts")


def marks(frame: DataFrame) -> TimeMarks:
    return stream_of(frame, "left").marks_of("ts")


def test_a_union_is_as_late_as_the_latest_of_its_parts_at_least(spark: SparkSession) -> None:
    quick, slow = joined(spark, "0 seconds", "0 seconds"), joined(spark, "60 seconds", "60 seconds")
    assert marks(quick).lateness(None) == 2_000_000
    for union in (quick.union(slow), slow.union(quick).where("k > 1"), slow.unionByName(quick).select("ts", "k")):
        known = marks(union)
        assert (known.delay, known.exact) == (62_000_000, False)
        rule = known.lateness(None)
        assert isinstance(rule, Lateness)
        assert rule.floor_us == 62_000_000
        assert known.lateness(0) == 62_000_000


def test_a_union_of_watermarks_is_learned_unless_it_has_one_of_its_own(spark: SparkSession) -> None:
    union = stream(spark, "5 seconds").union(stream(spark, "20 seconds"))
    rule = marks(union).lateness(None)
    assert isinstance(rule, Lateness)
    assert rule.floor_us == 20_000_000
    own = stream(spark, None).union(stream(spark, None)).withWatermark("ts", "30 seconds")
    assert marks(own).lateness(None) == 30_000_000


WAITING: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "join": lambda one, other: one.join(
        other.selectExpr("k AS j", "ts AS u"), F.expr("k = j AND u BETWEEN ts AND ts + INTERVAL 60 SECONDS")
    ).select("k", "ts"),
    "aggregate": lambda one, _: one.groupBy("k", "ts").count(),
}


@pytest.mark.parametrize("how", WAITING)
def test_rows_that_wait_in_sparks_operators_are_later_than_their_metadata_says(spark: SparkSession, how: str) -> None:
    first = joined(spark, "0 seconds", "0 seconds")
    for one in (first, stream(spark, "7 seconds")):
        known = marks(WAITING[how](one, stream(spark, "0 seconds")))
        assert not known.exact
        assert isinstance(known.lateness(None), Lateness)


def test_a_table_joined_by_spark_delays_nothing(spark: SparkSession) -> None:
    table = spark.range(3).selectExpr("id AS k", "'a' AS label")
    for frame in (
        joined(spark, "0 seconds", "0 seconds").join(table, "k"),
        table.join(joined(spark, "0 seconds", "0 seconds"), "k"),
    ):
        assert marks(frame).lateness(None) == 2_000_000


def test_streams_of_a_union_have_the_longest_lateness(spark: SparkSession) -> None:
    one, other, learned, unknown = (
        braided.stream(stream(spark, None), time="ts", lateness=lateness)
        for lateness in ("5 seconds", "1 minute", "auto", None)
    )
    assert one.union(other).lateness == other.union(one).lateness == "1 minute"
    assert one.union(learned, other).lateness == "auto"
    assert one.union(unknown).lateness is None
