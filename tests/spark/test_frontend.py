"""The front end on Spark: what is handed on, names, the registry, and that nothing happens before all is checked."""

from __future__ import annotations

import doctest
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.profiles import some
from support.streams import UTC, file_stream, read_rows, run_to_end, write_batch

import braided
from braided import api
from braided.spark.dataflow import METRIC
from braided.spark.session_operators import metrics_of, name_of, named, registry_of

pytestmark = pytest.mark.spark
SECOND = 1_000_000
START = 1_700_000_000
DDL = "k long, ts timestamp, id long"


def write(folder: Path, *batches: list[tuple[int, float]]) -> None:
    """Write (key, second) rows, a file per batch."""
    for number, rows in enumerate(batches):
        times = pa.array([int((START + second) * SECOND) for _, second in rows], UTC)
        table = pa.table({"k": [key for key, _ in rows], "ts": times, "id": list(range(len(rows)))})
        write_batch(folder, number, table)


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    """Two streams of four batches; the left one is a minute late once, before anything matches."""
    later: list[list[tuple[int, float]]] = [[(1, 200.0 + 10 * batch)] for batch in range(3)]
    write(tmp_path / "l", [(9, 100.0), (9, 40.0)], *later)
    write(tmp_path / "r", [(8, 100.0)], *later)
    return file_stream(spark, tmp_path / "l", DDL), file_stream(spark, tmp_path / "r", DDL)


def between(joined: DataFrame) -> Iterator[DataFrame]:
    """What users put between two operators."""
    yield joined
    yield joined.where("k = 1").select("k", F.col("ts").alias("seen"), "id").withColumn("more", F.lit(1))
    yield joined.alias("j").select("j.*").where("j.id >= 0").repartition(2)


@pytest.mark.parametrize("way", some([1, 0, 2], quick=1))
def test_a_learned_lateness_is_handed_on_through_a_users_select_and_where(
    pair: tuple[DataFrame, DataFrame], tmp_path: Path, way: int
) -> None:
    joined = braided.join(*pair, on="k", time="ts", within="1 second", name="first")
    assert joined.columns == ["k", "ts", "id", "ts_right", "id_right"]
    middle = list(between(joined))[way]
    ordered = braided.order(middle, time="seen" if way == 1 else "ts", key="k", name="second")
    query = run_to_end(ordered, tmp_path / "check", tmp_path / "out")
    first = braided.report(query, "first").streams[0]["lateness"]
    second = braided.report(query, "second").streams[0]["lateness"]
    assert first >= 60 * SECOND
    assert second >= 62 * SECOND, "what was learned after the plan was made must arrive in the rows"
    assert braided.report(query).query["name"] == "second", "the operator that was made last"


def test_an_aggregate_in_between_leaves_what_the_plan_knows(pair: tuple[DataFrame, DataFrame]) -> None:
    joined = braided.join(*pair, on="k", time="ts", within="1 second")
    united = joined.union(joined)
    assert braided.order(united, time="ts", key="k").columns == [*joined.columns, "late"]


def test_the_marks_of_a_group_survive_the_way_out_of_its_structs(pair: tuple[DataFrame, DataFrame]) -> None:
    joins = [braided.Join("j", left="a", right="b", on="k", within="10 seconds")]
    streams = {"a": pair[0], "b": pair[1]}
    group = braided.join_group(joins, streams=streams, time="ts", memory=100, lateness="5 seconds")
    rows = group.where("join = 'j'").select("j.*")
    assert rows.schema["ts"].metadata == {
        "braided.delayUs": 25 * SECOND, "braided.delayIsExact": 1, "braided.offsetsUs": [0, 0], "braided.behindUs": 15 * SECOND,
    }  # fmt: skip


@pytest.mark.slow
def test_operators_may_share_a_name(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    """Two queries, then two joins of one name in one query: each keeps its controller and its report."""
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "name": "hits"}
    first = braided.join(*pair, **options, control=str(tmp_path / "one"))
    second = braided.join(*pair, **options, control=str(tmp_path / "two"))
    queries = [run_to_end(df, tmp_path / f"c{at}", tmp_path / f"o{at}") for at, df in enumerate((first, second))]
    for query, folder in zip(queries, ("one", "two"), strict=True):
        routing = braided.report(query, "hits").routing
        assert routing is not None
        assert routing["control"] == str(tmp_path / folder)
    metrics = {metrics_of(query.lastProgress)[-1] for query in queries}
    assert len(metrics) == 2
    assert {name_of(metric) for metric in metrics} == {"hits"}

    plain = braided.join(*pair, **options)
    again = braided.join(plain, pair[1], on="k", time=("ts", "ts"), within="1 second", name="hits", suffixes=("", "_b"))
    query = run_to_end(again, tmp_path / "c2", tmp_path / "o2")
    assert read_rows(spark, tmp_path / "o2")
    assert braided.report(query).query["results"] > 0
    with pytest.raises(
        braided.BraidedError, match="name='hits': 2 operators of this query have this name; give each its own name"
    ):
        braided.report(query, "hits")


