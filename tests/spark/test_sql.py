"""Continuous queries in SQL: equal to DuckDB's answer over the finished streams, with Spark's own names and errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.profiles import some

import braided
from braided.errors import OptionError
from braided.spark.progress import explain_frame

ROWS = 400


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    """Three streams of files, in order of time but for half a second."""
    root = tmp_path_factory.mktemp("sql")
    random = np.random.default_rng(7)
    found = {}
    for name, extra in (("calls", "Cell"), ("alerts", "reason"), ("cells", "state")):
        parts = []
        (root / name).mkdir()
        for number in range(2):
            times = np.sort(random.integers(number * 10_000_000, (number + 1) * 10_000_000, ROWS))
            part = pa.table({
                "phone": pa.array([None if n == 0 else f"p{n}" for n in random.integers(0, 30, ROWS)]),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "n": random.integers(0, 100, ROWS),
                "v": random.random(ROWS),
                extra: pa.array([f"x{n}" for n in random.integers(0, 5, ROWS)]),
                "unread": pa.array(["-" * 10] * ROWS),
            })  # fmt: skip
            path = root / name / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
            parts.append(part)
        found[name] = pa.concat_tables(parts)
    return root, found


@pytest.fixture
def streams(spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]) -> dict[str, DataFrame]:
    return {name: braided.files(spark, str(tables[0] / name), max_files=1) for name in tables[1]}


def _run(frame: DataFrame, folder: Path) -> list[tuple[Any, ...]]:
    query = braided.write_files(frame, str(folder / "out"), checkpoint=str(folder / "c"), trigger="available now")
    query.awaitTermination()
    files = braided.topic(str(folder / "out")).files()
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        return sorted(database.execute("from read_parquet(?)", [files]).fetchall(), key=repr) if files else []


def _oracle(text: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return sorted(database.sql(text).fetchall(), key=repr)


QUERIES = {
    "an equality and bounds": """
        SELECT c.phone, c.ts, a.reason, c.n + a.n AS total FROM calls c JOIN alerts a
        ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 2 SECONDS""",
    "bounds in other arrangements, conditions in WHERE, a filter on each side": """
        SELECT c.phone AS p, a.phone AS q, upper(c.Cell) AS cell FROM calls AS c, alerts AS a
        WHERE a.phone = c.phone AND c.ts + INTERVAL 1 SECOND >= a.ts AND c.ts < a.ts + INTERVAL 500 MILLISECONDS
          AND c.n > 20 AND a.v < 0.8 AND c.n <> a.n AND c.Cell IN ('x1', 'x2', 'x3')""",
    "no equality": """
        SELECT c.n, a.n AS m FROM calls c JOIN alerts a ON c.n < a.n - 60
        AND c.ts BETWEEN a.ts - INTERVAL '0.2' SECOND AND a.ts + INTERVAL '0.2' SECOND""",
    "three streams that share a key and a window": """
        SELECT c.phone, a.phone AS p, c.n, a.n AS an, x.state FROM calls c JOIN alerts a ON c.phone = a.phone
        JOIN cells x ON x.phone = a.phone AND x.n > a.n
        WHERE a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND
          AND x.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND
          AND x.ts - a.ts <= INTERVAL 1 SECOND AND a.ts - x.ts <= INTERVAL 1 SECOND""",
    "a bound that is a column": """
        SELECT /*+ BRAIDED('a', 'cap=2 seconds'), BRAIDED('c', 'time=ts') */ c.phone, c.n, a.n AS m FROM
        (SELECT phone, ts, n, ts + INTERVAL 1 SECOND * (n % 3) AS expires FROM calls) c JOIN alerts a
        ON c.phone = a.phone AND a.ts <= c.expires AND a.ts >= c.ts""",
    "a subquery over a common table expression": """
        WITH busy AS (SELECT * FROM calls WHERE n > 20) SELECT p.n, a.n AS m FROM (SELECT * FROM busy WHERE v < 0.8) p
        JOIN alerts a ON p.phone = a.phone AND a.ts BETWEEN p.ts AND p.ts + INTERVAL 2 SECONDS""",
    "a union of a join and a stream": """
        SELECT c.phone, a.n FROM calls c JOIN alerts a ON c.phone = a.phone
          AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND
        UNION ALL SELECT phone, CASE WHEN n > 50 THEN n ELSE -n END FROM cells WHERE v < 0.1""",
    "a join with a table": """
        SELECT c.phone, t.label, a.n FROM calls c JOIN alerts a ON c.phone = a.phone
          AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND JOIN labels t ON t.phone = c.phone WHERE t.label <> 'b'""",
    "three streams and a subquery": """
        SELECT c.phone, c.n, a.n AS an, x.state FROM calls c
        JOIN (SELECT phone AS p, ts, n FROM alerts WHERE n % 2 = 0) a
          ON c.phone = a.p AND a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND
        JOIN cells x ON x.phone = c.phone AND x.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts""",
    "a self join and a common table expression": """
        WITH busy AS (SELECT phone, ts, n FROM calls WHERE n > 50), few AS (SELECT * FROM busy WHERE n < 90)
        SELECT a.phone, a.n, b.n AS other FROM few a JOIN few b ON a.phone = b.phone AND a.n < b.n
          AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS""",
    "a common table expression under the name of a stream": """
        WITH cells AS (SELECT * FROM calls WHERE v > 0.3) SELECT x.n, a.n AS m FROM cells x JOIN alerts a
        ON x.phone = a.phone AND a.ts BETWEEN x.ts AND x.ts + INTERVAL 1 SECOND""",
    "USING and a condition on its column": """
        SELECT phone, a.reason, c.n + a.n AS total FROM calls c JOIN alerts a USING (phone)
        WHERE a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND AND phone <> 'p3'""",
    "USING in three streams": """
        SELECT phone, c.n, x.v FROM calls c JOIN alerts a USING (phone) JOIN cells x USING (phone)
        WHERE a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND AND x.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND""",
    "a NATURAL join": """
        SELECT * FROM (SELECT phone, n % 3 AS m, ts AS t FROM calls) c
        NATURAL JOIN (SELECT phone, n % 3 AS m, ts AS u FROM alerts) a
        WHERE u BETWEEN t AND t + INTERVAL 5 SECONDS""",
}


@pytest.mark.parametrize("what", some(QUERIES, quick=8))
def test_a_query_gives_the_oracles_rows(
    spark: SparkSession,
    streams: dict[str, DataFrame],
    tables: tuple[Path, dict[str, pa.Table]],
    tmp_path: Path,
    what: str,
) -> None:
    labels = pa.table({"phone": [f"p{n}" for n in range(10)], "label": ["a", "b"] * 5})
    spark.createDataFrame(labels.to_pylist()).createOrReplaceTempView("labels")
    frame = braided.sql(spark, QUERIES[what], streams, lateness="5 seconds")
    assert ("one join of many" in explain_frame(frame)) == ("share a key and a window" in what)
    wanted = _oracle(QUERIES[what], {**tables[1], "labels": labels})
    assert len(wanted) > 20
    assert _run(frame, tmp_path) == wanted


def test_names_and_types_are_sparks(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    text = """SELECT a.Phone, c.*, 1 AS One, window(c.ts, '1 minute') AS w FROM calls c JOIN alerts a ON c.phone = a.phone
              AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"""
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    ours, sparks = braided.sql(spark, text, streams), spark.sql(text)
    assert ours.columns == sparks.columns
    assert [field.dataType for field in ours.schema] == [field.dataType for field in sparks.schema]


def test_only_columns_that_are_read_are_stored(
    spark: SparkSession, streams: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    from braided.spark.session_operators import registry_of

    frame = braided.sql(spark, QUERIES["an equality and bounds"], streams)
    braided.explain(frame)
    assert "its files are read by the routers" in capsys.readouterr().out
    watched = list(registry_of(spark)._operators.values())[-1]
    assert [schema.names for schema in watched.plan.operator.inputs] == [
        ["c__phone", "c__ts", "c__n"], ["a__reason", "a__n", "a__phone", "a__ts"],
    ]  # fmt: skip


@pytest.mark.slow
def test_a_windowed_aggregate_after_a_join(
    spark: SparkSession, streams: dict[str, DataFrame], tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path
) -> None:
    marked = {name: frame.withWatermark("ts", "1 second") for name, frame in streams.items()}
    text = """SELECT window.start AS s, c.phone, count(*) AS n, sum(a.n) AS total FROM calls c JOIN alerts a
              ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND
              GROUP BY window(c.ts, '2 seconds'), c.phone HAVING count(*) > 1"""
    found = _run(braided.sql(spark, text, marked), tmp_path)
    wanted = _oracle(
        """SELECT time_bucket(INTERVAL 2 SECONDS, c.ts) AS s, c.phone, count(*), sum(a.n)::BIGINT FROM calls c JOIN alerts a
           ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 1 SECOND AND c.ts + INTERVAL 1 SECOND
           GROUP BY ALL HAVING count(*) > 1""",
        tables[1],
    )
    closed = max(row[0] for row in found)
    assert len(found) > 50
    assert found == [row for row in wanted if row[0] <= closed]


def test_bounds_in_days_are_exact_where_clocks_change(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    day, hour = 86_400_000_000, 3_600_000_000
    start = 1_711_753_200_000_000  # 30 March 2024, 0:00 in Berlin; the night after has 23 hours
    for side, times in (("l", [start]), ("r", [start + day - hour, start + day, start + day + hour])):
        (tmp_path / side).mkdir()
        pq.write_table(
            pa.table({"k": [1] * len(times), "ts": pa.array(times, pa.timestamp("us", "UTC"))}),
            tmp_path / side / "0.parquet",
        )
    streams = {side: braided.files(spark, str(tmp_path / side)) for side in "lr"}
    text = """SELECT l.ts AS a, r.ts AS b FROM l JOIN r ON l.k = r.k AND r.ts >= l.ts + INTERVAL 1 DAY
              AND r.ts <= l.ts + INTERVAL 2 DAYS"""
    found = _run(braided.sql(spark, text, streams, lateness="3 days"), tmp_path / "x")
    for side in "lr":
        spark.read.parquet(str(tmp_path / side)).createOrReplaceTempView(side)
    assert len(found) == spark.sql(text).count()


BAD = {
    "SELECT c.nope FROM calls c": r"sql: .*UNRESOLVED_COLUMN.*nope",
    "SELECT * FROM nowhere": r"sql: .*TABLE_OR_VIEW_NOT_FOUND.*nowhere",
    "SELECT phone FROM calls c JOIN alerts a ON c.phone = a.phone": r"sql: .*AMBIGUOUS_REFERENCE.*phone",
    "SELECT c.n FROM calls c JOIN alerts a ON c.phone = a.phone": (
        r"sql: line 1, column 30: the time of a has no bounds on both sides with that of c; write for example a\.ts BETWEEN c\.ts"
    ),
    "SELECT c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts > c.ts": r"the time of a has no bounds on both sides",
    "SELECT c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 MONTH": (
        r"INTERVAL '1' MONTH has no fixed length; bound times by days, hours"
    ),
    "SELECT c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts + INTERVAL 2 SECONDS AND c.ts": (
        r"line 1, column 66: the lower bound 2 seconds is above the upper bound 0 microseconds, so no pair can match"
    ),
    "SELECT /*+ BRAIDED('z', 'lateness=1 second') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND": (
        r"BRAIDED\('z', \.\.\.\): no stream has this alias; use one of a, c"
    ),
    "SELECT /*+ BRAIDED('a', 'color=red') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND": (
        r"BRAIDED\('a', 'color=red'\): write 'option=value'; options are lateness, "
    ),
    "SELECT /*+ BRAIDED('a', 'cap=1 parsec') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts > c.ts": (
        r"BRAIDED\('a', 'cap=1 parsec'\): cap='1 parsec': not a duration"
    ),
    "SELECT /*+ BRAIDED('a', 'cap=1 hour') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND": (
        r"BRAIDED\('a', 'cap=...'\): no join of a has a bound on one side only; omit the hint"
    ),
    "SELECT /*+ BRAIDED('a', 'cap=1 hour') */ c.n FROM (SELECT *, ts + INTERVAL 1 HOUR AS till FROM calls) c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.till": (
        r"the cap may be for c\.ts or for c\.till; name the time of c in a hint: BRAIDED\('c', 'time=ts'\)"
    ),
    "SELECT /*+ BRAIDED('a', 'cap=-1 hour') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts > c.ts": (
        r"BRAIDED\('a', 'cap=-1 hour'\): "
    ),
    "SELECT /*+ BRAIDED('zz', 'cap=1 hour') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts > c.ts": (
        r"BRAIDED\('zz', \.\.\.\): no stream has this alias; use one of a, c"
    ),
    "SELECT /*+ BRAIDED('c', 'cap=1 hour', 'time=n') */ c.n FROM calls c JOIN alerts a ON c.phone = a.phone AND a.ts > c.ts": (
        r"BRAIDED\('c', 'time=n'\): c has no such time"
    ),
    "SELECT c.n FROM calls WATERMARK t DELAY OF INTERVAL 1 SECOND c": r"sql: .*(UNRESOLVED_COLUMN.*`t`|PARSE_SYNTAX_ERROR)",
    "SELECT FROM WHERE": r"sql: (does not parse|the text cannot be parsed)",
    "WITH calls AS (SELECT * FROM calls WHERE n > 1) SELECT c.n FROM calls c": (
        r"the common table expression calls reads a stream of the same name; rename it"
    ),
    "DROP TABLE calls": r"sql: expected a query, not DROP; write a SELECT",
    "SELECT c.n FROM calls c TABLESAMPLE (10 PERCENT) JOIN alerts a ON c.phone = a.phone": r"sql: a sample of a stream differs from run to run",
    "SELECT c.n FROM (WITH few AS (SELECT * FROM calls) SELECT * FROM few) c": (
        r"sql: line 1, column 23: WITH inside of a query is not supported yet; write it once"
    ),
    "SELECT c.n, e FROM calls c LATERAL VIEW explode(array(1, 2)) t AS e": (
        r"sql: line 1, column \d+: LATERAL is not supported yet; use it in a query over the result"
    ),
    "": r"sql: expected a query, not str; write a SELECT",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_queries_say_where_and_what_to_do(spark: SparkSession, streams: dict[str, DataFrame], text: str) -> None:
    with pytest.raises(OptionError, match=BAD[text]):
        braided.sql(spark, text, streams)


def test_options_of_a_query(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    from braided.spark.session_operators import registry_of

    text = QUERIES["an equality and bounds"].replace(
        "SELECT", "SELECT /*+ BRAIDED('a', 'lateness=30 seconds', 'memory=256 MB', 'name=hits') */", 1
    )
    braided.sql(spark, text, streams, evict="gdj")
    watched = list(registry_of(spark)._operators.values())[-1]
    assert watched.name == "hits"
    assert watched.plan.spec.memory == "256 MB"
    assert watched.plan.spec.evict == "gdj"
    assert watched.plan.spec.lateness == (None, "30 seconds")
    with pytest.raises(OptionError, match="color=: unknown option of the joins of a query; write one of lateness"):
        braided.sql(spark, text, streams, color="red")
    with pytest.raises(OptionError, match="streams: 'calls' and 'CALLS' are the same name for Spark; choose another"):
        braided.sql(spark, text, {**streams, "CALLS": streams["alerts"]})
    with pytest.raises(OptionError, match="streams=: give the streaming DataFrames by the names that the query uses"):
        braided.sql(spark, text, {})
    with pytest.raises(OptionError, match="streams: 'calls' is a int; give a streaming DataFrame"):
        braided.sql(spark, text, {"calls": 5})  # type: ignore[dict-item]


def test_views_of_the_session_and_arguments(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    text = f"SELECT c.n FROM {JOINED_CALLS} AND a.reason = :Reason WHERE c.n - :least > 0 AND c.Cell <> ':x'"
    with pytest.raises(OptionError, match="streams=: no temporary view that the text reads is a stream"):
        braided.sql(spark, "SELECT n FROM nowhere")
    for name, frame in streams.items():
        frame.createOrReplaceTempView(name)
    try:
        frame = braided.sql(spark, text, args={"Reason": "it's", "least": -5})
        shown = explain_frame(frame)
        assert "c__n" not in shown
        assert "`reason` = 'it\\'s'" in shown
        assert "- -5 > 0" in shown
        braided.sql(spark, text.replace(":Reason", "?").replace(":least", "?"), args=["x", 3])
        with pytest.raises(OptionError, match=r"args=: line 1, column \d+: no value for :least; args has Reason"):
            braided.sql(spark, text, args={"Reason": "x"})
        with pytest.raises(OptionError, match=r"args='x': write a dict of names and values, or a list"):
            braided.sql(spark, text, args="x")
        with pytest.raises(OptionError, match=r"not a plain value; write a number"):
            braided.sql(spark, text, args={"Reason": [1], "least": 1})
    finally:
        for name in streams:
            spark.catalog.dropTempView(name)


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="Spark reads WATERMARK since 4.3")
def test_a_watermark_clause_is_the_lateness_of_its_stream(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    from braided.spark.session_operators import registry_of

    text = """SELECT c.n, alerts.n AS m FROM calls WATERMARK ts DELAY OF INTERVAL 7 SECONDS c
              JOIN alerts WATERMARK ts DELAY OF INTERVAL 1 MINUTE 30 SECONDS
              ON c.phone = alerts.phone AND alerts.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"""
    assert braided.sql(spark, text, streams).columns == ["n", "m"]
    watched = list(registry_of(spark)._operators.values())[-1]
    assert watched.plan.operator.lateness == (7_000_000, 90_000_000)


JOINED_CALLS = "calls c JOIN alerts a ON c.phone = a.phone AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"
DISTINCTS = [
    f"SELECT cell, COUNT(DISTINCT phone) AS x, COUNT(DISTINCT n) AS y FROM (SELECT c.cell, c.phone, a.n FROM {JOINED_CALLS}) GROUP BY cell",
    f"""WITH q AS (SELECT c.cell, c.phone, a.n FROM {JOINED_CALLS}) SELECT q.cell, count(DISTINCT q.n, q.phone) AS x, count(q.n) AS y,
        sum(DISTINCT q.n) FILTER (WHERE q.n > 1) AS z FROM q GROUP BY q.cell HAVING count(DISTINCT q.phone) > 1""",
]


@pytest.mark.parametrize("text", DISTINCTS)
def test_a_text_with_several_distinct_aggregates_is_accepted_every_time(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], streams: dict[str, DataFrame], text: str
) -> None:
    """Where a stream is joined with itself, Spark puts them in another order in every analysis."""
    batch = spark.read.parquet(str(tables[0] / "calls"))
    for _ in range(8):
        for calls in (batch, streams["calls"]):
            accepted = braided.sql(spark, text, {"calls": calls, "alerts": calls})
            assert accepted.columns[0] == "cell"


def test_keys_that_spark_casts_or_compares_whole_are_joined_under_their_names(
    spark: SparkSession, streams: dict[str, DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    text = "SELECT c.n FROM calls c JOIN alerts a ON c.phone = a.n AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND"
    listed = {
        name: frame.withColumn("phone", F.array("phone")).withColumn("n", F.col("phone"))
        for name, frame in streams.items()
    }
    assert braided.sql(spark, text, listed).columns == ["n"]
    braided.explain(braided.sql(spark, text, streams))  # a string with a number, as Spark casts them
    assert "joins on c.phone__as_key0 = a.n" in capsys.readouterr().out
