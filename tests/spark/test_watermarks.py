"""Native aggregates after a join whose inputs have watermarks: Spark's own rows, or a refusal; never fewer rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.streams import SECOND, UTC, file_stream, write_batch

import braided
from braided.spark.catalyst import plan_of
from braided.spark.watermark import BlockedError
from braided.spark.without_watermark import has_watermark, without_watermark

# (id, seconds after 10:00), a list for each file. The click of ad 1 is on time, and its result older than both streams.
IMPRESSIONS = [[(1, 230), (5, 240), (9, 300)], [(8, 301)], [(7, 302)], [(-1, 2400)]]
CLICKS = [[(9, 300)], [(8, 301)], [(1, 288)], [(-2, 2401)]]
TEN = 36_000
WINDOWS = {"10:03": 1, "10:05": 2}
JOINED = """impressions a JOIN {clicks} b ON b.clickAdId = a.adId
            AND b.clickTime BETWEEN a.impressionTime AND a.impressionTime + interval 1 minute"""
COUNTED = "SELECT window(a.impressionTime,'1 minute') w, count(*) n FROM {joined} GROUP BY window(a.impressionTime,'1 minute')"
REPORTED = """WITH b AS (SELECT * FROM clicks) SELECT window(a.impressionTime,'1 minute') w, count(*) n
    FROM impressions a JOIN b ON b.clickAdId = a.adId
    AND b.clickTime BETWEEN a.impressionTime AND a.impressionTime + interval 1 minute
    GROUP BY window(a.impressionTime,'1 minute')"""
NESTED = f"""WITH all_clicks AS (SELECT * FROM clicks), b AS (SELECT clickAdId, clickTime FROM all_clicks WHERE clickAdId <> 4)
    {COUNTED.format(joined=JOINED.format(clicks="b"))}"""
BETWEEN: dict[str, Any] = {
    "on": [("adId", "clickAdId")],
    "time": ("impressionTime", "clickTime"),
    "between": ("0 seconds", "1 minute"),
}


def _write(folder: Path, names: tuple[str, str], files: Sequence[Sequence[tuple[int, int]]]) -> None:
    for number, rows in enumerate(files):
        times = pa.array([(TEN + seconds) * SECOND for _, seconds in rows], UTC)
        ids = pa.array([number for number, _ in rows], pa.int64())
        write_batch(folder, number, pa.table(dict(zip(names, (ids, times), strict=True))))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> dict[str, DataFrame]:
    _write(tmp_path / "impressions", ("adId", "impressionTime"), IMPRESSIONS)
    _write(tmp_path / "clicks", ("clickAdId", "clickTime"), CLICKS)
    impressions = file_stream(spark, tmp_path / "impressions", "adId long, impressionTime timestamp")
    clicks = file_stream(spark, tmp_path / "clicks", "clickAdId long, clickTime timestamp")
    return {
        "impressions": impressions.withWatermark("impressionTime", "10 seconds"),
        "clicks": clicks.withWatermark("clickTime", "20 seconds"),
    }


def _windows(counted: DataFrame, folder: Path) -> dict[str, int]:
    name = f"windows_{folder.name}"
    query = counted.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    rows = counted.sparkSession.table(name).collect()
    return {row[0].start.strftime("%H:%M"): row[1] for row in rows}


@pytest.mark.parametrize(
    ("text", "in_workers"),
    [(REPORTED.replace("count(*) n", "count(*) n, max(string(adId))"), False), (NESTED, True)],
    ids=["reported", "nested"],
)
def test_no_window_is_lost_behind_a_common_table_expression(
    spark: SparkSession,
    streams: dict[str, DataFrame],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    in_workers: bool,
) -> None:
    """Its watermark is lengthened where the aggregate is Spark's, and the join's lateness where it moves."""
    counted = braided.sql(spark, text, streams)
    braided.explain(counted)
    assert ("begins in its workers" in capsys.readouterr().out) == in_workers
    marks = [node.line() for node in plan_of(counted).walk() if node.kind == "EventTimeWatermark"]
    assert (["braided" in mark or "horizon" in mark for mark in marks] == [True]) == in_workers, marks
    assert _windows(counted, tmp_path) == WINDOWS


def test_a_watermark_is_taken_out_where_nothing_in_between_needs_it(streams: dict[str, DataFrame]) -> None:
    clicks, spark = streams["clicks"], streams["clicks"].sparkSession
    table = spark.createDataFrame([(1, "one")], "id long, word string")
    clicks.createOrReplaceTempView("clicks")
    common = spark.sql("WITH c AS (SELECT * FROM clicks) SELECT * FROM c WHERE clickAdId > 0")
    for frame in (
        clicks,
        clicks.where("clickAdId > 0").withColumn("more", F.lit(1)).alias("c"),
        clicks.join(table, F.col("id") == F.col("clickAdId"), "left"),
        clicks.select("clickTime", F.explode(F.array("clickAdId", F.lit(2)))).repartition(2),
        common,
        braided.join(streams["impressions"], clicks, **BETWEEN),
    ):
        found = without_watermark(frame, "clickTime")
        assert not has_watermark(found)
        assert found.schema.simpleString() == frame.schema.simpleString()
        assert "spark.watermarkDelayMs" not in found.schema.json()
        assert has_watermark(frame)


def test_a_watermark_stays_where_something_needs_it(streams: dict[str, DataFrame]) -> None:
    clicks, shown = streams["clicks"], streams["impressions"]
    unmarked = clicks.select(F.col("clickAdId"), (F.col("clickTime") + F.expr("INTERVAL 1 SECOND")).alias("clickTime"))
    for frame, reason in (
        (clicks.dropDuplicates(["clickAdId", "clickTime"]), "below dropDuplicates"),
        (clicks.dropDuplicatesWithinWatermark(["clickAdId"]), "below dropDuplicatesWithinWatermark"),
        (clicks.groupBy(F.window("clickTime", "1 minute"), "clickTime").count(), "below an aggregate"),
        (clicks.union(clicks), "below Union"),
        (clicks.join(shown, F.expr("adId = clickAdId AND clickTime = impressionTime")).select("clickTime"), "a join of Spark"),
        (clicks.withColumnRenamed("clickTime", "other").withColumn("clickTime", F.col("other") + F.expr("INTERVAL 1 DAY")), "on other"),
        (unmarked, "on a column that is dropped"),
    ):  # fmt: skip
        assert has_watermark(frame)
        with pytest.raises(BlockedError, match=reason):
            without_watermark(frame, "clickTime")


def test_windows_of_a_join_close_by_its_clocks_after_any_way_to_write_it(
    spark: SparkSession, streams: dict[str, DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result of a join is older than both watermarks, and none of its windows is lost, with the delays as given."""
    one, other = streams["impressions"], streams["clicks"]
    one_stream, other_stream = (braided.stream(frame, time=frame.columns[1]) for frame in (one, other))
    fluent = one_stream.join(other_stream, on=[("adId", "clickAdId")], between=("0 seconds", "1 minute"))
    near = F.expr("clickAdId = adId AND clickTime BETWEEN impressionTime AND impressionTime + interval 1 minute")
    for at, counted in enumerate((
        fluent.aggregate(window="1 minute", n="count(*)").df,
        braided.join(one, other, **BETWEEN).groupBy(F.window("impressionTime", "1 minute")).count(),
        braided.join(one, other, near).groupBy(F.window(one["impressionTime"], "1 minute")).agg(F.count("*").alias("n")),
    )):  # fmt: skip
        braided.explain(counted)
        shown = capsys.readouterr().out
        assert "begins in its workers" in shown
        assert "10 seconds" in shown
        assert "20 seconds" in shown
        assert _windows(counted, tmp_path / str(at)) == WINDOWS


