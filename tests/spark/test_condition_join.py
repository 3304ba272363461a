"""`braided.join` by a condition: what is found in it, what its result's columns are called, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.streams import file_stream

import braided
from braided.spark.catalyst import plan_of

NEAR = "a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 2 SECONDS"
Streams = tuple[DataFrame, DataFrame]


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    calls = file_stream(spark, tmp_path / "calls", "phone long, ts timestamp, n int, Cell string")
    alerts = file_stream(spark, tmp_path / "alerts", "phone string, ts timestamp, n int, at timestamp")
    return calls.alias("c"), alerts.alias("a")


@pytest.mark.parametrize(
    ("condition", "how", "shown"),
    [
        (f"c.n = a.n AND {NEAR}", "inner", ["joins on n = n", "-1 second <= r.t - l.t <= 2 seconds"]),
        (f"c.phone = a.phone AND {NEAR}", "inner", ["joins on phone = key0"]),
        (f"upper(c.Cell) = a.phone AND {NEAR} AND c.n < a.n", "inner", ["joins on key0 = phone", "l.n < r.n"]),
        (f"c.n = a.n AND {NEAR} AND c.n > 1 AND a.n > 2", "left", ["joins on key0 = key0", "l.n > 1"]),
        (f"struct(c.n, c.ts) = struct(a.n, a.ts) AND {NEAR}", "inner", ["joins on key0 = key0"]),
    ],
)
def test_keys_bounds_and_the_rest_are_found_in_a_condition(
    streams: Streams, capsys: pytest.CaptureFixture[str], condition: str, how: str, shown: list[str]
) -> None:
    joined = braided.join(*streams, F.expr(condition), how)
    braided.explain(joined)
    found = capsys.readouterr().out
    assert all(text in found for text in shown), found
    native = streams[0].join(streams[1], F.expr(condition), how)
    assert joined.schema.simpleString() == native.schema.simpleString()
    assert joined.columns == native.columns


def test_a_cap_bounds_what_the_condition_bounds_on_one_side_only(
    streams: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    for how in ("inner", "left"):
        braided.explain(braided.join(*streams, F.expr("c.n = a.n AND a.ts > c.ts"), how, cap="1 hour"))
        assert "1 microsecond <= r.t - l.t <= 1 hour" in capsys.readouterr().out
    braided.sql(
        streams[0].sparkSession,
        "SELECT c.n FROM c JOIN a ON c.n = a.n AND a.ts >= c.ts",
        dict(zip("ca", streams, strict=True)),
        cap="1 hour",
    )


def test_columns_are_found_by_the_dataframes_they_come_from_and_by_aliases(streams: Streams) -> None:
    calls, alerts = streams
    condition = (calls["n"] == alerts["n"]) & alerts.ts.between(calls.ts, calls.ts + F.expr("INTERVAL 1 SECOND"))
    joined = braided.join(calls, alerts, condition)
    chosen = joined.select(calls["phone"], alerts["phone"], "c.ts", F.col("a.ts").alias("seen"), "cell")
    assert [field.dataType.simpleString() for field in chosen.schema] == ["bigint", "string", "timestamp", "timestamp", "string"]  # fmt: skip
    assert chosen.columns == ["phone", "phone", "ts", "seen", "cell"]
    with pytest.raises(AnalysisException, match="AMBIGUOUS"):
        joined.select("ts")
    listed = [calls["n"] == alerts["n"], F.expr(NEAR)]
    assert (
        braided.join(calls, alerts, listed).columns == braided.join(calls, alerts, on=listed).columns == joined.columns
    )


def test_fields_of_structs_are_read_in_conditions(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = "st struct<a:int,b:struct<c:int,d:struct<e:int>>>, ts timestamp"
    calls, alerts = (file_stream(spark, tmp_path / name, schema).alias(name) for name in "ca")
    condition = F.expr(f"c.st.a = a.st.b.c AND c.st.b.d.e = a.st.a AND a.st.b.d.e > 0 AND {NEAR}")
    for how in ("inner", "left"):
        joined = braided.join(calls, alerts, condition, how)
        assert joined.schema.simpleString() == calls.join(alerts, condition, how).schema.simpleString()
        braided.explain(joined)
        assert "joins on key0 = key0, key1 = key1" in capsys.readouterr().out


def test_conditions_of_one_stream_protect_the_values_of_a_key(streams: Streams) -> None:
    condition = F.expr(f"c.Cell <> '' AND CAST(c.Cell AS INT) = a.n AND {NEAR}")
    assert "CASE WHEN NOT (cell" in plan_of(braided.join(*streams, condition, "left")).text
    assert "CASE WHEN" not in plan_of(braided.join(*streams, condition)).text


def test_columns_may_be_called_select_and_not(spark: SparkSession, tmp_path: Path) -> None:
    streams = [file_stream(spark, tmp_path / name, "`Select` int, `not` boolean, ts timestamp") for name in "ca"]
    calls, alerts = (stream.alias(name) for stream, name in zip(streams, "ca", strict=True))
    condition = F.expr(f"c.`select` = a.`select` AND c.`not` AND {NEAR}")
    for how in ("inner", "full"):
        joined = braided.join(calls, alerts, condition, how)
        native = calls.join(alerts, condition, how)
        assert (joined.columns, joined.schema.simpleString()) == (native.columns, native.schema.simpleString())
        assert joined.select("c.select", "a.not").columns == ["select", "not"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (braided.join, r"^join: give on= and time=.*or a condition"),
        (lambda c, a: braided.join(c, a, "n"), r"^condition='n': write a Column .* go into on="),
        (lambda c, a: braided.join(c, a, F.expr(NEAR), time="ts"), r"^time='ts': the condition already has this"),
        (lambda c, a: braided.join(c, a, F.expr(NEAR), suffixes=("_l", "_r")), r"^suffixes=: .*leave it out"),
        (lambda c, a: braided.join(c, a, F.expr(NEAR), "sideways"), r"^how='sideways': unknown"),
        (lambda c, a: braided.join(c, a, F.expr("c.n = a.n AND a.ts > c.ts")), r"r\.ts > l\.ts is on one side only.*add a cap"),
        (lambda c, a: braided.join(c, a, F.expr("c.n = a.n AND a.ts > c.ts")), r"or cap='1 hour'"),
        (lambda c, a: braided.join(c, a, F.expr(f"c.n = a.n AND {NEAR}"), cap="1 hour"), r"^cap=: the condition has bounds on both sides; leave it out"),
        (lambda c, a: braided.join(c, a, F.expr("c.n = a.n AND a.ts > c.ts"), cap="-1 hour"), r"^cap='-1 hour': "),
        (lambda c, a: braided.join(c, a, on="n", time="ts", within="1 hour", cap="1 hour"), r"^cap='1 hour': needs a condition"),
        (lambda c, a: braided.join(c, a, F.expr("c.n = a.n")), r"^condition=: no bounds on both sides"),
        (lambda c, a: braided.join(c, a, F.expr(NEAR), "left"), r"^on=None: how='left' needs a key"),
        (
            lambda c, a: braided.join(c, a, F.expr(NEAR) & F.udf(lambda n: n > 1, "boolean")(c["n"])),
            r"^condition=: has a Python function",
        ),
    ],
)  # fmt: skip
def test_refusals_say_what_to_write(
    streams: Streams, make: Callable[[DataFrame, DataFrame], DataFrame], message: str
) -> None:
    with pytest.raises(braided.OptionError, match=message):
        make(*streams)


def test_what_spark_does_not_know_is_sparks_error(streams: Streams) -> None:
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        braided.join(*streams, F.expr("c.n = a.m"))


def test_an_aggregate_right_after_the_join_begins_in_its_workers_or_says_why_not(
    streams: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, alerts = streams
    joined = braided.join(calls, alerts, F.expr(f"c.n = a.n AND {NEAR}"))
    by = F.window(calls["ts"], "10 seconds", "5 seconds"), F.upper("Cell").alias("cell")
    for counted in (
        joined.groupBy(*by).count(),
        joined.groupBy(*by).agg(F.sum(alerts["n"]).alias("total"), F.avg("c.n"), F.count("*")),
        joined.groupby(F.window("c.ts", "1 minute"), calls.phone).agg({"cell": "count"}),
        joined.groupBy(F.window("c.ts", "1 minute"))
        .agg(F.count(F.when(calls["n"] > 1, 1)).alias("some"))
        .select("some"),
    ):
        braided.explain(counted)
        assert "begins in its workers" in capsys.readouterr().out
    for counted, reason in (
        (joined.groupBy("Cell").count(), "it does not group by one window"),
        (joined.groupBy(F.window("at", "1 minute")).count(), "at is not a time column of the join"),
        (joined.groupBy(F.window("c.ts", "1 minute")).agg(F.max("Cell")), "only Spark can compute max of string"),
        (joined.groupBy(F.window("c.ts", "1 minute")).agg(F.collect_list("Cell")), "cannot be merged"),
        (joined.where("c.n > 1").groupBy(F.window("c.ts", "1 minute")).count(), "it was written with groupBy after"),
    ):
        braided.explain(counted)
        shown = capsys.readouterr().out
        assert reason in shown, shown
        assert "begins in its workers" not in shown