def test_the_registry_lets_go_of_what_is_gone(
    spark: SparkSession, pair: tuple[DataFrame, DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braided.spark.session_operators._MOST_IDLE", 3)
    for _ in range(6):
        braided.join(*pair, on="k", time="ts", within="1 second")
    registry = registry_of(spark)
    assert sum(not watched.queries for watched in registry._operators.values()) <= 3


def test_only_decisions_about_a_key_show_its_value() -> None:
    """The key 0 has the hash 0, which is no default for decisions about none."""
    controller, promoted = SimpleNamespace(labels={0: "zero"}), {"action": "promote", "key": f"{0:016x}"}
    assert named(promoted, controller, False)["value"] == "zero"
    assert named({"action": "scale"}, controller, False) == {"action": "scale"}
    assert "value" not in named(promoted, controller, True)


def test_nothing_is_published_before_all_is_checked(pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    control = tmp_path / "control"
    for wrong in ({"memory": "1 B"}, {"evict": "never", "memory": 5}, {"suffixes": ("", "")}, {"idle": "0 seconds"}):
        options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", **wrong}
        with pytest.raises(braided.OptionError):
            braided.join(*pair, **options, control=str(control))
        assert not control.exists()
    with pytest.raises(braided.OptionError, match="control=: a stream has different keys in different joins"):
        braided.join_group(
            [
                braided.Join("a", left="x", right="y", on="k", within="1 second"),
                braided.Join("b", left="x", right="y", on="id", within="1 second"),
            ],
            streams={"x": pair[0], "y": pair[1]},
            time="ts",
            memory=10,
            control=str(control),
        )
    assert not control.exists()


def test_names_that_differ_in_case_only(spark: SparkSession, pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        left = pair[0].withColumn("K", F.col("k") + 100)
        joined = braided.join(left, pair[1], on="k", time="ts", within="1 second")
        assert joined.columns == ["k", "ts", "id", "K", "ts_right", "id_right"]
        run_to_end(joined, tmp_path / "check", tmp_path / "out")
        assert {(row.k, row.K) for row in spark.read.parquet(str(tmp_path / "out")).collect()} == {(1, 101)}
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_late_rows_under_a_lateness_that_nobody_chose_are_warned_of_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_time = [(1, 1000.0 + row) for row in range(20)]
    write(tmp_path / "l", on_time, [(1, 1020.0)], [(1, 100.0)], [(1, 99.0)])
    write(tmp_path / "r", [(1, 1000.0)])
    sides = [file_stream(spark, tmp_path / side, DDL) for side in "lr"]
    caplog.set_level(logging.WARNING, logger="braided")
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second"}
    run_to_end(braided.join(*sides, **options, name="open"), tmp_path / "c0", tmp_path / "o0")
    run_to_end(braided.join(*sides, **options, name="chosen", lateness="10 seconds"), tmp_path / "c1", tmp_path / "o1")
    _wait_for_listeners(spark)
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if text.startswith("open: 1 rows of the left stream came later")]) == 1
    assert not any(text.startswith("chosen") for text in told)


def _wait_for_listeners(spark: SparkSession) -> None:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]


def test_every_public_function_has_an_example_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    calls, alerts = tmp_path / "calls", tmp_path / "alerts"
    moment = pa.array([START * SECOND], UTC)
    write_batch(calls, 0, pa.table({"phone": ["555"], "ts": moment, "cell": ["A1"]}))
    write_batch(alerts, 0, pa.table({"phone": ["555"], "ts": moment, "reason": ["fraud"]}))
    names: dict[str, Any] = {
        "braided": braided,
        "calls": file_stream(spark, calls, "phone string, ts timestamp, cell string"),
        "alerts": file_stream(spark, alerts, "phone string, ts timestamp, reason string"),
        "control": str(tmp_path / "control"),
        "spark": spark,
        "calls_dir": str(calls),
        "check_dir": str(tmp_path / "check"),
        **{name: str(tmp_path / name) for name in ("hits_dir", "topic_dir", "numbers_dir", "deploy_dir", "checkpoint")},
    }
    joined = braided.join(
        names["calls"], names["alerts"], on="phone", time="ts", within="10 seconds", name="hits",
        control=names["control"],
    )  # fmt: skip
    names["query"] = run_to_end(joined, tmp_path / "check", tmp_path / "out")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    public = {
        name: getattr(api, name)
        for name in braided.__all__
        if getattr(api, name, None) and callable(getattr(api, name))
    }
    tests = [
        test
        for name, function in public.items()
        if not isinstance(function, type)
        for test in doctest.DocTestFinder(recurse=False).find(function, name, globs=names)
    ]
    assert {test.name for test in tests if test.examples} == {
        "dashboard", "deploy", "detect", "explain", "files", "forget_control", "join", "join_asof", "join_group", "match", "merge", "metrics", "multijoin", "order", "register",
        "report", "row_windows", "scale", "sql", "state", "stream", "topic", "write_files",
    }  # fmt: skip
    for test in tests:
        assert runner.run(test).failed == 0, test.name


def test_reports_name_what_they_are_of(pair: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    joined = braided.join(*pair, on="k", time="ts", within="1 second", name="a:b work")
    query = run_to_end(joined, tmp_path / "check", tmp_path / "out")
    assert braided.report(query, "a:b work").query["name"] == "a:b work"
    metric = metrics_of(query.lastProgress)[0]
    assert json.loads(query.lastProgress.observedMetrics[f"{METRIC}{metric}:work"]["reports"][0])["worker"] in (0, 1)
    with pytest.raises(braided.BraidedError, match="name='x': unknown operator of this query; write one of a:b work"):
        braided.report(query, "x")