def test_no_window_is_lost_behind_dropped_duplicates(streams: dict[str, DataFrame], tmp_path: Path) -> None:
    clicks = streams["clicks"].dropDuplicates(["clickAdId", "clickTime"])
    joined = braided.join(streams["impressions"], clicks, **BETWEEN)
    assert _windows(joined.groupBy(F.window("impressionTime", "1 minute")).count(), tmp_path) == WINDOWS


def test_a_query_that_would_lose_windows_is_refused_with_the_users_names(
    spark: SparkSession, streams: dict[str, DataFrame]
) -> None:
    streams["clicks"] = streams["clicks"].dropDuplicatesWithinWatermark(["clickAdId"])
    with pytest.raises(
        braided.OptionError,
        match=r"^b\.clickTime: .* 80 seconds instead of 20 seconds.* below dropDuplicatesWithinWatermark; "
        r"write withWatermark\('clickTime', '80 seconds'\) there, and lateness='20 seconds'",
    ):
        braided.sql(spark, REPORTED, streams)
    around = f"SELECT impressionTime, count(*) FROM (SELECT a.* FROM {JOINED.format(clicks='clicks')}) GROUP BY impressionTime"
    with pytest.raises(braided.OptionError, match=r"^b\.clickTime: .*dropDuplicatesWithinWatermark"):
        braided.sql(spark, around, streams)
    one, other = (
        braided.stream(streams[name], time=time)
        for name, time in (("impressions", "impressionTime"), ("clicks", "clickTime"))
    )
    joined = one.join(other, on=[("adId", "clickAdId")], between=("0 seconds", "1 minute"))
    with pytest.raises(braided.OptionError, match=r"^clickTime: .*dropDuplicatesWithinWatermark"):
        joined.aggregate(window="1 minute", n="count(*)").df  # noqa: B018


def test_a_result_that_may_be_older_than_its_watermark_has_none(
    streams: dict[str, DataFrame], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one branch of a union could be changed, and where another join follows."""
    within = streams["clicks"].dropDuplicatesWithinWatermark(["clickAdId"])
    for clicks in (within, streams["clicks"].union(within)):
        caplog.clear()
        joined = braided.join(streams["impressions"], clicks, **BETWEEN)
        assert "the result has no watermark: clickTime: " in caplog.text
        others = streams["impressions"].toDF("id", "at")
        again = braided.join(
            joined, others, on=[("adId", "id")], time=("impressionTime", "at"), within="1 second", lateness="0 seconds"
        )
        for rows, time in ((joined, "impressionTime"), (again, "at")):
            with pytest.raises(AnalysisException, match="without watermark"):
                _windows(rows.groupBy(F.window(time, "1 minute")).count(), tmp_path)


def test_a_watermark_that_is_long_enough_may_be_below_anything(
    spark: SparkSession, streams: dict[str, DataFrame], tmp_path: Path
) -> None:
    """The refusal says what to write: with it there is nothing to change."""
    clicks = file_stream(spark, tmp_path / "clicks", "clickAdId long, clickTime timestamp")
    clicks = clicks.withWatermark("clickTime", "80 seconds").dropDuplicatesWithinWatermark(["clickAdId"])
    joined = braided.join(streams["impressions"], clicks, **BETWEEN, lateness="20 seconds")
    assert _windows(joined.groupBy(F.window("impressionTime", "1 minute")).count(), tmp_path) == WINDOWS
